//! MCP servers that run more than an approval of a call is bound to: said once for each server of a file.

use std::collections::HashSet;

use catalog::Subtool;
use definition::run::Run;
use ground::config::Config;
use runner::mcp::uncovered;

use super::{Finding, warning};

/// The servers that were looked at, each with its file.
#[derive(Default)]
pub(super) struct SeenServers(HashSet<String>);

impl SeenServers {
    pub(super) fn check(&mut self, subtool: &Subtool, config: &Config, findings: &mut Vec<Finding>) {
        let Run::Mcp(mcp) = &subtool.definition.run else { return };
        let settings = serde_json::to_string(&mcp.server).unwrap_or_default();
        if !self.0.insert(format!("{} {settings}", subtool.origin)) {
            return;
        }
        if let Some(uncovered) = uncovered(&mcp.server, &config.programs) {
            let message = format!("{}; {}", uncovered.why, uncovered.advice);
            findings.push(warning(subtool, "uncovered-server", "run.mcp.server", message));
        }
    }
}
