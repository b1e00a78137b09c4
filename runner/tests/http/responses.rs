//! Responses: data, files, size limits, and failures with the API's own message.

use std::time::Duration;

use base64::Engine as _;
use ground::task::failure::{Retry, SideEffect};
use protocol::code::Code;
use runner::OutputData;
use serde_json::{Value, json};
use tokio::io::AsyncWriteExt as _;

use crate::fixture::{Fixture, json_of};
use crate::server::{Reply, Server};

async fn data(headers: &'static [&'static str], body: &'static [u8]) -> Value {
    let server = Server::new(move |_, _| Reply::new(200, headers, body)).await;
    json_of(Fixture::new().run(json!({"base_url": server.url()}), json!({})).await)
}

#[tokio::test]
async fn json_and_text_become_data_and_an_empty_body_becomes_null() {
    assert_eq!(data(&["content-type: application/problem+json"], b"{\"a\": [1]}").await, json!({"a": [1]}));
    assert_eq!(data(&["content-type: text/plain; charset=gbk"], b"\xc4\xea\xb6\xc8").await, json!("年度"));
    assert_eq!(data(&[], "无类型".as_bytes()).await, json!("无类型"));
    assert_eq!(data(&["content-type: application/json"], b"").await, Value::Null);
    let server = Server::new(|_, _| Reply::new(204, &[], "")).await;
    let outcome = Fixture::new().run(json!({"method": "DELETE", "base_url": server.url()}), json!({})).await;
    let success = outcome.expect("it succeeds");
    assert_eq!(success.meta.get("http_status"), Some(&json!(204)));
    assert_eq!(json_of(Ok(success)), Value::Null);
}

#[tokio::test]
async fn ndjson_and_xml_become_data() {
    assert_eq!(
        data(&["content-type: application/x-ndjson"], b"{\"a\": 1}\n{\"a\": 2}\n").await,
        json!([{"a": 1}, {"a": 2}])
    );
    let declared = |format: &str, content_type: &'static str, body: &'static [u8]| {
        let format = format.to_owned();
        async move {
            let server = Server::new(move |_, _| Reply::new(200, &[content_type], body)).await;
            Fixture::new().run(json!({"base_url": server.url(), "response": format}), json!({})).await
        }
    };
    let xml = b"<?xml version='1.0' encoding='iso-8859-1'?><users><user id='1'>Ren\xe9</user><user/></users>";
    let expected = json!({"users": {"user": [{"@id": "1", "#text": "Ren\u{e9}"}, ""]}});
    assert_eq!(json_of(declared("xml", "content-type: text/xml", xml).await), expected);
    assert_eq!(json_of(declared("ndjson", "content-type: text/plain", b"1\n2").await), json!([1, 2]));
    let bomb = b"<!DOCTYPE a [<!ENTITY b 'x'><!ENTITY c '&b;&b;&b;'>]><a>&c;</a>";
    let failure = declared("xml", "content-type: text/xml", bomb).await.expect_err("a document type");
    assert_eq!(failure.error.code, Code::BadResponse);
}

#[tokio::test]
async fn a_download_keeps_a_harmless_form_of_its_own_name() {
    for (header, target, name) in [
        ("content-disposition: attachment; filename=\"../r\u{e9}port.pdf\"", "/x", json!("r\u{e9}port.pdf")),
        ("content-disposition: attachment; filename*=UTF-8''%e5%b9%b4.pdf", "/x", json!("年.pdf")),
        ("x-none: 1", "/files/a%20b.pdf", json!("a b.pdf")),
        ("x-none: 1", "/files/7", Value::Null),
    ] {
        let server =
            Server::new(move |_, _| Reply::new(200, &["content-type: application/pdf", header], b"%PDF")).await;
        let definition = json!({"base_url": format!("{}{target}", server.url())});
        let success = Fixture::new().run(definition, json!({})).await.expect("it succeeds");
        assert_eq!(success.meta.get("file_name").cloned().unwrap_or_default(), name, "{header}");
    }
}

#[tokio::test]
async fn any_other_content_becomes_a_file_in_the_spool() {
    let image = b"\x89PNG\r\n\x1a\n\x00\xff";
    let server = Server::new(move |_, _| Reply::new(200, &["content-type: image/png"], image)).await;
    let fixture = Fixture::new();
    let success = fixture.run(json!({"base_url": server.url()}), json!({})).await.expect("it succeeds");
    let OutputData::File { path, content_type, bytes } = success.data else { panic!("not a file") };
    assert_eq!((content_type.as_str(), bytes), ("image/png", 10));
    assert!(path.starts_with(&fixture.context.spool));
    assert_eq!(std::fs::read(path).expect("the file exists"), image);
}

#[tokio::test]
async fn a_body_over_the_limit_is_refused_while_streaming_and_leaves_no_file() {
    for content_type in ["content-type: application/json", "content-type: application/pdf"] {
        // The body announces more bytes than ever come: waiting for its end would never finish.
        let server = Server::new(move |_, _| {
            Reply::new(200, &[content_type, "content-length: 9999999"], vec![b'x'; 200_000]).then_hang()
        });
        let (server, fixture) = (server.await, Fixture::new());
        let definition = json!({"base_url": server.url(), "max_bytes": 1000});
        let failure = fixture.run(definition, json!({})).await.expect_err("too large");
        assert_eq!((failure.error.code, failure.side_effect), (Code::ResponseTooLarge, SideEffect::None));
        server.wait_for_closed(1).await;

        let chunked = Server::new(move |_, _| {
            let mut body = b"30d40\r\n".to_vec();
            body.extend(vec![b'x'; 200_000]);
            Reply::new(200, &[content_type, "transfer-encoding: chunked", "content-length-is: unknown"], body)
                .then_hang()
        });
        let chunked = chunked.await;
        let definition = json!({"method": "POST", "base_url": chunked.url(), "max_bytes": 1000});
        let failure = fixture.run(definition, json!({})).await.expect_err("too large");
        assert_eq!((failure.error.code, failure.side_effect), (Code::ResponseTooLarge, SideEffect::Possible));
        assert!(fixture.spooled().is_empty(), "{:?}", fixture.spooled());
    }
}

#[tokio::test]
async fn the_limit_applies_to_the_decompressed_body() {
    // 100,000 times the letter x.
    let compressed = "H4sIAAAAAAACA+3BMQEAAADCoNqLbw0PoAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAIBXA3ERB/6ghgEA";
    let compressed = base64::engine::general_purpose::STANDARD.decode(compressed).expect("base64");
    let headers = &["content-type: text/plain", "content-encoding: gzip"];
    let server = Server::new(move |_, _| Reply::new(200, headers, &compressed)).await;
    let text = json_of(Fixture::new().run(json!({"base_url": server.url()}), json!({})).await);
    assert_eq!(text.as_str().map(str::len), Some(100_000));
    let definition = json!({"base_url": server.url(), "max_bytes": 50_000});
    let failure = Fixture::new().run(definition, json!({})).await.expect_err("too large");
    assert_eq!(failure.error.code, Code::ResponseTooLarge);
}

#[tokio::test]
async fn invalid_json_is_a_bad_response() {
    let server = Server::new(|_, _| Reply::new(200, &["content-type: application/json"], "<html>login</html>")).await;
    let failure = Fixture::new().run(json!({"base_url": server.url()}), json!({})).await.expect_err("invalid JSON");
    assert_eq!(failure.error.code, Code::BadResponse);
    assert_eq!(failure.error.details.get("starts_with"), Some(&json!("<html>login</html>")));
}

#[tokio::test]
async fn an_api_error_keeps_its_message_and_decides_the_retry() {
    let google = json!({"error": {"code": 503, "message": "Try later.", "status": "UNAVAILABLE"}});
    let server = Server::new(move |_, number| match number {
        0 => Reply::json(503, &google),
        1 => Reply::new(429, &["retry-after: 7"], "slow down"),
        _ => Reply::json(422, &json!({"message": "Validation Failed", "errors": [{"field": "title"}]})),
    });
    let (server, fixture) = (server.await, Fixture::new());
    let definition = || json!({"method": "POST", "base_url": server.url(), "path": "/things"});
    let mut seen = Vec::new();
    for _ in 0..3 {
        let failure = fixture.run(definition(), json!({})).await.expect_err("an error");
        assert_eq!(failure.error.code, Code::ApiError);
        let message = failure.error.message.split(": ").skip(1).collect::<Vec<_>>().join(": ");
        seen.push((message, failure.error.details["http_status"].clone(), failure.retry, failure.side_effect));
    }
    assert_eq!(
        seen,
        [
            ("Try later. (UNAVAILABLE)".to_owned(), json!(503), Retry::Later, SideEffect::Answered),
            ("slow down".to_owned(), json!(429), Retry::After(Duration::from_secs(7)), SideEffect::None),
            ("Validation Failed (title)".to_owned(), json!(422), Retry::Never, SideEffect::None),
        ]
    );
}

#[tokio::test]
async fn a_refused_connection_is_unreachable_and_has_no_side_effect() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let base = format!("http://{}", listener.local_addr().expect("an address"));
    drop(listener);
    let failure =
        Fixture::new().run(json!({"method": "POST", "base_url": base}), json!({})).await.expect_err("refused");
    assert_eq!(
        (failure.error.code, failure.retry, failure.side_effect),
        (Code::Unreachable, Retry::Later, SideEffect::None)
    );
}

#[tokio::test]
async fn a_failed_tls_handshake_is_unreachable_and_has_no_side_effect() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let base = format!("https://{}", listener.local_addr().expect("an address"));
    let fixture = Fixture::new();
    let server = async {
        let (mut stream, _) = listener.accept().await.expect("a connection");
        stream.write_all(b"HTTP/1.1 400 Not TLS\r\n\r\n").await.expect("written");
        stream
    };
    let definition = json!({"method": "POST", "base_url": base});
    let (outcome, _stream) = tokio::join!(fixture.run(definition, json!({})), server);
    let failure = outcome.expect_err("not TLS");
    assert_eq!(
        (failure.error.code, failure.retry, failure.side_effect),
        (Code::Unreachable, Retry::Later, SideEffect::None)
    );
}

#[tokio::test]
async fn a_connection_lost_after_sending_may_have_had_a_side_effect() {
    let silent = Server::new(|_, _| Reply::nothing()).await;
    let halfway =
        Server::new(|_, _| Reply::new(200, &["content-type: application/json", "content-length: 100"], "{")).await;
    for server in [silent, halfway] {
        let definition = json!({"method": "POST", "base_url": server.url(), "body": {"json": {}}});
        let failure = Fixture::new().run(definition, json!({})).await.expect_err("the connection is lost");
        assert_eq!(
            (failure.error.code, failure.retry, failure.side_effect),
            (Code::ConnectionLost, Retry::Later, SideEffect::Possible)
        );
        assert_eq!(server.received().len(), 1, "the runner does not retry");
    }
}

#[tokio::test]
async fn a_definition_says_what_an_error_response_means_and_nothing_else_is_said() {
    let error = "if .errors[0].code == \"NO_ENTITY\" then \"entity not found: \" + $input.entity \
                 elif $status == 403 or $status == 404 or .data == [] then \"no such record, or not permitted\" else null end";
    let answer = async |status: u16, body: Value| {
        let server = Server::new(move |_, _| Reply::json(status, &body)).await;
        let definition = json!({"base_url": server.url(), "error": error});
        Fixture::new().run(definition, json!({"entity": "prodct"})).await.expect_err("an error status").error
    };
    let unknown = answer(404, json!({"errors": [{"code": "NO_ENTITY"}]})).await;
    assert_eq!((unknown.code, unknown.message.as_str()), (Code::ApiError, "entity not found: prodct"));
    let missing = answer(404, json!({"errors": [{"code": "NONE"}]})).await;
    assert_eq!(missing.message, "no such record, or not permitted");
    assert_eq!(missing, answer(403, json!({"privilege": "a:read"})).await, "they cannot be told apart");
    assert_eq!(missing, answer(200, json!({"data": []})).await, "nor from a success without data");
    let broken = answer(500, json!({"message": "Out of order."})).await;
    assert!(broken.message.contains("Out of order.") && broken.details.contains_key("response"), "{broken:?}");
    let text = answer(502, json!("<h1>Bad gateway</h1>")).await;
    assert!(text.message.contains("Bad gateway"), "an expression that fails changes nothing: {text:?}");
}
