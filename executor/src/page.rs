//! The page: a web page where a human sees what a task would do, and decides.
//!
//! It listens on loopback and requires a session, which starts with a link from the human's terminal. It reads the
//! record of tasks and the catalog itself, and sends commands to the daemon, which owns the state.

use std::fmt;
use std::io;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock};

use axum::http::{HeaderName, HeaderValue, StatusCode};
use axum::response::Response;
use catalog::Catalog;
use dispatcher::DecisionResult;
use ground::config::api_keys::ApiKeys;
use ground::page_client::link::forget_links;
use ground::page_client::site::PageSite;
use ground::task::confirmation::Assurance;
use minijinja::value::Serde;
use minijinja::{AutoEscape, Environment};
use protocol::code::Code;
use protocol::mailbox::Mailbox;
use runner::RunnerContext;
use serde::Serialize;
use serde_json::json;
use store::StoreError;
use store::sqlite::records::{RecordReader, TaskCounts};
use tokio::sync::{broadcast, oneshot, watch};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::intake::approver::ApproverPresence;
use crate::intake::settings::LiveSettings;

mod actions;
mod api;
mod api_door;
mod api_keys;
mod approval_word;
mod assets;
mod background;
mod card;
mod command;
mod diff;
mod door;
mod events;
mod form;
mod hidden;
mod keys;
mod marks;
mod preferences;
#[cfg(test)]
mod samples;
mod sensitive;
mod server;
mod session;
mod touches;
mod views;
mod visible;
mod wording;

use api_door::WrongKeys;
pub use command::{PageCommand, PageMessage, TaskChange};
use keys::PendingRegistrations;
pub use keys::{KeyStanding, KeysView};
use preferences::{PagePreferences, PreferenceStore};
pub use session::PageSessions;

/// How far a decision on this page can be trusted; shown on every page.
const LEVEL_OF_TOUCH: &str = "What destroys something or goes outward needs a touch of your key, which no program can \
                              imitate. Anything else is as safe as your user account.";
const LEVEL: &str = "A yes here is as safe as your user account. It keeps out web sites and other users, but not a program \
                     that runs as you.";
const LEVEL_HINT: &str = "A passkey or a security key that you enrol under Keys, or an executor that runs as another user, \
                          would close this gap.";
const LEVEL_OF_TOUCH_HINT: &str = "A program that runs as you could still show you something else than what you sign; an \
                                   executor that runs as another user would close this gap.";

const TEMPLATES: [(&str, &str); 17] = [
    ("api-keys.html", include_str!("../web/api-keys.html")),
    ("base.html", include_str!("../web/base.html")),
    ("card.html", include_str!("../web/card.html")),
    ("grants.html", include_str!("../web/grants.html")),
    ("history.html", include_str!("../web/history.html")),
    ("icons.html", include_str!("../web/icons.html")),
    ("keys.html", include_str!("../web/keys.html")),
    ("login.html", include_str!("../web/login.html")),
    ("message.html", include_str!("../web/message.html")),
    ("parts.html", include_str!("../web/parts.html")),
    ("runs.html", include_str!("../web/runs.html")),
    ("sessions.html", include_str!("../web/sessions.html")),
    ("subtool.html", include_str!("../web/subtool.html")),
    ("subtools.html", include_str!("../web/subtools.html")),
    ("task.html", include_str!("../web/task.html")),
    ("tasks.html", include_str!("../web/tasks.html")),
    ("waiting.html", include_str!("../web/waiting.html")),
];

/// Sends a message to the daemon; returns false if the daemon has stopped.
pub type PageSender = Box<dyn Fn(PageMessage) -> bool + Send + Sync>;

/// What the page gets from the daemon.
pub struct PageContext {
    pub site: PageSite,
    pub records: Mutex<RecordReader>,
    pub catalog: watch::Receiver<Arc<Catalog>>,
    /// The cached listing of the catalog, which finds subtools by words.
    pub listing: PathBuf,
    pub approver: Arc<ApproverPresence>,
    pub task_changes: broadcast::Sender<TaskChange>,
    pub sessions: Arc<PageSessions>,
    pub send: PageSender,
    pub settings: LiveSettings,
    pub mailbox: Mailbox,
    /// The keys of the approver, which the daemon owns.
    pub keys: watch::Receiver<KeysView>,
    /// The keys of `serve`'s clients.
    pub api_keys: ApiKeys,
}

impl fmt::Debug for PageContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PageContext").field("site", &self.site.host).finish_non_exhaustive()
    }
}

/// The page and its sessions.
#[derive(Debug)]
pub(crate) struct Page {
    context: PageContext,
    preferences: PreferenceStore,
    registrations: PendingRegistrations,
    wrong_keys: WrongKeys,
    /// Parsed at the first view, since most executors stop before anyone opens the page.
    templates: OnceLock<Environment<'static>>,
}

/// Serves the page until `ended` is cancelled; must be called inside the runtime. `folder` is the executor's folder.
pub fn serve(
    context: PageContext,
    folder: &Path,
    listeners: Vec<TcpListener>,
    tracker: &TaskTracker,
    ended: &CancellationToken,
) -> io::Result<()> {
    forget_links(folder);
    let page = Page {
        context,
        preferences: PreferenceStore::load(folder),
        registrations: PendingRegistrations::default(),
        wrong_keys: WrongKeys::default(),
        templates: OnceLock::new(),
    };
    server::serve(&Arc::new(page), listeners, tracker, ended)
}

fn environment() -> Environment<'static> {
    let mut templates = Environment::new();
    templates.set_auto_escape_callback(|_| AutoEscape::Html);
    visible::add_filters(&mut templates);
    for (name, text) in TEMPLATES {
        templates.add_template(name, text).expect("the tests parse all templates");
    }
    templates
}

/// What the template of every view needs for its frame.
#[derive(Debug, Serialize)]
struct Frame<'a> {
    title: &'a str,
    nav: &'a str,
    host: String,
    level: &'static str,
    level_hint: &'static str,
    counts: Option<FrameCounts>,
    /// Why the configuration file is not in force.
    problem: Option<String>,
    version: &'static str,
    preferences: PagePreferences,
}

#[derive(Debug, Clone, Copy, Serialize)]
struct FrameCounts {
    waiting: u32,
    running: u32,
}

impl Page {
    fn catalog(&self) -> Arc<Catalog> {
        Arc::clone(&self.context.catalog.borrow())
    }

    fn keys(&self) -> KeysView {
        self.context.keys.borrow().clone()
    }

    fn runner_context(&self) -> Arc<RunnerContext> {
        self.context.settings.runner_context()
    }

    fn read<T>(&self, with: impl FnOnce(&RecordReader) -> Result<T, StoreError>) -> Result<T, StoreError> {
        with(&self.context.records.lock().expect("no reader panics while it holds the lock"))
    }

    /// Sends a command to the daemon and waits for the result; `None` if the daemon is stopping.
    async fn send(&self, command: impl Into<PageCommand>) -> Option<DecisionResult> {
        let (reply, result) = oneshot::channel();
        if !(self.context.send)(PageMessage { command: command.into(), reply }) {
            return None;
        }
        result.await.ok()
    }

    /// Has the daemon reload changed definitions.
    async fn refresh_catalog(&self) {
        if self.send(PageCommand::RefreshCatalog).await.is_none() {
            tracing::debug!("the catalog was not refreshed because the executor is stopping");
        }
    }

    /// Tells the daemon that a browser opened or closed the event stream.
    fn presence_changed(&self) {
        let (reply, _) = oneshot::channel();
        if !(self.context.send)(PageMessage { command: PageCommand::PresenceChanged, reply }) {
            tracing::debug!("the executor has stopped");
        }
    }

    /// The frame for a visitor with a session.
    fn frame<'a>(&self, title: &'a str, nav: &'a str) -> Result<Frame<'a>, StoreError> {
        let TaskCounts { waiting, running } = self.read(RecordReader::counts)?;
        let problem = self.context.settings.current().problem.as_ref().map(|problem| problem.message.clone());
        Ok(Frame { counts: Some(FrameCounts { waiting, running }), problem, ..self.signed_out_frame(title, nav) })
    }

    /// The frame for a visitor without a session; it shows nothing about tasks.
    fn signed_out_frame<'a>(&self, title: &'a str, nav: &'a str) -> Frame<'a> {
        let has_keys = self.context.approver.assurance() >= Assurance::Touch;
        Frame {
            title,
            nav,
            host: format!("{}:{}", self.context.site.host, self.context.site.port),
            level: if has_keys { LEVEL_OF_TOUCH } else { LEVEL },
            level_hint: if has_keys { LEVEL_OF_TOUCH_HINT } else { LEVEL_HINT },
            counts: None,
            problem: None,
            version: env!("CARGO_PKG_VERSION"),
            preferences: self.preferences.current(),
        }
    }

    fn show(&self, template: &str, view: &impl Serialize) -> Response {
        self.show_as(StatusCode::OK, template, view)
    }

    fn show_as(&self, status: StatusCode, template: &str, view: &impl Serialize) -> Response {
        let rendered = self
            .templates
            .get_or_init(environment)
            .get_template(template)
            .and_then(|template| template.render(Serde(view)));
        match rendered {
            Ok(text) => views::html(status, text),
            Err(error) => {
                tracing::error!(%error, template, "failed to render a view of the page");
                door::refuse(
                    StatusCode::INTERNAL_SERVER_ERROR,
                    Code::Internal,
                    "failed to show this view; the log says why",
                )
            }
        }
    }

    fn login(&self) -> Response {
        let view = json!({"page": self.signed_out_frame("Sign in", ""), "is_opening": false});
        let mut response = self.show_as(StatusCode::UNAUTHORIZED, "login.html", &view);
        // No cookie of this browser is that of a session; another program may have left it.
        let clear = HeaderValue::from_static("\"cookies\"");
        response.headers_mut().insert(HeaderName::from_static("clear-site-data"), clear);
        response
    }

    /// The page without any content, for a browser that has not proven its session's key yet.
    fn opening(&self) -> Response {
        self.show("login.html", &json!({"page": self.signed_out_frame("Opening", ""), "is_opening": true}))
    }

    fn message(&self, status: StatusCode, title: &str, text: &str) -> Response {
        let Ok(frame) = self.frame(title, "") else { return door::refuse(status, Code::NotFound, text) };
        self.show_as(status, "message.html", &json!({"page": frame, "title": title, "text": text, "hint": null}))
    }
}
