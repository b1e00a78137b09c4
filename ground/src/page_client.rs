//! How a program of ours reaches the confirmation page: where it is, how it proves who it is, and what it asks there.
//!
//! The page itself is in `executor/src/page/`, and uses the same proofs, links and shapes.

use std::io::{self, Write as _};
use std::path::Path;

use serde::Serialize;

pub mod api_client;
pub mod client;
pub mod link;
pub mod proof;
pub mod same_user;
pub mod site;
pub mod terminal;

/// Writes `contents` as JSON to a file in `folder`, atomically and readable only by its owner.
pub fn write_private(folder: &Path, name: &str, contents: &(impl Serialize + ?Sized)) -> io::Result<()> {
    let mut file = tempfile::NamedTempFile::new_in(folder)?;
    file.write_all(&serde_json::to_vec(contents)?)?;
    file.persist(folder.join(name)).map(drop).map_err(|error| error.error)
}
