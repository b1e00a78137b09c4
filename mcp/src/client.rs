//! The client: one connection to a server of any protocol version, and what its answers mean.
//!
//! [`Connection`] is made over the pipes of a program or to a URL, and calls tools. While a call runs, the server may
//! ask something, tell of progress, or hand out a task that goes on for hours: the [`CallHost`] of the call answers,
//! is told, and remembers what must survive a restart. [`ToolAnswer`] is what a result means.

mod answer;
mod call;
mod connection;
mod error;
mod host;
mod lines;
mod sized;
mod sse;
mod tools;

pub use answer::{BinaryContent, ToolAnswer};
pub use call::ToolCall;
pub use connection::{
    Authorization, Connection, ConnectionSettings, Greeting, HttpEndpoint, HttpKind, ServerDescription,
};
pub use error::ClientError;
pub use host::{CallHandle, CallHost, CallProgress, HumanAnswer, QuestionForm, ServerQuestion};
pub use tools::{OfferedTool, digest};
