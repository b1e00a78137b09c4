//! Downloads one file, or asks one question, for a human's command, outside of any task.

use protocol::code::Code;
use protocol::error::ErrorBody;
use serde_json::Value;
use tokio::runtime::Builder;
use tokio::runtime::Runtime;
use url::Url;

use super::clients::{FetchedPage, HttpClients};
use crate::base::runtime;
use crate::config::Config;
use crate::task::failure::Failure;

/// Gets `url`, which a human gave and which may be on this machine. Any status is a [`FetchedPage`].
pub fn download(config: &Config, url: &str, max_bytes: u64) -> Result<FetchedPage, ErrorBody> {
    let SingleRequest { url, clients, runtime } = SingleRequest::to(url, config)?;
    runtime.block_on(in_time(config, &url, clients.fetch_configured(&url, max_bytes))).map_err(|failure| failure.error)
}

/// Posts `body` as JSON to `url`, which a human gave and which may be on this machine. Any status is a [`FetchedPage`].
pub fn ask(config: &Config, url: &str, body: &Value, max_bytes: u64) -> Result<FetchedPage, ErrorBody> {
    let SingleRequest { url, clients, runtime } = SingleRequest::to(url, config)?;
    let asked = async {
        let request = clients.client_for_configured(&url).await?.post(url.clone());
        clients.send_plain(request.header("Accept", "application/json").json(body), &url, max_bytes).await
    };
    let (status, body) = runtime.block_on(in_time(config, &url, asked)).map_err(|failure| failure.error)?;
    Ok(FetchedPage { final_url: url, status: status.as_u16(), content_type: None, body })
}

/// Bounds a request as a whole: a server that sends a byte now and then never ends, and no part of it takes long.
async fn in_time<T>(
    config: &Config,
    url: &Url,
    request: impl Future<Output = Result<T, Failure>>,
) -> Result<T, Failure> {
    let limit = config.executor.timeout;
    tokio::time::timeout(limit.get(), request).await.unwrap_or_else(|_| {
        Err(Failure::new(Code::TimedOut, format!("`{url}` did not answer completely within {limit}"))
            .hint("download it with another program and import the file, or raise `timeout` under [executor]"))
    })
}

/// What one request of a command needs, apart from its method and body.
struct SingleRequest {
    url: Url,
    clients: HttpClients,
    runtime: Runtime,
}

impl SingleRequest {
    fn to(url: &str, config: &Config) -> Result<Self, ErrorBody> {
        let failed = |message: String| Failure::new(Code::BadConfig, message).error;
        let url = Url::parse(url)
            .map_err(|error| Failure::new(Code::Rejected, format!("`{url}` is not a valid URL: {error}")).error)?;
        let clients = HttpClients::new(config).map_err(|error| failed(error.to_string()))?;
        let runtime = runtime::start(&mut Builder::new_current_thread())?;
        Ok(Self { url, clients, runtime })
    }
}
