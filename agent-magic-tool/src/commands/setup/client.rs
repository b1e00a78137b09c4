//! The clients: other makers' agents that `setup` and `hook` know. One line in the table here, one file beside
//! this one for what is installed, and one below `hook/` if it can be woken.

use std::fmt;

use executor::config::Wake;
use executor::duration::Span;
use serde::Serialize;

use super::plan::{Plan, Site};
use super::{agents_md, aider, claude_code, codex, cursor, gemini_cli, goose, opencode};

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
    pub(crate) fn wait(self, wake: &Wake) -> Span {
        match self {
            Self::ClaudeCode | Self::Opencode => wake.wait_beside,
            _ => wake.wait,
        }
    }

    /// What is to be installed there.
    pub(super) fn plan(self, site: &Site) -> Plan {
        match self {
            Self::ClaudeCode => claude_code::plan(site),
            Self::Codex => codex::plan(site),
            Self::GeminiCli => gemini_cli::plan(site),
            Self::Opencode => opencode::plan(site),
            Self::Cursor => cursor::plan(site),
            Self::Goose => goose::plan(site),
            Self::Aider => aider::plan(site),
            Self::AgentsMd => agents_md::plan(site),
        }
    }
}

impl fmt::Display for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
