//! Where everything lies: the one place that reads the environment for it.
//!
//! The mailbox is the agent's side and may be in `/tmp`; secrets, state and configuration lie in the
//! XDG base directories, never there.

use std::ffi::{OsStr, OsString};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::{fs, io};

use sha2::{Digest as _, Sha256};

use crate::digest;
use crate::tool_scope::ToolScope;

/// The variable that names the caller's session.
pub const SESSION: &str = "AGENT_MAGIC_TOOL_SESSION";
/// The variable that says how deep the caller is nested in agents.
pub const DEPTH: &str = "AGENT_MAGIC_TOOL_DEPTH";
/// The variable that says that the caller's session only reads.
pub const READ_ONLY: &str = "AGENT_MAGIC_TOOL_READ_ONLY";
/// The variable by which the caller's own loop says, with 1, that it wakes it.
pub const WAKES: &str = "AGENT_MAGIC_TOOL_WAKES";

/// The variable that says which subtools the caller may use, as lists of names and globs.
pub const TOOL_SCOPE: &str = "AGENT_MAGIC_TOOL_SCOPE";

/// Where a human can be shown something.
pub const DISPLAYS: [&str; 2] = ["WAYLAND_DISPLAY", "DISPLAY"];

/// The variables in which clients name their session to the commands they run. The name is that of
/// `setup` and `hook`; seen with Claude Code 2.1, Codex 0.169 and, by our plugin, OpenCode 1.18.
const SESSIONS: [(&str, &str); 3] =
    [("claude-code", "CLAUDE_CODE_SESSION_ID"), ("codex", "CODEX_THREAD_ID"), ("opencode", "OPENCODE_SESSION_ID")];

/// Variables of clients that say who they are, but not which session it is: it is known by its folder.
const MARKS: [(&str, &str); 2] = [("gemini-cli", "GEMINI_CLI"), ("cursor", "CURSOR_AGENT")];

/// With what a program finds the human's desktop, and nothing that could hold a key.
const DESKTOP: [&str; 8] =
    ["PATH", "HOME", "LANG", "WAYLAND_DISPLAY", "DISPLAY", "XAUTHORITY", "XDG_RUNTIME_DIR", "DBUS_SESSION_BUS_ADDRESS"];

/// The folders of one user and one mailbox.
#[derive(Debug, Clone)]
pub struct Paths {
    pub mailbox: PathBuf,
    pub config: PathBuf,
    pub state: PathBuf,
    pub cache: PathBuf,
    subtools: Option<OsString>,
}

#[derive(Debug, thiserror::Error)]
#[error("no home folder: neither `HOME` nor `{0}` is set to an absolute path")]
pub struct NoHomeFolder(&'static str);

impl Paths {
    /// From `AGENT_MAGIC_TOOL_DIR`, `AGENT_MAGIC_TOOL_SUBTOOLS`, the XDG variables and `HOME`.
    pub fn from_env() -> Result<Self, NoHomeFolder> {
        let mailbox = match std::env::var_os("AGENT_MAGIC_TOOL_DIR") {
            Some(folder) if !folder.is_empty() => {
                std::path::absolute(&folder).unwrap_or_else(|_| PathBuf::from(folder))
            }
            _ => std::env::temp_dir().join(format!("agent-magic-tool-{}", nix::unistd::geteuid())),
        };
        Ok(Self {
            mailbox,
            config: base("XDG_CONFIG_HOME", ".config")?,
            state: base("XDG_STATE_HOME", ".local/state")?,
            cache: base("XDG_CACHE_HOME", ".cache")?,
            subtools: std::env::var_os("AGENT_MAGIC_TOOL_SUBTOOLS").map(|paths| absolute(&paths)),
        })
    }

    /// The environment with which a process in another folder finds the same places.
    pub fn environment(&self) -> Vec<(&'static str, OsString)> {
        let mut environment = vec![("AGENT_MAGIC_TOOL_DIR", self.mailbox.clone().into_os_string())];
        environment.extend(self.subtools.clone().map(|paths| ("AGENT_MAGIC_TOOL_SUBTOOLS", paths)));
        environment
    }

    /// What the caller calls itself, from `AGENT_MAGIC_TOOL_SESSION`, or what its client calls the session,
    /// like `codex:UUID`: tasks of one session wait in one line.
    pub fn session(&self) -> Option<String> {
        let own = word(SESSION);
        own.or_else(|| self.clients().find_map(|(client, session)| Some(format!("{client}:{}", session?))))
    }

    /// The clients in whose shell this runs, with their session where they tell it. One that was
    /// started within another inherits the other's variables.
    pub fn clients(&self) -> impl Iterator<Item = (&'static str, Option<String>)> {
        let sessions = SESSIONS.iter().filter_map(|(client, variable)| Some((*client, Some(word(variable)?))));
        let marks = MARKS.iter().filter_map(|(client, variable)| word(variable).map(|_| (*client, None)));
        sessions.chain(marks)
    }

    /// Whether the caller's own loop says, by `AGENT_MAGIC_TOOL_WAKES`, that it wakes it.
    pub fn loop_wakes(&self) -> bool {
        word(WAKES).is_some_and(|value| value == "1")
    }

    /// How deep the caller is nested in agents that were called by agents, from `AGENT_MAGIC_TOOL_DEPTH`;
    /// more than fits, or what is no number, is as deep as can be.
    pub fn depth(&self) -> u8 {
        match std::env::var(DEPTH) {
            Ok(depth) if !depth.is_empty() => depth.parse().unwrap_or(u8::MAX),
            _ => 0,
        }
    }

    /// Whether the caller's session only reads, from `AGENT_MAGIC_TOOL_READ_ONLY`: anything but `0` says so.
    pub fn read_only(&self) -> bool {
        std::env::var_os(READ_ONLY).is_some_and(|value| !value.is_empty() && value != "0")
    }

    /// The user's home folder.
    pub fn home(&self) -> Result<PathBuf, NoHomeFolder> {
        word("HOME").map(PathBuf::from).filter(|home| home.is_absolute()).ok_or(NoHomeFolder("HOME"))
    }

    /// The folder that a variable names.
    pub fn folder_in(&self, variable: &str) -> Option<PathBuf> {
        Some(variable).filter(|variable| !variable.is_empty()).and_then(word).map(PathBuf::from)
    }

    /// Where another program keeps its configuration, by the XDG base directories.
    pub fn config_of(&self, program: &str) -> PathBuf {
        self.config.with_file_name(program)
    }

    /// The mailbox, if it is not where it is looked for without being told.
    pub fn own_mailbox(&self) -> Option<PathBuf> {
        word("AGENT_MAGIC_TOOL_DIR").map(|_| self.mailbox.clone())
    }

    /// Which subtools the caller may use, from `AGENT_MAGIC_TOOL_SCOPE`; what cannot be understood leaves nothing.
    pub fn tool_scope(&self) -> ToolScope {
        match std::env::var_os(TOOL_SCOPE) {
            Some(scope) if !scope.is_empty() => ToolScope::read(scope.to_str().unwrap_or_default()),
            _ => ToolScope::default(),
        }
    }

    /// The first of these environment variables that is set to something.
    pub fn first_set<'a>(&self, variables: &[&'a str]) -> Option<&'a str> {
        variables.iter().copied().find(|variable| std::env::var_os(variable).is_some_and(|value| !value.is_empty()))
    }

    /// The environment in which a program finds the human's desktop; `None` where there is no display.
    pub fn desktop(&self) -> Option<Vec<(&'static str, OsString)>> {
        self.first_set(&DISPLAYS)?;
        Some(DESKTOP.iter().filter_map(|name| Some((*name, std::env::var_os(name)?))).collect())
    }

    /// Whether systemd's journal reads standard error: `JOURNAL_STREAM` names its device and inode.
    pub fn stderr_is_journal(&self) -> bool {
        let Ok(journal) = std::env::var("JOURNAL_STREAM") else { return false };
        fs::metadata("/proc/self/fd/2").is_ok_and(|found| journal == format!("{}:{}", found.dev(), found.ino()))
    }

    /// Makes the state folder, which nobody else may enter, whatever the umask: what lies in it
    /// need not be guarded file by file.
    pub fn make_state(&self) -> io::Result<()> {
        make_private(&self.state)?;
        let found = fs::metadata(&self.state)?;
        if found.permissions().mode() & 0o077 != 0 {
            fs::set_permissions(&self.state, fs::Permissions::from_mode(0o700))?;
        }
        Ok(())
    }

    pub fn config_file(&self) -> PathBuf {
        self.config.join("config.toml")
    }

    /// The folders of discovery JSON that `AGENT_MAGIC_TOOL_SUBTOOLS` names, if it is set.
    pub fn named_subtools(&self) -> Option<&OsStr> {
        self.subtools.as_deref()
    }

    /// The stored secrets.
    pub fn secrets(&self) -> PathBuf {
        self.state.join("secrets")
    }

    /// The sections of the system prompt.
    pub fn prompts(&self) -> PathBuf {
        self.config.join("prompt")
    }

    /// The sessions of agents that were called by agents.
    pub fn delegates(&self) -> PathBuf {
        self.state.join("sessions").join("delegated")
    }

    /// The copy of the catalog that `list` reads.
    pub fn listing(&self) -> PathBuf {
        self.cache.join("listing.json")
    }

    /// The executor's own folder: one for each mailbox, so that two executors never share a store.
    pub fn executor(&self) -> PathBuf {
        let name = digest::hex(&Sha256::digest(self.mailbox.as_os_str().as_encoded_bytes()));
        self.state.join("executors").join(&name[..16])
    }

    pub fn store(&self) -> PathBuf {
        self.executor().join("tasks.db")
    }

    pub fn log(&self) -> PathBuf {
        self.executor().join("executor.log")
    }

    /// Data of tasks that does not fit a result file; durable with the store.
    pub fn data(&self) -> PathBuf {
        self.executor().join("data")
    }
}

/// A variable that is set to something.
fn word(variable: &str) -> Option<String> {
    std::env::var(variable).ok().filter(|value| !value.is_empty())
}

/// Each of the paths joined by `:`, from the root.
fn absolute(paths: &OsString) -> OsString {
    let each = std::env::split_paths(paths).filter(|path| !path.as_os_str().is_empty());
    let absolute = each.map(|path| std::path::absolute(&path).unwrap_or(path));
    std::env::join_paths(absolute).unwrap_or_else(|_| paths.clone())
}

fn base(variable: &'static str, below_home: &str) -> Result<PathBuf, NoHomeFolder> {
    let absolute = |value: OsString| Some(PathBuf::from(value)).filter(|path| path.is_absolute());
    let folder = std::env::var_os(variable)
        .and_then(absolute)
        .or_else(|| std::env::var_os("HOME").and_then(absolute).map(|home| home.join(Path::new(below_home))))
        .ok_or(NoHomeFolder(variable))?;
    Ok(folder.join("agent-magic-tool"))
}

/// Makes a folder, and what is missing above it, that nobody else may enter: a lax umask opens nothing.
pub fn make_private(folder: &Path) -> io::Result<()> {
    fs::DirBuilder::new().recursive(true).mode(0o700).create(folder)
}
