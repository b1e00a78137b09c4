//! `import sql`: what a database of the configuration contains. A database that is not configured yet is added to the
//! configuration, without a password.

use agent_side::context::Context;
use agent_side::error::Error;
use ground::config::secret::{SecretName, SecretPlace, Secrets};
use ground::config::{Config, DatabaseSettings};
use import::document::Document;
use protocol::code::Code;
use runner::database_snapshot;
use toml_edit::{DocumentMut, Item, Table};
use url::Url;

use super::hosts::{Allowance, host_option_of};
use super::{Args, reading};
use crate::commands::setup::change::{self, Change};

/// The kind on the command line.
pub(super) const WORD: &str = "sql";

const FORMS: &str = "agent-magic-tool import sql NAME, or, for a new database: agent-magic-tool import sql NAME URL, \
                     like postgres://USER@HOST/DATABASE, mysql://USER@HOST/DATABASE or sqlite:///PATH";

/// Reads the database that the words after `sql` name. Returns its name and what it contains.
pub(super) fn read(args: &Args, config: &Config, context: &Context) -> Result<(String, Document), Error> {
    let (name, url) = match &args.sources[1..] {
        [name] if !name.contains("://") => (name, None),
        [name, url] => (name, Some(url)),
        _ => return Err(Error::usage("`import sql` needs the name of a database").hint(FORMS)),
    };
    let config = match (url, config.databases.get(name)) {
        (None, _) => config.clone(),
        (Some(url), Some(known)) if known.url == *url => config.clone(),
        (Some(_), Some(known)) => {
            return Err(Error::usage(format!(
                "the configuration has a database `{name}` with another address: {}",
                known.url
            ))
            .hint(format!("import it as it is: agent-magic-tool import sql {name}; or choose another name")));
        }
        (Some(url), None) => add(name, url, &args.allowance(config, context))?,
    };
    Ok((name.clone(), document(name, &config, context)?))
}

/// Asks the database `name` what it contains.
pub(super) fn document(name: &str, config: &Config, context: &Context) -> Result<Document, Error> {
    let snapshot = database_snapshot::take(name, config, Secrets::of(&context.paths, config)).map_err(|error| {
        let secret = password_secret(name);
        let hint = match (error.code, &error.hint) {
            (Code::NeedsReauthorization, _) if config.databases.get(name).is_some_and(|it| it.password.is_some()) => {
                format!("store the right password: agent-magic-tool secret set {secret}")
            }
            (Code::NeedsReauthorization, _) => format!(
                "store its password: agent-magic-tool secret set {secret}{}; then import it again, with its address; if \
                 [databases.{name}] is in config.toml, write `password = \"secret:{secret}\"` there",
                host(name, config)
            ),
            (_, Some(hint)) => hint.clone(),
            (_, None) => {
                format!("its address is the `url` under [databases.{name}] in config.toml, or the one given here")
            }
        };
        Error::from(error).hint(hint)
    })?;
    import::sql::document(name, &snapshot).map_err(|error| reading::failed(name, error))
}

/// The option that stores a password for the host of this database alone, if it has one.
fn host(name: &str, config: &Config) -> String {
    let url = config.databases.get(name).and_then(DatabaseSettings::server_url);
    url.map(|url| format!(" {}", host_option_of(url.as_str()))).unwrap_or_default()
}

/// The secret in which `import` looks for the password of a new database.
fn password_secret(name: &str) -> String {
    format!("{name}-db")
}

/// The stored password of a new database, and where it goes. None goes to a socket, which any program can open.
fn password(name: &str, url: &str, allowance: &Allowance<'_>) -> Result<Option<(SecretName, Url)>, Error> {
    let Ok(secret) = password_secret(name).parse::<SecretName>() else { return Ok(None) };
    let is_set = Secrets::of(&allowance.context.paths, allowance.config).is_set(secret.as_str());
    let url = Url::parse(url).ok().filter(|url| is_set && url.query().is_none() && SecretPlace::of(url).is_some());
    let Some(url) = url else { return Ok(None) };
    allowance.check_database(name, &secret, &url)?;
    Ok(Some((secret, url)))
}

/// Adds `[databases.NAME]` to the configuration, and returns the new one.
fn add(name: &str, url: &str, allowance: &Allowance<'_>) -> Result<Config, Error> {
    let Allowance { is_dry_run, context, .. } = *allowance;
    let password = password(name, url, allowance)?;
    let path = context.paths.config_file();
    let failed =
        |what: &str, error: &std::io::Error| Error::io(&format!("failed to {what} `{}`", path.display()), error);
    let before = change::read(&path).map_err(|error| failed("read", &error))?.unwrap_or_default();
    let mut document: DocumentMut = before
        .parse()
        .map_err(|error| Error::new(Code::BadConfig, format!("`{}` is not valid TOML: {error}", path.display())))?;
    let databases = document.entry("databases").or_insert_with(|| {
        let mut table = Table::new();
        table.set_implicit(true);
        Item::Table(table)
    });
    let mut database = Table::new();
    database.insert("url", toml_edit::value(url));
    if let Some((secret, _)) = &password {
        database.insert("password", toml_edit::value(secret.to_string()));
    }
    let databases = databases.as_table_like_mut();
    let databases =
        databases.ok_or_else(|| Error::new(Code::BadConfig, "`databases` in the configuration is not a table"))?;
    databases.insert(name, Item::Table(database));
    let after = document.to_string();
    // It is checked before it is written, and asked before it stays.
    let folder = tempfile::tempdir().map_err(|error| Error::io("failed to make a folder", &error))?;
    let trial = folder.path().join("config.toml");
    std::fs::write(&trial, &after).map_err(|error| failed("write", &error))?;
    let config = Config::load(&trial).map_err(|error| {
        let problem = error.to_string();
        Error::usage(format!("this database cannot be used: {}", problem.rsplit(": ").next().unwrap_or(&problem)))
            .hint(FORMS)
    })?;
    let _asked = self::document(name, &config, context)?;
    if !is_dry_run {
        let change = Change { path: path.clone(), before: None, after: Some(after) };
        change.apply_private().map_err(|error| failed("write", &error))?;
        context.output.note(&format!(
            "added [databases.{name}] to {}; subtools may only read it, unless you set `writable = true` there",
            path.display()
        ));
        if let Some((secret, url)) = &password {
            allowance.bind_database(secret, url)?;
        }
    }
    Ok(config)
}
