//! Sessions of the agent as a service, for many clients at once.
//!
//! Every interface is an adapter: it turns what its client sends into a [`service::turn::Question`] for the one
//! [`service::SessionService`], and the [`service::turn::SessionEvent`]s of the turn into what its client expects. No interface has
//! a loop of its own, and none of them decides for a human.

pub mod a2a;
pub mod anthropic;
mod delivery;
mod error_shape;
pub mod http;
mod json_input;
mod limits;
pub mod ollama;
pub mod openai;
pub mod program;
mod proxy;
mod routes;
pub mod service;
pub mod slack;
