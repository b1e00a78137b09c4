//! The guard: what it refuses, what it lets pass, and what is sent.

#[path = "guard/bounds.rs"]
mod bounds;
#[path = "guard/column.rs"]
mod column;
#[path = "guard/corpus.rs"]
mod corpus;
#[path = "guard/fuzz.rs"]
mod fuzz;
#[path = "guard/harmless.rs"]
mod harmless;
#[path = "guard/hidden.rs"]
mod hidden;
#[path = "guard/hostile.rs"]
mod hostile;
#[path = "guard/sent.rs"]
mod sent;
#[path = "guard/shop.rs"]
mod shop;
#[path = "guard/world.rs"]
mod world;
#[path = "guard/writes.rs"]
mod writes;
