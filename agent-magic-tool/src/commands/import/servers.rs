//! `import mcp`: gets the snapshot of an MCP server, which the command line names or another client's configuration.
//!
//! A credential never gets into a definition file: on the command line it is refused, and from a configuration it goes
//! into the store of secrets. So do the tokens of a sign-in: what is printed is the link alone.

use std::path::{Path, PathBuf};

use agent_side::context::Context;
use agent_side::error::Error;
use agent_side::usage::with_dashes;
use catalog::problems_of_definitions;
use definition::run::mcp::{McpServer, McpTransport};
use ground::base::credential;
use ground::config::secret::{SecretName, Secrets};
use import::agents::{credential_in_command, credential_in_url, is_credential_value};
use import::document::Document;
use protocol::code::Code;
use protocol::error::ErrorBody;
use runner::mcp::SignInLink;
use runner::server_snapshot;
use serde_json::{Map, Value, json};

use super::hosts::{Allowance, host_option, host_option_of};
use super::reading;

/// The kind on the command line.
pub(super) const WORD: &str = "mcp";

/// The longest name of a server: it is the name of a pack.
const MAX_NAME_CHARS: usize = 24;
/// Where a secret may be given, as a hint.
const SECRET_HINT: &str = "store it, and name it where its value stood";

#[derive(Debug, Clone, Default, clap::Args)]
#[command(next_help_heading = "MCP servers")]
pub(super) struct ServerArgs {
    /// After `mcp NAME --`: the program of a server and its arguments
    #[arg(last = true, value_name = "COMMAND")]
    pub(super) command: Vec<String>,
    /// A variable in the environment of the program; a credential as KEY=secret:NAME
    #[arg(long, value_name = "KEY=VALUE")]
    env: Vec<String>,
    /// A header of each request to a URL, like 'Authorization: Bearer secret:NAME'
    #[arg(long, value_name = "NAME: VALUE")]
    header: Vec<String>,
    /// The folder in which the program runs [default: /]
    #[arg(long, value_name = "FOLDER")]
    folder: Option<PathBuf>,
    /// A file or folder of the program that an approval is bound to, besides those that its command names
    #[arg(long, value_name = "PATH")]
    covers: Vec<PathBuf>,
    /// How a URL is spoken to [default: found out]
    #[arg(long, value_enum)]
    transport: Option<TransportWord>,
    /// Sign in to a URL with OAuth, in the browser; the default if the server wants a sign-in and no header is given
    #[arg(long)]
    oauth: bool,
    /// Take over the servers that this client is configured to use, or those of them that are named
    #[arg(long, value_name = "CLIENT", conflicts_with_all = ["env", "header", "folder", "covers", "transport", "oauth", "name", "command"])]
    pub(super) from: Option<String>,
}

#[derive(Debug, Clone, Copy, clap::ValueEnum)]
enum TransportWord {
    Http,
    Sse,
}

/// One server of the command line, before it is asked.
pub(super) struct NamedServer {
    /// The name of its pack.
    pub(super) name: String,
    pub(super) server: McpServer,
}

impl ServerArgs {
    /// Whether an option was given that only a server understands.
    pub(super) fn is_used(&self) -> bool {
        let texts = [&self.env, &self.header].iter().any(|list| !list.is_empty());
        texts
            || self.folder.is_some()
            || !self.covers.is_empty()
            || self.transport.is_some()
            || self.oauth
            || self.from.is_some()
    }

    /// Reads the server that `words` name, those after `mcp`; `name` is that of `--name`.
    pub(super) fn server(&self, words: &[String], name: Option<&str>) -> Result<NamedServer, Error> {
        let (given, place) = match (name, words) {
            (Some(name), rest) => (Some(name), rest),
            (None, [url]) if is_url(url) => (None, words),
            (None, [name, rest @ ..]) => (Some(name.as_str()), rest),
            (None, []) => (None, words),
        };
        let before_dashes = place;
        let place: Vec<String> = place.iter().chain(&self.command).cloned().collect();
        let forms = "agent-magic-tool import mcp NAME -- COMMAND ARGS, or: agent-magic-tool import mcp NAME URL";
        let Some(first) = place.first() else {
            return Err(Error::usage("`import mcp` needs a name and a server").hint(forms));
        };
        let name = match given {
            Some(name) => name.to_owned(),
            None if is_url(first) => import::mcp::pack_name_of_url(first),
            None => return Err(Error::usage("the server has no name").hint(forms)),
        };
        check_name(&name)?;
        let server = if let ([url], true) = (place.as_slice(), is_url(first)) {
            self.remote(&name, url)?
        } else if is_url(first) {
            return Err(Error::usage(format!("`{}` is too much: a URL is a server of its own", place[1])).hint(forms));
        } else if !before_dashes.is_empty() {
            return Err(Error::usage(format!("`{first}` is not a URL, and a program stands after `--`"))
                .hint(with_dashes(&name, &place)));
        } else {
            self.local(&name, place)?
        };
        check(&server)?;
        Ok(NamedServer { name, server })
    }

    fn remote(&self, name: &str, url: &str) -> Result<McpServer, Error> {
        if credential_in_url(url) || credential::mask(url) != url {
            return Err(Error::usage("the URL has what looks like a credential, which would stand in the file in clear")
                .hint(format!("send it in a header: agent-magic-tool secret set {name} {}; then: --header 'Authorization: Bearer secret:{name}'", host_option_of(url))));
        }
        Ok(McpServer { url: Some(url.to_owned()), ..self.common(name, Some(url))? })
    }

    fn local(&self, name: &str, mut command: Vec<String>) -> Result<McpServer, Error> {
        if credential_in_command(&command).is_some() || command.iter().any(|word| credential::mask(word) != *word) {
            return Err(Error::usage(
                "an argument looks like a credential, which every user of this machine could read",
            )
            .hint(format!(
                "store it with: agent-magic-tool secret set {name}; give it as --env KEY=secret:{name}; and if the \
                 server takes it only as an argument: -- sh -c 'exec SERVER \"$KEY\"'"
            )));
        }
        if let Some(program) = command.first_mut().filter(|program| program.contains('/')) {
            // Links stay: Python finds its environment by the name that it was called by.
            let absolute = std::path::absolute(program.as_str()).and_then(|path| path.metadata().map(|_| path));
            let absolute = absolute.map_err(|error| Error::io(&format!("failed to find `{program}`"), &error))?;
            *program = absolute.display().to_string();
        }
        if self.folder.is_none() {
            // The program runs in another folder than this one.
            for argument in command.iter_mut().skip(1) {
                let is_relative = argument.starts_with("./") || argument.starts_with("../");
                if let Some(path) =
                    std::path::absolute(argument.as_str()).ok().filter(|path| is_relative && path.exists())
                {
                    *argument = path.display().to_string();
                }
            }
        }
        Ok(McpServer { command, ..self.common(name, None)? })
    }

    /// What the options say, for a program and for a URL: what is not for one of them is a mistake that the check names.
    fn common(&self, name: &str, url: Option<&str>) -> Result<McpServer, Error> {
        let pair = |text: &str, separator: char, option: &str, form: &str| {
            let pair = text.split_once(separator).map(|(key, value)| (key.trim().to_owned(), value.to_owned()));
            let pair = pair.ok_or_else(|| Error::usage(format!("`{option}` needs a name and a value")).hint(form))?;
            refuse_credential(option, name, url, &pair.0, &pair.1)?;
            Ok::<_, Error>(pair)
        };
        let env = self.env.iter().map(|text| pair(text, '=', "--env", "write --env KEY=VALUE"));
        let headers = self.header.iter().map(|text| pair(text, ':', "--header", "write --header 'Name: value'"));
        let headers = headers.map(|pair| pair.map(|(key, value)| (key, value.trim().to_owned())));
        let covers = self.covers.iter().map(|path| {
            let absolute = std::path::absolute(path).and_then(|path| path.metadata().map(|_| path));
            let failed = |error| Error::io(&format!("failed to find `{}`", path.display()), &error);
            absolute.map(|path| path.display().to_string()).map_err(failed)
        });
        let folder = self.folder.as_ref().map(|folder| {
            let real = folder.canonicalize();
            real.map_err(|error| Error::io(&format!("failed to find `{}`", folder.display()), &error))
        });
        Ok(McpServer {
            name: name.to_owned(),
            command: Vec::new(),
            env: env.collect::<Result<_, _>>()?,
            folder: folder.transpose()?.map(|folder| folder.display().to_string()),
            covers: covers.collect::<Result<_, _>>()?,
            url: None,
            headers: headers.collect::<Result<_, _>>()?,
            oauth: self.oauth.then(|| secret(&format!("{name}-oauth"))).transpose()?,
            transport: match self.transport {
                None => McpTransport::Auto,
                Some(TransportWord::Http) => McpTransport::StreamableHttp,
                Some(TransportWord::Sse) => McpTransport::Sse,
            },
            protocol: None,
        })
    }
}

/// A word of the command that names a file here, and is looked for elsewhere.
pub(super) fn misplaced(server: &McpServer) -> Option<&String> {
    let is_here = |word: &&String| !word.starts_with(['/', '-']) && word.contains('.') && Path::new(word).is_file();
    server.command.iter().skip(1).find(|word| server.folder.is_none() && is_here(word))
}

/// Asks a server what it offers. One that wants a sign-in gets one with OAuth, unless it is sent headers. In a dry run, no
/// human is asked.
pub(super) fn ask(named: &NamedServer, allowance: &Allowance<'_>) -> Result<Document, Error> {
    let Allowance { is_dry_run, config, context, .. } = *allowance;
    let (mut server, may_sign_in) = (named.server.clone(), !is_dry_run);
    allowance.check_server(&server)?;
    let failed = |error| Error::io("failed to make a folder for large answers", &error);
    let spool = tempfile::tempdir().map_err(failed)?;
    let show = |link: &SignInLink| show(link, context);
    let show: Option<&dyn Fn(&SignInLink)> = if may_sign_in { Some(&show) } else { None };
    let take = |server: &McpServer| {
        let secrets = Secrets::of(&context.paths, config);
        server_snapshot::take(server, config, secrets, spool.path().to_owned(), show)
    };
    let mut taken = take(&server);
    let is_wanted = taken.as_ref().is_err_and(|error| error.code == Code::NeedsReauthorization);
    if is_wanted && server.url.is_some() && server.oauth.is_none() && server.headers.is_empty() {
        server.oauth = Some(secret(&format!("{}-oauth", named.name))?);
        allowance.check_server(&server)?;
        taken = take(&server);
    }
    let snapshot = taken.map_err(|error| with_other_ways(error, named, may_sign_in))?;
    if may_sign_in {
        allowance.bind_server(&server)?;
    }
    // The snapshot has the version that the server speaks now. With that of the last time, every refresh would be a change.
    server.protocol = None;
    let settings = serde_json::to_value(&server).expect("settings are plain JSON");
    let document = import::mcp::document(&server.place(), &settings, &snapshot);
    document.map_err(|error| reading::failed(&named.name, error))
}

/// Shows a human where to sign in.
fn show(link: &SignInLink, context: &Context) {
    let SignInLink { server, host, url, max_time } = link;
    let minutes = max_time.as_secs() / 60;
    context.output.note(&format!(
        "the MCP server `{server}` wants you to sign in at {host}. Open this address in a browser on this machine only \
         if you know {host}; the import goes on when you have signed in, and ends in {minutes} minutes if you have \
         not:\n{url}"
    ));
}

/// Adds to the failure of a sign-in what else a human can do.
fn with_other_ways(error: ErrorBody, named: &NamedServer, may_sign_in: bool) -> Error {
    if error.code != Code::NeedsReauthorization {
        return error.into();
    }
    let (name, server, known) = (&named.name, &named.server, error.hint.clone().unwrap_or_default());
    let hint = if !server.headers.is_empty() {
        "check the secrets in its headers; or import it without them, to sign in with OAuth".to_owned()
    } else if !may_sign_in {
        "import it without --dry-run: then you are asked to sign in".to_owned()
    } else if server.oauth.is_none() {
        format!(
            "{known}; if you have a token already: agent-magic-tool secret set {name} {}; then: --header \
             'Authorization: Bearer secret:{name}'",
            host_option(server)
        )
    } else {
        known
    };
    Error::from(error).hint(hint)
}

/// The server of a file that was imported, with what a human changed in it.
pub(super) fn of_file(file: &Map<String, Value>) -> Result<McpServer, Error> {
    let settings = file.get("$defaults").and_then(|defaults| defaults.pointer("/run/mcp/server"));
    let settings = settings.cloned().unwrap_or_default();
    serde_json::from_value(settings).map_err(|error| {
        Error::usage(format!("`run.mcp.server` in `$defaults` is not a server: {error}"))
            .hint("import the server again: agent-magic-tool import mcp NAME …")
    })
}

/// Checks settings in the way in which a definition is checked.
pub(super) fn check(server: &McpServer) -> Result<(), Error> {
    let settings = serde_json::to_value(server).expect("settings are plain JSON");
    let defaults = json!({"run": {"mcp": {"server": settings}}});
    let tool = json!({"description": "x", "input": {"type": "object"}, "run": {"mcp": {"tool": "x"}}});
    let defaults = defaults.as_object().cloned().unwrap_or_default();
    match problems_of_definitions(&defaults, [("x".to_owned(), tool)]).into_iter().next() {
        None => Ok(()),
        Some(problem) => {
            let place = problem.place.unwrap_or_default();
            let place = place.strip_prefix("run.mcp.").unwrap_or(&place);
            Err(Error::usage(format!("this server cannot be used: {place}: {}", problem.message)))
        }
    }
}

pub(super) fn check_name(name: &str) -> Result<(), Error> {
    let is_name = |it: char| it.is_ascii_alphanumeric() || matches!(it, '_' | '-');
    if name.is_empty() || name.len() > MAX_NAME_CHARS || name.starts_with('-') || !name.chars().all(is_name) {
        return Err(Error::usage(format!("`{name}` is not a name for a pack"))
            .hint("a name has 1 to 24 of the characters a-z A-Z 0-9 _ -"));
    }
    Ok(())
}

fn secret(name: &str) -> Result<SecretName, Error> {
    name.parse().map_err(|_| Error::usage(format!("`{name}` is not a name for a secret")))
}

/// Refuses a value in clear that looks like a credential. Never repeats it.
fn refuse_credential(option: &str, name: &str, url: Option<&str>, key: &str, value: &str) -> Result<(), Error> {
    let is_reference = value.split_whitespace().any(|word| SecretName::in_reference(word).is_some());
    let whole = format!("{key}: {value}");
    if is_reference || !is_credential_value(key, value) && credential::mask(&whole) == whole {
        return Ok(());
    }
    let secret: String = format!("{name}-{key}")
        .chars()
        .map(|it| if it.is_ascii_alphanumeric() || it == '_' { it } else { '-' })
        .collect();
    let (given, reference) = if option == "--env" {
        (format!("--env {key}=…"), format!("--env {key}=secret:{secret}"))
    } else {
        (format!("--header '{key}: …'"), format!("--header '{key}: Bearer secret:{secret}'"))
    };
    let host = url.map(|url| format!(" {}", host_option_of(url))).unwrap_or_default();
    Err(Error::usage(format!("`{given}` looks like a credential, which would stand in the file in clear"))
        .hint(format!("{SECRET_HINT}: agent-magic-tool secret set {secret}{host}; then: {reference}")))
}

pub(super) fn is_url(text: &str) -> bool {
    text.starts_with("http://") || text.starts_with("https://")
}
