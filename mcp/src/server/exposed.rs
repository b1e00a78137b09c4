//! Subtools that are served as tools of their own, beside the one tool. What they are is read from the listing, and read
//! again when the catalog changes.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use protocol::caller::Caller;
use protocol::command_executor;
use protocol::shell::Shell;
use rmcp::ErrorData;
use rmcp::model::{Tool, ToolAnnotations};
use serde::Deserialize;
use serde_json::Value;
use tokio::sync::{Mutex, watch};

use super::ServerSettings;
use super::shared::Server;
use super::watch::{FolderWatch, Watched};

/// How long a call waits for its result before it gives the receipt instead.
pub(super) const WAIT: Duration = Duration::from_secs(30);
/// The same for a client that follows tasks by itself.
pub(super) const WAIT_BEFORE_TASK: Duration = Duration::from_millis(500);
/// A program that writes several files is read once.
const SETTLE: Duration = Duration::from_millis(50);

#[derive(Debug)]
pub(super) struct ExposedTools {
    /// `None` before the first look.
    tools: Mutex<Option<Arc<Vec<Tool>>>>,
    changes: watch::Sender<()>,
    catalog: OnceLock<FolderWatch>,
}

/// The result of `list tools --format=mcp`.
#[derive(Deserialize)]
struct ToolList {
    tools: Vec<ListedTool>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ListedTool {
    name: String,
    description: String,
    input_schema: Value,
    annotations: ToolAnnotations,
}

impl Default for ExposedTools {
    fn default() -> Self {
        Self { tools: Mutex::default(), changes: watch::Sender::new(()), catalog: OnceLock::new() }
    }
}

impl ExposedTools {
    /// The tools as they are now.
    pub(super) async fn current(&self, server: &Arc<Server>) -> Result<Arc<Vec<Tool>>, ErrorData> {
        if server.settings.exposed.is_empty() {
            return Ok(Arc::default());
        }
        self.follow(server);
        let mut tools = self.tools.lock().await;
        if let Some(tools) = &*tools {
            return Ok(Arc::clone(tools));
        }
        let read = Arc::new(read(server, server.settings.caller.clone()).await?);
        *tools = Some(Arc::clone(&read));
        Ok(read)
    }

    /// Those that a caller may use.
    pub(super) async fn of(&self, caller: &Caller, server: &Arc<Server>) -> Result<Vec<Tool>, ErrorData> {
        let scope = &caller.tool_scope;
        if scope.profiles().next().is_none() {
            let tools = self.current(server).await?;
            return Ok(tools.iter().filter(|tool| scope.covers(&tool.name)).cloned().collect());
        }
        // What a profile has, the listing says to its caller.
        if server.settings.exposed.is_empty() { Ok(Vec::new()) } else { read(server, caller.clone()).await }
    }

    /// The tool of this name, if the tools have been listed.
    pub(super) fn known(&self, name: &str) -> Option<Tool> {
        let tools = self.tools.try_lock().ok()?;
        tools.as_ref()?.iter().find(|tool| tool.name == name).cloned()
    }

    /// Told whenever the tools are others.
    pub(super) fn changes(&self) -> watch::Receiver<()> {
        self.changes.subscribe()
    }

    /// Begins to follow the catalog, once.
    pub(super) fn follow(&self, server: &Arc<Server>) {
        if server.settings.exposed.is_empty() || self.catalog.get().is_some() {
            return;
        }
        let mut events =
            self.catalog.get_or_init(|| FolderWatch::new(&server.settings.catalog, Watched::Everything)).events();
        let followed = Arc::clone(server);
        server.background.spawn(async move {
            let server = followed;
            loop {
                events.next().await;
                tokio::time::sleep(SETTLE).await;
                let Ok(read) = read(&server, server.settings.caller.clone()).await else { continue };
                let mut tools = server.exposed.tools.lock().await;
                let is_new = tools.as_ref().is_some_and(|known| **known != read);
                *tools = Some(Arc::new(read));
                drop(tools);
                if is_new {
                    server.exposed.changes.send_replace(());
                }
            }
        });
    }
}

async fn read(server: &Arc<Server>, caller: Caller) -> Result<Vec<Tool>, ErrorData> {
    let server = Arc::clone(server);
    let read = tokio::task::spawn_blocking(move || list(&server.settings, &caller)).await;
    let failed = |why: String| ErrorData::internal_error(format!("failed to list the subtools: {why}"), None);
    read.map_err(|error| failed(error.to_string()))?.map_err(failed)
}

/// Lists the subtools to be served, in the order of their names.
fn list(settings: &ServerSettings, caller: &Caller) -> Result<Vec<Tool>, String> {
    let words = ["list", "tools", "--format=mcp", "--full", "--limit=1000000"].map(str::to_owned);
    let shell: &dyn Shell = &*settings.shell;
    let printed = shell.call(&words, "", caller);
    let listed: ToolList =
        serde_json::from_str(&printed.stdout).map_err(|error| format!("{error}; {}", printed.stderr.trim_end()))?;
    let is_served = |tool: &ListedTool| settings.exposed.is_match(&tool.name) && tool.name != command_executor::NAME;
    let mut tools: Vec<_> = listed.tools.into_iter().filter(is_served).map(tool).collect();
    tools.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(tools)
}

fn tool(listed: ListedTool) -> Tool {
    let mut schema = match listed.input_schema {
        Value::Object(schema) => schema,
        _ => serde_json::Map::new(),
    };
    // The protocol demands it; a schema without it accepts objects as well.
    schema.entry("type").or_insert_with(|| "object".into());
    Tool::new(listed.name, listed.description, schema).with_annotations(listed.annotations)
}
