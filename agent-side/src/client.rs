//! The clients: third-party agents that `setup` and `hook` support.
//!
//! To add one: extend the tables here, add a file next to this one for what to install, a line to `plan` in
//! `setup.rs`, and a file in `hook/` if the client can be woken.

use std::fmt;

use protocol::duration::PositiveDuration;
use protocol::mailbox::for_callers::CallerSettings;
use serde::Serialize;

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Client {
    ClaudeCode,
    Codex,
    GeminiCli,
    Opencode,
    Cursor,
    Goose,
    Aider,
    /// Any agent that reads AGENTS.md.
    AgentsMd,
    ClaudeDesktop,
    VsCode,
    Zed,
    LmStudio,
}

impl Client {
    pub const fn name(self) -> &'static str {
        match self {
            Self::ClaudeCode => "claude-code",
            Self::Codex => "codex",
            Self::GeminiCli => "gemini-cli",
            Self::Opencode => "opencode",
            Self::Cursor => "cursor",
            Self::Goose => "goose",
            Self::Aider => "aider",
            Self::AgentsMd => "agents-md",
            Self::ClaudeDesktop => "claude-desktop",
            Self::VsCode => "vs-code",
            Self::Zed => "zed",
            Self::LmStudio => "lm-studio",
        }
    }

    /// Whether it is connected only as an MCP client: with `--mcp`.
    pub const fn needs_mcp(self) -> bool {
        matches!(self, Self::ClaudeDesktop | Self::VsCode | Self::Zed | Self::LmStudio)
    }

    /// Whether it reads files of the user that apply to all projects.
    pub const fn has_user_files(self) -> bool {
        !matches!(self, Self::Cursor | Self::AgentsMd)
    }

    /// Whether it can be given an MCP server in files of the user.
    pub const fn has_user_servers(self) -> bool {
        !matches!(self, Self::Aider | Self::AgentsMd)
    }

    /// Whether it can be given an MCP server in files of a project.
    pub const fn has_project_servers(self) -> bool {
        self.has_user_servers() && !matches!(self, Self::ClaudeDesktop | Self::LmStudio | Self::Goose)
    }

    /// How long its hook waits for results.
    pub fn wait(self, settings: &CallerSettings) -> PositiveDuration {
        match self {
            Self::ClaudeCode | Self::Opencode => settings.hook_wait_beside,
            _ => settings.hook_wait,
        }
    }
}

impl fmt::Display for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
