//! The most instructions that the commands which agents call may take.
//!
//! `cargo bench -- guard` and `tests/cli/cost.rs` compare with them. A ceiling is the count when it was set and some
//! percent more. A change that makes a command dearer on purpose raises its ceiling; the last one is that the full
//! program is position-independent, so that its loader adjusts 100,000 pointers.

/// The number of subtools in the world in which is counted.
pub(crate) const SUBTOOLS: usize = 100;

/// The ceilings of one command.
#[derive(Debug)]
pub(crate) struct Ceiling {
    pub(crate) what: &'static str,
    pub(crate) arguments: &'static [&'static str],
    pub(crate) full: Instructions,
    pub(crate) small: Instructions,
}

/// The ceilings of one program, in thousands of instructions.
#[derive(Debug)]
pub(crate) struct Instructions {
    /// In a release build.
    pub(crate) release: u64,
    /// In a debug build.
    pub(crate) debug: u64,
}

pub(crate) const CEILINGS: [Ceiling; 4] = [
    Ceiling {
        what: "--version",
        arguments: &["--version"],
        full: Instructions { release: 2_440, debug: 5_060 },
        small: Instructions { release: 90, debug: 95 },
    },
    Ceiling {
        what: "list --query, 100 subtools",
        arguments: &["list", "tools", "--query=search mail message"],
        full: Instructions { release: 10_900, debug: 76_000 },
        small: Instructions { release: 4_000, debug: 60_000 },
    },
    Ceiling {
        what: "list, 100 subtools",
        arguments: &["list", "tools"],
        full: Instructions { release: 5_000, debug: 26_700 },
        small: Instructions { release: 2_000, debug: 20_000 },
    },
    Ceiling {
        what: "run until it returns",
        arguments: &["run", "files_read", "path=note.txt"],
        full: Instructions { release: 2_720, debug: 6_200 },
        small: Instructions { release: 360, debug: 1_250 },
    },
];
