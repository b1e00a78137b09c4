//! Where definitions of others send requests and secrets: imported ones, and those of a pack that is enabled. What they
//! say of that is shown and, if it is new for a pack or a secret that is known, not taken over until a human names the
//! host.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use executor::catalog::packs::SHIPPED;
use executor::catalog::packs::report::PackSurvey;
use executor::catalog::{Sources, merged_over, variables_in};
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

    /// Adds what the definitions of a pack send.
    fn add_pack(&mut self, name: &str, survey: &PackSurvey) {
        for run in survey.runs(name) {
            run.as_object().into_iter().flatten().for_each(|(kind, run)| self.add_run(kind, run));
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

    fn sends(&self, secret: &SecretName) -> bool {
        self.secrets.iter().any(|(name, _)| name == secret)
    }

    /// The hosts to which `secret` goes.
    fn hosts_of(&self, secret: &SecretName) -> BTreeSet<SecretHost> {
        self.secrets.iter().filter(|(name, _)| name == secret).filter_map(|(_, origin)| host(origin)).collect()
    }

    /// Takes out the secrets that go to places which variables name that are not set: those variables by secret.
    fn take_waiting(&mut self) -> BTreeMap<SecretName, BTreeSet<String>> {
        let mut waiting: BTreeMap<_, BTreeSet<_>> = BTreeMap::new();
        self.secrets.retain(|(name, origin)| {
            let unset = variables_in(origin);
            let is_placed = unset.is_empty();
            if !is_placed {
                waiting.entry(name.clone()).or_default().extend(unset);
            }
            is_placed
        });
        waiting
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

fn origin(text: &str) -> String {
    parsed(text).map_or_else(|| text.to_owned(), |url| url.origin().ascii_serialization())
}

/// Parses a URL whose host is known: no template is in it.
fn parsed(text: &str) -> Option<Url> {
    Url::parse(text).ok().filter(|url| !url.host_str().is_some_and(|host| host.contains('{')))
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
    parsed(origin).is_some_and(|url| allowed.iter().any(|host| host.covers(&url)))
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
            return Err(refused(message, origin, IMPORT));
        }
    }
    let own: BTreeSet<_> = pack.paths().collect();
    let elsewhere = used_elsewhere(sources, &own);
    let sender = Sender { pack: pack.name(), repeat: IMPORT, is_dry_run };
    bind(&sender, [&before, &after, &elsewhere], allowed, config, context)
}

/// Lets the secrets of a pack that a human enables go to the hosts of its definitions, and to no others. Fails if one is
/// known and goes elsewhere, unless its host is `allowed`.
pub(in crate::commands) fn bind_pack(
    name: &str,
    survey: &PackSurvey,
    allowed: &[SecretHost],
    sources: &Sources,
    config: &Config,
    context: &Context,
) -> Result<(), Error> {
    let (mut after, mut elsewhere) = (Uses::default(), used_elsewhere(sources, &BTreeSet::new()));
    after.add_pack(name, survey);
    let waiting = after.take_waiting();
    let others = survey.names().into_iter().filter(|other| other != name);
    others.for_each(|other| elsewhere.add_pack(&other, survey));
    let store = Secrets::of(&context.paths, config);
    let waiting: Vec<_> = waiting.iter().filter(|(secret, _)| !after.sends(secret)).collect();
    for (secret, variables) in &waiting {
        // Of one that is there already, no one could say later that it was meant for this pack.
        if store.is_set(secret.as_str()) && store.hosts(secret)?.is_none() && !elsewhere.sends(secret) {
            return Err(unplaced(name, secret, variables));
        }
    }
    let repeat = format!("pack enable {name}");
    let sender = Sender { pack: name, repeat: &repeat, is_dry_run: false };
    bind(&sender, [&Uses::default(), &after, &elsewhere], allowed, config, context)?;
    waiting
        .into_iter()
        .try_for_each(|(secret, variables)| bind_to_none(&sender, secret, variables, &elsewhere, &store, context))
}

/// Keeps a secret for hosts that no one has named yet: until then, it goes only where it goes already.
fn bind_to_none(
    sender: &Sender<'_>,
    secret: &SecretName,
    variables: &BTreeSet<String>,
    elsewhere: &Uses,
    store: &Secrets,
    context: &Context,
) -> Result<(), Error> {
    if store.hosts(secret)?.is_some() {
        return Ok(());
    }
    store.allow(secret, elsewhere.hosts_of(secret))?;
    let repeat = sender.repeat;
    context.output.note(&format!(
        "the secret `{}` goes to no host of `{}` before you set {} and repeat {repeat} with --allow-host HOST",
        secret.as_str(),
        sender.pack,
        named(variables),
    ));
    Ok(())
}

/// Why a pack is not enabled that uses a secret which is there, for a place that is not known yet.
fn unplaced(pack: &str, secret: &SecretName, variables: &BTreeSet<String>) -> Error {
    let named = named(variables);
    Error::usage(format!(
        "the definitions of `{pack}` would send the secret `{}`, which is stored already, to a host that {named} will name",
        secret.as_str()
    ))
    .hint(format!("set {named} under [vars] in config.toml first, then enable it again"))
}

fn named(variables: &BTreeSet<String>) -> String {
    variables.iter().map(|variable| format!("`{variable}`")).collect::<Vec<_>>().join(", ")
}

/// What a human repeats with the host that they know.
const IMPORT: &str = "the import";

/// Whose definitions send something.
struct Sender<'a> {
    pack: &'a str,
    repeat: &'a str,
    is_dry_run: bool,
}

/// Lets secrets go where the definitions of `sender` now send them, if a human would expect that: `uses` are those
/// before, those now, and those of other definitions.
fn bind(
    sender: &Sender<'_>,
    uses: [&Uses; 3],
    allowed: &[SecretHost],
    config: &Config,
    context: &Context,
) -> Result<(), Error> {
    let [before, after, elsewhere] = uses;
    let store = Secrets::of(&context.paths, config);
    let known = KnownHosts { elsewhere, allowed, store: &store };
    let definitions = format!("the definitions of `{}`", sender.pack);
    let mut granted: BTreeMap<&SecretName, BTreeSet<SecretHost>> = BTreeMap::new();
    for (name, origin) in &after.secrets {
        let was_there = before.secrets.contains(&(name.clone(), origin.clone()));
        let hosts = known.check(&definitions, name, origin, was_there, sender.repeat)?;
        granted.entry(name).or_default().extend(hosts);
    }
    for (name, hosts) in granted {
        let shown: Vec<_> = hosts.iter().map(|host| format!("`{host}`")).collect();
        context.output.note(&format!("the secret `{}` may go to {}", name.as_str(), shown.join(", ")));
        if !sender.is_dry_run {
            store.allow(name, hosts)?;
        }
    }
    Ok(())
}

/// Where secrets may go without a further word of a human.
struct KnownHosts<'a> {
    elsewhere: &'a Uses,
    allowed: &'a [SecretHost],
    store: &'a Secrets,
}

impl KnownHosts<'_> {
    /// The hosts to which a secret goes with what `sender` sends to `origin`. Fails if the secret is stored for something
    /// else and the host is not allowed; `was_there`: it goes there already; `repeat`: what a human repeats to allow it.
    fn check(
        &self,
        sender: &str,
        name: &SecretName,
        origin: &str,
        was_there: bool,
        repeat: &str,
    ) -> Result<BTreeSet<SecretHost>, Error> {
        let url = parsed(origin).ok_or_else(|| {
            Error::usage(format!("{sender} would send a secret to `{origin}`, which is not a URL"))
                .hint("name the server, whose host no input may decide; for an import: --server URL")
        })?;
        let listed = self.store.hosts(name)?;
        let others = self.elsewhere.hosts_of(name);
        let is_known = match &listed {
            Some(listed) => listed.iter().any(|host| host.covers(&url)),
            // A value that is there already was stored for something else, unless other definitions say for what.
            None if others.is_empty() => !self.store.is_set(name.as_str()) || was_there,
            None => others.iter().any(|host| host.covers(&url)),
        };
        if is_known || is_named(self.allowed, origin) {
            return Ok(others.into_iter().chain(SecretHost::of(&url)).collect());
        }
        let known: BTreeSet<_> = listed.into_iter().flatten().chain(others).map(|host| format!("`{host}`")).collect();
        let known = match known.into_iter().collect::<Vec<_>>().join(", ") {
            none if none.is_empty() => "is stored already".to_owned(),
            known => format!("goes to {known}"),
        };
        let message = format!("{sender} would send the secret `{}` to `{origin}`, and it {known}", name.as_str());
        Err(refused(message, origin, repeat))
    }
}

/// Fails if a definition that was made from a text which others wrote sends a stored secret to a host that is new for it.
pub(crate) fn check_draft(file: &Map<String, Value>, config: &Config, context: &Context) -> Result<(), Error> {
    let (elsewhere, store) = (used_today(config, context)?, Secrets::of(&context.paths, config));
    let mut uses = Uses::default();
    uses.add_file(file, |_| true);
    let known = KnownHosts { elsewhere: &elsewhere, allowed: &[], store: &store };
    for (name, origin) in &uses.secrets {
        known.check("it", name, origin, false, "").map_err(|error| {
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
    let (elsewhere, store) = (used_today(config, context)?, Secrets::of(&context.paths, config));
    let sender = format!("the server `{}`", server.name);
    let known = KnownHosts { elsewhere: &elsewhere, allowed, store: &store };
    let check = |name| known.check(&sender, name, &origin(url), false, IMPORT).map(drop);
    server_secrets(server).iter().try_for_each(check)
}

/// The secrets in the headers of a server.
fn server_secrets(server: &McpServer) -> BTreeSet<SecretName> {
    let mut names = BTreeSet::new();
    secrets(&serde_json::to_value(&server.headers).expect("headers are plain JSON"), &mut names);
    names
}

fn refused(message: String, origin: &str, repeat: &str) -> Error {
    let host = host(origin).map_or_else(|| origin.to_owned(), |host| host.to_string());
    Error::usage(message)
        .hint(format!("if you know that host and want this, repeat {repeat} with --allow-host '{host}'"))
}

fn host(origin: &str) -> Option<SecretHost> {
    SecretHost::of(&parsed(origin)?)
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
pub(crate) fn in_use(name: &SecretName, config: &Config, context: &Context) -> Result<BTreeSet<SecretHost>, Error> {
    Ok(used_today(config, context)?.hosts_of(name))
}

/// What all definitions send, those of enabled packs too.
fn used_today(config: &Config, context: &Context) -> Result<Uses, Error> {
    let mut uses = used_elsewhere(&Sources::of(&context.paths, config), &BTreeSet::new());
    let survey = PackSurvey::new(&context.paths, config)?;
    survey.names().iter().for_each(|name| uses.add_pack(name, &survey));
    Ok(uses)
}

/// Lets the secrets of a server go there, once it has answered: the human wrote both. They still go where definitions
/// send them.
pub(super) fn bind_server(server: &McpServer, config: &Config, context: &Context) -> Result<(), Error> {
    let Some(text) = &server.url else { return Ok(()) };
    let url = Url::parse(text).map_err(|error| Error::usage(format!("`{text}` is not a URL: {error}")))?;
    let names = server_secrets(server);
    let store = Secrets::of(&context.paths, config);
    for name in &names {
        let known = if store.hosts(name)?.is_none() { in_use(name, config, context)? } else { BTreeSet::new() };
        store.allow(name, known.into_iter().chain(SecretHost::of(&url)))?;
    }
    Ok(())
}
