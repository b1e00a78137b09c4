//! Where definitions of others send requests and secrets: imported ones, and those of a pack that is enabled. What they
//! say of that is shown and, if it is new for a pack or a secret that is known, not taken over until a human names the
//! host. The same holds for what the command line of an import, a pasted line or the configuration of another client
//! says: every secret that one of them names goes through [`KnownPlaces::check`].

use std::collections::{BTreeMap, BTreeSet};

use agent_side::context::Context;
use agent_side::error::Error;
use catalog::Sources;
use catalog::packs::report::PackSurvey;
use definition::run::mcp::McpServer;
use ground::config::Config;
use ground::config::secret::{SecretName, SecretPlace, Secrets};
use protocol::wording::{in_backticks, quoted};
use serde_json::{Map, Value};
use url::Url;

use super::uses::{Destination, Uses, used_elsewhere};
use super::writing::Pack;

/// The runner whose servers a human names.
const MCP: &str = "mcp";

/// Whether what a runner of this kind sends comes from a description. A human wrote how an MCP server is reached, and
/// [`bind_server`] takes that over.
fn is_described(kind: &str) -> bool {
    kind != MCP
}

/// Fails if `pack` sends requests or secrets to a host that is new for them and not `allowed`. Otherwise, unless it
/// `is_dry_run`, the secrets may go to its hosts from now on.
pub(super) fn confirm(
    pack: &Pack,
    allowed: &[SecretPlace],
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
        let destination = Destination::Url(origin.clone());
        if is_new && !allowed.iter().any(|place| destination.is_in(place)) {
            let message = format!(
                "the pack `{}` would send to other hosts or with another authentication: before {}; now {}",
                pack.name(),
                before.shown(),
                after.shown()
            );
            return Err(refused(message, &destination, IMPORT, None));
        }
    }
    let own: BTreeSet<_> = pack.paths().collect();
    let elsewhere = used_elsewhere(sources, &own, config);
    let sender = Sender { pack: pack.name(), repeat: IMPORT, is_dry_run };
    bind(&sender, [&before, &after, &elsewhere], allowed, config, context)
}

/// Lets the secrets of a pack that a human enables go to the hosts of its definitions, and to no others. Fails if one is
/// known and goes elsewhere, unless its host is `allowed`.
pub(in crate::commands) fn bind_pack(
    name: &str,
    survey: &PackSurvey,
    allowed: &[SecretPlace],
    sources: &Sources,
    config: &Config,
    context: &Context,
) -> Result<(), Error> {
    let (mut after, mut elsewhere) = (Uses::default(), used_elsewhere(sources, &BTreeSet::new(), config));
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
    store.allow(secret, elsewhere.places_of(secret))?;
    let repeat = sender.repeat;
    context.output.note(&format!(
        "the secret `{}` goes to no host of `{}` before you set {} and repeat {repeat} with --allow-host HOST",
        secret.as_str(),
        sender.pack,
        quoted(variables),
    ));
    Ok(())
}

/// Why a pack is not enabled that uses a secret which is there, for a place that is not known yet.
fn unplaced(pack: &str, secret: &SecretName, variables: &BTreeSet<String>) -> Error {
    let named = quoted(variables);
    Error::usage(format!(
        "the definitions of `{pack}` would send the secret `{}`, which is stored already, to a host that {named} will name",
        secret.as_str()
    ))
    .hint(format!("set {named} under [vars] in config.toml first, then enable it again"))
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
    allowed: &[SecretPlace],
    config: &Config,
    context: &Context,
) -> Result<(), Error> {
    let [before, after, elsewhere] = uses;
    let store = Secrets::of(&context.paths, config);
    let known = KnownPlaces { elsewhere, allowed, store: &store };
    let definitions = format!("the definitions of `{}`", sender.pack);
    let mut granted: BTreeMap<&SecretName, BTreeSet<SecretPlace>> = BTreeMap::new();
    for (name, destination) in &after.secrets {
        let was_there = before.secrets.contains(&(name.clone(), destination.clone()));
        let places = known.check(&definitions, name, destination, was_there, sender.repeat)?;
        granted.entry(name).or_default().extend(places);
    }
    for (name, places) in granted {
        context.output.note(&granted_words(name, &places));
        if !sender.is_dry_run {
            store.allow(name, places)?;
        }
    }
    Ok(())
}

/// Says where a secret may go from now on.
fn granted_words(name: &SecretName, places: &BTreeSet<SecretPlace>) -> String {
    let is_program = places.iter().any(|place| matches!(place, SecretPlace::Program(_)));
    let warning = if is_program { "; a program that has it can send it anywhere" } else { "" };
    format!("the secret `{}` may go to {}{warning}", name.as_str(), quoted(places))
}

/// Where secrets may go without a further word of a human.
struct KnownPlaces<'a> {
    elsewhere: &'a Uses,
    allowed: &'a [SecretPlace],
    store: &'a Secrets,
}

impl KnownPlaces<'_> {
    /// The places to which a secret goes if `sender` gives it to `destination`. Fails if the secret is stored for
    /// something else and the place is not allowed; `was_there`: it goes there already; `repeat`: what a human repeats to
    /// allow it.
    fn check(
        &self,
        sender: &str,
        name: &SecretName,
        destination: &Destination,
        was_there: bool,
        repeat: &str,
    ) -> Result<BTreeSet<SecretPlace>, Error> {
        let place = destination.place().ok_or_else(|| {
            Error::usage(format!("{sender} would send a secret to `{destination}`, which is not a URL"))
                .hint("name the server, whose host no input may decide; for an import: --server URL")
        })?;
        let listed = self.store.hosts(name)?;
        let others = self.elsewhere.places_of(name);
        let is_used = others.iter().any(|other| destination.is_in(other));
        let is_known = match &listed {
            Some(listed) if listed.iter().any(|listed| destination.is_in(listed)) => true,
            // What a program gets by a definition of the human, no list forbids.
            Some(_) => is_used && matches!(destination, Destination::Program(_)),
            // A value that is there already was stored for something else, unless other definitions say for what.
            None if others.is_empty() => !self.store.is_set(name.as_str()) || was_there,
            None => is_used,
        };
        if is_known || self.allowed.iter().any(|allowed| destination.is_in(allowed)) {
            return Ok(others.into_iter().chain([place]).collect());
        }
        let known: BTreeSet<_> = listed.into_iter().flatten().chain(others).map(in_backticks).collect();
        let known = match known.into_iter().collect::<Vec<_>>().join(", ") {
            none if none.is_empty() => "is stored already".to_owned(),
            known => format!("goes to {known}"),
        };
        let name_only = name.as_str();
        let message = match destination {
            Destination::Url(origin) => format!("{sender} would send the secret `{name_only}` to `{origin}`"),
            Destination::Program(_) => {
                format!("{sender} would put the secret `{name_only}` into the environment of `{destination}`")
            }
        };
        Err(refused(format!("{message}, and it {known}"), destination, repeat, Some(name)))
    }
}

/// Fails if a definition that was made from a text which others wrote sends a stored secret to a host that is new for it.
pub(crate) fn check_draft(file: &Map<String, Value>, config: &Config, context: &Context) -> Result<(), Error> {
    let (elsewhere, store) = (used_today(config, context)?, Secrets::of(&context.paths, config));
    let mut uses = Uses::default();
    uses.add_file(file, |_| true);
    let known = KnownPlaces { elsewhere: &elsewhere, allowed: &[], store: &store };
    for (name, destination) in &uses.secrets {
        known.check("it", name, destination, false, "").map_err(|error| {
            error
                .hint(format!("if it may go there, say so first: {}; or choose another name", allow(name, destination)))
        })?;
    }
    Ok(())
}

/// What an import may do: the places that a human allows, and whether it keeps anything.
#[derive(Clone, Copy)]
pub(super) struct Allowance<'a> {
    pub(super) allowed: &'a [SecretPlace],
    pub(super) is_dry_run: bool,
    pub(super) config: &'a Config,
    pub(super) context: &'a Context,
}

impl Allowance<'_> {
    /// Fails if `server` would get a secret that is stored for something else: the command line names it, or the
    /// configuration of another client, which may come from someone else.
    pub(super) fn check_server(&self, server: &McpServer) -> Result<(), Error> {
        self.check(&format!("the server `{}`", server.name), &uses_of(server))
    }

    /// Lets the secrets of a server go there, once it has answered. They still go where definitions send them.
    pub(super) fn bind_server(&self, server: &McpServer) -> Result<(), Error> {
        self.bind(&uses_of(server))
    }

    /// Fails if the database at `url` would get a password that is stored for something else.
    pub(super) fn check_database(&self, name: &str, password: &SecretName, url: &Url) -> Result<(), Error> {
        let mut uses = Uses::default();
        uses.add_url(password, url);
        self.check(&format!("the database `{name}`"), &uses)
    }

    /// Lets the password of a database go there, once it has answered.
    pub(super) fn bind_database(&self, password: &SecretName, url: &Url) -> Result<(), Error> {
        let mut uses = Uses::default();
        uses.add_url(password, url);
        self.bind(&uses)
    }

    fn check(&self, sender: &str, uses: &Uses) -> Result<(), Error> {
        let (elsewhere, store) = (used_today(self.config, self.context)?, self.store());
        let known = KnownPlaces { elsewhere: &elsewhere, allowed: self.allowed, store: &store };
        for (name, destination) in &uses.secrets {
            known.check(sender, name, destination, false, IMPORT)?;
        }
        for (name, destination) in uses.secrets.iter().filter(|_| !self.is_dry_run) {
            // One that has a list is given to nothing else, so its list comes first.
            if store.hosts(name)?.is_some() {
                self.grant(&store, name, destination.place().into_iter().collect())?;
            }
        }
        Ok(())
    }

    fn bind(&self, uses: &Uses) -> Result<(), Error> {
        let store = self.store();
        for (name, destination) in &uses.secrets {
            let known = match store.hosts(name)? {
                None => used_today(self.config, self.context)?.places_of(name),
                Some(_) => BTreeSet::new(),
            };
            self.grant(&store, name, known.into_iter().chain(destination.place()).collect())?;
        }
        Ok(())
    }

    /// Adds the places to the list of a secret that are not on it.
    fn grant(&self, store: &Secrets, name: &SecretName, mut places: BTreeSet<SecretPlace>) -> Result<(), Error> {
        let listed = store.hosts(name)?.unwrap_or_default();
        places.retain(|place| !listed.contains(place));
        if !places.is_empty() {
            self.context.output.note(&granted_words(name, &places));
            store.allow(name, places)?;
        }
        Ok(())
    }

    fn store(&self) -> Secrets {
        Secrets::of(&self.context.paths, self.config)
    }
}

/// What the settings of a server give to it.
fn uses_of(server: &McpServer) -> Uses {
    let mut uses = Uses::default();
    uses.add_server(&serde_json::to_value(server).expect("settings are plain JSON"));
    uses
}

/// The option with which a secret is stored for this server alone.
pub(super) fn host_option(server: &McpServer) -> String {
    format!("--host {}", in_quotes(&Destination::of_server(server)))
}

/// The option with which a secret is stored for the host of `url` alone.
pub(super) fn host_option_of(url: &str) -> String {
    format!("--host {}", in_quotes(&Destination::of_url(url)))
}

fn refused(message: String, destination: &Destination, repeat: &str, secret: Option<&SecretName>) -> Error {
    let what = match destination {
        Destination::Url(_) => "host",
        Destination::Program(_) => "program",
    };
    let first = secret.map(|name| format!(", or say so first: {}", allow(name, destination))).unwrap_or_default();
    Error::usage(message).hint(format!(
        "if you know that {what} and want this, repeat {repeat} with --allow-host {}{first}",
        in_quotes(destination)
    ))
}

/// The command that lets a secret go to `destination`.
fn allow(name: &SecretName, destination: &Destination) -> String {
    format!("agent-magic-tool secret allow {} {}", name.as_str(), in_quotes(destination))
}

/// The place as a word of a command line.
fn in_quotes(destination: &Destination) -> String {
    let place = destination.place().map_or_else(|| destination.to_string(), |place| place.to_string());
    format!("'{}'", place.replace('\'', r"'\''"))
}

/// The places to which definitions and settings send `name` today.
pub(crate) fn in_use(name: &SecretName, config: &Config, context: &Context) -> Result<BTreeSet<SecretPlace>, Error> {
    Ok(used_today(config, context)?.places_of(name))
}

/// What all definitions send, those of enabled packs too.
fn used_today(config: &Config, context: &Context) -> Result<Uses, Error> {
    let mut uses = used_elsewhere(&Sources::of(&context.paths, config), &BTreeSet::new(), config);
    let survey = PackSurvey::new(&context.paths, config)?;
    survey.names().iter().for_each(|name| uses.add_pack(name, &survey));
    Ok(uses)
}
