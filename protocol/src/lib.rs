//! What callers and the executor share: requests, answers and results, the mailbox that holds them, and the
//! one tool for agents.
//!
//! Has no async runtime, no network access and no database, so that a caller starts within a millisecond.
//! The executor decides what to do with a request.
//!
//! An agent gives its model one tool, whose definition is [`command_executor::definition`], and has a
//! [`command_executor::CommandExecutor`] carry out the lines that the model writes. There is no shell behind it: what
//! it does not know is refused, with a hint for the model.
//!
//! ```
//! use std::sync::Arc;
//!
//! use protocol::caller::Caller;
//! use protocol::command_executor::{CommandExecutor, Dialect};
//! use protocol::mailbox::Mailbox;
//! use protocol::shell::ProgramShell;
//!
//! # let folder = tempfile::tempdir()?;
//! let mailbox = Mailbox::open(&folder.path().join("mailbox"))?;
//! let tool = CommandExecutor::new(Arc::new(ProgramShell::new("agent-magic-tool")), mailbox, Caller::default());
//! assert_eq!(Dialect::OpenAi.definition()["function"]["name"], "command_executor");
//! assert_eq!(tool.execute("echo three words here | wc -w", "").text, "3\n");
//! let refused = tool.execute("curl https://example.com", "");
//! assert!(refused.status == 5 && refused.text.contains("not-carried-out"), "{}", refused.text);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

pub mod access;
pub mod caller;
pub mod clock;
pub mod code;
pub mod command_executor;
pub mod command_names;
pub mod data_class;
pub mod decimal;
pub mod digest;
pub mod duration;
pub mod error;
pub mod excerpt;
pub mod extent;
pub mod fault;
pub mod file_state;
pub mod handover;
pub mod invisible;
pub mod json;
pub mod layout;
pub mod mailbox;
pub mod nearest;
pub mod part;
pub mod paths;
pub mod regular_file;
pub mod resolution;
pub mod schedule;
pub mod sentences;
pub mod shell;
pub mod task;
pub mod tool_scope;
pub mod trust;
pub mod wording;
