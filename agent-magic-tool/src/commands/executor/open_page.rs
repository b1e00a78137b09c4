//! `executor page`: opens the page for the human, but not for agents.
//!
//! The link goes only to a browser or a terminal: never into a pipe or a file, where an agent could read
//! it, and never if the environment shows that an agent is running the command. An agent that controls a
//! terminal of the same user can still get a link; a single user account cannot prevent that.

use std::ffi::OsString;
use std::fs::OpenOptions;
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use agent_side::context::Context;
use agent_side::error::Error;
use ground::page_client::link::{LINK_LIFETIME, links_folder, make_link};
use ground::page_client::site::PageSite;
use protocol::code::{Code, Exit};
use protocol::mailbox::Mailbox;
use protocol::paths::DISPLAYS;
use serde_json::json;

/// Environment variables that agents set for the commands they run.
const AGENT_VARIABLES: [&str; 11] = [
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

/// Set in every session of ssh.
const SSH: &str = "SSH_CONNECTION";

/// A link to the page, and whether a browser was opened with it.
pub(crate) struct PageLink {
    pub(crate) link: String,
    pub(crate) opened: bool,
}

/// Fails if the environment shows that an agent is running this command.
pub(crate) fn refuse_agents(context: &Context) -> Result<(), Error> {
    match context.paths.first_set(&AGENT_VARIABLES) {
        None => Ok(()),
        Some(variable) => {
            Err(Error::new(Code::HumansOnly, format!("`{variable}` is set, so an agent is running this command"))
                .hint("only a human may open the page: ask the user to run it in their own terminal"))
        }
    }
}

/// Creates a link to this path of the page and opens it in a browser if there is one.
///
/// The link works without any further login, so the caller may print it only to a terminal.
pub(crate) fn open_page(context: &Context, path: &str) -> Result<PageLink, Error> {
    let link = make_page_link(context, path)?;
    let folder = context.paths.executor();
    let opened = match browser(context) {
        Some(browser) => open(&browser, &links_folder(&folder), &link)
            .map_err(|error| context.output.note(&format!("failed to open a browser: {error}")))
            .is_ok(),
        None => false,
    };
    Ok(PageLink { link, opened })
}

/// Creates a link to this path of the page.
fn make_page_link(context: &Context, path: &str) -> Result<String, Error> {
    refuse_agents(context)?;
    let mailbox = Mailbox::open(&context.paths.mailbox)?;
    super::ensure(&mailbox, context)?;
    // One that has just started writes its address before it answers; until then, that of an earlier one is there.
    let status = super::ask_status(&mailbox, context)?;
    let Some(origin) = status["page"]["origin"].as_str() else {
        return Err(Error::new(Code::NoExecutor, "the executor serves no page")
            .hint("check `enabled` under [page] in config.toml, then the executor's log"));
    };
    if let Some(problem) = super::page_problem(&status) {
        context.output.note(problem);
    }
    let folder = context.paths.executor();
    let is_own = folder.exists();
    let site = is_own.then(|| PageSite::load_or_create(&folder)).transpose();
    let site = site.map_err(|error| Error::io("failed to read the page's address", &error))?;
    let Some(site) = site.filter(|site| site.origin() == origin) else {
        return Err(Error::new(Code::NoExecutor, "the executor of this mailbox was started with another home folder")
            .hint("run it with the `HOME` and `XDG_STATE_HOME` of that one: agent-magic-tool executor page"));
    };
    let secret = make_link(&folder).map_err(|error| Error::io("failed to create a link", &error))?;
    Ok(format!("{}{path}#{secret}", site.origin()))
}

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Only print the link, to be opened in a browser of your choice; through ssh, also on another machine
    #[arg(long)]
    link: bool,
}

pub(super) fn run(args: &Args, context: &Context) -> Result<Exit, Error> {
    if args.link && !context.output.is_terminal() {
        return Err(Error::new(Code::HumansOnly, "the link is printed to a terminal, never into a pipe or a file")
            .hint("through ssh with a terminal: ssh -t HOST agent-magic-tool executor page --link"));
    }
    let PageLink { link, opened } = if args.link {
        PageLink { link: make_page_link(context, "/")?, opened: false }
    } else {
        open_page(context, "/")?
    };
    let seconds = LINK_LIFETIME.as_secs();
    if context.output.is_terminal() {
        context
            .output
            .json(&json!({"page": link, "opened": opened, "works": format!("once, for {seconds} seconds")}))?;
        if args.link && context.paths.first_set(&[SSH]).is_some() {
            // The ports that ssh forwards are closed with the session, which may be this command alone.
            context
                .output
                .note("Enter ends this; leave it open as long as you use the page through a port that ssh forwards");
            io::stdin()
                .read_line(&mut String::new())
                .map_err(|error| Error::io("failed to read the terminal", &error))?;
        }
    } else if opened {
        context.output.json(&json!({"opened": true}))?;
    } else {
        return Err(Error::new(Code::HumansOnly, "there is no browser to open, and no terminal to print the link to")
            .hint("run it in a terminal: agent-magic-tool executor page"));
    }
    Ok(Exit::Ok)
}

/// The program that opens an address in a browser; `None` without a display.
fn browser(context: &Context) -> Option<OsString> {
    if cfg!(target_os = "macos") {
        return Some("open".into());
    }
    context.paths.first_set(&DISPLAYS).map(|_| "xdg-open".into())
}

/// Opens `link` through a private file, since every user of the machine can see a program's arguments.
fn open(browser: &OsString, folder: &Path, link: &str) -> io::Result<()> {
    let path: PathBuf = folder.join(format!("{}.html", std::process::id()));
    let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&path)?;
    write!(
        file,
        "<!doctype html><meta http-equiv=\"refresh\" content=\"0;url={link}\"><title>agent-magic-tool</title>"
    )?;
    let quiet = || Stdio::null();
    let status = Command::new(browser).arg(&path).stdin(quiet()).stdout(quiet()).stderr(quiet()).status()?;
    if status.success() {
        Ok(())
    } else {
        Err(io::Error::other(format!("`{}` ended with {status}", browser.display())))
    }
}
