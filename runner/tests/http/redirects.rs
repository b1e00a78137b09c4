//! Redirects: followed only for GET and HEAD and after a 303, and never with a secret to another origin.

use ground::task::failure::SideEffect;
use protocol::code::Code;
use serde_json::json;

use crate::fixture::{Fixture, json_of};
use crate::server::{Reply, Server};

fn to(location: &str, status: u16) -> Reply {
    Reply::new(status, &[&format!("location: {location}")], "")
}

#[tokio::test]
async fn a_redirect_within_the_origin_keeps_the_credentials() {
    let server = Server::new(|request, _| match request.target.as_str() {
        "/a" => to("/b", 302),
        _ => Reply::json(200, &json!("here")),
    });
    let (server, fixture) = (server.await, Fixture::new().secret("token", "t0ken-value"));
    let definition = json!({"base_url": server.url(), "path": "/a", "auth": {"bearer": "secret:token"}});
    let success = fixture.run(definition, json!({})).await.expect("it succeeds");
    assert_eq!(success.meta.get("final_url"), Some(&json!(format!("{}/b", server.url()))));
    assert_eq!(server.received()[1].header("authorization"), Some("Bearer t0ken-value"));
}

#[tokio::test]
async fn a_redirect_to_another_origin_carries_no_secret() {
    let other = Server::new(|_, _| Reply::json(200, &json!("there"))).await;
    let target = format!("{}/x", other.url());
    let server = Server::new(move |_, _| to(&target, 307)).await;
    let fixture = Fixture::with(|config| config.http.private_hosts = vec![other.host.clone()])
        .secret("token", "t0ken-value")
        .secret("key", "k3y-value");
    let definition = json!({
        "base_url": server.url(), "query": {"key": "secret:key"}, "headers": {"X-Key": "secret:key", "X-Plain": "p"},
        "auth": {"bearer": "secret:token"}
    });
    assert_eq!(json_of(fixture.run(definition, json!({})).await), json!("there"));
    let received = other.only();
    assert_eq!((received.target.as_str(), received.header("x-plain")), ("/x", Some("p")));
    assert_eq!((received.header("authorization"), received.header("x-key")), (None, None));
}

#[tokio::test]
async fn a_redirect_to_a_private_address_of_another_origin_is_refused() {
    let inner = Server::new(|_, _| Reply::json(200, &json!("inside"))).await;
    let target = inner.url();
    let server = Server::new(move |_, _| to(&target, 302)).await;
    let failure = Fixture::new().run(json!({"base_url": server.url()}), json!({})).await.expect_err("refused");
    assert_eq!(failure.error.code, Code::ForbiddenAddress);
    assert!(inner.received().is_empty());
}

#[tokio::test]
async fn endless_redirects_fail() {
    let server = Server::new(|_, number| to(&format!("/{number}"), 301)).await;
    let failure =
        Fixture::new().run(json!({"base_url": server.url()}), json!({})).await.expect_err("too many redirects");
    assert_eq!(failure.error.code, Code::BadResponse);
    assert_eq!(server.received().len(), 6);
}

#[tokio::test]
async fn a_redirected_change_is_never_sent_again() {
    for (status, effect) in [(302, SideEffect::Answered), (307, SideEffect::None)] {
        let server = Server::new(move |_, _| to("/elsewhere", status)).await;
        let definition = json!({"method": "POST", "base_url": server.url(), "body": {"json": {}}});
        let failure = Fixture::new().run(definition, json!({})).await.expect_err("not followed");
        assert_eq!((failure.error.code, failure.side_effect), (Code::ApiError, effect));
        assert!(failure.error.message.contains("/elsewhere"), "{}", failure.error.message);
        assert_eq!(server.received().len(), 1);
    }
}

#[tokio::test]
async fn a_303_after_a_change_is_followed_with_a_get() {
    let server = Server::new(|request, _| match request.target.as_str() {
        "/orders" => to("/orders/7", 303),
        _ => Reply::json(200, &json!({"id": 7})),
    });
    let (server, fixture) = (server.await, Fixture::new().secret("token", "t0ken-value"));
    let definition = json!({
        "method": "POST", "base_url": server.url(), "path": "/orders", "body": {"json": {"a": 1}},
        "auth": {"bearer": "secret:token"}, "idempotency_header": "Idempotency-Key"
    });
    assert_eq!(json_of(fixture.run(definition, json!({})).await), json!({"id": 7}));
    let followed = server.received().remove(1);
    assert_eq!((followed.method.as_str(), followed.target.as_str()), ("GET", "/orders/7"));
    assert_eq!(followed.header("authorization"), Some("Bearer t0ken-value"));
    assert_eq!((followed.text().as_str(), followed.header("content-type")), ("", None));
    assert_eq!(followed.header("idempotency-key"), None);
}

#[tokio::test]
async fn a_303_to_a_private_address_of_another_origin_is_refused_and_says_that_the_change_may_have_happened() {
    let inner = Server::new(|_, _| Reply::json(200, &json!("inside"))).await;
    let target = inner.url();
    let server = Server::new(move |_, _| to(&target, 303)).await;
    let definition = json!({"method": "POST", "base_url": server.url(), "body": {"json": {}}});
    let failure = Fixture::new().run(definition, json!({})).await.expect_err("refused");
    assert_eq!((failure.error.code, failure.side_effect), (Code::ForbiddenAddress, SideEffect::Possible));
    assert!(inner.received().is_empty());
}

#[tokio::test]
async fn a_failure_after_a_303_never_says_that_nothing_happened() {
    for (status, code) in [(404, Code::ApiError), (429, Code::ApiError)] {
        let server = Server::new(move |request, _| match request.method.as_str() {
            "POST" => to("/result", 303),
            _ => Reply::json(status, &json!({"message": "no"})),
        });
        let server = server.await;
        let definition = json!({"method": "POST", "base_url": server.url(), "body": {"json": {}}});
        let failure = Fixture::new().run(definition, json!({})).await.expect_err("an error status");
        assert_eq!((failure.error.code, failure.side_effect), (code, SideEffect::Possible), "{status}");
    }
}
