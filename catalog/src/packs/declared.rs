//! What a pack may use: only what its manifest declares. A subtool that uses anything else is not loaded.

use std::path::Path;

use definition::run::Run;
use definition::run::builtin::Builtin;
use definition::run::http::Auth;
use definition::{Confirm, Definition};
use ground::base::template;
use serde_json::{Map, Value, json};
use url::Url;

use super::MANIFEST;
use super::loaded::{LoadedPack, globs};
use crate::deserialize::LocatedMessage;
use crate::variables::{Variables, names_in};

/// The key of a manifest with the hosts, and those that say what a model, files, the system prompt, new definitions and what is hidden are for.
const HOSTS: &str = "hosts";
const MODEL: &str = "model";
const FILES: &str = "files";
const PROMPT: &str = "prompt";
const DEFINITIONS: &str = "definitions";
const HIDDEN: &str = "hidden";
/// The key of a manifest with the subtools of others.
const USES: &str = "uses";

/// In `hosts`: any host. In `uses`: any subtool.
const ANY: &str = "*";

/// A privilege as a manifest declares it: `*` stands for what depends on the input.
fn with_stars(required: &str) -> String {
    let (mut name, mut rest) = (String::new(), required);
    while let Some((before, after)) = rest.split_once("{{") {
        name.push_str(before);
        name.push('*');
        rest = after.split_once("}}").map(|(_, after)| after).unwrap_or_default();
    }
    name + rest
}

impl LoadedPack {
    /// Calls `add` with each secret, privilege and variable that is not declared.
    fn undeclared_names(
        &self,
        definition: &Definition,
        raw: &Map<String, Value>,
        add: &mut dyn FnMut(&str, &str, &str),
    ) {
        let needs = &self.manifest.needs;
        for name in definition.secrets_anywhere() {
            if !needs.secrets.contains_key(&name) {
                add(&format!("the secret `{name}`"), &name, "secrets");
            }
        }
        for name in definition.requires.iter().map(|required| with_stars(required)) {
            if !needs.privileges.contains_key(&name) {
                add(&format!("the privilege `{name}`"), &name, "privileges");
            }
        }
        for name in names_in(&Value::Object(raw.clone()).to_string()) {
            if !needs.variables.contains_key(&name) {
                add(&format!("the variable `{name}`"), &name, "variables");
            }
        }
    }

    /// What `definition` of the pack uses and its manifest does not declare. `raw` is the definition before variables
    /// are filled in, `changes` what a human changed of it, which may use anything. `others` are the subtools
    /// of others that it uses.
    pub(crate) fn undeclared(
        &self,
        definition: &Definition,
        raw: &Map<String, Value>,
        changes: Option<&Map<String, Value>>,
        variables: &Variables,
        others: &[String],
    ) -> Vec<LocatedMessage> {
        let needs = &self.manifest.needs;
        let changes = changes.map(|changes| Value::Object(changes.clone()).to_string()).unwrap_or_default();
        let mut found = Vec::new();
        let mut add = |what: &str, name: &str, section: &str| {
            if name.is_empty() || !changes.contains(name) {
                let message = format!(
                    "the pack `{}` does not declare {what}; its author must add to {MANIFEST}, {}",
                    self.name(),
                    line(section, name)
                );
                found.push((Some("run".to_owned()), message));
            }
        };
        self.undeclared_names(definition, raw, &mut add);
        let declared: Vec<_> = needs
            .variables
            .keys()
            .filter_map(|name| variables.get(name)?.value().as_str().map(str::to_owned))
            .filter(|value| !value.is_empty())
            .collect();
        let is_own = |program: &Path| {
            let own = Path::new(&self.file).parent();
            program.is_absolute()
                && (own.is_some_and(|own| own.is_absolute() && program.starts_with(own))
                    || declared.iter().any(|value| program.starts_with(value)))
                && !program.components().any(|part| part == std::path::Component::ParentDir)
        };
        let program = |name: &str, add: &mut dyn FnMut(&str, &str, &str)| {
            let is_declared = needs.programs.keys().any(|known| known == name);
            if !is_declared && !is_own(Path::new(name)) {
                add(&format!("the program `{name}`"), name, "programs");
            }
        };
        let host = |text: &str, add: &mut dyn FnMut(&str, &str, &str)| {
            let host = host_of(text);
            let is_variable = |host: &str| declared.iter().any(|value| host_of(value).as_deref() == Some(host));
            let is_declared = |host: &str| self.manifest.hosts.iter().any(|known| known == host || known == ANY);
            match host {
                Some(host) if is_declared(&host) || is_variable(&host) => {}
                Some(host) => add(&format!("the host `{host}`"), &host, HOSTS),
                None if is_declared(ANY) => {}
                None => add("that it sends to hosts of the input's choice", "", HOSTS),
            }
        };
        for name in others {
            // A glob that matches the star itself is not it.
            let names_it = |known: &String| known == name || (name != ANY && globs([known]).is_match(name));
            if !self.manifest.uses.iter().any(names_it) {
                match name.as_str() {
                    ANY => add("that it uses any subtool", "", USES),
                    name => add(&format!("the subtool `{name}`"), name, USES),
                }
            }
        }
        if definition.run.reads_files() && needs.files.is_none() {
            add("that it reads files", "", FILES);
        }
        match &definition.run {
            Run::Http(http) => {
                host(&http.base_url, &mut add);
                if let Some(Auth::ClientCredentials(client)) = &http.auth {
                    host(&client.token_url, &mut add);
                }
            }
            Run::Process(process) => program(process.program(), &mut add),
            Run::Mcp(mcp) => match (&mcp.server.url, mcp.server.command.first()) {
                (Some(url), _) => host(url, &mut add),
                (None, Some(command)) => program(command, &mut add),
                (None, None) => {}
            },
            Run::Sql(sql) => {
                if !needs.databases.contains_key(&sql.database) {
                    add(&format!("the database `{}`", sql.database), &sql.database, "databases");
                }
                if sql.sees_hidden && needs.hidden.is_none() {
                    add("that it sees what a database hides or denies", "", HIDDEN);
                }
            }
            Run::Agent(agent) if agent.url.is_some() => host(agent.url.as_deref().unwrap_or_default(), &mut add),
            Run::Llm(_) | Run::Agent(_) if needs.model.is_none() => {
                add("that it asks a model", "", MODEL);
            }
            Run::Builtin(Builtin::ReadPrompt(_) | Builtin::EditPrompt(_)) if needs.prompt.is_none() => {
                add("that it uses the system prompt", "", PROMPT);
            }
            Run::Builtin(Builtin::SaveScript(_)) if needs.definitions.is_none() => {
                add("that it adds definitions", "", DEFINITIONS);
            }
            Run::Builtin(Builtin::FetchUrl(fetch)) => host(fetch.url.as_str().unwrap_or_default(), &mut add),
            // Each step, and each call of a script, is a subtool with its own rules.
            Run::Llm(_) | Run::Agent(_) | Run::Builtin(_) | Run::AskUser(_) | Run::Steps(_) | Run::Script(_) => {}
        }
        found
    }
}

/// The line of a manifest that declares `name`, and where it stands.
fn line(section: &str, name: &str) -> String {
    match section {
        HOSTS | USES => {
            format!("before its first section: {section} = [{}]", json!(if name.is_empty() { ANY } else { name }))
        }
        MODEL | FILES | PROMPT | DEFINITIONS | HIDDEN => format!("under [needs]: {section} = \"what for\""),
        section => format!("under [needs.{section}]: {} = {{ description = \"what for\" }}", json!(name)),
    }
}

/// What may destroy something is asked about, whatever a pack says; as in MCP, that is what does not deny it. So is what
/// writes files of the human.
pub(super) fn ask_about_destruction(definition: &mut Definition) {
    if matches!(&definition.run, Run::Builtin(builtin) if builtin.writes()) {
        definition.confirm = Some(Confirm::Always);
    }
    let is_lenient = matches!(definition.confirm, Some(Confirm::Never | Confirm::When(_)));
    if definition.annotations.is_destructive() && is_lenient {
        definition.confirm = Some(Confirm::Always);
    }
}

/// The host of a URL; `None` if it depends on the input.
fn host_of(text: &str) -> Option<String> {
    let fixed = text.find(['{']).map_or(text, |at| &text[..at]);
    if !template::is_constant(text) {
        // The name must have ended before the template begins.
        fixed.split_once("//")?.1.find('/')?;
    }
    Url::parse(fixed).ok()?.host_str().map(str::to_ascii_lowercase)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_is_known_only_if_no_input_can_change_it() {
        for (text, host) in [
            ("https://api.example.com/v1", Some("api.example.com")),
            ("https://API.example.com", Some("api.example.com")),
            ("https://api.example.com/{{ a }}", Some("api.example.com")),
            ("https://api.example.com{{ a }}/", None),
            ("https://{{ a }}.example.com/", None),
            ("{{ url }}", None),
            ("https://api.example.com@{{ a }}/", None),
        ] {
            assert_eq!(host_of(text).as_deref(), host, "{text}");
        }
    }
}
