//! The page's HTTP server: its routes, and the limits on connections.
//!
//! Every program on this machine can connect. What another user connects is closed before a byte of it is read; for the
//! rest, the time and size of headers and bodies are limited. With too many
//! connections, the oldest one that has shown no session is closed, so that a human can always connect.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::io;
use std::net::TcpListener;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use axum::body::Body;
use axum::extract::DefaultBodyLimit;
use axum::http::{Request, StatusCode};
use axum::routing::{get, post};
use axum::{Router, middleware};
use ground::page_client::same_user;
use hyper::body::Incoming;
use hyper::service::{Service as _, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use protocol::code::Code;
use tokio::net::TcpStream;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::door::{self, MAX_BODY_BYTES, SessionName};
use super::{Page, actions, api, api_door, api_keys, assets, events, keys, preferences, views};

/// The most time and bytes for the headers of a request.
const HEADER_TIMEOUT: Duration = Duration::from_secs(5);
/// As many as the cookies that a browser may hold for one name: another program that had an earlier address of the page
/// may have filled it, and the human must still get in.
const MAX_HEADER_BYTES: usize = 800 << 10;
/// The longest time until the answer to a request begins; the body of an event stream may take longer.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(30);
/// The most open connections that have not shown a session.
const MAX_ANONYMOUS: usize = 64;
/// The most open connections that have shown a session.
const MAX_SIGNED_IN: usize = 256;
/// The pause after `accept` fails, usually because no file descriptor is free.
const ACCEPT_RETRY: Duration = Duration::from_millis(100);

pub(super) fn routes(page: Arc<Page>) -> Router {
    Router::new()
        .route("/", get(views::waiting))
        .route("/card/{id}", get(views::card))
        .route("/question/{id}", get(views::question))
        .route("/tasks", get(views::tasks))
        .route("/history", get(views::history))
        .route("/task/{id}", get(views::task))
        .route("/grants", get(views::grants).post(actions::grant))
        .route("/api-keys", get(api_keys::view))
        .route("/api-keys/give", post(api_keys::give))
        .route("/api-keys/take", post(api_keys::take))
        .route("/keys", get(keys::view).post(keys::enrol))
        .route("/keys/begin", post(keys::begin))
        .route("/keys/revoke", post(keys::revoke))
        .route("/subtools", get(views::subtools))
        .route("/subtool/{name}", get(views::subtool))
        .route("/events", get(events::stream))
        .route("/page.css", get(assets::style))
        .route("/page.js", get(assets::script))
        .route("/page/{name}", get(assets::script_module))
        .route("/icon.svg", get(assets::icon))
        .route("/icon-waiting.svg", get(assets::waiting_icon))
        .route("/login", post(actions::login))
        .route("/logout", post(actions::logout))
        .route("/challenge", get(actions::challenge))
        .route("/sessions", get(views::sessions))
        .route("/sessions/end", post(actions::end_session))
        .route("/sessions/end-others", post(actions::end_other_sessions))
        .route("/decide", post(actions::decide))
        .route("/deny-session", post(actions::deny_session))
        .route("/preferences", post(preferences::save))
        .route("/history.jsonl", get(views::history_as_jsonl))
        .route("/history.csv", get(views::history_as_csv))
        .route("/edit", post(actions::edit))
        .route("/decide-edit", post(actions::decide_edit))
        .route("/answer", post(actions::answer))
        .route("/cancel", post(actions::cancel))
        .route("/resolve", post(actions::resolve))
        .route("/grants/preview", post(actions::preview_grant))
        .route("/grants/revoke", post(actions::revoke_grant))
        .route("/try", post(actions::try_it))
        .route("/undo", post(actions::undo))
        .fallback(views::not_found)
        .layer(DefaultBodyLimit::max(MAX_BODY_BYTES))
        .layer(middleware::from_fn_with_state(Arc::clone(&page), door::check_request))
        .merge(routes_of_api_keys(&page))
        .with_state(page)
}

/// The routes that an API key opens, and no session.
fn routes_of_api_keys(page: &Arc<Page>) -> Router<Arc<Page>> {
    Router::new()
        .route("/api/key", get(api::standing))
        .route("/api/gates", get(api::gates))
        .route("/api/gates/after/{version}", get(api::gates_after))
        .route("/api/gate/{id}", get(api::gate).post(api::decide))
        .route("/api/{*rest}", get(api::not_found).post(api::not_found))
        .layer(DefaultBodyLimit::max(MAX_BODY_BYTES))
        .layer(middleware::from_fn_with_state(Arc::clone(page), api_door::check_request))
}

/// Serves until `ended` is cancelled.
pub(super) fn serve(
    page: &Arc<Page>,
    listeners: Vec<TcpListener>,
    tracker: &TaskTracker,
    ended: &CancellationToken,
) -> io::Result<()> {
    let routes = routes(Arc::clone(page));
    let connections = Arc::new(Connections::default());
    for listener in listeners {
        listener.set_nonblocking(true)?;
        let listener = tokio::net::TcpListener::from_std(listener)?;
        let (routes, connections, ended) = (routes.clone(), Arc::clone(&connections), ended.clone());
        let connection_tasks = tracker.clone();
        tracker.spawn(async move {
            loop {
                let accepted = tokio::select! {
                    () = ended.cancelled() => return,
                    accepted = listener.accept() => accepted,
                };
                match accepted {
                    Ok((stream, peer)) => {
                        let stranger =
                            stream.local_addr().map_err(Into::into).and_then(|local| same_user::check(peer, local));
                        if let Err(error) = stranger {
                            tracing::warn!(%error, "a connection to the page was refused");
                            continue;
                        }
                        let (routes, connection) = (routes.clone(), connections.add(&ended));
                        connection_tasks.spawn(serve_connection(stream, routes, Arc::clone(&connections), connection));
                    }
                    Err(error) => {
                        tracing::warn!(%error, "failed to accept a connection to the page");
                        tokio::time::sleep(ACCEPT_RETRY).await;
                    }
                }
            }
        });
    }
    Ok(())
}

async fn serve_connection(stream: TcpStream, routes: Router, connections: Arc<Connections>, connection: Connection) {
    let service = service_fn({
        let (connections, connection) = (Arc::clone(&connections), connection.clone());
        move |request: Request<Incoming>| {
            let (routes, connections, connection) = (routes.clone(), Arc::clone(&connections), connection.clone());
            async move {
                let answer = TowerToHyperService::new(routes).call(request.map(Body::new));
                // The timeout covers the head of the answer; the body of an event stream follows later.
                let response = match tokio::time::timeout(ANSWER_TIMEOUT, answer).await {
                    Ok(Ok(response)) => response,
                    Ok(Err(never)) => match never {},
                    Err(_) => door::refuse(StatusCode::REQUEST_TIMEOUT, Code::TimedOut, "the request took too long"),
                };
                if response.extensions().get::<SessionName>().is_some() {
                    connections.mark_signed_in(&connection);
                }
                Ok::<_, Infallible>(response)
            }
        }
    });
    let serving = hyper::server::conn::http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEADER_TIMEOUT)
        .max_buf_size(MAX_HEADER_BYTES)
        .serve_connection(TokioIo::new(stream), service);
    tokio::select! {
        () = connection.close.cancelled() => {}
        outcome = serving => if let Err(error) = outcome {
            tracing::debug!(%error, "a connection to the page ended");
        },
    }
    connections.remove(&connection);
}

/// The open connections.
#[derive(Debug, Default)]
struct Connections {
    table: Mutex<ConnectionTable>,
}

#[derive(Debug, Default)]
struct ConnectionTable {
    next_id: u64,
    /// The oldest first.
    anonymous: VecDeque<Connection>,
    /// The oldest first.
    signed_in: VecDeque<Connection>,
}

#[derive(Debug, Clone)]
struct Connection {
    id: u64,
    close: CancellationToken,
}

impl Connections {
    /// Adds a connection, and closes the oldest anonymous one if there are too many.
    fn add(&self, ended: &CancellationToken) -> Connection {
        let mut table = self.lock();
        table.next_id += 1;
        let connection = Connection { id: table.next_id, close: ended.child_token() };
        table.anonymous.push_back(connection.clone());
        if table.anonymous.len() > MAX_ANONYMOUS
            && let Some(oldest) = table.anonymous.pop_front()
        {
            oldest.close.cancel();
        }
        connection
    }

    /// Records that a connection has shown a session.
    fn mark_signed_in(&self, connection: &Connection) {
        let mut table = self.lock();
        let Some(index) = table.anonymous.iter().position(|other| other.id == connection.id) else { return };
        table.anonymous.remove(index);
        table.signed_in.push_back(connection.clone());
        if table.signed_in.len() > MAX_SIGNED_IN
            && let Some(oldest) = table.signed_in.pop_front()
        {
            oldest.close.cancel();
        }
    }

    fn remove(&self, connection: &Connection) {
        let mut table = self.lock();
        table.anonymous.retain(|other| other.id != connection.id);
        table.signed_in.retain(|other| other.id != connection.id);
    }

    fn lock(&self) -> MutexGuard<'_, ConnectionTable> {
        self.table.lock().expect("no code panics while it holds the lock")
    }
}
