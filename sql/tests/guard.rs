//! The guard: what it refuses, what it lets pass, and what is sent.

#[path = "guard/corpus.rs"]
mod corpus;
#[path = "guard/harmless.rs"]
mod harmless;
#[path = "guard/hostile.rs"]
mod hostile;
#[path = "guard/world.rs"]
mod world;
