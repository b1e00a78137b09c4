//! What the program of a server runs that an approval of a call is not bound to. In doubt, it is said.

use definition::run::mcp::McpServer;
use ground::config::programs::ProgramSettings;

use super::executed::program_call;
use crate::process::loading::ProgramLoading;

/// Why an approval is not bound to all that a server runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Uncovered {
    pub why: String,
    /// What a human can do about it.
    pub advice: &'static str,
}

/// For what a human can list.
const LIST_IT: &str = "list the files and folders that belong to it in `covers`";
/// For what is not known before it runs.
const INSTALL_IT: &str =
    "install the server, name its own program or script in `command`, and list its folder in `covers`";

/// Why an approval of a call is not bound to all that its program runs; `None` if it is, as far as is known, or if
/// the program is not found.
pub fn uncovered(server: &McpServer, programs: &ProgramSettings) -> Option<Uncovered> {
    if server.url.is_some() {
        return None;
    }
    let loading = program_call(server).loading(programs).ok()?;
    let is_listed = !server.covers.is_empty();
    let (why, advice) = match loading {
        ProgramLoading::Fetches(name) => (
            format!("`{name}` finds or downloads what it runs when it starts, and no approval is bound to that"),
            INSTALL_IT,
        ),
        ProgramLoading::Itself => return None,
        _ if is_listed => return None,
        ProgramLoading::Starts(name) => {
            (format!("`{name}` starts another program, and no approval is bound to that"), LIST_IT)
        }
        ProgramLoading::Text(name) => {
            (format!("`{name}` runs a text, and no approval is bound to the files that it uses"), LIST_IT)
        }
        ProgramLoading::Module(name) => {
            (format!("it cannot be told where the module `{name}` is, and no approval is bound to it"), LIST_IT)
        }
        ProgramLoading::Script(path) => {
            (format!("no approval is bound to what `{}` loads besides", path.display()), LIST_IT)
        }
    };
    Some(Uncovered { why, advice })
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt as _;

    use serde_json::{Value, json};

    use super::*;

    /// Why a server that is started like this is not covered, in a folder with a module, a script, and programs.
    fn uncovered(command: &[&str], more: &Value) -> Option<String> {
        let folder = tempfile::tempdir().expect("a folder");
        for name in ["npx", "uvx", "env", "python3", "bash", "node", "own"] {
            fs::write(folder.path().join(name), "\x7fELF").expect("written");
        }
        fs::write(folder.path().join("script"), "#!/bin/sh\n").expect("written");
        for name in ["npx", "uvx", "env", "python3", "bash", "node", "own", "script"] {
            fs::set_permissions(folder.path().join(name), fs::Permissions::from_mode(0o755)).expect("set");
        }
        fs::write(folder.path().join("tool.py"), "").expect("written");
        let mut server = json!({"name": "s", "command": command, "folder": folder.path()});
        server.as_object_mut().expect("an object").extend(more.as_object().expect("an object").clone());
        let server: McpServer = serde_json::from_value(server).expect("a server");
        let programs = ProgramSettings { path: vec![folder.path().to_owned()] };
        let found = super::uncovered(&server, &programs)?;
        Some(found.why.replace(&folder.path().display().to_string(), "HERE"))
    }

    #[test]
    fn what_no_approval_is_bound_to_is_said() {
        for (command, expected) in [
            (&["npx", "-y", "server"][..], "`npx` finds or downloads"),
            (&["uvx", "server"], "`uvx` finds or downloads"),
            (&["env", "python3", "tool.py"], "`env` starts another program"),
            (&["bash", "-c", "exec server"], "`bash` runs a text"),
            (&["node", "-e", "1"], "`node` runs a text"),
            (&["python3", "-c", "1"], "`python3` runs a text"),
            (&["python3", "-m", "none"], "where the module `none` is"),
            (&["python3", "-m", "tool"], "what `HERE/tool.py` loads besides"),
            (&["python3", "tool.py"], "what `HERE/tool.py` loads besides"),
            (&["script"], "what `HERE/script` loads besides"),
        ] {
            let why = uncovered(command, &json!({})).unwrap_or_default();
            assert!(why.contains(expected), "{command:?}: {why}");
            let listed = uncovered(command, &json!({"covers": ["tool.py"]}));
            assert_eq!(listed.is_some(), expected.contains("downloads"), "{command:?}");
        }
        assert_eq!(uncovered(&["own", "--stdio"], &json!({})), None);
        assert_eq!(uncovered(&["none"], &json!({})), None);
    }
}
