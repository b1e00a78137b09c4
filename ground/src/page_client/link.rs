//! Links: a command in the human's terminal makes one, and it signs in one browser, once, within a minute.
//!
//! The link's secret is in the fragment of the URL, which servers and logs do not see. A link belongs to one address of
//! the page: an executor that starts takes a new address and forgets the links to the one before, since another program
//! may listen there by then.

use std::fs::{self, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use crate::task::confirmation::nonce;
use protocol::digest;
use sha2::{Digest as _, Sha256};

/// How long a link can be used.
pub const LINK_LIFETIME: Duration = Duration::from_mins(1);

/// Makes a link and returns its secret. `folder` is the executor's folder, where sandboxed agents cannot write.
pub fn make_link(folder: &Path) -> io::Result<String> {
    let links = links_folder(folder);
    fs::DirBuilder::new().recursive(true).mode(0o700).create(&links)?;
    let secret = nonce();
    OpenOptions::new().write(true).create_new(true).mode(0o600).open(links.join(file_name(&secret)))?;
    Ok(secret)
}

/// Uses up a link and returns whether it was valid. Of two concurrent attempts, one succeeds.
pub fn use_link(folder: &Path, secret: &str, now: SystemTime) -> bool {
    let path = links_folder(folder).join(file_name(secret));
    let made = fs::metadata(&path).and_then(|found| found.modified());
    let is_young = |made: SystemTime| now.duration_since(made).is_ok_and(|age| age <= LINK_LIFETIME);
    let is_valid = fs::remove_file(&path).is_ok() && made.is_ok_and(is_young);
    forget(folder, |made| !is_young(made));
    is_valid
}

/// Forgets all links, used or not.
pub fn forget_links(folder: &Path) {
    forget(folder, |_| true);
}

fn forget(folder: &Path, is_over: impl Fn(SystemTime) -> bool) {
    for link in fs::read_dir(links_folder(folder)).into_iter().flatten().flatten() {
        let made = link.metadata().and_then(|found| found.modified());
        if made.is_ok_and(&is_over) && fs::remove_file(link.path()).is_err() {
            tracing::debug!("failed to remove a link");
        }
    }
}

/// The folder of unused links, and of the files that open a browser. Files older than `LINK_LIFETIME` are removed.
pub fn links_folder(folder: &Path) -> PathBuf {
    folder.join("links")
}

/// The secret itself is not stored.
fn file_name(secret: &str) -> String {
    digest::hex(&Sha256::digest(secret.as_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_works_once_within_a_minute() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        // Later than the links below, however slow the machine is: a link from the future is not valid.
        let (folder, now) = (folder.path(), SystemTime::now() + LINK_LIFETIME / 2);
        assert!(!use_link(folder, "x", now));
        let first = make_link(folder).expect("a link");
        assert!(use_link(folder, &first, now) && !use_link(folder, &first, now));
        let late = make_link(folder).expect("a link");
        assert!(!use_link(folder, &late, now + LINK_LIFETIME + Duration::from_secs(5)));
        assert!(!use_link(folder, &late, now), "it was removed");
        let forgotten = make_link(folder).expect("a link");
        use_link(folder, "x", now + LINK_LIFETIME + Duration::from_secs(5));
        assert!(!use_link(folder, &forgotten, now), "expired links are removed");
    }

    #[test]
    fn the_links_to_an_address_end_with_it() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let link = make_link(folder.path()).expect("a link");
        forget_links(folder.path());
        assert!(!use_link(folder.path(), &link, SystemTime::now()));
    }

    #[test]
    fn the_secret_of_a_link_is_not_stored() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let link = make_link(folder.path()).expect("a link");
        let names = fs::read_dir(links_folder(folder.path())).expect("a folder").flatten();
        assert!(names.map(|entry| entry.file_name()).all(|name| name.to_string_lossy() != link));
    }
}
