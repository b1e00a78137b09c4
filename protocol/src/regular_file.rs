//! Reads files that others may have put there: definitions, configuration, answers, results.
//!
//! Opening a FIFO waits for its other end, and reading a device may never end. So only regular files are read, of
//! bounded size, and no open waits.

use std::fs::{File, FileType, Metadata, OpenOptions};
use std::io::{self, Read as _};
use std::os::unix::fs::{FileTypeExt as _, OpenOptionsExt as _};
use std::path::Path;

use nix::fcntl::OFlag;

/// Opens a regular file, or a symbolic link to one. Fails at once for anything else.
pub fn open(path: &Path) -> io::Result<File> {
    open_with(path, OFlag::empty())
}

/// Like [`open`], but fails for a symbolic link.
pub fn open_itself(path: &Path) -> io::Result<File> {
    open_with(path, OFlag::O_NOFOLLOW)
}

fn open_with(path: &Path, flags: OFlag) -> io::Result<File> {
    // Before: opening a device can have side effects. After: it may have been replaced meanwhile.
    check(&std::fs::metadata(path)?)?;
    let flags = flags | OFlag::O_NONBLOCK | OFlag::O_NOCTTY;
    let file = OpenOptions::new().read(true).custom_flags(flags.bits()).open(path)?;
    check(&file.metadata()?)?;
    Ok(file)
}

/// Reads a regular file of at most `max_bytes`.
pub fn read(path: &Path, max_bytes: u64) -> io::Result<Vec<u8>> {
    read_open(open(path)?, max_bytes)
}

/// Reads an open file of at most `max_bytes`.
pub fn read_open(file: File, max_bytes: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    // One more, to notice a file that grows meanwhile.
    file.take(max_bytes.saturating_add(1)).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > max_bytes {
        let message = format!("it has more than {max_bytes} bytes");
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, message));
    }
    Ok(bytes)
}

/// Like [`read`], for UTF-8 text.
pub fn read_text(path: &Path, max_bytes: u64) -> io::Result<String> {
    String::from_utf8(read(path, max_bytes)?)
        .map_err(|_| io::Error::new(io::ErrorKind::InvalidData, "it is not valid UTF-8"))
}

fn check(found: &Metadata) -> io::Result<()> {
    if found.is_file() {
        return Ok(());
    }
    let message = format!("it is {}, not a regular file", describe(found.file_type()));
    Err(io::Error::new(io::ErrorKind::InvalidInput, message))
}

fn describe(kind: FileType) -> &'static str {
    if kind.is_dir() {
        "a directory"
    } else if kind.is_fifo() {
        "a FIFO"
    } else if kind.is_socket() {
        "a socket"
    } else {
        "a device"
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_regular_file_of_bounded_size_is_read_and_nothing_waits() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = |name: &str| folder.path().join(name);
        std::fs::write(path("file"), "12345").expect("written");
        std::os::unix::fs::symlink(path("file"), path("link")).expect("linked");
        nix::unistd::mkfifo(&path("fifo"), nix::sys::stat::Mode::S_IRWXU).expect("made");
        std::os::unix::fs::symlink(path("fifo"), path("link-to-fifo")).expect("linked");
        let _socket = std::os::unix::net::UnixListener::bind(path("socket")).expect("bound");
        assert_eq!(read(&path("file"), 5).expect("readable"), b"12345");
        assert_eq!(read_text(&path("link"), 5).expect("readable"), "12345");
        assert!(open_itself(&path("link")).is_err());
        assert_eq!(read(&path("file"), 4).expect_err("too large").kind(), io::ErrorKind::FileTooLarge);
        for (name, kind) in
            [("fifo", "a FIFO"), ("link-to-fifo", "a FIFO"), ("socket", "a socket"), (".", "a directory")]
        {
            let error = read(&path(name), 5).expect_err("not a regular file");
            assert_eq!(error.to_string(), format!("it is {kind}, not a regular file"), "{name}");
        }
        assert_eq!(
            read(Path::new("/dev/zero"), 5).expect_err("a device").to_string(),
            "it is a device, not a regular file"
        );
        assert_eq!(read(&path("none"), 5).expect_err("absent").kind(), io::ErrorKind::NotFound);
    }
}
