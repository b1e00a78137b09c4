//! Cancelling: at once, and with a truthful word on what may have happened.

use executor::task::failure::SideEffect;
use protocol::code::Code;
use serde_json::json;
use tokio_util::sync::CancellationToken;

use crate::bench::Bench;
use crate::server::{Reply, Server};

#[tokio::test]
async fn a_cancelled_request_is_dropped_at_once_and_may_have_happened() {
    let silent = || Server::new(|_, _| Reply::nothing().then_hangs());
    let slow = || {
        Server::new(|_, _| Reply::new(200, &["content-type: image/png", "content-length: 1000"], "half").then_hangs())
    };
    for server in [silent().await, slow().await] {
        let (bench, cancel) = (Bench::new(), CancellationToken::new());
        let definition = json!({"method": "POST", "base_url": server.url(), "body": {"json": {}}});
        let outcome = tokio::join!(bench.run_until(definition, json!({}), &cancel), async {
            server.has_received(1).await;
            cancel.cancel();
        });
        let failure = outcome.0.expect_err("cancelled");
        assert_eq!((failure.error.code, failure.side_effect), (Code::Cancelled, SideEffect::Possible));
        server.was_left(1).await;
        assert!(bench.spooled().is_empty());
    }
}

#[tokio::test]
async fn what_is_cancelled_before_it_is_sent_did_not_happen() {
    let server = Server::new(|_, _| Reply::nothing()).await;
    let cancel = CancellationToken::new();
    cancel.cancel();
    let definition = json!({"method": "POST", "base_url": server.url()});
    let failure = Bench::new().run_until(definition, json!({}), &cancel).await.expect_err("cancelled");
    assert_eq!((failure.error.code, failure.side_effect), (Code::Cancelled, SideEffect::None));
    assert!(server.received().is_empty());
}
