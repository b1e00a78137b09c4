//! Wakes the commands that wait for the executor, so that they need not poll.
//!
//! `.published` is a FIFO through which no byte is ever sent; it is hidden so that `cat *` does not wait for it. A
//! command opens it for reading and waits. When the executor has written answers or result files, it opens the FIFO for
//! writing and closes it again, and the kernel wakes every reader. This works where sockets do not, and costs nothing
//! while no command waits.
//!
//! A wake-up is a hint that may be missed, or come for nothing; the folders are the truth. So a command looks after
//! every wake-up, and now and then without one.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::fd::AsFd as _;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use nix::fcntl::OFlag;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::stat::Mode;

use super::Mailbox;

/// After this many wake-ups a command that waits relies on looking now and then. A program that opens and closes the
/// FIFO all the time must not keep it busy.
const MAX_WAKE_UPS: u32 = 200;

impl Mailbox {
    /// Creates what [`Mailbox::announce_publications`] needs.
    pub fn prepare_publications(&self) -> io::Result<()> {
        match nix::unistd::mkfifo(&self.publications(), Mode::S_IRUSR | Mode::S_IWUSR) {
            Ok(()) | Err(nix::Error::EEXIST) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Wakes every command that waits.
    pub fn announce_publications(&self) {
        // Fails if no command waits. If there is no FIFO, commands look now and then.
        drop(open(&self.publications(), OpenOptions::new().write(true)));
    }

    fn publications(&self) -> PathBuf {
        self.root.join(".published")
    }
}

/// Waits for what the executor publishes.
#[derive(Debug)]
pub struct PublicationWatch {
    path: PathBuf,
    fifo: Fifo,
    wake_ups: u32,
}

#[derive(Debug)]
enum Fifo {
    Open(File),
    /// It woke us, which it does once. Most commands need it no more.
    Spent,
    /// There is nothing that could wake us.
    None,
}

impl PublicationWatch {
    /// Whatever is published from now on ends the next [`PublicationWatch::wait`].
    pub fn new(mailbox: &Mailbox) -> Self {
        let path = mailbox.publications();
        let fifo = Fifo::open(&path);
        Self { path, fifo, wake_ups: 0 }
    }

    /// Whether a wake-up can be expected at all.
    pub fn is_open(&self) -> bool {
        !matches!(self.fifo, Fifo::None)
    }

    /// Waits until something is published, but at most for `timeout`, in whole milliseconds. Returns whether something
    /// may have been published since this was created or since the last wait; call it again only after a look.
    pub fn wait(&mut self, timeout: Duration) -> bool {
        let fifo = match &self.fifo {
            Fifo::Open(fifo) => fifo,
            Fifo::Spent => {
                // Something may have been published meanwhile.
                self.fifo = if self.wake_ups < MAX_WAKE_UPS { Fifo::open(&self.path) } else { Fifo::None };
                return true;
            }
            Fifo::None => return false,
        };
        let milliseconds = u16::try_from(timeout.as_millis()).unwrap_or(u16::MAX);
        // Without asking for anything, the end of the last writer is still reported.
        let woken = poll(&mut [PollFd::new(fifo.as_fd(), PollFlags::empty())], PollTimeout::from(milliseconds));
        if !woken.is_ok_and(|count| count > 0) {
            return false;
        }
        self.wake_ups += 1;
        self.fifo = Fifo::Spent;
        true
    }
}

impl Fifo {
    fn open(path: &Path) -> Self {
        open(path, OpenOptions::new().read(true)).map_or(Self::None, Self::Open)
    }
}

/// Opens the FIFO, without waiting for its other end. `None` if there is no other end, or if it is not our FIFO.
fn open(path: &Path, options: &mut OpenOptions) -> Option<File> {
    let is_ours = |found: &fs::Metadata| found.file_type().is_fifo() && found.uid() == nix::unistd::geteuid().as_raw();
    // Before: opening a device can have side effects. After: it may have been replaced meanwhile.
    fs::symlink_metadata(path).ok().filter(is_ours)?;
    let file = options.custom_flags((OFlag::O_NONBLOCK | OFlag::O_NOFOLLOW).bits()).open(path).ok()?;
    file.metadata().is_ok_and(|found| is_ours(&found)).then_some(file)
}

#[cfg(test)]
mod tests {
    use super::super::tests::mailbox;
    use super::*;

    const TIMEOUT: Duration = Duration::from_secs(30);

    #[test]
    fn everyone_who_waits_is_woken_once() {
        let (_folder, mailbox) = mailbox();
        mailbox.prepare_publications().expect("created");
        mailbox.prepare_publications().expect("it may exist");
        mailbox.announce_publications();
        let mut watches = [PublicationWatch::new(&mailbox), PublicationWatch::new(&mailbox)];
        for watch in &mut watches {
            assert!(watch.is_open() && !watch.wait(Duration::ZERO), "what was published before is not reported");
        }
        mailbox.announce_publications();
        for watch in &mut watches {
            assert!(watch.wait(TIMEOUT));
            assert!(watch.wait(TIMEOUT), "something may have been published before the second wait");
            assert!(!watch.wait(Duration::ZERO));
        }
        let waiting = std::thread::spawn(move || watches.map(|mut watch| watch.wait(TIMEOUT)));
        while !waiting.is_finished() {
            mailbox.announce_publications();
            std::thread::yield_now();
        }
        assert_eq!(waiting.join().expect("it ends"), [true, true]);
    }

    #[test]
    fn without_a_fifo_of_ours_nothing_is_waited_for() {
        let (folder, mailbox) = mailbox();
        assert!(!PublicationWatch::new(&mailbox).is_open());
        mailbox.announce_publications();
        fs::write(mailbox.publications(), "x").expect("written");
        mailbox.announce_publications();
        assert!(!PublicationWatch::new(&mailbox).is_open());
        fs::remove_file(mailbox.publications()).expect("removed");
        let elsewhere = folder.path().join("fifo");
        nix::unistd::mkfifo(&elsewhere, Mode::S_IRWXU).expect("created");
        std::os::unix::fs::symlink(elsewhere, mailbox.publications()).expect("linked");
        let mut watch = PublicationWatch::new(&mailbox);
        assert!(!watch.is_open() && !watch.wait(TIMEOUT));
    }

    #[test]
    fn endless_wake_ups_are_ignored() {
        let (_folder, mailbox) = mailbox();
        mailbox.prepare_publications().expect("created");
        let mut watch = PublicationWatch::new(&mailbox);
        for _ in 0..MAX_WAKE_UPS {
            mailbox.announce_publications();
            assert!(watch.wait(TIMEOUT) && watch.wait(TIMEOUT));
        }
        assert!(!watch.is_open() && !watch.wait(TIMEOUT));
    }
}
