//! `serve`: the agent's sessions for many clients, over HTTP. The sessions and the protocols are in the crate `serve`.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use ::serve::http::openapi;
use ::serve::program::{self, Announcer};
use ::serve::service::{ApproverWindows, ServiceContext};
use agent_loop::model::registry::ModelRegistry;
use agent_side::commands::tasks;
use agent_side::context::{Context, Stdin};
use agent_side::error::Error;
use agent_side::in_process::InProcess;
use agent_side::output::Output;
use ground::config::Config;
use ground::config::api_keys::{ApiKeyError, ApiKeyOptions, ApiKeys, ApiScopes, HistoryKeeper};
use ground::config::log::{self, LogTarget};
use protocol::caller::Caller;
use protocol::clock;
use protocol::code::{Code, Exit};
use protocol::duration::PositiveDuration;
use protocol::error::{ErrorBody, chain};
use serde_json::json;

use crate::profile;

const EXAMPLE: &str = "\
Example:
  agent-magic-tool serve
  curl -s http://127.0.0.1:8790/api/v1/submit -H 'content-type: application/json' \\
    -d '{\"message\": \"What can you do?\"}'
Programs of your own on this machine need no key; for all others: agent-magic-tool serve key create NAME";

const KEY_EXAMPLE: &str = "\
Example:
  agent-magic-tool serve key create phone --expires=30d
  curl -s http://127.0.0.1:8790/api/v1/submit -H \"authorization: Bearer $KEY\" \\
    -H 'content-type: application/json' -d '{\"message\": \"What can you do?\"}'
To let a key decide in your place: agent-magic-tool executor page, then *API keys*";

#[derive(Debug, clap::Args)]
#[command(args_conflicts_with_subcommands = true, after_help = EXAMPLE)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Option<ServeCommand>,
    /// Where to listen, instead of `listen` under [serve]; port 0 means any that is free
    #[arg(long, value_name = "ADDR:PORT", value_parser = listen_address)]
    listen: Option<SocketAddr>,
    /// The rights of all who ask: a name in `[profiles]`
    #[arg(long, value_name = "NAME")]
    profile: Option<String>,
}

#[derive(Debug, clap::Subcommand)]
enum ServeCommand {
    /// Manage the API keys that clients show
    #[command(subcommand)]
    Key(KeyCommand),
    /// Print the OpenAPI document of the HTTP API
    Openapi,
}

#[derive(Debug, clap::Subcommand)]
enum KeyCommand {
    /// Make a key and print it, once
    #[command(after_help = KEY_EXAMPLE)]
    Create {
        /// What you call it: a-z 0-9 -
        name: String,
        /// What it may do; whether it may also decide in your place is said on the page, never here
        #[arg(long, value_name = "SCOPES", value_delimiter = ',', default_values = ["ask", "read"])]
        scope: Vec<KeyScope>,
        /// When it expires, like 30d; never by default
        #[arg(long, value_name = "TIME")]
        expires: Option<PositiveDuration>,
        /// Who keeps the history of its conversations; `client` makes a stateless proxy that adds the one tool
        #[arg(long, value_name = "WHO", default_value = "server")]
        history: KeyHistory,
        /// The one model that answers it: a name in `[models]`
        #[arg(long, value_name = "NAME")]
        model: Option<String>,
        /// The rights of its client: a name in `[profiles]`
        #[arg(long, value_name = "NAME")]
        profile: Option<String>,
        /// Nothing in its messages is a command: for a program that passes on what strangers write
        #[arg(long)]
        no_commands: bool,
    },
    /// Give the client of a key another profile, or none; its key stays the same
    SetProfile {
        /// What you call the key
        name: String,
        /// A name in `[profiles]`; without one, the rights of all callers
        profile: Option<String>,
    },
    /// List the keys, without what is secret of them
    List,
    /// Revoke a key; from then on it is refused
    Revoke { name: String },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum KeyScope {
    /// Start sessions and write to them.
    Ask,
    /// Read the sessions of this key.
    Read,
    /// Not given here, so that the error can say where it is.
    #[value(hide = true)]
    Decide,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum KeyHistory {
    Server,
    Client,
}

/// Reads where to listen; a port without an address, or at `localhost`, is one of this machine alone.
fn listen_address(value: &str) -> Result<SocketAddr, String> {
    let (host, port) = value.rsplit_once(':').unwrap_or(("", value));
    let is_local = host.is_empty() || host.eq_ignore_ascii_case("localhost");
    match port.parse() {
        Ok(port) if is_local => Ok((Ipv4Addr::LOCALHOST, port).into()),
        _ => value.parse().map_err(|_| format!("`{value}` is not an address and a port; write it like 127.0.0.1:8790")),
    }
}

pub(crate) fn run(args: &Args, context: &Context) -> Result<Exit, Error> {
    match &args.command {
        None => serve(args, context),
        Some(ServeCommand::Key(command)) => key(command, context),
        Some(ServeCommand::Openapi) => {
            context.output.whole_json(&openapi::document())?;
            Ok(Exit::Ok)
        }
    }
}

fn key(command: &KeyCommand, context: &Context) -> Result<Exit, Error> {
    profile::refuse_restricted("serve key", context)?;
    let keys = ApiKeys::of(&context.paths);
    match command {
        KeyCommand::Create { name, scope, expires, history, model, profile, no_commands } => {
            if scope.contains(&KeyScope::Decide) {
                let message = "the scope `decide` is not given here: only you give it, on the page";
                return Err(Error::usage(message).hint(
                    "make the key without it, then open the page and give it there, under *API keys*: \
                     agent-magic-tool executor page",
                ));
            }
            let scopes = ApiScopes { ask: scope.contains(&KeyScope::Ask), read: scope.contains(&KeyScope::Read) };
            if let Some(model) = model {
                let config = Config::read(&context.paths)?;
                ModelRegistry::new(&config).choose(Some(model))?;
            }
            profile::check(profile.as_deref(), &Config::read(&context.paths)?)?;
            let expires_at = expires.map(|lifetime| clock::now().checked_add(lifetime.get())).transpose();
            let expires_at = expires_at.map_err(|_| Error::usage("`--expires` is too far in the future"))?;
            let history = match history {
                KeyHistory::Server => HistoryKeeper::Server,
                KeyHistory::Client => HistoryKeeper::Client,
            };
            let (model, profile, no_commands) = (model.clone(), profile.clone(), *no_commands);
            let options = ApiKeyOptions { expires_at, history, model, profile, no_commands };
            let made = keys.create(name, scopes, options).map_err(|error| key_error(&error))?;
            context.output.json(&json!({"name": name, "key": made.key}))?;
            context.output.note("the key is not shown again; clients send it as `Authorization: Bearer KEY`");
            if !scopes.ask {
                context.output.note(
                    "a key reads only its own sessions, and without the scope `ask` it can begin none; if that is not \
                     what you want, revoke it and make it with --scope ask,read",
                );
            }
        }
        KeyCommand::List => {
            let listed = keys.list().map_err(|error| key_error(&error))?.into_iter();
            let shown = listed.map(|key| {
                json!({
                    "name": key.name, "id": key.id, "scopes": key.scopes, "created_at": key.created_at,
                    "expires_at": key.expires_at, "history": key.history, "model": key.model,
                    "profile": key.profile, "commands": !key.no_commands,
                })
            });
            context.output.json(&shown.collect::<Vec<_>>())?;
        }
        KeyCommand::SetProfile { name, profile } => {
            profile::check(profile.as_deref(), &Config::read(&context.paths)?)?;
            keys.set_profile(name, profile.as_deref()).map_err(|error| key_error(&error))?;
            context.output.json(&json!({"name": name, "profile": profile}))?;
        }
        KeyCommand::Revoke { name } => {
            keys.revoke(name).map_err(|error| key_error(&error))?;
            context.output.json(&json!({"name": name, "revoked": true}))?;
        }
    }
    Ok(Exit::Ok)
}

fn key_error(error: &ApiKeyError) -> Error {
    let code = match error {
        ApiKeyError::Unknown(_) => Code::NotFound,
        ApiKeyError::Name(_) | ApiKeyError::Taken(_) | ApiKeyError::NoScope | ApiKeyError::TooMany => Code::Usage,
        ApiKeyError::Io { .. } | ApiKeyError::Distrusted { .. } | ApiKeyError::Malformed { .. } => Code::Io,
    };
    Error::new(code, chain(error))
}

fn serve(args: &Args, context: &Context) -> Result<Exit, Error> {
    let config = Config::in_force(&context.paths)?;
    context.paths.create_state().map_err(|error| Error::io("failed to create the state folder", &error))?;
    log::start(LogTarget::File(&context.paths.serve_log()), &config.executor)
        .map_err(|error| Error::new(Code::Io, chain(&error)))?;
    let caller = profile::caller(args.profile.as_deref(), &config, context)?;
    program::run(service_context(config, caller, context), args.listen, &OutputAnnouncer(context))?;
    Ok(Exit::Ok)
}

/// Prints what the server announces.
struct OutputAnnouncer<'a>(&'a Context);

impl Announcer for OutputAnnouncer<'_> {
    fn listens(&self, url: &str) -> Result<(), ErrorBody> {
        self.0.output.line(&json!({ "url": url })).map_err(|error| ErrorBody::clone(error.body()))
    }

    fn note(&self, text: &str) {
        self.0.output.note(text);
    }
}

fn service_context(config: Config, caller: Caller, context: &Context) -> ServiceContext {
    // The server itself forgets what its clients delete, whatever they may do.
    let (paths, own_caller, dispatch) = (context.paths.clone(), context.caller.clone(), context.dispatch);
    let (settings, idle) = (&config.serve, config.serve.idle.get());
    let windows = ApproverWindows { until_there: settings.approver_window.get(), of_key: settings.key_window };
    ServiceContext {
        paths: context.paths.clone(),
        config,
        shell: Arc::new(InProcess::of(context)),
        caller,
        forget_results: Box::new(move |label| {
            let output = Output::buffered();
            let own = Context {
                paths: paths.clone(),
                output,
                stdin: Stdin::Text(String::new()),
                caller: own_caller.clone(),
                dispatch,
            };
            let forgotten = tasks::forget(label.to_owned(), &own);
            forgotten.map(|(_, open)| open).map_err(|error| ErrorBody::clone(error.body()))
        }),
        windows,
        idle,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_without_an_address_is_one_of_this_machine() {
        for value in ["127.0.0.1:47790", "localhost:47790", ":47790", "47790"] {
            assert_eq!(listen_address(value).map(|address| address.to_string()), Ok("127.0.0.1:47790".to_owned()));
        }
        assert_eq!(listen_address("[::1]:8").map(|address| address.to_string()), Ok("[::1]:8".to_owned()));
        for wrong in ["", "localhost", "localhost:x", "example.com:80", "127.0.0.1", "::1", "70000"] {
            assert!(listen_address(wrong).is_err_and(|error| error.contains("127.0.0.1:8790")), "{wrong}");
        }
    }
}
