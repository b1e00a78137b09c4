//! `setup CLIENT --mcp`: this program as an MCP server in a client's own configuration, for clients without a shell.
//!
//! Each client has its own file and its own words for the same entry: the formats are those of November 2026.

use std::path::PathBuf;

use agent_side::client::Client;
use serde_json::{Value, json};

use super::json_file::JsonEdit;
use super::plan::{Edit, SetupPlan, SetupTarget};

/// The name of the server in every configuration.
pub(super) const NAME: &str = "agent-magic-tool";

/// How long Goose waits for an answer, in seconds: a call may wait for a human.
const GOOSE_SECONDS: u32 = 600;

pub(super) fn plan(target: &SetupTarget) -> SetupPlan {
    let mut plan = SetupPlan::default();
    let arguments = arguments(target);
    let entry = json!({"command": target.program, "args": arguments});
    let typed = json!({"type": "stdio", "command": target.program, "args": arguments});
    let whole: Vec<_> = std::iter::once(target.program.clone()).chain(arguments.iter().cloned()).collect();
    let servers = |path, value| Edit::Json(vec![JsonEdit::Entry { path, key: NAME, value }]);
    let edit = match target.client {
        Client::ClaudeCode => servers(&["mcpServers"], typed),
        Client::VsCode => servers(&["servers"], typed),
        Client::Zed => servers(&["context_servers"], json!({"command": target.program, "args": arguments, "env": {}})),
        Client::Opencode => servers(&["mcp"], json!({"type": "local", "command": whole, "enabled": true})),
        Client::Codex => {
            Edit::TomlServer { table: "mcp_servers", key: NAME, command: target.program.clone(), arguments }
        }
        Client::Goose => Edit::YamlEntry { key: "extensions", entry: goose_extension(&target.program, &arguments) },
        Client::ClaudeDesktop | Client::LmStudio | Client::Cursor | Client::GeminiCli => {
            servers(&["mcpServers"], entry)
        }
        Client::Aider | Client::AgentsMd => return plan,
    };
    plan.file(file(target), edit);
    plan.next.push(next(target.client).to_owned());
    plan.next.push("what needs an approval waits for you on the page: agent-magic-tool executor page".to_owned());
    plan
}

fn arguments(target: &SetupTarget) -> Vec<String> {
    // Files of a project are shared, so they must not name folders of this machine.
    let mailbox = target.paths.explicit_mailbox().filter(|_| target.project.is_none());
    let mailbox = mailbox.map(|mailbox| ["--mailbox".to_owned(), mailbox.display().to_string()]);
    std::iter::once("mcp".to_owned()).chain(mailbox.into_iter().flatten()).collect()
}

/// The file in which the client keeps its servers.
fn file(target: &SetupTarget) -> PathBuf {
    let (home, paths) = (&target.home, &target.paths);
    let is_mac = cfg!(target_os = "macos");
    let support = home.join("Library/Application Support");
    if let Some(project) = &target.project {
        return project.join(match target.client {
            Client::ClaudeCode => ".mcp.json",
            Client::VsCode => ".vscode/mcp.json",
            Client::Zed => ".zed/settings.json",
            Client::Codex => ".codex/config.toml",
            Client::GeminiCli => ".gemini/settings.json",
            Client::Opencode => "opencode.json",
            _ => ".cursor/mcp.json",
        });
    }
    match target.client {
        Client::ClaudeDesktop if is_mac => support.join("Claude/claude_desktop_config.json"),
        Client::ClaudeDesktop => paths.config_of("Claude").join("claude_desktop_config.json"),
        Client::VsCode if is_mac => support.join("Code/User/mcp.json"),
        Client::VsCode => paths.config_of("Code").join("User/mcp.json"),
        Client::Zed => paths.config_of("zed").join("settings.json"),
        Client::LmStudio => home.join(".lmstudio/mcp.json"),
        Client::Goose => paths.config_of("goose").join("config.yaml"),
        Client::ClaudeCode => target.folder("", "CLAUDE_CONFIG_DIR", "").join(".claude.json"),
        Client::Codex => target.folder("", "CODEX_HOME", ".codex").join("config.toml"),
        Client::GeminiCli => home.join(".gemini/settings.json"),
        Client::Opencode => {
            let folder = paths.config_of("opencode");
            let with_comments = folder.join("opencode.jsonc");
            if with_comments.exists() { with_comments } else { folder.join("opencode.json") }
        }
        Client::Cursor | Client::Aider | Client::AgentsMd => home.join(".cursor/mcp.json"),
    }
}

/// The lines of an extension below `extensions:`, without indentation.
fn goose_extension(program: &str, arguments: &[String]) -> Vec<String> {
    // A JSON text is a YAML text.
    let program = Value::from(program);
    vec![
        format!("{NAME}:"),
        format!("  name: {NAME}"),
        "  description: tools for services, APIs, mail and files".to_owned(),
        "  type: stdio".to_owned(),
        "  enabled: true".to_owned(),
        format!("  cmd: {program}"),
        format!("  args: {}", json!(arguments)),
        "  envs: {}".to_owned(),
        format!("  timeout: {GOOSE_SECONDS}"),
    ]
}

fn next(client: Client) -> &'static str {
    match client {
        Client::ClaudeDesktop => "quit Claude Desktop and start it again",
        Client::VsCode => "in VS Code, start the server with the command `MCP: List Servers`",
        Client::Zed => "Zed shows the server in its agent panel's settings",
        Client::LmStudio => "LM Studio shows the server under Program, Install",
        Client::Goose => "start a new session of Goose",
        Client::ClaudeCode => "start a new session of Claude Code; it asks once whether to use a project's server",
        Client::Codex => "start a new session of Codex",
        Client::GeminiCli => "start a new session of Gemini CLI",
        Client::Opencode => "restart OpenCode",
        Client::Cursor => "switch the server on in Cursor's settings, under MCP",
        Client::Aider | Client::AgentsMd => "",
    }
}
