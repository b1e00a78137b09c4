//! OAuth: concurrent callers share one renewal, rotated tokens are stored, and a human is needed only if the server
//! refuses the grant.

use executor::task::failure::{Retry, SideEffect};
use protocol::code::Code;
use serde_json::{Value, json};

use crate::fixture::{Fixture, json_of};
use crate::server::{Received, Reply, Server};

/// An API at `/api` that accepts the authorization `accepted`, with a token endpoint at `/token`.
async fn api(token: impl Fn(&Received, usize) -> Reply + Send + Sync + 'static, accepted: &'static str) -> Server {
    Server::new(move |request, number| match request.target.as_str() {
        "/token" => token(request, number),
        _ if request.header("authorization") == Some(accepted) => Reply::json(200, &json!("data")),
        _ => Reply::json(401, &json!({"error": {"message": "Invalid Credentials", "status": "UNAUTHENTICATED"}})),
    })
    .await
}

fn granted(token: &str) -> Reply {
    Reply::json(200, &json!({"access_token": token, "expires_in": 3600, "token_type": "Bearer"}))
}

fn definition(server: &Server) -> Value {
    json!({"base_url": server.url(), "path": "/api", "auth": {"oauth2": "secret:google"}})
}

fn client(server: &Server, more: Value) -> String {
    let mut client = json!({
        "token_url": format!("{}/token", server.url()), "client_id": "id-1", "client_secret": "s3cret-client",
        "refresh_token": "refresh-one"
    });
    let Value::Object(more) = more else { panic!("an object") };
    client.as_object_mut().expect("an object").extend(more);
    client.to_string()
}

fn token_requests(server: &Server) -> Vec<String> {
    server.received().iter().filter(|request| request.target == "/token").map(Received::text).collect()
}

#[tokio::test]
async fn a_bare_access_token_is_sent_unchanged_and_its_refusal_is_an_api_error() {
    let server = api(|_, _| Reply::nothing(), "Bearer ya29.plain").await;
    let fixture = Fixture::new().secret("google", "ya29.plain\n");
    assert_eq!(json_of(fixture.run(definition(&server), json!({})).await), json!("data"));
    fixture.set("google", "ya29.other");
    let failure = fixture.run(definition(&server), json!({})).await.expect_err("refused");
    assert_eq!((failure.error.code, failure.side_effect), (Code::ApiError, SideEffect::None));
    assert!(failure.error.hint.is_some_and(|hint| hint.contains("secret set google")));
    assert!(token_requests(&server).is_empty());
}

#[tokio::test]
async fn fifty_concurrent_calls_request_one_token() {
    let server = api(|_, _| granted("access-1"), "Bearer access-1").await;
    let fixture = Fixture::new().secret("google", &client(&server, json!({"scope": "mail"})));
    let runs = (0..50).map(|_| fixture.run(definition(&server), json!({})));
    for outcome in futures_util::future::join_all(runs).await {
        assert_eq!(json_of(outcome), json!("data"));
    }
    assert_eq!(
        token_requests(&server),
        ["grant_type=refresh_token&refresh_token=refresh-one&scope=mail&client_id=id-1&client_secret=s3cret-client"]
    );
}

#[tokio::test]
async fn a_refused_token_is_renewed_once_and_the_request_sent_again() {
    let server =
        api(|_, number| granted(if number < 3 { "revoked-soon" } else { "access-2" }), "Bearer access-2").await;
    let old = json!({"access_token": "access-old", "expires_at": "2999-01-01T00:00:00Z"});
    let fixture = Fixture::new().secret("google", &client(&server, old));
    // access-old is refused, renewed to revoked-soon, refused again: no third attempt.
    let failure = fixture.run(definition(&server), json!({})).await.expect_err("refused twice");
    assert_eq!(failure.error.code, Code::ApiError);
    assert_eq!(token_requests(&server).len(), 1);
    assert_eq!(json_of(fixture.run(definition(&server), json!({})).await), json!("data"));
    assert_eq!(token_requests(&server).len(), 2);
}

#[tokio::test]
async fn a_token_that_expires_soon_is_renewed_before_use() {
    let server = api(|_, _| granted("access-1"), "Bearer access-1").await;
    let expires_at = jiff::Timestamp::now().as_second() + 30;
    let old = json!({"access_token": "old-one", "expires_at": expires_at});
    let fixture = Fixture::new().secret("google", &client(&server, old));
    assert_eq!(json_of(fixture.run(definition(&server), json!({})).await), json!("data"));
    assert_eq!(server.received().len(), 2);
}

#[tokio::test]
async fn a_rotated_refresh_token_is_stored_and_used_for_the_next_renewal() {
    let server = api(
        |request, _| {
            let next = if request.text().contains("refresh-one") { "refresh-two" } else { "refresh-three" };
            Reply::json(200, &json!({"access_token": "access-1", "expires_in": 1, "refresh_token": next}))
        },
        "Bearer access-1",
    );
    let server = server.await;
    let fixture = Fixture::new().secret("google", &client(&server, json!({"kept": true})));
    for stored in ["refresh-two", "refresh-three"] {
        assert_eq!(json_of(fixture.run(definition(&server), json!({})).await), json!("data"));
        let secret: Value = serde_json::from_str(&fixture.stored("google").await).expect("JSON");
        assert_eq!((&secret["refresh_token"], &secret["kept"]), (&json!(stored), &json!(true)));
    }
    assert!(token_requests(&server)[1].contains("refresh-two"));
}

#[tokio::test]
async fn a_revoked_grant_needs_a_human_and_the_failure_has_no_secret() {
    let refuse = |request: &Received, _| {
        let description = format!("Token has been revoked: {}", request.text());
        Reply::json(400, &json!({"error": "invalid_grant", "error_description": description}))
    };
    let server = api(refuse, "Bearer none").await;
    let fixture = Fixture::new().secret("google", &client(&server, json!({})));
    let failure = fixture.run(definition(&server), json!({})).await.expect_err("revoked");
    assert_eq!(
        (failure.error.code, failure.retry, failure.side_effect),
        (Code::NeedsReauthorization, Retry::Never, SideEffect::None)
    );
    assert!(failure.error.hint.as_deref().is_some_and(|hint| hint.contains("secret set google")));
    let shown = format!("{failure:?} {:?}", fixture.context);
    assert!(!shown.contains("refresh-one") && !shown.contains("s3cret-client"), "{shown}");
}

#[tokio::test]
async fn without_a_refresh_token_the_client_credentials_grant_is_used() {
    let server = api(|_, _| granted("access-1"), "Bearer access-1").await;
    let fixture =
        Fixture::new().secret("google", &client(&server, json!({"refresh_token": null, "auth_style": "basic"})));
    assert_eq!(json_of(fixture.run(definition(&server), json!({})).await), json!("data"));
    let asked = server.received().remove(0);
    assert_eq!(asked.text(), "grant_type=client_credentials");
    assert_eq!(asked.header("authorization"), Some("Basic aWQtMTpzM2NyZXQtY2xpZW50"));
}

#[tokio::test]
async fn a_failing_token_server_has_no_side_effect() {
    let server = api(|_, _| Reply::new(503, &["retry-after: 3"], "busy"), "Bearer none").await;
    let fixture = Fixture::new().secret("google", &client(&server, json!({})));
    let mut definition = definition(&server);
    definition["method"] = json!("POST");
    let failure = fixture.run(definition, json!({})).await.expect_err("busy");
    let wait = Retry::After(std::time::Duration::from_secs(3));
    assert_eq!((failure.error.code, failure.retry, failure.side_effect), (Code::ApiError, wait, SideEffect::None));
}

#[tokio::test]
async fn a_new_secret_takes_effect_at_the_next_call() {
    let server = api(
        |request, _| granted(if request.text().contains("id-1") { "access-1" } else { "access-2" }),
        "Bearer access-2",
    )
    .await;
    let fixture = Fixture::new().secret("google", &client(&server, json!({})));
    fixture.run(definition(&server), json!({})).await.expect_err("the first account is not accepted");
    fixture.set("google", &client(&server, json!({"client_id": "id-2"})));
    assert_eq!(json_of(fixture.run(definition(&server), json!({})).await), json!("data"));
}
