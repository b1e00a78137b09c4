//! Where definitions of others send requests and secrets: imported ones, and those of a pack that is enabled. What they
//! say of that is shown and, if it is new for a pack or a secret that is known, not taken over until a human names the
//! host.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use executor::catalog::Sources;
use executor::catalog::packs::SHIPPED;
use executor::catalog::packs::report::PackSurvey;
use executor::config::Config;
use executor::config::secret::{SecretHost, SecretName, Secrets};
use serde_json::{Map, Value};
use url::Url;

use super::writing::Pack;
use crate::context::Context;
use crate::error::Error;

/// What definitions send where.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(super) struct Uses {
    /// The authentications by the URL to which they go, as the definitions have them.
    auth: BTreeMap<String, BTreeSet<String>>,
    secrets: BTreeSet<(SecretName, String)>,
}

impl Uses {
    /// Adds what the definitions of a file send.
    fn add_file(&mut self, file: &Map<String, Value>) {
        let none = Value::Null;
        let defaults = file.get("$defaults").and_then(|defaults| defaults.pointer("/run/http")).unwrap_or(&none);
        for (_, definition) in file.iter().filter(|(name, _)| !name.starts_with('$')) {
            let Some(http) = definition.pointer("/run/http") else { continue };
            let field = |key: &str| http.get(key).or_else(|| defaults.get(key)).unwrap_or(&none);
            let Some(url) = field("base_url").as_str() else { continue };
            let origin = self.add_secrets(url, ["auth", "headers", "query", "body"].map(field));
            let auth = field("auth");
            let known = self.auth.entry(origin).or_default();
            known.extend((!auth.is_null()).then(|| auth.to_string()));
        }
    }

    /// Adds the secrets that a loaded definition, which does `run`, sends over the network.
    fn add_run(&mut self, run: &Value) {
        let field = |pointer: &str| run.pointer(pointer).unwrap_or(&Value::Null);
        let requests = [
            ("/http/base_url", ["/http/auth", "/http/headers", "/http/query", "/http/body"].as_slice()),
            ("/mcp/server/url", &["/mcp/server/headers", "/mcp/server/oauth"]),
            ("/agent/url", &["/agent/key"]),
        ];
        for (url, fields) in requests {
            if let Some(url) = field(url).as_str() {
                self.add_secrets(url, fields.iter().map(|pointer| field(pointer)));
            }
        }
    }

    /// Adds the secrets of what is sent to `url`. Returns its origin.
    fn add_secrets<'a>(&mut self, url: &str, fields: impl IntoIterator<Item = &'a Value>) -> String {
        let origin = Url::parse(url).map_or_else(|_| url.to_owned(), |url| url.origin().ascii_serialization());
        let mut names = BTreeSet::new();
        fields.into_iter().for_each(|field| secrets(field, &mut names));
        self.secrets.extend(names.into_iter().map(|name| (name, origin.clone())));
        origin
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
            before.add_file(file);
        }
        after.add_file(generated);
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
    for (_, definition) in survey.definitions(name) {
        after.add_run(&serde_json::to_value(&definition.run).unwrap_or_default());
    }
    for other in survey.names().iter().filter(|other| *other != name) {
        for (_, definition) in survey.definitions(other) {
            elsewhere.add_run(&serde_json::to_value(&definition.run).unwrap_or_default());
        }
    }
    let repeat = format!("pack enable {name}");
    let sender = Sender { pack: name, repeat: &repeat, is_dry_run: false };
    bind(&sender, [&Uses::default(), &after, &elsewhere], allowed, config, context)
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
    let mut granted: BTreeMap<&SecretName, BTreeSet<SecretHost>> = BTreeMap::new();
    for (name, origin) in &after.secrets {
        let url = Url::parse(origin).map_err(|_| {
            Error::usage(format!(
                "the definitions of `{}` would send a secret to `{origin}`, which is not a URL",
                sender.pack
            ))
            .hint("name the server, whose host no input may decide; for an import: --server URL")
        })?;
        let listed = store.hosts(name)?;
        let others: BTreeSet<_> = elsewhere.secrets.iter().filter(|(known, _)| known == name).collect();
        let others: Vec<_> = others.iter().filter_map(|(_, origin)| host(origin)).collect();
        let is_known = match &listed {
            Some(listed) => listed.iter().any(|host| host.covers(&url)),
            // A value that is there already was stored for something else, unless other definitions say for what.
            None if others.is_empty() => {
                !store.is_set(name.as_str()) || before.secrets.contains(&(name.clone(), origin.clone()))
            }
            None => others.iter().any(|host| host.covers(&url)),
        };
        if !is_known && !is_named(allowed, origin) {
            let known = listed.into_iter().flatten().chain(others).map(|host| format!("`{host}`"));
            let known: BTreeSet<_> = known.collect();
            let known = match known.into_iter().collect::<Vec<_>>().join(", ") {
                none if none.is_empty() => "is stored already".to_owned(),
                known => format!("goes to {known}"),
            };
            let message = format!(
                "the definitions of `{}` would send the secret `{}` to `{origin}`, and it {known}",
                sender.pack,
                name.as_str()
            );
            return Err(refused(message, origin, sender.repeat));
        }
        let hosts = granted.entry(name).or_default();
        hosts.extend(SecretHost::of(&url));
        hosts.extend(others);
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

fn refused(message: String, origin: &str, repeat: &str) -> Error {
    let host = host(origin).map_or_else(|| origin.to_owned(), |host| host.to_string());
    Error::usage(message)
        .hint(format!("if you know that host and want this, repeat {repeat} with --allow-host '{host}'"))
}

fn host(origin: &str) -> Option<SecretHost> {
    SecretHost::of(&Url::parse(origin).ok()?)
}

/// What all other definitions send: those of the human's folders, and of the packs that ship.
fn used_elsewhere(sources: &Sources, own: &BTreeSet<&Path>) -> Uses {
    let mut uses = Uses::default();
    for pack in SHIPPED {
        if let Ok(file) = serde_json::from_str::<Map<String, Value>>(pack.text) {
            uses.add_file(&file);
        }
    }
    for folder in sources.folders() {
        for path in std::fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path()) {
            let text = (!own.contains(path.as_path())).then(|| std::fs::read_to_string(&path));
            if let Some(Ok(file)) =
                text.map(|text| serde_json::from_str::<Map<String, Value>>(&text.unwrap_or_default()))
            {
                uses.add_file(&file);
            }
        }
    }
    uses
}

/// Lets the secrets of a server that a human named go there: the human wrote both.
pub(super) fn bind_server(server: &Value, config: &Config, context: &Context) -> Result<(), Error> {
    let Some(url) = server["url"].as_str().and_then(|url| Url::parse(url).ok()) else { return Ok(()) };
    let mut names = BTreeSet::new();
    secrets(&server["headers"], &mut names);
    let store = Secrets::of(&context.paths, config);
    for name in &names {
        store.allow(name, SecretHost::of(&url))?;
    }
    Ok(())
}
