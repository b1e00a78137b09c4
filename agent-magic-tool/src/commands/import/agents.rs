//! `import agents`: lists the MCP servers that other agents are configured to use.
//!
//! Only reads. What looks like a secret is never printed.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use import::agents::{AgentPlace, BaseFolder, PLACES};
use protocol::code::Exit;
use protocol::regular_file;
use serde_json::{Value, json};

use crate::context::Context;
use crate::error::Error;

/// The word on the command line.
pub(super) const WORD: &str = "agents";

/// The largest configuration: Claude Code keeps much else in its own.
const MAX_BYTES: u64 = 64 << 20;

pub(super) fn run(context: &Context) -> Result<Exit, Error> {
    let home = context.paths.home()?;
    let project = std::env::current_dir().map_err(|error| Error::io("failed to find the current folder", &error))?;
    let (mut servers, mut broken, mut seen) = (Vec::new(), Vec::new(), BTreeSet::new());
    for place in PLACES {
        let path = path(place, &home, &project, context);
        if !path.exists() || !seen.insert(path.clone()) {
            continue;
        }
        match read(place, &path) {
            Ok(found) => servers.extend(found),
            Err(error) => broken.push(json!({"client": place.client, "file": path, "error": error})),
        }
    }
    let (count, broken_count) = (servers.len(), broken.len());
    context.output.json(&json!({"servers": servers, "broken": broken}))?;
    let unread = if broken_count == 0 { String::new() } else { format!("; files that cannot be read: {broken_count}") };
    context.output.note(&format!("MCP servers found: {count}{unread}"));
    if count > 0 {
        context.output.note("agent-magic-tool cannot run MCP servers yet: they are listed, not imported");
    }
    Ok(Exit::Ok)
}

fn path(place: AgentPlace, home: &Path, project: &Path, context: &Context) -> PathBuf {
    match place.base {
        BaseFolder::Home => home.join(place.file),
        BaseFolder::Config => context.paths.config_of(place.file),
        BaseFolder::Project => project.join(place.file),
        BaseFolder::Variable(variable, folder) => {
            context.paths.folder_in(variable).unwrap_or_else(|| home.join(folder)).join(place.file)
        }
    }
}

/// Reads the servers of one file, or says why it cannot be read.
fn read(place: AgentPlace, path: &Path) -> Result<Vec<Value>, String> {
    let bytes = regular_file::read(path, MAX_BYTES).map_err(|error| error.to_string())?;
    let text = String::from_utf8(bytes).map_err(|_| "it is not a text in UTF-8".to_owned())?;
    let servers = place.servers(&text).map_err(|error| error.to_string())?;
    let listed = servers.into_iter().map(|server| {
        let mut listed = json!({"client": place.client, "file": path});
        if let (Some(listed), Ok(Value::Object(server))) = (listed.as_object_mut(), serde_json::to_value(server)) {
            listed.extend(server);
        }
        listed
    });
    Ok(listed.collect())
}
