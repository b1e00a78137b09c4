//! OAuth: concurrent callers share one renewal, rotated tokens are stored, and a human is needed only if the server
//! refuses the grant.

use ground::task::failure::{Retry, SideEffect};
use protocol::code::Code;
use serde_json::{Value, json};

use crate::fixture::{Fixture, json_of};
use crate::server::{Received, Reply, Server};

/// `id-1:s3cret-client`
const BASIC: &str = "Basic aWQtMTpzM2NyZXQtY2xpZW50";

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
    assert_eq!(token_requests(&server), ["grant_type=refresh_token&refresh_token=refresh-one&scope=mail"]);
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
    let fixture = Fixture::new().secret("google", &client(&server, json!({"account": "me"})));
    for stored in ["refresh-two", "refresh-three"] {
        assert_eq!(json_of(fixture.run(definition(&server), json!({})).await), json!("data"));
        let secret: Value = serde_json::from_str(&fixture.stored("google").await).expect("JSON");
        assert_eq!((&secret["refresh_token"], &secret["account"]), (&json!(stored), &json!("me")));
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
    assert_eq!(asked.header("authorization"), Some(BASIC));
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
        |request, _| granted(if request.header("authorization") == Some(BASIC) { "access-1" } else { "access-2" }),
        "Bearer access-2",
    )
    .await;
    let fixture = Fixture::new().secret("google", &client(&server, json!({})));
    fixture.run(definition(&server), json!({})).await.expect_err("the first account is not accepted");
    fixture.set("google", &client(&server, json!({"client_id": "id-2"})));
    assert_eq!(json_of(fixture.run(definition(&server), json!({})).await), json!("data"));
}

/// A client in a definition, whose id and secret have characters that a form encodes.
fn client_definition(server: &Server, more: Value) -> Value {
    let mut client = json!({
        "token_url": format!("{}/token", server.url()), "client_id": "id one", "client_secret": "secret:client"
    });
    let Value::Object(more) = more else { panic!("an object") };
    client.as_object_mut().expect("an object").extend(more);
    json!({"base_url": server.url(), "path": "/api", "auth": {"client_credentials": client}})
}

const CLIENT_SECRET: &str = "s3:cr+t%&\u{e9}-client";
/// `id+one:s3%3Acr%2Bt%25%26%C3%A9-client`
const ENCODED_BASIC: &str = "Basic aWQrb25lOnMzJTNBY3IlMkJ0JTI1JTI2JUMzJUE5LWNsaWVudA==";

/// How a token endpoint refuses.
type Refuse = Box<dyn Fn() -> Reply + Send + Sync>;

#[tokio::test]
async fn a_client_is_sent_encoded_in_the_header_and_only_if_that_is_refused_in_the_body() {
    let refused = |status: u16, error: Value| move || Reply::json(status, &error);
    let invalid = |error: &str| json!({"error": error});
    let cases: [(Option<Refuse>, usize, bool); 7] = [
        (None, 1, true),
        (Some(Box::new(refused(401, invalid("invalid_client")))), 2, true),
        (Some(Box::new(refused(400, invalid("invalid_client")))), 2, true),
        (Some(Box::new(refused(401, json!("no")))), 2, true),
        (Some(Box::new(refused(400, invalid("invalid_request")))), 2, true),
        (Some(Box::new(refused(400, invalid("invalid_scope")))), 1, false),
        (Some(Box::new(refused(503, json!({})))), 1, false),
    ];
    for (index, (refuse, requests, succeeds)) in cases.into_iter().enumerate() {
        let token = move |request: &Received, _| match (&refuse, request.header("authorization")) {
            (Some(refuse), Some(_)) => refuse(),
            _ => granted("access-1"),
        };
        let server = api(token, "Bearer access-1").await;
        let fixture = Fixture::new().secret("client", CLIENT_SECRET);
        let definition = client_definition(&server, json!({"scope": "read write", "audience": "https://api.example/"}));
        assert_eq!(fixture.run(definition, json!({})).await.is_ok(), succeeds, "{index}");
        let asked: Vec<_> = server.received().into_iter().filter(|request| request.target == "/token").collect();
        assert_eq!(asked.len(), requests, "{index}");
        let form = "grant_type=client_credentials&scope=read+write&audience=https%3A%2F%2Fapi.example%2F";
        assert_eq!((asked[0].text().as_str(), asked[0].header("authorization")), (form, Some(ENCODED_BASIC)));
        if let Some(second) = asked.get(1) {
            let in_body = format!("{form}&client_id=id+one&client_secret=s3%3Acr%2Bt%25%26%C3%A9-client");
            assert_eq!((second.text(), second.header("authorization")), (in_body, None), "{index}");
        }
    }
}

#[tokio::test]
async fn the_way_that_a_server_understood_is_used_again() {
    let token = |request: &Received, _| match request.header("authorization") {
        Some(_) => Reply::json(401, &json!({"error": "invalid_client"})),
        None => Reply::json(200, &json!({"access_token": "access-1", "expires_in": 1})),
    };
    let server = api(token, "Bearer access-1").await;
    let fixture = Fixture::new().secret("client", CLIENT_SECRET);
    for requests in [2, 3] {
        assert_eq!(json_of(fixture.run(client_definition(&server, json!({})), json!({})).await), json!("data"));
        assert_eq!(token_requests(&server).len(), requests);
    }
}

#[tokio::test]
async fn a_token_is_kept_until_a_tenth_of_its_life_or_half_a_minute_remains() {
    let long = json!({"access_token": "access-1", "expires_in": 3600});
    // Whether a second call, at once, gets the same token.
    for (expires_in, is_kept) in [
        (json!(3600), true),
        (json!("3600"), true),
        (json!("3600.5"), true),
        (json!(3600.0), true),
        (json!(60), true),
        (Value::Null, true),
        (json!("soon"), true),
        (json!(31), true),
        (json!(30), false),
        (json!(5), false),
        (json!(0), false),
        (json!(-1), false),
        (json!("5"), false),
    ] {
        let mut granted = long.clone();
        granted["expires_in"] = expires_in.clone();
        if expires_in.is_null() {
            granted.as_object_mut().expect("an object").remove("expires_in");
        }
        let server = api(move |_, _| Reply::json(200, &granted), "Bearer access-1").await;
        let fixture = Fixture::new().secret("client", CLIENT_SECRET);
        for _ in 0..2 {
            assert_eq!(json_of(fixture.run(client_definition(&server, json!({})), json!({})).await), json!("data"));
        }
        assert_eq!(token_requests(&server).len(), if is_kept { 1 } else { 2 }, "{expires_in}");
    }
}

/// A token endpoint that answers when all `calls` wait for it.
async fn calls_at_once(calls: usize, reply: fn() -> Reply) -> (Server, usize) {
    let server = api(move |_, _| reply(), "Bearer access-1").await;
    let fixture = Fixture::new().secret("client", CLIENT_SECRET);
    let runs = (0..calls).map(|_| fixture.run(client_definition(&server, json!({})), json!({})));
    let done = futures_util::future::join_all(runs).await;
    let succeeded = done.iter().filter(|outcome| outcome.is_ok()).count();
    (server, succeeded)
}

#[tokio::test]
async fn calls_that_wait_for_one_request_share_its_outcome() {
    let short = || Reply::json(200, &json!({"access_token": "access-1", "expires_in": 1}));
    let (server, succeeded) = calls_at_once(20, short).await;
    assert_eq!((token_requests(&server).len(), succeeded), (1, 20), "a short life");
    let (server, succeeded) = calls_at_once(20, || Reply::new(503, &[], "busy")).await;
    assert_eq!((token_requests(&server).len(), succeeded), (1, 0), "a failure");
}

#[tokio::test]
async fn a_token_endpoint_that_redirects_is_not_followed() {
    let other = Server::new(|_, _| granted("access-1")).await;
    for status in [301, 302, 303, 307, 308] {
        let location = format!("location: {}/token", other.url());
        let server = api(move |_, _| Reply::new(status, &[&location], ""), "Bearer access-1").await;
        let fixture = Fixture::new().secret("client", CLIENT_SECRET);
        let failure = fixture.run(client_definition(&server, json!({})), json!({})).await.expect_err("refused");
        assert_eq!((failure.error.code, failure.side_effect), (Code::ApiError, SideEffect::None), "{status}");
        assert!(failure.error.message.contains("redirect"), "{}", failure.error.message);
    }
    assert_eq!(other.received().len(), 0);
}

#[tokio::test]
async fn the_error_of_a_token_server_is_shown_without_the_secret() {
    let repeat = |request: &Received| format!("{} {}", request.header("authorization").unwrap_or(""), request.text());
    for (status, code, expected) in [
        (400, "invalid_scope", Code::ApiError),
        (200, "invalid_scope", Code::ApiError),
        (400, "unauthorized_client", Code::NeedsReauthorization),
        (401, "invalid_client", Code::NeedsReauthorization),
    ] {
        let token = move |request: &Received, _| {
            let description = format!("not you: {}", repeat(request));
            Reply::json(status, &json!({"error": code, "error_description": description}))
        };
        let server = api(token, "Bearer none").await;
        let fixture = Fixture::new().secret("client", CLIENT_SECRET);
        let failure = fixture.run(client_definition(&server, json!({})), json!({})).await.expect_err("refused");
        let shown = format!("{failure:?}");
        assert_eq!(failure.error.code, expected, "{shown}");
        assert!(shown.contains(code) && shown.contains("not you"), "{shown}");
        for secret in [CLIENT_SECRET, "s3%3Acr", &ENCODED_BASIC[6..]] {
            assert!(!shown.contains(secret), "{shown}");
        }
    }
}

#[tokio::test]
async fn the_secrets_of_a_client_go_only_to_their_hosts() {
    // Which secret has a list, and whether that has the API and the token endpoint.
    for (name, has_api, has_token, succeeds) in [
        ("client", true, true, true),
        ("client", true, false, false),
        ("client", false, true, false),
        ("id", true, true, true),
        ("id", true, false, false),
        ("google", true, true, true),
        ("google", true, false, false),
        ("google", false, true, false),
    ] {
        let tokens = Server::new(|_, _| granted("access-1")).await;
        let server = api(|_, _| Reply::nothing(), "Bearer access-1").await;
        let token_url = json!({"token_url": format!("{}/token", tokens.url()), "client_id": "secret:id"});
        let fixture = Fixture::new()
            .secret("client", CLIENT_SECRET)
            .secret("id", "the-id-of-it")
            .secret("google", &client(&server, json!({"token_url": token_url["token_url"], "refresh_token": null})));
        let hosts = [(has_api, &server), (has_token, &tokens)];
        let hosts = hosts.iter().filter(|(has, _)| *has).map(|(_, server)| server.host.parse().expect("a host"));
        fixture.context.secrets.allow(&name.parse().expect("a name"), hosts).expect("stored");
        let definition = if name == "google" { definition(&server) } else { client_definition(&server, token_url) };
        let outcome = fixture.run(definition, json!({})).await;
        assert_eq!(outcome.is_ok(), succeeds, "{name} {has_api} {has_token}: {outcome:?}");
        if !succeeds {
            assert_eq!(outcome.expect_err("refused").error.code, Code::ForbiddenAddress, "{name}");
            assert_eq!(tokens.received().len() + server.received().len(), 0, "{name} {has_api} {has_token}");
        }
    }
}

#[tokio::test]
async fn a_key_that_an_oauth_secret_does_not_have_is_named_with_the_nearest() {
    let server = api(|_, _| granted("access-1"), "Bearer access-1").await;
    for (more, expected) in [
        (json!({"client_secert": "s3cret-typo"}), "unknown key `client_secert`; did you mean `client_secret`?"),
        (json!({"scopes": "mail"}), "unknown key `scopes`; did you mean `scope`?"),
        (json!({"zzz": "s3cret-typo"}), "unknown key `zzz`"),
        (json!({"client_id": 7}), "`client_id` is not a text"),
        (json!({"auth_style": "s3cret-typo"}), "`auth_style` is neither"),
    ] {
        let fixture = Fixture::new().secret("google", &client(&server, more));
        let failure = fixture.run(definition(&server), json!({})).await.expect_err("refused");
        assert_eq!(failure.error.code, Code::SecretMissing);
        assert!(failure.error.message.contains(expected), "{expected}: {}", failure.error.message);
        assert!(!format!("{failure:?}").contains("s3cret-typo"), "{failure:?}");
    }
    let of_google = json!({"type": "authorized_user", "universe_domain": "googleapis.com", "account": ""});
    let fixture = Fixture::new().secret("google", &client(&server, of_google));
    assert_eq!(json_of(fixture.run(definition(&server), json!({})).await), json!("data"));
}
