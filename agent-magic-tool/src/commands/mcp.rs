//! `mcp`: serves the one tool over the Model Context Protocol, to clients without a shell.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use ::mcp::server::{
    AccessLists, ClientAccess, ClientKey, HttpBinding, KeyFileError, ServeError, ServerSettings, serve_http,
    serve_stdio,
};
use agent_side::context::Context;
use agent_side::error::Error;
use agent_side::in_process::InProcess;
use catalog::Sources;
use globset::{Glob, GlobSet, GlobSetBuilder};
use ground::config::{Config, McpClientSettings};
use protocol::code::{Code, Exit};
use protocol::error::chain;
use protocol::mailbox::Mailbox;
use protocol::tool_scope::{InvalidPattern, ToolScope};
use serde_json::json;

use crate::profile;

/// The client that shows the key that we make.
const DEFAULT_CLIENT: &str = "default";

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Serve over HTTP instead of standard input and output; port 0 means any that is free
    #[arg(long, value_name = "ADDR:PORT", num_args = 0..=1, default_missing_value = ADDRESS)]
    http: Option<SocketAddr>,
    /// Also serve the subtools with this name, or that match a glob like `gmail_*`, as tools of their own
    #[arg(long, value_name = "GLOB")]
    expose: Vec<String>,
    /// The name of the client, which selects its section of the configuration; over HTTP its key does
    #[arg(long, value_name = "NAME", conflicts_with = "http")]
    client: Option<String>,
    /// The file with the key that clients must show over HTTP [default: `mcp-key` in the state folder, made if missing]
    #[arg(long, value_name = "FILE", requires = "http")]
    key_file: Option<PathBuf>,
    /// The rights of the clients: a name in `[profiles]`
    #[arg(long, value_name = "NAME")]
    profile: Option<String>,
    /// The mailbox, for clients that do not pass on the environment
    #[arg(long, value_name = "FOLDER")]
    mailbox: Option<PathBuf>,
}

/// Where it listens unless told otherwise.
const ADDRESS: &str = "127.0.0.1:8931";

pub(crate) fn run(args: &Args, context: &Context) -> Result<Exit, Error> {
    let mut paths = context.paths.clone();
    if let Some(mailbox) = &args.mailbox {
        paths.mailbox.clone_from(mailbox);
    }
    let config = Config::read(&paths)?;
    if let Some(name) = args.client.as_ref().filter(|name| !config.mcp.clients.contains_key(*name)) {
        return Err(Error::usage(format!("the configuration has no section [mcp.clients.{name}]"))
            .hint("write one, or leave out --client: then nothing restricts the client"));
    }
    let settings = ServerSettings {
        shell: Arc::new(InProcess::of(context).in_mailbox(&paths)),
        mailbox: Mailbox::open(&paths.mailbox)?,
        caller: profile::caller(args.profile.as_deref(), &config, context)?,
        foreign_commands: config.shell.others,
        exposed: exposed(&args.expose)?,
        access: access(&config)?,
        client: args.client.clone(),
        catalog: Sources::of(&context.paths, &config).folders().to_vec(),
    };
    let Some(address) = args.http else {
        serve_stdio(settings).map_err(failed)?;
        return Ok(Exit::Ok);
    };
    context.paths.create_state().map_err(|error| Error::io("failed to create the state folder", &error))?;
    let key_file = args.key_file.clone().unwrap_or_else(|| context.paths.state.join("mcp-key"));
    let own = match &args.key_file {
        Some(path) => ClientKey::read(DEFAULT_CLIENT, path),
        None => ClientKey::read_or_make(DEFAULT_CLIENT, &key_file),
    };
    let mut keys = vec![own.map_err(|error| key_error(&error))?];
    for (name, client) in &config.mcp.clients {
        if let Some(path) = &client.key_file {
            keys.push(ClientKey::read(name, path).map_err(|error| key_error(&error))?);
        }
    }
    let mut printed = Ok(());
    let binding = HttpBinding { address, public_names: config.mcp.public_names.clone(), keys };
    serve_http(settings, binding, |url| {
        printed = context.output.line(&json!({"url": url, "key_file": key_file}));
        context.output.note("clients send the key in that file as `Authorization: Bearer KEY`");
    })
    .map_err(failed)?;
    printed?;
    Ok(Exit::Ok)
}

/// The patterns of the subtools to serve.
fn exposed(patterns: &[String]) -> Result<GlobSet, Error> {
    let mut set = GlobSetBuilder::new();
    let wrong = |pattern: &str, error: &dyn std::fmt::Display| {
        Error::usage(format!("`{pattern}` is no pattern: {error}")).hint("write a name, or a glob like `gmail_*`")
    };
    for pattern in patterns {
        set.add(Glob::new(pattern).map_err(|error| wrong(pattern, &error))?);
    }
    set.build().map_err(|error| wrong(&patterns.join(" "), &error))
}

fn access(config: &Config) -> Result<AccessLists, Error> {
    let of = |client: &McpClientSettings| -> Result<ClientAccess, InvalidPattern> {
        let scope = |list: &Option<Vec<String>>| match list {
            Some(list) => ToolScope::default().narrowed(list.clone()),
            None => Ok(ToolScope::default()),
        };
        Ok(ClientAccess {
            tools: scope(&client.tools)?,
            resources: scope(&client.resources)?,
            prompts: scope(&client.prompts)?,
            subtools: match &client.profile {
                Some(profile) => scope(&client.subtools)?.within_profile(profile)?,
                None => scope(&client.subtools)?,
            },
        })
    };
    let lists = config.mcp.clients.iter().map(|(name, client)| {
        let access = of(client).map_err(|error| {
            Error::new(Code::BadConfig, format!("`mcp.clients.{name}` is wrong: {error}"))
                .hint("write names or globs like `gmail_*`")
        })?;
        Ok((name.clone(), access))
    });
    lists.collect()
}

fn key_error(error: &KeyFileError) -> Error {
    let hint = match error {
        KeyFileError::Exposed { path } => {
            format!("make a new key, and keep it to yourself: chmod 600 '{}'", path.display())
        }
        KeyFileError::Io { .. } | KeyFileError::Weak { .. } => {
            "make one: (umask 077; head -c 32 /dev/urandom | base64 > FILE)".to_owned()
        }
    };
    Error::new(Code::BadConfig, chain(error)).hint(hint)
}

#[expect(clippy::needless_pass_by_value, reason = "passed to `map_err`")]
fn failed(error: ServeError) -> Error {
    match &error {
        ServeError::NoLoopback(_) => Error::new(Code::BadConfig, chain(&error)).hint(
            "listen on 127.0.0.1, or name what the proxy is called: public_names = [\"tools.example.com\"] in [mcp]",
        ),
        ServeError::Listen { .. } => {
            Error::new(Code::Io, chain(&error)).hint("choose another port: --http=127.0.0.1:0")
        }
        ServeError::Start(_) => Error::new(Code::Io, chain(&error)),
    }
}
