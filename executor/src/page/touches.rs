//! What a run accesses, after the configuration was applied: an origin, a program, a file, a model and its server.

use std::path::Path;

use agent_loop::model::provider::client;
use catalog::Subtool;
use definition::run::Run;
use ground::config::Config;
use ground::task::fingerprint::{FileRole, Fingerprint};
use serde_json::Value;
use url::Url;

/// `plan` is what the run sends, `Null` if there is no input to plan with; `files` are those that it executes.
pub(super) fn touches(subtool: Option<&Subtool>, plan: &Value, files: &[Fingerprint], config: &Config) -> Vec<String> {
    let Some(subtool) = subtool else { return Vec::new() };
    let name = match &subtool.definition.run {
        Run::Http(http) => {
            let planned = plan["http"]["url"].as_str().and_then(origin);
            planned.unwrap_or_else(|| {
                let declared = http.configured_base_url(&config.http.endpoints);
                origin(&declared).unwrap_or(declared)
            })
        }
        Run::Process(process) => {
            let shown = files.iter().find(|file| file.role == FileRole::Program).map(|file| file.path.clone());
            let found = shown.or_else(|| process.find(&config.programs));
            format!("program {}", found.as_deref().unwrap_or(Path::new(process.program())).display())
        }
        Run::Builtin(_) => builtin(&plan["builtin"]),
        Run::Llm(_) => model("language model", plan["llm"]["model"].as_str(), config),
        Run::Agent(agent) if agent.url.is_some() => {
            let url = plan["agent"]["url"].as_str().or(agent.url.as_deref()).unwrap_or_default();
            format!("the agent at {}", origin(url).unwrap_or_else(|| url.to_owned()))
        }
        Run::Agent(_) => model("a separate agent with the model", plan["agent"]["model"].as_str(), config),
        Run::Mcp(mcp) => format!("MCP server {} ({})", mcp.server.name, mcp.server.place()),
        Run::Steps(steps) => {
            return steps.subtools().map(|(_, subtool, _)| format!("subtool {subtool}, by its own rules")).collect();
        }
        Run::Script(_) => return vec!["the subtools that it calls, by their own rules".to_owned()],
        Run::Sql(sql) => sql.place(config),
        Run::AskUser(_) => return Vec::new(),
    };
    vec![name]
}

fn origin(url: &str) -> Option<String> {
    let url = Url::parse(url).ok()?;
    url.has_host().then(|| url.origin().ascii_serialization())
}

/// What a function of the executor accesses, by the arguments that say it.
fn builtin(plan: &Value) -> String {
    let arguments = plan.as_object().and_then(|functions| functions.values().next()).unwrap_or(&Value::Null);
    let (url, path) = (arguments["url"].as_str(), arguments["path"].as_str());
    let section = arguments["section"].as_str().map(|section| format!("section {section} of the system prompt"));
    url.and_then(origin)
        .or_else(|| path.map(|path| format!("file {path}")))
        .or(section)
        .unwrap_or_else(|| "the executor itself".to_owned())
}

fn model(what: &str, name: Option<&str>, config: &Config) -> String {
    let Some(name) = name.filter(|name| !name.is_empty()) else { return format!("{what} of the configuration") };
    let at = config.models.get(name).map(|model| client::base_url(model.url.as_ref(), model.provider));
    let at = at.map_or_else(String::new, |url| format!(" at {}", url.origin().ascii_serialization()));
    format!("{what} {name}{at}")
}
