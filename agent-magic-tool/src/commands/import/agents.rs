//! `import agents`: lists the MCP servers that other agents are configured to use; `import mcp --from CLIENT` takes them
//! over.
//!
//! Only reads those configurations. What looks like a secret is never printed; taken over, it goes into the store.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use agent_side::context::Context;
use agent_side::error::Error;
use definition::run::mcp::McpServer;
use ground::base::credential;
use ground::config::secret::Secrets;
use import::agents::{
    AgentPlace, BaseFolder, PLACES, ServerSettings, StoredValue, credential_in_command, credential_in_url,
};
use protocol::code::{Code, Exit};
use protocol::regular_file;
use serde_json::{Value, json};

use super::hosts::{self, Allowance};
use super::servers::{self, NamedServer};

/// The word on the command line.
pub(super) const WORD: &str = "agents";

/// The largest configuration: Claude Code keeps much else in its own.
const MAX_BYTES: u64 = 64 << 20;

pub(super) fn run(context: &Context) -> Result<Exit, Error> {
    let (mut servers, mut broken) = (Vec::new(), Vec::new());
    for (place, path) in places(context)? {
        match listed(place, &path) {
            Ok(found) => servers.extend(found),
            Err(error) => broken.push(json!({"client": place.client, "file": path, "error": error})),
        }
    }
    let (count, broken_count) = (servers.len(), broken.len());
    context.output.json(&json!({"servers": servers, "broken": broken}))?;
    let unread = if broken_count == 0 { String::new() } else { format!("; files that cannot be read: {broken_count}") };
    context.output.note(&format!("MCP servers found: {count}{unread}"));
    if count > 0 {
        context.output.note("take them over: agent-magic-tool import mcp --from CLIENT [NAME…]");
    }
    Ok(Exit::Ok)
}

/// The servers of a client, and those that cannot be taken over, with the reason.
pub(super) type ClientServers = (Vec<NamedServer>, Vec<(String, Error)>);

/// Reads the servers of `client`, or those of them that are `wanted`, and stores the secrets that they need. A server
/// that cannot be taken over is in the second list, with the reason.
pub(super) fn take_over(client: &str, wanted: &[String], allowance: &Allowance<'_>) -> Result<ClientServers, Error> {
    let context = allowance.context;
    let known: BTreeSet<_> = PLACES.iter().map(|place| place.client).collect();
    if !known.contains(client) {
        let known: Vec<_> = known.into_iter().collect();
        return Err(Error::usage(format!("`{client}` is not a client whose configuration can be read"))
            .hint(format!("the clients are {}", known.join(", "))));
    }
    let (mut servers, mut failed, mut missing) = (Vec::new(), Vec::new(), wanted.to_vec());
    let mut names = BTreeSet::new();
    for (place, path) in places(context)?.into_iter().filter(|(place, _)| place.client == client) {
        let found = text(&path).and_then(|text| place.settings(&text).map_err(|error| error.to_string()));
        let found = found.map_err(|error| Error::usage(format!("failed to read `{}`: {error}", path.display())))?;
        for settings in found {
            missing.retain(|name| *name != settings.name);
            let is_wanted = if wanted.is_empty() { !settings.disabled } else { wanted.contains(&settings.name) };
            let name = import::mcp::pack_name(&settings.name);
            if !is_wanted || is_ourselves(&settings) || !names.insert(name.clone()) {
                continue;
            }
            match named(&settings, &name, allowance) {
                Ok(server) => servers.push(server),
                Err(error) => failed.push((settings.name.clone(), error)),
            }
        }
    }
    failed.extend(missing.into_iter().map(|name| {
        let message = format!("no server `{name}` in the configuration of {client}");
        let error =
            Error::new(Code::NotFound, message).hint("the servers are listed by: agent-magic-tool import agents");
        (name, error)
    }));
    if servers.is_empty() && failed.is_empty() {
        return Err(Error::new(Code::NotFound, format!("{client} is not configured to use an MCP server"))
            .hint("what was found: agent-magic-tool import agents"));
    }
    Ok((servers, failed))
}

/// Whether this is the entry by which the client uses this program.
fn is_ourselves(settings: &ServerSettings) -> bool {
    let program = settings.command.first().map(Path::new);
    program.and_then(Path::file_name).is_some_and(|name| name == "agent-magic-tool")
}

/// The server with our settings; what it needs is stored, unless something of that name is stored already.
fn named(settings: &ServerSettings, name: &str, allowance: &Allowance<'_>) -> Result<NamedServer, Error> {
    let Allowance { is_dry_run, config, context, .. } = *allowance;
    let secrets = Secrets::of(&context.paths, config);
    let is_key = |value: &str| credential::mask(value) != value;
    let in_command = credential_in_command(&settings.command).is_some();
    if in_command || settings.url.as_deref().is_some_and(|url| credential_in_url(url) || is_key(url)) {
        let place = if in_command { "command line" } else { "URL" };
        return Err(Error::usage(format!("its {place} has what looks like a credential"))
            .hint("import it with --env or --header, and the credential as secret:NAME"));
    }
    if settings.command.iter().chain(&settings.url).any(|word| word.contains("${")) {
        return Err(Error::usage("its command line or URL has variables of the client, like `${workspaceFolder}`")
            .hint("import it with the values: agent-magic-tool import mcp NAME -- COMMAND ARGS"));
    }
    let connection = settings.connection(name, &is_key);
    let server: McpServer = serde_json::from_value(connection.server)
        .map_err(|error| Error::usage(format!("its configuration cannot be understood: {error}")))?;
    servers::check(&server)?;
    // Before anything is stored: what is new has no value that was stored for something else.
    allowance.check_server(&server)?;
    let mut has_stored = false;
    for StoredValue { name: secret, value } in connection.secrets {
        if secrets.is_set(&secret) {
            continue;
        }
        let Some(value) = value else {
            return Err(Error::new(Code::SecretMissing, format!("the client itself fills in what becomes `{secret}`"))
                .hint(format!(
                    "store it, and import again: agent-magic-tool secret set {secret} {}",
                    hosts::host_option(&server)
                )));
        };
        if is_dry_run {
            return Err(Error::new(Code::SecretMissing, format!("the secret `{secret}` would be stored"))
                .hint("without it the server cannot be asked; import without --dry-run"));
        }
        let parsed = secret.parse().map_err(|_| Error::usage(format!("`{secret}` is not a name for a secret")))?;
        secrets.set(&parsed, &value)?;
        has_stored = true;
        context.output.note(&format!("stored the secret {secret}, from the client's configuration"));
    }
    if has_stored {
        // They are for this server, whether it answers or not.
        allowance.bind_server(&server)?;
    }
    Ok(NamedServer { name: name.to_owned(), server })
}

/// The configurations that exist.
fn places(context: &Context) -> Result<Vec<(AgentPlace, PathBuf)>, Error> {
    let home = context.paths.home()?;
    let project = std::env::current_dir().map_err(|error| Error::io("failed to find the current folder", &error))?;
    let mut seen = BTreeSet::new();
    let paths = PLACES.into_iter().map(|place| (place, path(place, &home, &project, context)));
    Ok(paths.filter(|(_, path)| path.exists() && seen.insert(path.clone())).collect())
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

fn text(path: &Path) -> Result<String, String> {
    let bytes = regular_file::read(path, MAX_BYTES).map_err(|error| error.to_string())?;
    String::from_utf8(bytes).map_err(|_| "it is not a text in UTF-8".to_owned())
}

/// Lists the servers of one file, or says why it cannot be read.
fn listed(place: AgentPlace, path: &Path) -> Result<Vec<Value>, String> {
    let servers = place.servers(&text(path)?).map_err(|error| error.to_string())?;
    let listed = servers.into_iter().map(|server| {
        let mut listed = json!({"client": place.client, "file": path});
        if let (Some(listed), Ok(Value::Object(server))) = (listed.as_object_mut(), serde_json::to_value(server)) {
            listed.extend(server);
        }
        listed
    });
    Ok(listed.collect())
}
