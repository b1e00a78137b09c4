//! Requests, as the server receives them byte for byte.

use protocol::code::Code;
use runner::Runner as _;
use serde_json::json;

use crate::fixture::{Fixture, run_of};
use crate::server::{Reply, Server};

async fn empty_server() -> Server {
    Server::new(|_, _| Reply::new(204, &[], "")).await
}

#[tokio::test]
async fn a_request_matches_its_plan() {
    let server = empty_server().await;
    let fixture = Fixture::new().secret("key", "k3y&value+1").secret("token", "t0ken-value");
    let definition = json!({
        "method": "PUT", "base_url": server.url(), "path": "/a/{{ id }}",
        "query": {"tags": "{{ tags }}", "key": "secret:key", "q": "{{ q }}"}, "array_style": "brackets",
        "headers": {"X-Note": "{{ note }}"}, "auth": {"bearer": "secret:token"},
        "idempotency_header": "Idempotency-Key", "body": {"json": {"n": "{{ n }}", "text": "a{{ n }}"}}
    });
    let input = json!({"id": "é/1", "tags": ["x", "y z"], "q": "secret:token", "n": 5, "note": "über"});
    let invocation = fixture.invocation(input.clone());
    let plan = run_of(json!({"http": definition})).plan(&invocation, &fixture.context.config).expect("a plan");
    fixture.run(definition, input).await.expect("it succeeds");
    let sent = server.only();
    assert_eq!(sent.method, "PUT");
    assert_eq!(sent.target, "/a/%C3%A9%2F1?tags%5B%5D=x&tags%5B%5D=y+z&key=k3y%26value%2B1&q=secret%3Atoken");
    assert_eq!(plan["url"], format!("{}{}", server.url(), sent.target.replace("k3y%26value%2B1", "secret:key")));
    assert_eq!(sent.text(), plan["body"].to_string());
    assert_eq!(sent.header("authorization"), Some("Bearer t0ken-value"));
    assert_eq!(plan["headers"]["authorization"], "Bearer secret:token");
    for name in ["x-note", "idempotency-key", "content-type", "user-agent", "accept"] {
        assert_eq!(plan["headers"][name].as_str(), sent.header(name), "{name}");
    }
}

#[tokio::test]
async fn forms_are_encoded_and_may_contain_secrets() {
    let server = empty_server().await;
    let fixture = Fixture::new().secret("pin", "p&n=123");
    let definition = json!({
        "method": "POST", "base_url": server.url(), "array_style": "comma",
        "body": {"form": {"text": "{{ text }}", "ids": "{{ ids }}", "none": "{{ none }}", "pin": "secret:pin"}}
    });
    fixture.run(definition, json!({"text": "a b&c", "ids": [1, 2]})).await.expect("it succeeds");
    let sent = server.only();
    assert_eq!(sent.text(), "text=a+b%26c&ids=1%2C2&pin=p%26n%3D123");
    assert_eq!(sent.header("content-type"), Some("application/x-www-form-urlencoded"));
}

#[tokio::test]
async fn json_bodies_multipart_parts_and_any_header_may_contain_secrets() {
    let server = Server::new(|request, _| Reply::json(400, &json!({"message": request.text()}))).await;
    let fixture = Fixture::new().secret("key", "k\"3y\\value").secret("token", "t0ken-value");
    let definition = json!({
        "method": "POST", "base_url": server.url(), "headers": {"X-Token": "Token secret:token"},
        "body": {"json": {"auth": {"key": "secret:key"}, "list": ["{{ absent }}", "secret:token"], "q": "{{ q }}"}}
    });
    let failure = fixture.run(definition, json!({"q": "secret:token"})).await.expect_err("the server refuses");
    let sent = server.only();
    let body: serde_json::Value = serde_json::from_slice(&sent.body).expect("JSON");
    let expected = json!({"auth": {"key": "k\"3y\\value"}, "list": ["t0ken-value"], "q": "secret:token"});
    assert_eq!(body, expected);
    assert_eq!(sent.header("x-token"), Some("Token t0ken-value"));
    // The server echoed the body as it was sent, with the key escaped.
    let told = format!("{:?}", failure.error);
    assert!(told.contains("[secret:token]") && told.contains("[secret:key]"), "{told}");
    assert!(!told.contains("t0ken-value") && !told.contains("3y"), "{told}");

    let server = empty_server().await;
    let definition = json!({
        "method": "POST", "base_url": server.url(), "body": {"multipart": {"key": "secret:token", "q": "{{ q }}"}}
    });
    fixture.run(definition, json!({"q": "secret:token"})).await.expect("it succeeds");
    let text = server.only().text();
    assert!(text.contains("name=\"key\"\r\n\r\nt0ken-value\r\n"), "{text}");
    assert!(text.contains("name=\"q\"\r\n\r\nsecret:token\r\n"), "{text}");
}

#[tokio::test]
async fn several_headers_and_parameters_of_one_name_are_all_sent() {
    let server = empty_server().await;
    let fixture = Fixture::new().secret("key", "k3y-value");
    let definition = json!({
        "base_url": server.url(), "query": {"tag": ["a", "{{ tag }}", "{{ absent }}"]},
        "headers": {"X-Tag": ["a", "{{ tag }}", "{{ absent }}", "secret:key"], "X-All": "{{ all }}"}
    });
    fixture.run(definition, json!({"tag": "b", "all": ["c", "d"]})).await.expect("it succeeds");
    let sent = server.only();
    assert_eq!(sent.target, "/?tag=a&tag=b");
    assert_eq!(sent.headers_named("x-tag"), ["a", "b", "k3y-value"]);
    assert_eq!(sent.headers_named("x-all"), ["c", "d"]);
}

#[tokio::test]
async fn a_multipart_body_has_texts_and_files_in_order() {
    let server = empty_server().await;
    let fixture = Fixture::new();
    std::fs::write(fixture.folder.path().join("报告.csv"), "a,b\r\n1,2").expect("written");
    let definition = json!({
        "method": "POST", "base_url": server.url(),
        "body": {"multipart": {
            "zeta": "{{ title }}", "absent": "{{ absent }}",
            "file": {"file": "{{ path }}"}, "named": {"file": "{{ path }}", "content_type": "text/x-report", "file_name": "r.txt"}
        }}
    });
    fixture.run(definition, json!({"title": "x\r\n--y", "path": "报告.csv"})).await.expect("it succeeds");
    let sent = server.only();
    let content_type = sent.header("content-type").expect("a content type").to_owned();
    let boundary = content_type.strip_prefix("multipart/form-data; boundary=").expect("its boundary");
    let text = sent.text();
    let parts: Vec<&str> = text.split(&format!("--{boundary}")).collect();
    assert_eq!(parts.len(), 5, "{text}");
    assert_eq!(parts[1], "\r\nContent-Disposition: form-data; name=\"zeta\"\r\n\r\nx\r\n--y\r\n");
    assert!(parts[2].contains("name=\"file\"") && parts[2].contains("text/csv"), "{}", parts[2]);
    assert!(parts[2].ends_with("\r\n\r\na,b\r\n1,2\r\n"), "{}", parts[2]);
    assert!(parts[3].contains("filename=\"r.txt\"") && parts[3].contains("text/x-report"), "{}", parts[3]);
    assert_eq!(parts[4], "--\r\n");
}

#[tokio::test]
async fn raw_text_and_files_are_sent_unchanged() {
    let server = empty_server().await;
    let fixture = Fixture::new();
    std::fs::write(fixture.folder.path().join("photo.jpg"), [0xff, 0xd8, 0x00]).expect("written");
    let raw = json!({"content_type": "application/graphql", "text": "{ me(id: \"{{ id }}\") }"});
    let definition = json!({"method": "POST", "base_url": server.url(), "body": {"raw": raw}});
    fixture.run(definition, json!({"id": "7"})).await.expect("it succeeds");
    let definition = json!({"method": "PUT", "base_url": server.url(), "body": {"file": {"path": "{{ p }}"}}});
    fixture.run(definition.clone(), json!({"p": "photo.jpg"})).await.expect("it succeeds");
    let sent = server.received();
    assert_eq!(
        (sent[0].text().as_str(), sent[0].header("content-type")),
        ("{ me(id: \"7\") }", Some("application/graphql"))
    );
    assert_eq!((sent[1].body.as_slice(), sent[1].header("content-length")), ([0xff, 0xd8, 0x00].as_slice(), Some("3")));
    assert_eq!(sent[1].header("content-type"), Some("image/jpeg"));
    let outside = fixture.run(definition, json!({"p": "/etc/hostname"})).await.expect_err("outside");
    assert_eq!(outside.error.code, Code::OutsideRoots);
    assert_eq!(server.received().len(), 2);
}

#[tokio::test]
async fn a_secret_that_the_server_echoes_is_redacted_in_the_failure() {
    let server = Server::new(|request, _| {
        let echoed = json!({"message": format!("bad: {} {}", request.target, request.header("authorization").unwrap_or("")), "echo": [request.target]});
        Reply::json(400, &echoed)
    });
    let (server, fixture) = (server.await, Fixture::new().secret("key", "k3y/with=odd").secret("pass", "pa55word"));
    let definition = json!({
        "base_url": server.url(), "query": {"key": "secret:key"},
        "auth": {"basic": {"username": "ann", "password": "secret:pass"}}
    });
    let failure = fixture.run(definition, json!({})).await.expect_err("an error");
    assert_eq!(server.only().header("authorization"), Some("Basic YW5uOnBhNTV3b3Jk"));
    let shown = format!("{failure:?} {:?}", fixture.context);
    for secret in ["k3y", "pa55word", "YW5uOnBhNTV3b3Jk"] {
        assert!(!shown.contains(secret), "{shown}");
    }
}

#[tokio::test]
async fn a_missing_secret_is_named_and_nothing_is_sent() {
    let server = empty_server().await;
    let definition =
        json!({"base_url": server.url(), "auth": {"api_key": {"header": "X-Key", "value": "secret:absent"}}});
    let failure = Fixture::new().run(definition, json!({})).await.expect_err("no secret");
    assert_eq!(failure.error.code, Code::SecretMissing);
    assert!(failure.error.hint.is_some_and(|hint| hint.contains("secret set absent")));
    assert!(server.received().is_empty());
}
