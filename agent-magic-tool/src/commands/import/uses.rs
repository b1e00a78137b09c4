//! What definitions and settings send where: to which URLs, with which authentication, and which programs get a secret.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::Path;

use catalog::packs::SHIPPED;
use catalog::packs::report::PackSurvey;
use catalog::{Sources, merged_over, variables_in};
use definition::run::mcp::McpServer;
use ground::config::Config;
use ground::config::secret::{SecretName, SecretPlace};
use protocol::wording::quoted;
use serde_json::{Map, Value};
use url::{Origin, Url};

/// The runner of which a description says where it sends.
const HTTP: &str = "http";
/// The fields that say where what is beside them goes.
const PLACES: [&str; 2] = ["base_url", "url"];
/// The field with a further place, which gives a token for the API.
const TOKEN_PLACE: &str = "token_url";
/// The fields that say which program gets what is beside them.
const COMMANDS: [&str; 2] = ["command", "argv"];
/// The fields whose content is sent or passed on, so that a `url` in it is no place.
const DATA: [&str; 5] = ["headers", "query", "body", "env", "input"];

/// Where a secret goes.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Destination {
    /// The origin of a URL, or what stands in the place of one.
    Url(String),
    /// A program, which gets it in its environment.
    Program(SecretPlace),
}

impl Destination {
    pub(super) fn of_url(text: &str) -> Self {
        Self::Url(origin(text))
    }

    /// Where the secrets of a server go.
    pub(super) fn of_server(server: &McpServer) -> Self {
        match &server.url {
            Some(url) => Self::of_url(url),
            None => Self::Program(SecretPlace::of_program(&server.command, &server.env, server.folder.as_deref())),
        }
    }

    /// As the list of a secret has it; `None` if it is not known.
    pub(super) fn place(&self) -> Option<SecretPlace> {
        match self {
            Self::Url(origin) => SecretPlace::of(&parsed(origin)?),
            Self::Program(place) => Some(place.clone()),
        }
    }

    pub(super) fn is_in(&self, place: &SecretPlace) -> bool {
        match self {
            Self::Url(origin) => parsed(origin).is_some_and(|url| place.covers(&url)),
            Self::Program(own) => own == place,
        }
    }

    /// The variables of which it is made, if it is a URL.
    fn variables(&self) -> BTreeSet<String> {
        match self {
            Self::Url(origin) => variables_in(origin),
            Self::Program(_) => BTreeSet::new(),
        }
    }
}

impl fmt::Display for Destination {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Url(origin) => f.write_str(origin),
            Self::Program(place) => place.fmt(f),
        }
    }
}

/// What definitions send where.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(super) struct Uses {
    /// The authentications by the URL to which they go, as the definitions have them.
    pub(super) auth: BTreeMap<String, BTreeSet<String>>,
    pub(super) secrets: BTreeSet<(SecretName, Destination)>,
}

impl Uses {
    /// Adds what the definitions of a file send, with the runners that `counts` names.
    pub(super) fn add_file(&mut self, file: &Map<String, Value>, counts: fn(&str) -> bool) {
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
    pub(super) fn add_pack(&mut self, name: &str, survey: &PackSurvey) {
        for run in survey.runs(name) {
            run.as_object().into_iter().flatten().for_each(|(kind, run)| self.add_run(kind, run));
        }
    }

    /// Adds what the settings send to databases and models.
    fn add_settings(&mut self, config: &Config) {
        let databases = config.databases.values();
        let databases = databases.filter_map(|it| Some((it.password.as_ref()?, it.server_url()?)));
        let models = config.models.values().filter_map(|it| Some((it.key.as_ref()?, it.url.clone()?)));
        for (secret, url) in databases.chain(models) {
            self.add_url(secret, &url);
        }
    }

    /// Adds a secret that goes to `url`.
    pub(super) fn add_url(&mut self, secret: &SecretName, url: &Url) {
        self.secrets.insert((secret.clone(), Destination::of_url(url.as_str())));
    }

    /// Adds the secrets of settings that say themselves where they go.
    pub(super) fn add_server(&mut self, settings: &Value) {
        self.add_secrets(settings, &BTreeSet::new(), true);
    }

    fn add_run(&mut self, kind: &str, run: &Value) {
        self.add_secrets(run, &BTreeSet::new(), true);
        if let (HTTP, Some(origin)) = (kind, run["base_url"].as_str().map(origin)) {
            let auth = &run["auth"];
            self.auth.entry(origin).or_default().extend((!auth.is_null()).then(|| auth.to_string()));
        }
    }

    /// Adds the secrets in `value`, whatever runner it is of. They go to the URLs or the program beside them, or else to
    /// those of what is around it, but for the token endpoint, which the API is added to. Data that is sent names no
    /// place: `is_place`.
    fn add_secrets(&mut self, value: &Value, around: &BTreeSet<Destination>, is_place: bool) {
        let mut names = BTreeSet::new();
        match value {
            Value::String(_) => secrets(value, &mut names),
            Value::Array(items) => items.iter().for_each(|item| self.add_secrets(item, around, is_place)),
            Value::Object(fields) => {
                let text = |key: &str| fields.get(key).filter(|_| is_place).and_then(Value::as_str);
                let place = |key: &str| text(key).map(Destination::of_url);
                let urls = PLACES.iter().filter_map(|key| place(key));
                let mut places: BTreeSet<_> = urls.chain(program(fields).filter(|_| is_place)).collect();
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
        let pairs = names.into_iter().flat_map(|name| around.iter().map(move |place| (name.clone(), place.clone())));
        self.secrets.extend(pairs);
    }

    pub(super) fn sends(&self, secret: &SecretName) -> bool {
        self.secrets.iter().any(|(name, _)| name == secret)
    }

    /// Where `secret` goes.
    pub(super) fn places_of(&self, secret: &SecretName) -> BTreeSet<SecretPlace> {
        let own = self.secrets.iter().filter(|(name, _)| name == secret);
        own.filter_map(|(_, destination)| destination.place()).collect()
    }

    /// Takes out the secrets that go to places which variables name that are not set: those variables by secret.
    pub(super) fn take_waiting(&mut self) -> BTreeMap<SecretName, BTreeSet<String>> {
        let mut waiting: BTreeMap<_, BTreeSet<_>> = BTreeMap::new();
        self.secrets.retain(|(name, destination)| {
            let unset = destination.variables();
            let is_placed = unset.is_empty();
            if !is_placed {
                waiting.entry(name.clone()).or_default().extend(unset);
            }
            is_placed
        });
        waiting
    }

    /// In words, for a human.
    pub(super) fn shown(&self) -> String {
        let lines = self.auth.iter().map(|(origin, auth)| {
            let auth = if auth.is_empty() { "no authentication".to_owned() } else { quoted(auth) };
            format!("`{origin}` with {auth}")
        });
        lines.collect::<Vec<_>>().join("; ")
    }
}

/// The program that a runner or a server with these fields starts.
fn program(fields: &Map<String, Value>) -> Option<Destination> {
    let words = COMMANDS.iter().find_map(|key| fields.get(*key)?.as_array()).filter(|words| !words.is_empty())?;
    let word = |word: &Value| word.as_str().map_or_else(|| word.to_string(), str::to_owned);
    let text = |(name, text): (&String, &Value)| Some((name.clone(), text.as_str()?.to_owned()));
    let env = fields.get("env").and_then(Value::as_object).into_iter().flatten().filter_map(text).collect();
    let folder = fields.get("folder").and_then(Value::as_str);
    Some(Destination::Program(SecretPlace::of_program(&words.iter().map(word).collect::<Vec<_>>(), &env, folder)))
}

fn origin(text: &str) -> String {
    parsed(text).map_or_else(
        || text.to_owned(),
        |url| match (url.origin(), SecretPlace::of(&url)) {
            // A database has no origin as web pages have one.
            (Origin::Opaque(_), Some(place)) => format!("{}://{place}", url.scheme()),
            (origin, _) => origin.ascii_serialization(),
        },
    )
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

/// What all other definitions send: those of the human's folders, and of the packs that ship; and the settings.
pub(super) fn used_elsewhere(sources: &Sources, own: &BTreeSet<&Path>, config: &Config) -> Uses {
    let mut uses = Uses::default();
    uses.add_settings(config);
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
