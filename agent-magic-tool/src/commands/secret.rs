//! `secret`: manages the secrets that subtools use. Values come from standard input and are never printed.

use std::io::{IsTerminal as _, Read as _};
use std::os::fd::AsFd as _;

use agent_side::context::Context;
use agent_side::error::Error;
use ground::config::Config;
use ground::config::secret::{InvalidSecretName, SecretName, SecretPlace, Secrets, weakness};
use nix::sys::termios::{LocalFlags, SetArg, tcgetattr, tcsetattr};
use protocol::code::{Code, Exit};
use protocol::wording::quoted;
use serde_json::{Value, json};

use crate::commands::import::hosts_in_use;

/// The largest value that is read; real keys are far smaller.
const MAX_SECRET_BYTES: u64 = 64 << 10;

#[derive(Debug, clap::Subcommand)]
pub(crate) enum SecretCommand {
    /// Store a value, read from standard input
    Set {
        name: String,
        /// Store it even if it is short or an ordinary word
        #[arg(long)]
        weak: bool,
        /// A host that it may be sent to, and to no others: HOST, HOST:PORT or *.DOMAIN; or a program that an import may
        /// give it to: 'program:COMMAND LINE'
        #[arg(long, value_name = "HOST")]
        host: Vec<SecretPlace>,
    },
    /// Let a secret be sent to further hosts; one that has no list of hosts yet is then sent to these alone
    Allow {
        name: String,
        /// HOST, HOST:PORT or *.DOMAIN; with http:// before it also over plain HTTP; or 'program:COMMAND LINE'
        #[arg(required = true)]
        hosts: Vec<SecretPlace>,
    },
    /// List the names and where their values come from
    List,
    /// Remove a stored value, and the list of hosts to which it may go
    Rm { name: String },
}

pub(crate) fn run(command: &SecretCommand, context: &Context) -> Result<Exit, Error> {
    let secrets = Secrets::of(&context.paths, &Config::read(&context.paths)?);
    match command {
        SecretCommand::Set { name, weak, host } => {
            let name = parse(name)?;
            let value = read_value(&name, context)?;
            if let Some(weakness) = weakness(&value).filter(|_| !weak) {
                return Err(Error::usage(format!("this is not a good secret: {weakness}")).hint(
                    "use a longer one, since results could not be cleaned of it without damage to ordinary text; if \
                     the service has no better one, pass --weak",
                ));
            }
            if !host.is_empty() {
                secrets.set_hosts(&name, host.iter().cloned().collect())?;
            }
            secrets.set(&name, &value)?;
            context.output.json(&with_hosts(json!({"name": name.as_str(), "stored": true}), &name, &secrets)?)?;
        }
        SecretCommand::Allow { name, hosts } => {
            let name = parse(name)?;
            let is_new = secrets.hosts(&name)?.is_none();
            if is_new && !secrets.is_set(name.as_str()) {
                return Err(not_stored(&name));
            }
            if is_new {
                context.output.note(&restriction(&name, hosts, context)?);
            }
            secrets.allow(&name, hosts.iter().cloned())?;
            context.output.json(&with_hosts(json!({"name": name.as_str()}), &name, &secrets)?)?;
        }
        SecretCommand::List => {
            let names = secrets.names()?.into_iter().map(|(name, from)| {
                let described = json!({"name": name, "from": from});
                name.parse().map_or(Ok(described.clone()), |name| with_hosts(described, &name, &secrets))
            });
            context.output.json(&names.collect::<Result<Vec<_>, _>>()?)?;
        }
        SecretCommand::Rm { name } => {
            let name = parse(name)?;
            let removed = secrets.remove(&name)?;
            if !removed {
                return Err(not_stored(&name));
            }
            context.output.json(&json!({"name": name.as_str(), "removed": true}))?;
        }
    }
    Ok(Exit::Ok)
}

fn not_stored(name: &SecretName) -> Error {
    Error::new(Code::NotFound, format!("no value is stored for the secret `{}`", name.as_str()))
        .hint("the names, and where their values come from: agent-magic-tool secret list")
}

/// Says that a secret which had no list goes only to `hosts` from now on, and where definitions send it today.
fn restriction(name: &SecretName, hosts: &[SecretPlace], context: &Context) -> Result<String, Error> {
    let name_only = name.as_str();
    let said = format!(
        "the secret `{name_only}` had no list of hosts and went where definitions and settings send it; it now goes to \
         {} alone",
        quoted(hosts)
    );
    let in_use = hosts_in_use(name, &Config::read(&context.paths)?, context)?;
    // A program gets it by its definition, whatever the list says.
    let is_host = |place: &SecretPlace| matches!(place, SecretPlace::Host(_));
    let missing = in_use.into_iter().filter(|host| is_host(host) && !hosts.contains(host));
    let missing: Vec<_> = missing.map(|host| host.to_string()).collect();
    Ok(if missing.is_empty() {
        said
    } else {
        let missing = missing.join(" ");
        format!(
            "{said}, but definitions send it elsewhere; to keep that: agent-magic-tool secret allow {name_only} {missing}"
        )
    })
}

/// Adds the hosts to which the secret may go, if it has a list of them.
fn with_hosts(mut described: Value, name: &SecretName, secrets: &Secrets) -> Result<Value, Error> {
    if let Some(hosts) = secrets.hosts(name)? {
        described["hosts"] = hosts.iter().map(ToString::to_string).collect();
    }
    Ok(described)
}

/// Parses a name. The error never repeats it, since a caller may have passed the value instead.
fn parse(name: &str) -> Result<SecretName, Error> {
    name.parse().map_err(|error: InvalidSecretName| Error::usage(error.to_string()))
}

fn read_value(name: &SecretName, context: &Context) -> Result<String, Error> {
    let stdin = std::io::stdin();
    let failed = |error| Error::io("failed to read standard input", &error);
    let mut value = String::new();
    if stdin.is_terminal() {
        context.output.prompt(&format!("value of {}: ", name.as_str()));
        let before = tcgetattr(stdin.as_fd()).map_err(|error| failed(error.into()))?;
        let mut without_echo = before.clone();
        without_echo.local_flags.remove(LocalFlags::ECHO);
        tcsetattr(stdin.as_fd(), SetArg::TCSAFLUSH, &without_echo).map_err(|error| failed(error.into()))?;
        let read = stdin.read_line(&mut value);
        let restored = tcsetattr(stdin.as_fd(), SetArg::TCSAFLUSH, &before);
        context.output.prompt("\n");
        read.and(restored.map_err(Into::into)).map_err(failed)?;
    } else {
        stdin.lock().take(MAX_SECRET_BYTES).read_to_string(&mut value).map_err(failed)?;
    }
    let value = value.trim_end_matches(['\r', '\n']);
    if value.is_empty() {
        return Err(Error::usage("the value is empty").hint(format!(
            "pass it on standard input: printf %s \"$TOKEN\" | agent-magic-tool secret set {}",
            name.as_str()
        )));
    }
    Ok(value.to_owned())
}
