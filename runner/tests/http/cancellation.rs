//! Cancellation: it is immediate, and the failure says whether the request may have taken effect.

use ground::task::failure::SideEffect;
use protocol::code::Code;
use serde_json::json;
use tokio_util::sync::CancellationToken;

use crate::fixture::Fixture;
use crate::server::{Reply, Server};

#[tokio::test]
async fn a_cancelled_request_is_dropped_at_once_and_may_have_had_a_side_effect() {
    let silent = || Server::new(|_, _| Reply::nothing().then_hang());
    let slow = || {
        Server::new(|_, _| Reply::new(200, &["content-type: image/png", "content-length: 1000"], "half").then_hang())
    };
    for server in [silent().await, slow().await] {
        let (fixture, cancel) = (Fixture::new(), CancellationToken::new());
        let definition = json!({"method": "POST", "base_url": server.url(), "body": {"json": {}}});
        let outcome = tokio::join!(fixture.run_until(definition, json!({}), &cancel), async {
            server.wait_for_requests(1).await;
            cancel.cancel();
        });
        let failure = outcome.0.expect_err("cancelled");
        assert_eq!((failure.error.code, failure.side_effect), (Code::Cancelled, SideEffect::Possible));
        server.wait_for_closed(1).await;
        assert!(fixture.spooled().is_empty());
    }
}

#[tokio::test]
async fn a_request_cancelled_before_it_is_sent_has_no_side_effect() {
    let server = Server::new(|_, _| Reply::nothing()).await;
    let cancel = CancellationToken::new();
    cancel.cancel();
    let definition = json!({"method": "POST", "base_url": server.url()});
    let failure = Fixture::new().run_until(definition, json!({}), &cancel).await.expect_err("cancelled");
    assert_eq!((failure.error.code, failure.side_effect), (Code::Cancelled, SideEffect::None));
    assert!(server.received().is_empty());
}
