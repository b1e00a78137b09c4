//! Jobs: a server accepts a request and does the work later.

use ground::task::failure::SideEffect;
use protocol::code::Code;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::fixture::{Fixture, json_of};
use crate::server::{Reply, Server};

fn definition(server: &Server, poll: &Value) -> Value {
    let mut poll = poll.clone();
    poll["interval"] = json!("1ms");
    json!({
        "method": "POST", "base_url": server.url(), "path": "/v1/reports", "body": {"json": {"of": "2024"}},
        "query": {"key": "secret:key"}, "auth": {"bearer": "secret:token"}, "idempotency_header": "Idempotency-Key",
        "poll": poll
    })
}

fn fixture() -> Fixture {
    Fixture::new().secret("token", "t0ken-value").secret("key", "k3y-value")
}

#[tokio::test]
async fn a_job_is_asked_for_until_it_is_done_and_the_request_is_sent_once() {
    let server = Server::new(|request, number| match (request.method.as_str(), number) {
        ("POST", 0) => Reply::new(202, &["location: /v1/jobs/7"], ""),
        ("GET", 1) => Reply::new(202, &["retry-after: 0"], ""),
        // What fails while it is asked for is asked again.
        ("GET", 2) => Reply::json(503, &json!({})),
        ("GET", 3) => Reply::nothing(),
        ("GET", _) => Reply::json(200, &json!({"rows": 3})),
        other => panic!("{other:?}"),
    })
    .await;
    assert_eq!(json_of(fixture().run(definition(&server, &json!({})), json!({})).await), json!({"rows": 3}));
    let received = server.received();
    assert_eq!(received.len(), 5);
    for asked in &received[1..] {
        assert_eq!((asked.method.as_str(), asked.target.as_str()), ("GET", "/v1/jobs/7?key=k3y-value"));
        assert_eq!(asked.header("authorization"), Some("Bearer t0ken-value"));
        assert_eq!((asked.header("idempotency-key"), asked.header("content-type")), (None, None));
    }
}

#[tokio::test]
async fn the_body_says_where_the_job_is_when_it_is_done_and_where_its_result_is() {
    let server = Server::new(|request, number| match (request.target.as_str(), number) {
        (_, 0) => Reply::json(200, &json!({"id": 7, "state": "queued"})),
        ("/v1/jobs/7?key=k3y-value", 1) => Reply::json(200, &json!({"id": 7, "state": "running"})),
        ("/v1/jobs/7?key=k3y-value", 2) => Reply::json(200, &json!({"id": 7, "state": "done", "file": "/v1/files/9"})),
        ("/v1/files/9?key=k3y-value", 3) => Reply::new(200, &["content-type: text/csv"], "a,b\n"),
        other => panic!("{other:?}"),
    })
    .await;
    let poll = json!({"url": "\"/v1/jobs/\\(.id)\"", "until": ".state == \"done\" and $input.year == 2024", "result": ".file"});
    assert_eq!(json_of(fixture().run(definition(&server, &poll), json!({"year": 2024})).await), json!("a,b\n"));
}

#[tokio::test]
async fn a_failed_job_says_why_and_that_it_may_have_taken_effect() {
    let server = Server::new(|_, number| match number {
        0 => Reply::new(202, &["operation-location: /v1/jobs/7"], ""),
        _ => Reply::json(200, &json!({"state": "failed", "why": "no such year"})),
    })
    .await;
    let poll = json!({"failed": "if .state == \"failed\" then .why else false end", "until": ".state == \"done\""});
    let failure = fixture().run(definition(&server, &poll), json!({})).await.expect_err("the job failed");
    assert_eq!((failure.error.code, failure.side_effect), (Code::ApiError, SideEffect::Answered));
    assert_eq!(failure.error.message, "the job failed: no such year");
    assert_eq!(failure.error.details["job"], format!("{}/v1/jobs/7", server.url()));
}

#[tokio::test]
async fn a_job_that_is_cancelled_or_lost_is_named() {
    let server = Server::new(|_, number| match number {
        0 => Reply::new(202, &["location: /v1/jobs/7"], ""),
        _ => Reply::new(202, &[], ""),
    })
    .await;
    let cancel = CancellationToken::new();
    let fixture = fixture();
    let (failure, ()) = tokio::join!(fixture.run_until(definition(&server, &json!({})), json!({}), &cancel), async {
        server.wait_for_requests(3).await;
        cancel.cancel();
    });
    let failure = failure.expect_err("cancelled");
    assert_eq!((failure.error.code, failure.side_effect), (Code::Cancelled, SideEffect::Possible));
    assert_eq!(failure.error.details["job"], format!("{}/v1/jobs/7", server.url()));

    let server = Server::new(|_, number| match number {
        0 => Reply::new(202, &["location: /v1/jobs/7"], ""),
        _ => Reply::json(404, &json!({"message": "no such job"})),
    })
    .await;
    let failure = fixture.run(definition(&server, &json!({})), json!({})).await.expect_err("it is gone");
    assert_eq!((failure.error.code, failure.side_effect), (Code::ApiError, SideEffect::Possible));
    assert_eq!(failure.error.details["job"], format!("{}/v1/jobs/7", server.url()));
}

#[tokio::test]
async fn a_job_on_another_server_gets_no_secret_and_no_private_address() {
    let other = Server::new(|_, _| Reply::json(200, &json!("there"))).await;
    let job = format!("{}/jobs/7", other.url());
    let accepted = move || {
        let job = job.clone();
        Server::new(move |_, _| Reply::new(202, &[&format!("location: {job}")], ""))
    };
    let server = accepted().await;
    let failure = fixture().run(definition(&server, &json!({})), json!({})).await.expect_err("a private address");
    assert_eq!((failure.error.code, failure.side_effect), (Code::ForbiddenAddress, SideEffect::Possible));
    assert!(other.received().is_empty());

    let server = accepted().await;
    let fixture = Fixture::with(|config| config.http.private_hosts = vec![other.host.clone()])
        .secret("token", "t0ken-value")
        .secret("key", "k3y-value");
    assert_eq!(json_of(fixture.run(definition(&server, &json!({})), json!({})).await), json!("there"));
    let asked = other.only();
    assert_eq!((asked.target.as_str(), asked.header("authorization")), ("/jobs/7", None));
}

#[tokio::test]
async fn an_accepted_request_without_a_job_is_an_error_that_may_have_taken_effect() {
    let server = Server::new(|_, _| Reply::json(202, &json!({"ok": true}))).await;
    let failure = fixture().run(definition(&server, &json!({})), json!({})).await.expect_err("no URL");
    assert_eq!((failure.error.code, failure.side_effect), (Code::BadResponse, SideEffect::Possible));
}

#[tokio::test]
async fn a_job_that_says_it_is_not_done_is_not_told_as_done() {
    for (state, poll, is_told) in [
        (json!({"status": "running", "progress": 33}), json!({}), true),
        (json!({"state": "In Progress"}), json!({}), true),
        (json!({"status": "FAILED", "error": "disk full"}), json!({}), true),
        (json!({"status": "done", "rows": 3}), json!({}), false),
        (json!({"status": 3}), json!({}), false),
        (json!([1]), json!({}), false),
        // What the definition says of the end counts.
        (json!({"status": "failed"}), json!({"until": ".status == \"failed\""}), false),
    ] {
        let answer = state.clone();
        let server = Server::new(move |_, number| match number {
            0 => Reply::new(202, &["location: /v1/jobs/7"], ""),
            _ => Reply::json(200, &answer),
        })
        .await;
        let output = fixture().run(definition(&server, &poll), json!({})).await.expect("it is answered");
        let told = output.meta.get("unfinished").and_then(|told| told["message"].as_str()).unwrap_or_default();
        assert_eq!(!told.is_empty(), is_told, "{state}: {told}");
        let word = state["status"].as_str().or(state["state"].as_str()).unwrap_or_default();
        assert!(told.is_empty() || told.contains(word), "{state}: {told}");
    }
}

#[tokio::test]
async fn a_job_that_is_never_done_says_which_field_of_until_no_answer_had() {
    let fixture = fixture();
    let wrong = "no answer had what `poll.until`, `.stat == \"done\"`, asks for: there is no key `stat` there; the keys \
                 are `id`, `state`; correct it in the subtool; ";
    for (until, later, expected) in [
        (".stat == \"done\"", json!({"id": 7, "state": "done"}), wrong),
        (".state == \"done\"", json!({"id": 7, "state": "running"}), ""),
        // What one answer has may come again.
        (".stat == \"done\"", json!({"id": 7, "stat": "running"}), ""),
        (".stat? == \"done\"", json!({"id": 7, "state": "done"}), ""),
    ] {
        let server = Server::new(move |_, number| match number {
            0 => Reply::new(202, &["location: /v1/jobs/7"], ""),
            2 => Reply::json(200, &later),
            _ => Reply::json(200, &json!({"id": 7, "state": "running"})),
        })
        .await;
        let cancel = CancellationToken::new();
        let definition = definition(&server, &json!({"until": until}));
        let (failure, ()) = tokio::join!(fixture.run_until(definition, json!({}), &cancel), async {
            server.wait_for_requests(5).await;
            cancel.cancel();
        });
        let failure = failure.expect_err("cancelled");
        let hint = format!("{expected}the server may still be working on the job `{}/v1/jobs/7`", server.url());
        assert_eq!(failure.error.hint, Some(hint), "{until}");
        assert_eq!(failure.error.details["last_answer"], "it has `id`, `state`");
    }
}
