//! One client on standard input and output: a line is a message. Nothing else is written to standard output.

use rmcp::service::serve_server_with_ct;
use tokio_util::sync::CancellationToken;

use super::ServerSettings;
use super::handler::{Handler, Server};

/// Serves until the client closes standard input, or `ended` is cancelled.
pub(super) async fn serve(settings: ServerSettings, ended: CancellationToken) {
    let handler = Handler::of(Server::new(settings));
    match serve_server_with_ct(handler, rmcp::transport::io::stdio_pipes(), ended).await {
        Ok(service) => {
            if let Err(error) = service.waiting().await {
                tracing::warn!(%error, "the connection ended with an error");
            }
        }
        Err(error) => tracing::debug!(%error, "the client ended before it began"),
    }
}
