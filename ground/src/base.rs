//! The lowest layer: credentials, suspicious words in texts, our own folders, the processes that evaluate jq expressions,
//! templates, JSON Schemas, who can write a file, and the signatures of passkeys.

pub mod async_runtime;
pub mod backoff;
pub mod children;
pub mod closed_process;
pub mod credential;
pub mod jq_pool;
pub mod next_page;
pub mod own_folders;
pub mod schema;
pub mod suspicion;
pub mod template;
pub mod webauthn;
pub mod write_access;
