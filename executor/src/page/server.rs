//! The server: connections, and what one of them may cost.
//!
//! Anybody on this machine can connect. Headers and bodies have their time and their size; when there are
//! too many connections, the oldest that has shown no session goes, so that a human is always let in.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::io;
use std::net::TcpListener;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::body::Body;
use axum::extract::DefaultBodyLimit;
use axum::http::{Request, StatusCode};
use axum::routing::{get, post};
use axum::{Router, middleware};
use hyper::body::Incoming;
use hyper::service::{Service as _, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::net::TcpStream;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::gate::{self, MAX_BODY_BYTES, Visitor};
use super::{Page, actions, assets, events, views};

/// What headers may take and be.
const HEADER_TIMEOUT: Duration = Duration::from_secs(5);
const MAX_HEADER_BYTES: usize = 16 << 10;
/// How long one request may take altogether, but for streams.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(30);
/// How many connections there may be at once that have shown no session, and how many in all.
const MAX_ANONYMOUS: usize = 64;
const MAX_CONNECTIONS: usize = 256;
/// After a failure to accept, for want of descriptors.
const RESOURCE_RETRY: Duration = Duration::from_millis(100);

pub(super) fn routes(page: Arc<Page>) -> Router {
    Router::new()
        .route("/", get(views::waiting))
        .route("/card/{id}", get(views::card))
        .route("/question/{id}", get(views::question))
        .route("/tasks", get(views::tasks))
        .route("/history", get(views::history))
        .route("/task/{id}", get(views::task))
        .route("/grants", get(views::grants).post(actions::grant))
        .route("/subtools", get(views::subtools))
        .route("/subtool/{name}", get(views::subtool))
        .route("/events", get(events::stream))
        .route("/page.css", get(assets::style))
        .route("/page.js", get(assets::script))
        .route("/page/{name}", get(assets::script_module))
        .route("/icon.svg", get(assets::icon))
        .route("/login", post(actions::login))
        .route("/logout", post(actions::logout))
        .route("/decide", post(actions::decide))
        .route("/edit", post(actions::edit))
        .route("/decide-edit", post(actions::decide_edit))
        .route("/answer", post(actions::answer))
        .route("/cancel", post(actions::cancel))
        .route("/resolve", post(actions::resolve))
        .route("/grants/preview", post(actions::preview_grant))
        .route("/grants/revoke", post(actions::revoke_grant))
        .route("/try", post(actions::try_it))
        .fallback(views::nothing)
        .layer(DefaultBodyLimit::max(MAX_BODY_BYTES))
        .layer(middleware::from_fn_with_state(Arc::clone(&page), gate::pass))
        .with_state(page)
}

/// Serves until `ended`.
pub(super) fn serve(
    page: &Arc<Page>,
    listeners: Vec<TcpListener>,
    tracker: &TaskTracker,
    ended: &CancellationToken,
) -> io::Result<()> {
    let routes = routes(Arc::clone(page));
    let crowd = Arc::new(Connections::default());
    for listener in listeners {
        listener.set_nonblocking(true)?;
        let listener = tokio::net::TcpListener::from_std(listener)?;
        let (routes, crowd, ended) = (routes.clone(), Arc::clone(&crowd), ended.clone());
        let connections = tracker.clone();
        tracker.spawn(async move {
            loop {
                let accepted = tokio::select! {
                    () = ended.cancelled() => return,
                    accepted = listener.accept() => accepted,
                };
                match accepted {
                    Ok((stream, _)) => {
                        let (routes, guest) = (routes.clone(), crowd.let_in(&ended));
                        connections.spawn(connection(stream, routes, Arc::clone(&crowd), guest));
                    }
                    Err(error) => {
                        tracing::warn!(%error, "a connection to the page could not be taken");
                        tokio::time::sleep(RESOURCE_RETRY).await;
                    }
                }
            }
        });
    }
    Ok(())
}

async fn connection(stream: TcpStream, routes: Router, crowd: Arc<Connections>, guest: Connection) {
    let service = service_fn({
        let (crowd, guest) = (Arc::clone(&crowd), guest.clone());
        move |request: Request<Incoming>| {
            let (routes, crowd, guest) = (routes.clone(), Arc::clone(&crowd), guest.clone());
            async move {
                let answer = TowerToHyperService::new(routes).call(request.map(Body::new));
                // The body of a stream goes on; the answer itself comes at once.
                let response = match tokio::time::timeout(ANSWER_TIMEOUT, answer).await {
                    Ok(Ok(response)) => response,
                    Ok(Err(never)) => match never {},
                    Err(_) => gate::refuse(StatusCode::REQUEST_TIMEOUT, "too-slow", "the request took too long"),
                };
                if response.extensions().get::<Visitor>().is_some() {
                    crowd.know(&guest);
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
        () = guest.leave.cancelled() => {}
        outcome = serving => if let Err(error) = outcome {
            tracing::debug!(%error, "a connection to the page ended");
        },
    }
    crowd.let_out(&guest);
}

/// Who is connected.
#[derive(Debug, Default)]
struct Connections {
    guests: Mutex<ConnectionTable>,
}

#[derive(Debug, Default)]
struct ConnectionTable {
    next: u64,
    /// The oldest first.
    strangers: VecDeque<Connection>,
    known: VecDeque<Connection>,
}

#[derive(Debug, Clone)]
struct Connection {
    number: u64,
    leave: CancellationToken,
}

impl Connections {
    fn let_in(&self, ended: &CancellationToken) -> Connection {
        let mut guests = self.guests.lock().expect("nobody panics with it");
        guests.next += 1;
        let guest = Connection { number: guests.next, leave: ended.child_token() };
        guests.strangers.push_back(guest.clone());
        if guests.strangers.len() > MAX_ANONYMOUS
            && let Some(oldest) = guests.strangers.pop_front()
        {
            oldest.leave.cancel();
        }
        guest
    }

    /// It has shown a session.
    fn know(&self, guest: &Connection) {
        let mut guests = self.guests.lock().expect("nobody panics with it");
        let Some(place) = guests.strangers.iter().position(|stranger| stranger.number == guest.number) else { return };
        guests.strangers.remove(place);
        guests.known.push_back(guest.clone());
        if guests.known.len() > MAX_CONNECTIONS
            && let Some(oldest) = guests.known.pop_front()
        {
            oldest.leave.cancel();
        }
    }

    fn let_out(&self, guest: &Connection) {
        let mut guests = self.guests.lock().expect("nobody panics with it");
        guests.strangers.retain(|other| other.number != guest.number);
        guests.known.retain(|other| other.number != guest.number);
    }
}
