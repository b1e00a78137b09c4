//! `approver`: the keys with which a human approves: passkeys and security keys.
//!
//! A browser makes and uses keys, so enrolling and revoking happen on the page, which this command opens. Only root can
//! change the keys without one of them.

use agent_side::context::Context;
use agent_side::error::Error;
use ground::config::Config;
use ground::config::key_file::{KeyFile, KeyFileError};
use ground::page_client::link::LINK_LIFETIME;
use ground::task::approver_key::{ApproverKeys, EnrolledBy};
use nix::unistd::Uid;
use protocol::clock;
use protocol::code::{Code, Exit};
use protocol::error::chain;
use serde_json::{Value, json};

use crate::commands::executor::open_page::{PageLink, open_page, refuse_agents};

/// The view of the page with the keys.
const KEYS: &str = "/keys";
/// What root writes can be read by the executor of another user; nothing in it is secret.
const ROOTS_MODE: u32 = 0o644;

#[derive(Debug, clap::Subcommand)]
pub(crate) enum ApproverCommand {
    /// Enrol a passkey or a security key, on the page; the first one needs nothing else, later ones an enrolled key
    Enrol,
    /// List the enrolled keys
    List,
    /// Revoke a key: on the page with another key, or at once as root
    Revoke {
        /// Its name
        name: String,
    },
    /// As root: remove all keys, because they are lost; this voids every grant, and the next key is enrolled like the first one
    Reset,
}

pub(crate) fn run(command: &ApproverCommand, context: &Context) -> Result<Exit, Error> {
    match command {
        ApproverCommand::Enrol => open_keys("enrol the key on the page", context),
        ApproverCommand::List => list(context),
        ApproverCommand::Revoke { name } => revoke(name, context),
        ApproverCommand::Reset => reset(context),
    }
}

/// The file of the keys that the executor believes.
pub(super) fn key_file(context: &Context) -> Result<KeyFile, Error> {
    let config = Config::read(&context.paths)?;
    Ok(KeyFile::new(&context.paths.executor(), config.confirm.keys.as_deref()))
}

pub(super) fn read(file: &KeyFile) -> Result<ApproverKeys, Error> {
    file.read().map(|read| read.keys).map_err(|error: KeyFileError| {
        Error::new(Code::BadConfig, chain(&error)).hint("correct its owner or its permissions; as root, replace it")
    })
}

fn open_keys(what: &str, context: &Context) -> Result<Exit, Error> {
    let PageLink { link, opened } = open_page(context, KEYS)?;
    let works = format!("once, for {} seconds", LINK_LIFETIME.as_secs());
    if context.output.is_terminal() {
        context.output.json(&json!({"page": link, "opened": opened, "works": works}))?;
    } else if opened {
        context.output.json(&json!({"opened": true}))?;
    } else {
        return Err(Error::new(Code::HumansOnly, "there is no browser to open, and no terminal to print the link to")
            .hint("run it in a terminal: agent-magic-tool approver enrol"));
    }
    context.output.note(what);
    Ok(Exit::Ok)
}

fn list(context: &Context) -> Result<Exit, Error> {
    let file = key_file(context)?;
    let keys = read(&file)?;
    let shown: Vec<Value> = keys
        .keys
        .iter()
        .map(|key| {
            let by = match &key.enrolled_by {
                EnrolledBy::FirstRun => "first".to_owned(),
                EnrolledBy::Key(by) => by.to_string(),
            };
            json!({"name": key.name, "algorithm": key.public_key.algorithm(), "credential": key.credential,
                "public_key": key.public_key, "enrolled_at": key.enrolled_at, "enrolled_by": by})
        })
        .collect();
    context.output.json(&json!({"keys": shown, "file": file.path(), "only_root_changes_it": file.is_pinned()}))?;
    Ok(Exit::Ok)
}

fn revoke(name: &str, context: &Context) -> Result<Exit, Error> {
    refuse_agents(context)?;
    let file = key_file(context)?;
    let mut keys = read(&file)?;
    if !keys.keys.iter().any(|key| key.name == name) {
        return Err(Error::new(Code::NotFound, format!("no key is named `{name}`"))
            .hint("their names: agent-magic-tool approver list"));
    }
    if !is_root() {
        let without = as_root(&format!("revoke '{name}'"), context);
        return open_keys(
            &format!("revoke it on the page, with a touch of another key; without one: {without}"),
            context,
        );
    }
    keys.keys.retain(|key| key.name != name);
    if keys.is_empty() {
        keys.reset_at = Some(clock::now());
    }
    write(&file, &keys)?;
    context.output.json(&json!({"revoked": name}))?;
    Ok(Exit::Ok)
}

fn reset(context: &Context) -> Result<Exit, Error> {
    refuse_agents(context)?;
    if !is_root() {
        return Err(Error::new(Code::NeedsAssurance, "only root can remove all keys").hint(as_root("reset", context)));
    }
    let file = key_file(context)?;
    write(&file, &ApproverKeys { keys: Vec::new(), reset_at: Some(clock::now()) })?;
    context.output.json(&json!({"reset": true}))?;
    context.output.note("every grant is void now; enrol a key: agent-magic-tool approver enrol");
    Ok(Exit::Ok)
}

/// The command line that does the same as root, for the executor of this user.
fn as_root(command: &str, context: &Context) -> String {
    let mailbox = context.paths.mailbox.display();
    format!("sudo env HOME=\"$HOME\" AGENT_MAGIC_TOOL_DIR='{mailbox}' agent-magic-tool approver {command}")
}

fn is_root() -> bool {
    Uid::effective().is_root()
}

fn write(file: &KeyFile, keys: &ApproverKeys) -> Result<(), Error> {
    let written = file.write(keys, ROOTS_MODE);
    written.map_err(|error| Error::io(&format!("failed to write the keys in `{}`", file.path().display()), &error))
}
