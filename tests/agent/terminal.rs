//! A user at a terminal: a pseudo-terminal with the program on the other end.

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::process::{Child, ExitStatus};
use std::sync::{Arc, Mutex, PoisonError};

use nix::pty::{OpenptyResult, Winsize, openpty};

use crate::world::{World, until};

pub(crate) const INTERRUPT: &str = "\u{3}";
pub(crate) const END: &str = "\u{4}";
pub(crate) const TAB: &str = "\t";

#[derive(Debug)]
pub(crate) struct Terminal {
    child: Child,
    keys: File,
    /// The output so far, without escape sequences.
    shown: Arc<Mutex<String>>,
    /// The length of the output that was already matched.
    seen: usize,
}

impl Terminal {
    /// Starts the program on a terminal of 60 columns.
    pub(crate) fn open(world: &World, arguments: &[&str]) -> Self {
        let size = Winsize { ws_row: 40, ws_col: 60, ws_xpixel: 0, ws_ypixel: 0 };
        let OpenptyResult { master, slave } = openpty(Some(&size), None).expect("a pseudo-terminal");
        let end = || slave.try_clone().expect("a descriptor");
        let mut command = world.command(arguments);
        command.env("TERM", "xterm-256color").stdin(end()).stdout(end()).stderr(end());
        let child = command.spawn().expect("the program starts");
        drop(slave);
        let keys = File::from(master.try_clone().expect("a descriptor"));
        let shown = Arc::new(Mutex::new(String::new()));
        let (mut screen, to) = (File::from(master), Arc::clone(&shown));
        // The thread ends with the program.
        std::thread::spawn(move || {
            let mut raw = Vec::new();
            let mut bytes = [0; 4096];
            while let Ok(count @ 1..) = screen.read(&mut bytes) {
                raw.extend_from_slice(&bytes[..count]);
                *to.lock().unwrap_or_else(PoisonError::into_inner) = plain_text(&raw);
            }
        });
        Self { child, keys, shown, seen: 0 }
    }

    /// Returns the whole output so far.
    pub(crate) fn shown(&self) -> String {
        self.shown.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(crate) fn press(&mut self, keys: &str) {
        self.keys.write_all(keys.as_bytes()).expect("the terminal accepts keys");
    }

    /// Types a line.
    pub(crate) fn line(&mut self, text: &str) {
        self.press(&format!("{text}\r"));
    }

    /// Waits until `text` is shown after the last match, and returns the output up to there.
    #[track_caller]
    pub(crate) fn expect(&mut self, text: &str) -> String {
        let (shown, seen) = (Arc::clone(&self.shown), self.seen);
        let position = || {
            let shown = shown.lock().unwrap_or_else(PoisonError::into_inner);
            shown.get(seen..).and_then(|rest| rest.find(text))
        };
        let what = format!("`{text}` is shown after:\n{}\n---", self.shown().get(self.seen..).unwrap_or_default());
        until(&what, || position().is_some());
        let end = seen + position().expect("the text was found") + text.len();
        let output = self.shown()[seen..end].to_owned();
        self.seen = end;
        output
    }

    /// Waits until all these texts are shown, in any order.
    #[track_caller]
    pub(crate) fn expect_all(&mut self, texts: &[&str]) {
        let start = self.seen;
        let mut end = start;
        for text in texts {
            self.seen = start;
            self.expect(text);
            end = end.max(self.seen);
        }
        self.seen = end;
    }

    /// Waits until the program has ended.
    pub(crate) fn ended(&mut self) -> ExitStatus {
        let child = &mut self.child;
        let mut status = None;
        until("the program has ended", || {
            status = child.try_wait().expect("the process is ours");
            status.is_some()
        });
        status.expect("the program has ended")
    }
}

impl Drop for Terminal {
    #[expect(clippy::print_stderr, reason = "the output explains a failing test")]
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("--- the terminal\n{}", self.shown());
        }
        // An error means that the process has already ended.
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

/// Removes escape sequences and carriage returns.
fn plain_text(raw: &[u8]) -> String {
    let text = String::from_utf8_lossy(raw);
    let mut plain = String::new();
    let mut letters = text.chars().peekable();
    while let Some(letter) = letters.next() {
        match letter {
            '\u{1b}' if letters.peek() == Some(&'[') => {
                letters.next();
                while letters.next_if(|c| !c.is_ascii_alphabetic()).is_some() {}
                letters.next();
            }
            '\r' => {}
            other => plain.push(other),
        }
    }
    plain
}
