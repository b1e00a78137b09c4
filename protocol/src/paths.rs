//! The folders and files of one user, and the environment variables that determine them and the caller.
//!
//! The only module that reads environment variables for this. The mailbox may be in `/tmp`; secrets, state
//! and configuration are always in the XDG base directories.

use std::ffi::{OsStr, OsString};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::LazyLock;
use std::{fs, io};

use sha2::{Digest as _, Sha256};

use crate::caller::CallBudget;
use crate::code::Code;
use crate::data_class::DataClass;
use crate::digest;
use crate::error::ErrorBody;
use crate::tool_scope::{InvalidScope, ToolScope};

/// The variable that names the caller's session.
pub const SESSION: &str = "AGENT_MAGIC_TOOL_SESSION";
/// The variable with the caller's nesting depth in agents.
pub const DEPTH: &str = "AGENT_MAGIC_TOOL_DEPTH";
/// The variable that restricts the caller's session to read-only subtools.
pub const READ_ONLY: &str = "AGENT_MAGIC_TOOL_READ_ONLY";
/// The most sensitive data that the model of the caller may get.
pub const TRUST: &str = "AGENT_MAGIC_TOOL_TRUST";
/// The question that a command works for, and how many calls may be made for it.
pub const CALL_BUDGET: &str = "AGENT_MAGIC_TOOL_CALL_BUDGET";
/// The variable that an agent loop sets to `1` if it wakes the caller when a task is final.
pub const WAKES: &str = "AGENT_MAGIC_TOOL_WAKES";
/// The variable with the caller's tool scope, as lists of names and globs.
pub const TOOL_SCOPE: &str = "AGENT_MAGIC_TOOL_SCOPE";
/// The variable with the profile that restricts the caller, beside its scope.
pub const PROFILE: &str = "AGENT_MAGIC_TOOL_PROFILE";

/// The variable that says that another process prints the output, when all is over.
pub const CAPTURED: &str = "AGENT_MAGIC_TOOL_CAPTURED";
/// The variable that marks the programs that an executor starts.
pub const STARTED_PROGRAM: &str = "AGENT_MAGIC_TOOL_PROGRAM";

/// The variables of which at least one is set on a graphical desktop.
pub const DISPLAYS: [&str; 2] = ["WAYLAND_DISPLAY", "DISPLAY"];

/// For each client, the variable in which it names its session to the commands it runs. The client's name
/// is the one that `setup` and `hook` use. Verified with Claude Code 2.1, Codex 0.169 and, through our
/// plugin, OpenCode 1.18.
const SESSIONS: [(&str, &str); 3] =
    [("claude-code", "CLAUDE_CODE_SESSION_ID"), ("codex", "CODEX_THREAD_ID"), ("opencode", "OPENCODE_SESSION_ID")];

/// Variables of clients that do not name their session, which is then identified by its folder.
const CLIENT_MARKERS: [(&str, &str); 2] = [("gemini-cli", "GEMINI_CLI"), ("cursor", "CURSOR_AGENT")];

/// The variables that a program needs to use the human's desktop. None of them holds a secret.
const DESKTOP: [&str; 8] =
    ["PATH", "HOME", "LANG", "WAYLAND_DISPLAY", "DISPLAY", "XAUTHORITY", "XDG_RUNTIME_DIR", "DBUS_SESSION_BUS_ADDRESS"];

/// The name of each folder of this program below a base directory.
const NAME: &str = "agent-magic-tool";

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

/// The variable of the base folder, and the one by which this program names the whole folder to its own processes.
type FolderVariables = (&'static str, &'static str);
const CONFIG: FolderVariables = ("XDG_CONFIG_HOME", "AGENT_MAGIC_TOOL_CONFIG_FOLDER");
const STATE: FolderVariables = ("XDG_STATE_HOME", "AGENT_MAGIC_TOOL_STATE_FOLDER");
const CACHE: FolderVariables = ("XDG_CACHE_HOME", "AGENT_MAGIC_TOOL_CACHE_FOLDER");

impl Paths {
    /// Reads `AGENT_MAGIC_TOOL_DIR`, `AGENT_MAGIC_TOOL_SUBTOOLS`, the XDG variables and `HOME`.
    pub fn from_env() -> Result<Self, NoHomeFolder> {
        let mailbox = match std::env::var_os("AGENT_MAGIC_TOOL_DIR") {
            Some(folder) if !folder.is_empty() => {
                std::path::absolute(&folder).unwrap_or_else(|_| PathBuf::from(folder))
            }
            _ => std::env::temp_dir().join(format!("agent-magic-tool-{}", nix::unistd::geteuid())),
        };
        // Looked up once: a link that leads elsewhere later changes nothing.
        let real = |path: PathBuf| real_path(&path).unwrap_or(path);
        Ok(Self {
            mailbox,
            config: real(folder(CONFIG, ".config")?),
            state: real(folder(STATE, ".local/state")?),
            cache: real(folder(CACHE, ".cache")?),
            subtools: std::env::var_os("AGENT_MAGIC_TOOL_SUBTOOLS").map(|paths| absolute(&paths)),
        })
    }

    /// The folders of a user with this home folder and mailbox, whatever the environment says.
    pub fn below(home: &Path, mailbox: &Path) -> Self {
        let below = |folder: &str| home.join(folder).join(NAME);
        Self {
            mailbox: mailbox.to_owned(),
            config: below(".config"),
            state: below(".local/state"),
            cache: below(".cache"),
            subtools: None,
        }
    }

    /// Environment that points a child process at the same folders, whatever its working directory.
    pub fn environment(&self) -> Vec<(&'static str, OsString)> {
        let mut environment = vec![("AGENT_MAGIC_TOOL_DIR", self.mailbox.clone().into_os_string())];
        for ((base, whole), folder) in [(CONFIG, &self.config), (STATE, &self.state), (CACHE, &self.cache)] {
            environment.extend(folder.parent().map(|parent| (base, parent.into())));
            // A link may lead to a folder of another name.
            environment.push((whole, folder.into()));
        }
        environment.extend(home_folder().map(|home| ("HOME", home.into())));
        environment.extend(self.subtools.clone().map(|paths| ("AGENT_MAGIC_TOOL_SUBTOOLS", paths)));
        environment
    }

    /// The caller's session: `AGENT_MAGIC_TOOL_SESSION`, or the session of its client, like `codex:UUID`.
    pub fn session(&self) -> Option<String> {
        let own = word(SESSION);
        own.or_else(|| self.clients().find_map(|(client, session)| Some(format!("{client}:{}", session?))))
    }

    /// The clients whose shell this process runs in, with their session if they name it. There can be
    /// several, since a client that was started within another inherits the other's variables.
    pub fn clients(&self) -> impl Iterator<Item = (&'static str, Option<String>)> {
        let sessions = SESSIONS.iter().filter_map(|(client, variable)| Some((*client, Some(word(variable)?))));
        let markers = CLIENT_MARKERS.iter().filter_map(|(client, variable)| word(variable).map(|_| (*client, None)));
        sessions.chain(markers)
    }

    /// Whether the caller's agent loop wakes it when a task is final, from `AGENT_MAGIC_TOOL_WAKES`.
    pub fn loop_wakes(&self) -> bool {
        word(WAKES).is_some_and(|value| value == "1")
    }

    /// The caller's nesting depth in agents, from `AGENT_MAGIC_TOOL_DEPTH`; a value that is not a number in
    /// range counts as the largest depth.
    pub fn depth(&self) -> u8 {
        let depth = std::env::var_os(DEPTH).filter(|depth| !depth.is_empty());
        depth.map_or(0, |depth| depth.to_str().and_then(|depth| depth.parse().ok()).unwrap_or(u8::MAX))
    }

    /// Whether the caller's session is restricted to read-only subtools, from `AGENT_MAGIC_TOOL_READ_ONLY`:
    /// every non-empty value but `0` restricts it.
    pub fn read_only(&self) -> bool {
        std::env::var_os(READ_ONLY).is_some_and(|value| !value.is_empty() && value != "0")
    }

    /// The most sensitive data that the caller's model may get, from `AGENT_MAGIC_TOOL_TRUST`, if it is set.
    pub fn trust(&self) -> Option<DataClass> {
        word(TRUST).map(|class| DataClass::from_env_value(&class))
    }

    /// The question that the caller works for, from `AGENT_MAGIC_TOOL_CALL_BUDGET`, if it is set.
    pub fn call_budget(&self) -> Option<CallBudget> {
        word(CALL_BUDGET).map(|value| CallBudget::from_env_value(&value))
    }

    /// The user's home folder.
    pub fn home(&self) -> Result<PathBuf, NoHomeFolder> {
        home_folder().map(Path::to_owned).ok_or(NoHomeFolder("HOME"))
    }

    /// The folder that the environment variable names, if it is set.
    pub fn folder_in(&self, variable: &str) -> Option<PathBuf> {
        Some(variable).filter(|variable| !variable.is_empty()).and_then(word).map(PathBuf::from)
    }

    /// The configuration folder of another program, by the XDG base directories.
    pub fn config_of(&self, program: &str) -> PathBuf {
        self.config.with_file_name(program)
    }

    /// The mailbox, if `AGENT_MAGIC_TOOL_DIR` sets it.
    pub fn explicit_mailbox(&self) -> Option<PathBuf> {
        word("AGENT_MAGIC_TOOL_DIR").map(|_| self.mailbox.clone())
    }

    /// The caller's tool scope, from `AGENT_MAGIC_TOOL_SCOPE` and `AGENT_MAGIC_TOOL_PROFILE`.
    pub fn tool_scope(&self) -> Result<ToolScope, InvalidScope> {
        let scope = match std::env::var_os(TOOL_SCOPE).filter(|scope| !scope.is_empty()) {
            Some(scope) => ToolScope::parse(scope.to_str().unwrap_or_default())?,
            None => ToolScope::default(),
        };
        // An empty one names no profile: a profile was meant, and it is not known which.
        match std::env::var_os(PROFILE) {
            Some(profile) => scope.within_profile(&profile.to_string_lossy()).map_err(InvalidScope::Profile),
            None => Ok(scope),
        }
    }

    /// The first of these environment variables that is set and not empty.
    pub fn first_set<'a>(&self, variables: &[&'a str]) -> Option<&'a str> {
        variables.iter().copied().find(|variable| std::env::var_os(variable).is_some_and(|value| !value.is_empty()))
    }

    /// Environment for a program that uses the human's desktop; `None` without a display.
    pub fn desktop(&self) -> Option<Vec<(&'static str, OsString)>> {
        self.first_set(&DISPLAYS)?;
        Some(DESKTOP.iter().filter_map(|name| Some((*name, std::env::var_os(name)?))).collect())
    }

    /// Whether systemd's journal reads standard error: `JOURNAL_STREAM` names its device and inode.
    pub fn stderr_is_journal(&self) -> bool {
        let Ok(journal) = std::env::var("JOURNAL_STREAM") else { return false };
        fs::metadata("/proc/self/fd/2").is_ok_and(|found| journal == format!("{}:{}", found.dev(), found.ino()))
    }

    /// Creates the state folder with mode 0700 whatever the umask, so that the files in it need no
    /// protection of their own.
    pub fn create_state(&self) -> io::Result<()> {
        create_private(&self.state)?;
        let found = fs::metadata(&self.state)?;
        if found.permissions().mode() & 0o077 != 0 {
            fs::set_permissions(&self.state, fs::Permissions::from_mode(0o700))?;
        }
        Ok(())
    }

    pub fn config_file(&self) -> PathBuf {
        self.config.join("config.toml")
    }

    /// The value of `AGENT_MAGIC_TOOL_SUBTOOLS`: folders of discovery JSON, joined by `:`.
    pub fn named_subtools(&self) -> Option<&OsStr> {
        self.subtools.as_deref()
    }

    /// The stored secrets.
    pub fn secrets(&self) -> PathBuf {
        self.state.join("secrets")
    }

    /// What `serve` keeps: the API keys of its clients.
    pub fn serve(&self) -> PathBuf {
        self.state.join("serve")
    }

    /// The API keys of the clients of `serve`. Of each, only a hash is in the file.
    pub fn api_keys(&self) -> PathBuf {
        self.serve().join("keys.json")
    }

    /// The sections of the system prompt.
    pub fn prompts(&self) -> PathBuf {
        self.config.join("prompt")
    }

    /// The sessions of agents that were started by agents.
    pub fn delegates(&self) -> PathBuf {
        self.state.join("sessions").join("delegated")
    }

    /// The records of scripts: what each called.
    pub fn scripts(&self) -> PathBuf {
        self.state.join("scripts")
    }

    /// The cached index of the catalog that `list` reads.
    pub fn listing(&self) -> PathBuf {
        self.cache.join("listing.index")
    }

    /// Which subtool was run after which search.
    pub fn learned(&self) -> PathBuf {
        self.state.join("learned.jsonl")
    }

    /// The executor's folder. Each mailbox has its own, so that two executors never share a store.
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

    /// The log of `serve`.
    pub fn serve_log(&self) -> PathBuf {
        self.state.join("serve.log")
    }

    /// The log of `agent`.
    pub fn agent_log(&self) -> PathBuf {
        self.state.join("agent.log")
    }

    /// Task data that does not fit in a result file. It is as durable as the store.
    pub fn data(&self) -> PathBuf {
        self.executor().join("data")
    }
}

/// The value of a variable that is set and not empty.
fn word(variable: &str) -> Option<String> {
    std::env::var(variable).ok().filter(|value| !value.is_empty())
}

/// The home folder that the environment names, where it really is: as this process found it first.
pub fn home_folder() -> Option<&'static Path> {
    static HOME: LazyLock<Option<PathBuf>> = LazyLock::new(|| {
        let home = word("HOME").map(PathBuf::from).filter(|home| home.is_absolute())?;
        Some(real_path(&home).unwrap_or(home))
    });
    HOME.as_deref()
}

/// Where `path` leads, whether or not there is something; `None` if that cannot be told.
pub fn real_path(path: &Path) -> Option<PathBuf> {
    path.ancestors().find_map(|above| {
        let real = above.canonicalize().ok()?;
        let rest = path.strip_prefix(above).ok()?;
        // What is not there is no link either, unless it is one to nothing.
        let is_link = above != path && fs::symlink_metadata(above.join(rest.components().next()?)).is_ok();
        (!is_link).then(|| if rest.as_os_str().is_empty() { real } else { real.join(rest) })
    })
}

/// Makes each of the paths joined by `:` absolute and real.
fn absolute(paths: &OsString) -> OsString {
    let each = std::env::split_paths(paths).filter(|path| !path.as_os_str().is_empty());
    let absolute = each.map(|path| std::path::absolute(&path).unwrap_or(path));
    let absolute = absolute.map(|path| real_path(&path).unwrap_or(path));
    std::env::join_paths(absolute).unwrap_or_else(|_| paths.clone())
}

fn folder((base, whole): FolderVariables, below_home: &str) -> Result<PathBuf, NoHomeFolder> {
    let parent = base_folder(base, below_home)?;
    // Of another base than this process was started with, it says nothing.
    let given = absolute_in(whole);
    Ok(given.filter(|folder| folder.parent() == Some(&*parent)).unwrap_or_else(|| parent.join(NAME)))
}

fn base_folder(variable: &'static str, below_home: &str) -> Result<PathBuf, NoHomeFolder> {
    absolute_in(variable)
        .or_else(|| absolute_in("HOME").map(|home| home.join(below_home)))
        .ok_or(NoHomeFolder(variable))
}

/// The absolute path that the environment variable holds.
fn absolute_in(variable: &str) -> Option<PathBuf> {
    std::env::var_os(variable).map(PathBuf::from).filter(|path| path.is_absolute())
}

/// Creates a folder and its missing parents with mode 0700, so that a permissive umask grants no access.
pub fn create_private(folder: &Path) -> io::Result<()> {
    fs::DirBuilder::new().recursive(true).mode(0o700).create(folder)
}

/// Whether another process prints what this one prints.
pub fn is_captured() -> bool {
    std::env::var_os(CAPTURED).is_some()
}

/// The absolute folders in which the caller looks for programs.
pub fn search_path() -> Vec<PathBuf> {
    let folders = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&folders).filter(|folder| folder.is_absolute()).collect()
}

/// Whether two paths name one file, also through symbolic links.
pub fn is_same_file(one: &Path, other: &Path) -> bool {
    match (one.canonicalize(), other.canonicalize()) {
        (Ok(one), Ok(other)) => one == other,
        _ => one == other,
    }
}

impl From<NoHomeFolder> for ErrorBody {
    fn from(error: NoHomeFolder) -> Self {
        Self::new(Code::BadConfig, error.to_string()).hint("set HOME")
    }
}
