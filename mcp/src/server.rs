//! The server: one tool for clients without a shell.
