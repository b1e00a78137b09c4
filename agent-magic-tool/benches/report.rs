//! The report: the table and two plots of one day, with the machine that they are of.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs, io, thread};

use nix::sys::statfs::{self, statfs};

use crate::table::Table;

/// What stands between these lines is written anew.
const BEGIN: &str = "<!-- written by cargo bench -- --write -->\n";
const END: &str = "<!-- end -->\n";

/// Writes the table into `BENCHMARKS.md`, and the plots beside the documents.
pub(crate) fn write(table: &Table, effort: &str) -> io::Result<()> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the workspace");
    let path = root.join("BENCHMARKS.md");
    let text = fs::read_to_string(&path)?;
    let (before, rest) = text.split_once(BEGIN).ok_or_else(|| missing(BEGIN))?;
    let (_, after) = rest.split_once(END).ok_or_else(|| missing(END))?;
    let mut own = format!("{}\n\n{}", conditions(effort), table.markdown());
    for plot in table.plots() {
        let file = PathBuf::from("docs/plots").join(format!("{}.svg", plot.name));
        fs::create_dir_all(root.join("docs/plots"))?;
        fs::write(root.join(&file), plot.svg())?;
        write!(own, "\n![{}]({})\n", plot.title, file.display()).expect("a text");
    }
    fs::write(path, format!("{before}{BEGIN}{own}{END}{after}"))
}

fn missing(line: &str) -> io::Error {
    io::Error::other(format!("BENCHMARKS.md has no line `{}`", line.trim_end()))
}

/// When, on what and of what.
fn conditions(effort: &str) -> String {
    let folder = env::temp_dir();
    let kind = statfs(&folder).map_or("an unknown file system", |found| file_system(found.filesystem_type()));
    let processors = thread::available_parallelism().map_or(1, usize::from);
    let model = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = model.lines().find_map(|line| line.strip_prefix("model name")).unwrap_or_default();
    let model = model.trim_start_matches([' ', '\t', ':']);
    let kernel = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    // What a distribution adds to its number says nothing to others.
    let kernel = kernel.trim().split('.').take(2).collect::<Vec<_>>().join(".");
    let commit = Command::new("git").args(["describe", "--always", "--dirty"]).output();
    let commit = commit.map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned()).unwrap_or_default();
    let load = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let load = load.split(' ').next().unwrap_or_default().to_owned();
    format!(
        "{}, commit {commit}, {effort}. {processors} processors ({model}), Linux {kernel}, {kind}; load at the end {load}. \
         Median and 95th percentile.",
        jiff::Timestamp::now().strftime("%Y-%m-%d"),
    )
}

fn file_system(kind: statfs::FsType) -> &'static str {
    match kind {
        statfs::EXT4_SUPER_MAGIC => "ext4",
        statfs::XFS_SUPER_MAGIC => "XFS",
        statfs::BTRFS_SUPER_MAGIC => "btrfs",
        statfs::TMPFS_MAGIC => "in memory",
        statfs::OVERLAYFS_SUPER_MAGIC => "overlayfs",
        _ => "another file system",
    }
}
