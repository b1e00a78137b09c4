//! The lowest layer: credentials, hidden characters and suspicious words in texts, our own folders, jq expressions,
//! templates, JSON Schemas, who can write a file, and the signatures of passkeys.

pub mod async_runtime;
pub mod backoff;
pub mod children;
pub mod closed_process;
pub mod credential;
pub mod file_state;
pub mod invisible;
pub mod jq;
pub mod jq_pool;
pub mod jq_worker;
pub mod misplaced;
mod missing;
pub mod next_page;
pub mod own_folders;
pub mod record_paths;
pub mod schema;
pub mod select;
pub mod suspicion;
pub mod template;
pub mod trust;
pub mod webauthn;
pub mod write_access;
