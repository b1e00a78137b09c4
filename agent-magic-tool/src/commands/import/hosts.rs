//! Where imported definitions send requests and secrets. What a description says of that is shown and, if it is new for
//! a pack or a secret that is known, not taken over until a human names the host.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use executor::catalog::packs::SHIPPED;
use executor::catalog::{Sources, merged_over};
use executor::config::Config;
use executor::config::secret::{SecretHost, SecretName, Secrets};
use executor::runner::mcp::McpServer;
use serde_json::{Map, Value};
use url::Url;

use super::writing::Pack;
use crate::context::Context;
use crate::error::Error;

/// The runner of which a description says where it sends.
const HTTP: &str = "http";
const MCP: &str = "mcp";
/// The fields that say where what is beside them goes.
const PLACES: [&str; 2] = ["base_url", "url"];
/// The field with a further place, which gives a token for the API.
const TOKEN_PLACE: &str = "token_url";
/// The fields whose content is sent or passed on, so that a `url` in it is no place.
const DATA: [&str; 5] = ["headers", "query", "body", "env", "input"];

/// What definitions send where.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(super) struct Uses {
    /// The authentications by the URL to which they go, as the definitions have them.
    auth: BTreeMap<String, BTreeSet<String>>,
    secrets: BTreeSet<(SecretName, String)>,
}

impl Uses {
    /// Adds what the definitions of a file send, with the runners that `counts` names.
    fn add_file(&mut self, file: &Map<String, Value>, counts: fn(&str) -> bool) {
        let defaults = file.get("$defaults").and_then(Value::as_object).cloned().unwrap_or_default();
        for (_, definition) in file.iter().filter(|(name, _)| !name.starts_with('$')) {
            let Some(definition) = definition.as_object() else { continue };
            let kinds: Vec<_> =
                definition.get("run").and_then(Value::as_object).into_iter().flat_map(Map::keys).collect();
            let merged = merged_over(defaults.clone(), definition.clone());
            for kind in kinds.into_iter().filter(|kind| counts(kind)) {
                self.add_run(kind, &merged["run"][kind]);
            }
        }
    }

    fn add_run(&mut self, kind: &str, run: &Value) {
        self.add_secrets(run, &BTreeSet::new(), true);
        if let (HTTP, Some(origin)) = (kind, run["base_url"].as_str().map(origin)) {
            let auth = &run["auth"];
            self.auth.entry(origin).or_default().extend((!auth.is_null()).then(|| auth.to_string()));
        }
    }

    /// Adds the secrets in `value`, whatever runner it is of. They go to the URLs beside them, or else to those of what
    /// is around it, but for the token endpoint, which the API is added to. Data that is sent names no place: `is_place`.
    fn add_secrets(&mut self, value: &Value, around: &BTreeSet<String>, is_place: bool) {
        let mut names = BTreeSet::new();
        match value {
            Value::String(_) => secrets(value, &mut names),
            Value::Array(items) => items.iter().for_each(|item| self.add_secrets(item, around, is_place)),
            Value::Object(fields) => {
                let place = |key: &str| fields.get(key).filter(|_| is_place).and_then(Value::as_str).map(origin);
                let mut places: BTreeSet<_> = PLACES.iter().filter_map(|key| place(key)).collect();
                if places.is_empty() {
                    places.clone_from(around);
                }
                places.extend(place(TOKEN_PLACE));
                for (key, field) in fields {
                    self.add_secrets(field, &places, is_place && !DATA.contains(&key.as_str()));
                }
            }
            Value::Null | Value::Bool(_) | Value::Number(_) => {}
        }
        let pairs = names.into_iter().flat_map(|name| around.iter().map(move |origin| (name.clone(), origin.clone())));
        self.secrets.extend(pairs);
    }

    /// The hosts to which `name` is sent.
    fn hosts_of(&self, name: &SecretName) -> BTreeSet<SecretHost> {
        self.secrets.iter().filter(|(known, _)| known == name).filter_map(|(_, origin)| host(origin)).collect()
    }

    /// In words, for a human.
    fn shown(&self) -> String {
        let lines = self.auth.iter().map(|(origin, auth)| {
            let auth: Vec<_> = auth.iter().map(|auth| format!("`{auth}`")).collect();
            format!(
                "`{origin}` with {}",
                if auth.is_empty() { "no authentication".to_owned() } else { auth.join(", ") }
            )
        });
        lines.collect::<Vec<_>>().join("; ")
    }
}

/// Whether what a runner of this kind sends comes from a description. A human wrote how an MCP server is reached, and
/// [`bind_server`] takes that over.
fn is_described(kind: &str) -> bool {
    kind != MCP
}

fn origin(url: &str) -> String {
    Url::parse(url).map_or_else(|_| url.to_owned(), |url| url.origin().ascii_serialization())
}

/// Adds the secrets to which `value` refers, also after a prefix.
fn secrets(value: &Value, names: &mut BTreeSet<SecretName>) {
    match value {
        Value::String(text) => names.extend(text.rsplit(' ').next().and_then(SecretName::in_reference)),
        Value::Array(items) => items.iter().for_each(|item| secrets(item, names)),
        Value::Object(fields) => fields.values().for_each(|field| secrets(field, names)),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

/// Whether a human named the host of `origin`.
fn is_named(allowed: &[SecretHost], origin: &str) -> bool {
    Url::parse(origin).is_ok_and(|url| allowed.iter().any(|host| host.covers(&url)))
}

/// Fails if `pack` sends requests or secrets to a host that is new for them and not `allowed`. Otherwise, unless it
/// `is_dry_run`, the secrets may go to its hosts from now on.
pub(super) fn confirm(
    pack: &Pack,
    allowed: &[SecretHost],
    is_dry_run: bool,
    sources: &Sources,
    config: &Config,
    context: &Context,
) -> Result<(), Error> {
    let (mut before, mut after) = (Uses::default(), Uses::default());
    pack.contents().for_each(|(existing, generated)| {
        if let Some(file) = existing {
            before.add_file(file, is_described);
        }
        after.add_file(generated, is_described);
    });
    for (origin, auth) in &after.auth {
        let is_new = match before.auth.get(origin) {
            _ if before.auth.is_empty() => false,
            None => true,
            Some(known) => auth != known,
        };
        if is_new && !is_named(allowed, origin) {
            let message = format!(
                "the pack `{}` would send to other hosts or with another authentication: before {}; now {}",
                pack.name(),
                before.shown(),
                after.shown()
            );
            return Err(refused(message, origin));
        }
    }
    let store = Secrets::of(&context.paths, config);
    let own: BTreeSet<_> = pack.paths().collect();
    let elsewhere = used_elsewhere(sources, &own);
    let mut granted: BTreeMap<&SecretName, BTreeSet<SecretHost>> = BTreeMap::new();
    for (name, origin) in &after.secrets {
        let sender = format!("the definitions of `{}`", pack.name());
        let was_there = before.secrets.contains(&(name.clone(), origin.clone()));
        let hosts = hosts_if_known(&sender, name, origin, was_there, &elsewhere, allowed, &store)?;
        granted.entry(name).or_default().extend(hosts);
    }
    for (name, hosts) in granted {
        let shown: Vec<_> = hosts.iter().map(|host| format!("`{host}`")).collect();
        context.output.note(&format!("the secret `{}` may go to {}", name.as_str(), shown.join(", ")));
        if !is_dry_run {
            store.allow(name, hosts)?;
        }
    }
    Ok(())
}

/// The hosts to which a secret goes with what `sender` sends to `origin`. Fails if the secret is stored for something else
/// and the host is not `allowed`; `was_there`: it goes there already.
fn hosts_if_known(
    sender: &str,
    name: &SecretName,
    origin: &str,
    was_there: bool,
    elsewhere: &Uses,
    allowed: &[SecretHost],
    store: &Secrets,
) -> Result<BTreeSet<SecretHost>, Error> {
    let url = Url::parse(origin).map_err(|_| {
        Error::usage(format!("{sender} would send a secret to `{origin}`, which is not a URL"))
            .hint("name the server: --server URL")
    })?;
    let listed = store.hosts(name)?;
    let others = elsewhere.hosts_of(name);
    let is_known = match &listed {
        Some(listed) => listed.iter().any(|host| host.covers(&url)),
        // A value that is there already was stored for something else, unless other definitions say for what.
        None if others.is_empty() => !store.is_set(name.as_str()) || was_there,
        None => others.iter().any(|host| host.covers(&url)),
    };
    if is_known || is_named(allowed, origin) {
        return Ok(others.into_iter().chain(SecretHost::of(&url)).collect());
    }
    let known: BTreeSet<_> = listed.into_iter().flatten().chain(others).map(|host| format!("`{host}`")).collect();
    let known = match known.into_iter().collect::<Vec<_>>().join(", ") {
        none if none.is_empty() => "is stored already".to_owned(),
        known => format!("goes to {known}"),
    };
    Err(refused(format!("{sender} would send the secret `{}` to `{origin}`, and it {known}", name.as_str()), origin))
}

/// Fails if a definition that was made from a text which others wrote sends a stored secret to a host that is new for it.
pub(crate) fn check_draft(file: &Map<String, Value>, config: &Config, context: &Context) -> Result<(), Error> {
    let (sources, store) = (Sources::of(&context.paths, config), Secrets::of(&context.paths, config));
    let elsewhere = used_elsewhere(&sources, &BTreeSet::new());
    let mut uses = Uses::default();
    uses.add_file(file, |_| true);
    for (name, origin) in &uses.secrets {
        hosts_if_known("it", name, origin, false, &elsewhere, &[], &store).map_err(|error| {
            let host = host(origin).map_or_else(|| origin.clone(), |host| host.to_string());
            error.hint(format!(
                "if it may go there, say so first: agent-magic-tool secret allow {} {host}; or choose another name",
                name.as_str()
            ))
        })?;
    }
    Ok(())
}

/// Fails if a server in the configuration of another client, which may come from someone else, would get a secret that is
/// stored for something else.
pub(super) fn check_server(
    server: &McpServer,
    allowed: &[SecretHost],
    config: &Config,
    context: &Context,
) -> Result<(), Error> {
    let Some(url) = &server.url else { return Ok(()) };
    let (sources, store) = (Sources::of(&context.paths, config), Secrets::of(&context.paths, config));
    let elsewhere = used_elsewhere(&sources, &BTreeSet::new());
    let sender = format!("the server `{}`", server.name);
    server_secrets(server)
        .iter()
        .try_for_each(|name| hosts_if_known(&sender, name, &origin(url), false, &elsewhere, allowed, &store).map(drop))
}

/// The secrets in the headers of a server.
fn server_secrets(server: &McpServer) -> BTreeSet<SecretName> {
    let mut names = BTreeSet::new();
    secrets(&serde_json::to_value(&server.headers).expect("headers are plain JSON"), &mut names);
    names
}

fn refused(message: String, origin: &str) -> Error {
    let host = host(origin).map_or_else(|| origin.to_owned(), |host| host.to_string());
    Error::usage(message)
        .hint(format!("if you know that host and want this, repeat the import with --allow-host '{host}'"))
}

fn host(origin: &str) -> Option<SecretHost> {
    SecretHost::of(&Url::parse(origin).ok()?)
}

/// What all other definitions send: those of the human's folders, and of the packs that ship.
fn used_elsewhere(sources: &Sources, own: &BTreeSet<&Path>) -> Uses {
    let mut uses = Uses::default();
    for pack in SHIPPED {
        if let Ok(file) = serde_json::from_str::<Map<String, Value>>(pack.text) {
            uses.add_file(&file, |_| true);
        }
    }
    for folder in sources.folders() {
        for path in std::fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path()) {
            let text = (!own.contains(path.as_path())).then(|| std::fs::read_to_string(&path));
            if let Some(Ok(file)) =
                text.map(|text| serde_json::from_str::<Map<String, Value>>(&text.unwrap_or_default()))
            {
                uses.add_file(&file, |_| true);
            }
        }
    }
    uses
}

/// The hosts to which definitions send `name` today.
pub(crate) fn in_use(name: &SecretName, sources: &Sources) -> BTreeSet<SecretHost> {
    used_elsewhere(sources, &BTreeSet::new()).hosts_of(name)
}

/// Lets the secrets of a server go there, once it has answered: the human wrote both. They still go where definitions
/// send them.
pub(super) fn bind_server(server: &McpServer, config: &Config, context: &Context) -> Result<(), Error> {
    let Some(text) = &server.url else { return Ok(()) };
    let url = Url::parse(text).map_err(|error| Error::usage(format!("`{text}` is not a URL: {error}")))?;
    let names = server_secrets(server);
    let (store, sources) = (Secrets::of(&context.paths, config), Sources::of(&context.paths, config));
    for name in &names {
        let known = if store.hosts(name)?.is_none() { in_use(name, &sources) } else { BTreeSet::new() };
        store.allow(name, known.into_iter().chain(SecretHost::of(&url)))?;
    }
    Ok(())
}
