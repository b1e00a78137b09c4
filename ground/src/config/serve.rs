//! `[serve]`: how the sessions of the agent are served to clients over a network.

use std::net::{IpAddr, SocketAddr};
use std::num::NonZeroUsize;
use std::path::PathBuf;

use protocol::duration::PositiveDuration;
use serde::Deserialize;

use super::slack::SlackSettings;

/// Settings of `agent-magic-tool serve`.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ServeSettings {
    /// Where it listens.
    pub listen: SocketAddr,
    /// What it calls itself to other agents, and how it says what it does.
    pub name: String,
    pub description: String,
    /// Whether programs of our own user on this machine need no API key.
    pub keyless: bool,
    /// The names under which others reach it, with a port unless it is the usual one.
    pub public_names: Vec<String>,
    /// The addresses of proxies, which add at the end of `X-Forwarded-For` who their client is.
    pub proxies: Vec<IpAddr>,
    /// The web pages whose scripts may send requests, like `http://localhost:3000`.
    pub origins: Vec<String>,
    /// The files with the certificate chain and its private key; both are empty without TLS.
    pub certificate: PathBuf,
    pub certificate_key: PathBuf,
    /// How many questions of one API key may be worked on or wait at once.
    pub max_turns: NonZeroUsize,
    /// How many sessions one API key may have.
    pub max_sessions: NonZeroUsize,
    /// How long a task that needs a human waits for one to open the page, before it is refused.
    pub approver_window: PositiveDuration,
    /// How long a task waits for a key that decides, if no human has the page open; absent: as long as `confirm.wait`.
    #[serde(default, rename = "gate_window")]
    pub key_window: Option<PositiveDuration>,
    /// The Slack app, if there is one.
    #[serde(default)]
    pub slack: Option<SlackSettings>,
    /// How long a session without work stays in memory.
    pub idle: PositiveDuration,
}
