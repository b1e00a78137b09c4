//! The clients: other makers' agents that `setup` and `hook` know. One line in the tables here, one file beside
//! this one for what is installed, its line in `plan` of `setup.rs`, and one below `hook/` if it can be woken.

use std::fmt;

use executor::config::WakeSettings;
use protocol::duration::PositiveDuration;
use serde::Serialize;

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Client {
    ClaudeCode,
    Codex,
    GeminiCli,
    Opencode,
    Cursor,
    Goose,
    Aider,
    /// Any agent that reads AGENTS.md.
    AgentsMd,
}

impl Client {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::ClaudeCode => "claude-code",
            Self::Codex => "codex",
            Self::GeminiCli => "gemini-cli",
            Self::Opencode => "opencode",
            Self::Cursor => "cursor",
            Self::Goose => "goose",
            Self::Aider => "aider",
            Self::AgentsMd => "agents-md",
        }
    }

    /// Whether it reads anything that belongs to its user and not to a project.
    pub(super) const fn has_user_files(self) -> bool {
        !matches!(self, Self::Cursor | Self::AgentsMd)
    }

    /// How long its hook may wait.
    pub(crate) fn wait(self, wake: &WakeSettings) -> PositiveDuration {
        match self {
            Self::ClaudeCode | Self::Opencode => wake.wait_beside,
            _ => wake.wait,
        }
    }
}

impl fmt::Display for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
