//! What a program loads besides the files of its start, as far as its name and its arguments say it.

use std::path::PathBuf;

use super::python_module::PythonModule;
use super::startup::{Startup, interpreter_kind};

/// Programs that find or download what they run when they start.
const FETCHERS: [&str; 17] = [
    "bunx", "cargo", "dlx", "docker", "flatpak", "go", "nix", "npm", "npx", "pipx", "pnpm", "pnpx", "podman", "snap",
    "uv", "uvx", "yarn",
];
/// Programs that start or load another one, which their arguments name.
const STARTERS: [&str; 37] = [
    "bun",
    "busybox",
    "bwrap",
    "chroot",
    "deno",
    "doas",
    "dotnet",
    "electron",
    "elixir",
    "env",
    "erl",
    "firejail",
    "hatch",
    "ionice",
    "java",
    "julia",
    "just",
    "make",
    "mise",
    "mono",
    "nice",
    "nohup",
    "nsenter",
    "pdm",
    "poetry",
    "runuser",
    "setsid",
    "socat",
    "ssh",
    "stdbuf",
    "su",
    "sudo",
    "systemd-run",
    "timeout",
    "tsx",
    "unshare",
    "xargs",
];

/// How a program comes to what it runs.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum ProgramLoading {
    /// It is all in its own file, but for libraries of the system.
    Itself,
    /// It finds or downloads it when it starts.
    Fetches(String),
    /// It starts or loads what its arguments name.
    Starts(String),
    /// An interpreter runs a text, or what it is sent.
    Text(String),
    /// A module that was not found.
    Module(String),
    /// An interpreter runs this file or package, which may load others.
    Script(PathBuf),
}

impl ProgramLoading {
    pub(super) fn of(startup: &Startup, module: Option<&PythonModule>) -> Self {
        let name = startup.program.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        if FETCHERS.contains(&name) {
            return Self::Fetches(name.to_owned());
        }
        if STARTERS.contains(&name) {
            return Self::Starts(name.to_owned());
        }
        match (module, &startup.script) {
            (Some(PythonModule { path: Some(path), .. }), _) | (None, Some((_, path))) => Self::Script(path.clone()),
            (Some(module), _) => Self::Module(module.name.clone()),
            (None, None) if interpreter_kind(&startup.program).is_some() => Self::Text(name.to_owned()),
            (None, None) if startup.before.is_empty() => Self::Itself,
            (None, None) => Self::Script(startup.program.clone()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_names_are_in_order() {
        assert!(FETCHERS.is_sorted() && STARTERS.is_sorted());
    }
}
