//! Reads a part of a file that is still in the state in which it was read before.

use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::Path;

use protocol::file_state::FileState;
use protocol::mailbox::is_resource_exhaustion;
use protocol::regular_file;

/// Reads `length` bytes at `start`; `None` if the file is no longer in the state of `stamp`. Fails only if descriptors or
/// memory ran out.
pub(crate) fn read_part(path: &Path, stamp: &FileState, start: u64, length: usize) -> io::Result<Option<String>> {
    let mut bytes = vec![0; length];
    let read = regular_file::open(path).and_then(|file| {
        file.read_exact_at(&mut bytes, start)?;
        // Afterwards: it may have changed while it was read.
        FileState::of_file(&file)
    });
    match read {
        Ok(found) if found == *stamp => Ok(String::from_utf8(bytes).ok()),
        Err(error) if is_resource_exhaustion(&error) => Err(error),
        Ok(_) | Err(_) => Ok(None),
    }
}
