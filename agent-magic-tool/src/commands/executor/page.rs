//! `executor page`: brings the human to the page, and nobody else.
//!
//! The link goes to a browser or to a terminal: never into a pipe or a file, where an agent would read
//! it, and never where the environment shows an agent at work. An agent that drives a terminal of the same
//! user can still get one; that is as far as one user account goes.

use std::ffi::OsString;
use std::fs::OpenOptions;
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use executor::page::{LINK_WORKS, PageSite, links, make_link};
use protocol::code::{Code, Exit};
use protocol::mailbox::Mailbox;
use protocol::paths::DISPLAYS;
use serde_json::json;

use crate::context::Context;
use crate::error::Error;

/// Set by agents for the commands that they run.
const AGENTS: [&str; 11] = [
    "AGENT_MAGIC_TOOL_SESSION",
    "AIDER_CHAT_HISTORY_FILE",
    "AMP_THREAD_ID",
    "CLAUDECODE",
    "CODEX_SANDBOX",
    "CODEX_SANDBOX_NETWORK_DISABLED",
    "CODEX_THREAD_ID",
    "CURSOR_AGENT",
    "GEMINI_CLI",
    "GOOSE_TERMINAL",
    "OPENCODE",
];

/// The link, and whether a browser shows it.
pub(crate) struct PageLink {
    pub(crate) link: String,
    pub(crate) opened: bool,
}

/// Refused where the environment shows an agent at work.
pub(crate) fn is_for_a_human(context: &Context) -> Result<(), Error> {
    match context.paths.first_set(&AGENTS) {
        None => Ok(()),
        Some(mark) => Err(Error::new(Code::HumansOnly, format!("`{mark}` says that an agent runs this command"))
            .hint("the page is where a human confirms: ask the user to run it in a terminal of their own")),
    }
}

/// A fresh link, brought to a browser where there is one. Whoever gets it is not asked who they are: it may go
/// nowhere but to a terminal.
pub(crate) fn way(context: &Context) -> Result<PageLink, Error> {
    is_for_a_human(context)?;
    let mailbox = Mailbox::open(&context.paths.mailbox)?;
    super::ensure(&mailbox, context)?;
    let folder = context.paths.executor();
    let site = PageSite::of(&folder).map_err(|error| Error::io("the page's address cannot be read", &error))?;
    if site.port == 0 {
        return Err(Error::new(Code::NoExecutor, "the executor serves no page")
            .hint("`enabled = false` under [page] in config.toml, or its log, says why"));
    }
    let secret = make_link(&folder).map_err(|error| Error::io("no link can be made", &error))?;
    let link = format!("{}/#{secret}", site.origin());
    let opened = match browser(context) {
        Some(browser) => open(&browser, &links(&folder), &link)
            .map_err(|error| context.output.note(&format!("no browser could be opened: {error}")))
            .is_ok(),
        None => false,
    };
    Ok(PageLink { link, opened })
}

pub(super) fn run(context: &Context) -> Result<Exit, Error> {
    let PageLink { link, opened } = way(context)?;
    let seconds = LINK_WORKS.as_secs();
    if context.output.is_terminal() {
        context
            .output
            .json(&json!({"page": link, "opened": opened, "works": format!("once, for {seconds} seconds")}))?;
    } else if opened {
        context.output.json(&json!({"opened": true}))?;
    } else {
        return Err(Error::new(Code::HumansOnly, "there is no browser to open, and no terminal to print the link to")
            .hint("run it in a terminal: agent-magic-tool executor page"));
    }
    Ok(Exit::Ok)
}

/// The program that shows an address to the human, where they can see one.
fn browser(context: &Context) -> Option<OsString> {
    if cfg!(target_os = "macos") {
        return Some("open".into());
    }
    context.paths.first_set(&DISPLAYS).map(|_| "xdg-open".into())
}

/// Opens `link` by way of a file of the human's own: an argument would be seen by every user of the machine.
fn open(browser: &OsString, folder: &Path, link: &str) -> io::Result<()> {
    let path: PathBuf = folder.join(format!("{}.html", std::process::id()));
    let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&path)?;
    write!(
        file,
        "<!doctype html><meta http-equiv=\"refresh\" content=\"0;url={link}\"><title>agent-magic-tool</title>"
    )?;
    let quiet = || Stdio::null();
    let status = Command::new(browser).arg(&path).stdin(quiet()).stdout(quiet()).stderr(quiet()).status()?;
    if status.success() { Ok(()) } else { Err(io::Error::other(format!("it ended with {status}"))) }
}
