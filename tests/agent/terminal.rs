//! A person at a terminal: a pseudo-terminal with the program at its other end.

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::process::{Child, ExitStatus};
use std::sync::{Arc, Mutex, PoisonError};

use nix::pty::{OpenptyResult, Winsize, openpty};

use crate::world::{World, until};

/// Keys.
pub(crate) const INTERRUPT: &str = "\u{3}";
pub(crate) const END: &str = "\u{4}";
pub(crate) const TAB: &str = "\t";

#[derive(Debug)]
pub(crate) struct Terminal {
    child: Child,
    keys: File,
    /// What was shown, without what only moves the cursor.
    shown: Arc<Mutex<String>>,
    /// How much of it was expected already.
    seen: usize,
}

impl Terminal {
    /// The program with `arguments`, at a terminal of 60 columns.
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
        // Ends when the program has.
        std::thread::spawn(move || {
            let mut raw = Vec::new();
            let mut bytes = [0; 4096];
            while let Ok(count @ 1..) = screen.read(&mut bytes) {
                raw.extend_from_slice(&bytes[..count]);
                *to.lock().unwrap_or_else(PoisonError::into_inner) = plain(&raw);
            }
        });
        Self { child, keys, shown, seen: 0 }
    }

    /// All that was shown so far.
    pub(crate) fn shown(&self) -> String {
        self.shown.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(crate) fn press(&mut self, keys: &str) {
        self.keys.write_all(keys.as_bytes()).expect("the terminal takes keys");
    }

    /// Types a line, once it is asked for.
    pub(crate) fn line(&mut self, text: &str) {
        self.press(&format!("{text}\r"));
    }

    /// Waits until `words` stand on the screen, after what was expected before; what came up to there.
    #[track_caller]
    pub(crate) fn expect(&mut self, words: &str) -> String {
        let (shown, seen) = (Arc::clone(&self.shown), self.seen);
        let place = || {
            let shown = shown.lock().unwrap_or_else(PoisonError::into_inner);
            shown.get(seen..).and_then(|rest| rest.find(words))
        };
        let what = format!("`{words}` is shown after:\n{}\n---", self.shown().get(self.seen..).unwrap_or_default());
        until(&what, || place().is_some());
        let end = seen + place().expect("it was there") + words.len();
        let came = self.shown()[seen..end].to_owned();
        self.seen = end;
        came
    }

    /// Waits until all of these stand on the screen, whichever comes first.
    #[track_caller]
    pub(crate) fn sees(&mut self, all: &[&str]) {
        let start = self.seen;
        let mut end = start;
        for words in all {
            self.seen = start;
            self.expect(words);
            end = end.max(self.seen);
        }
        self.seen = end;
    }

    /// Waits until the program has ended.
    pub(crate) fn ended(&mut self) -> ExitStatus {
        let child = &mut self.child;
        let mut status = None;
        until("the program has ended", || {
            status = child.try_wait().expect("it can be asked");
            status.is_some()
        });
        status.expect("it has ended")
    }
}

impl Drop for Terminal {
    #[expect(clippy::print_stderr, reason = "what was shown is what a failing test is understood by")]
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("--- the terminal\n{}", self.shown());
        }
        // Gone by itself is gone as well.
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

/// The text without escape sequences and carriage returns.
fn plain(raw: &[u8]) -> String {
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
