//! What becomes of answers: data, files, limits, and failures in the API's own words.

use std::time::Duration;

use base64::Engine as _;
use executor::runner::OutputData;
use executor::task::failure::{Retry, SideEffect};
use protocol::code::Code;
use serde_json::{Value, json};
use tokio::io::AsyncWriteExt as _;

use crate::bench::{Bench, json_of};
use crate::server::{Reply, Server};

async fn data(headers: &'static [&'static str], body: &'static [u8]) -> Value {
    let server = Server::new(move |_, _| Reply::new(200, headers, body)).await;
    json_of(Bench::new().run(json!({"base_url": server.url()}), json!({})).await)
}

#[tokio::test]
async fn json_and_texts_are_data_and_nothing_is_null() {
    assert_eq!(data(&["content-type: application/problem+json"], b"{\"a\": [1]}").await, json!({"a": [1]}));
    assert_eq!(data(&["content-type: text/plain; charset=gbk"], b"\xc4\xea\xb6\xc8").await, json!("年度"));
    assert_eq!(data(&[], "无类型".as_bytes()).await, json!("无类型"));
    assert_eq!(data(&["content-type: application/json"], b"").await, Value::Null);
    let server = Server::new(|_, _| Reply::new(204, &[], "")).await;
    let outcome = Bench::new().run(json!({"method": "DELETE", "base_url": server.url()}), json!({})).await;
    let success = outcome.expect("it succeeds");
    assert_eq!(success.meta.get("http_status"), Some(&json!(204)));
    assert_eq!(json_of(Ok(success)), Value::Null);
}

#[tokio::test]
async fn anything_else_becomes_a_file_in_the_spool() {
    let image = b"\x89PNG\r\n\x1a\n\x00\xff";
    let server = Server::new(move |_, _| Reply::new(200, &["content-type: image/png"], image)).await;
    let bench = Bench::new();
    let success = bench.run(json!({"base_url": server.url()}), json!({})).await.expect("it succeeds");
    let OutputData::File { path, content_type, bytes } = success.data else { panic!("no file") };
    assert_eq!((content_type.as_str(), bytes), ("image/png", 10));
    assert!(path.starts_with(&bench.context.spool));
    assert_eq!(std::fs::read(path).expect("the file is there"), image);
}

#[tokio::test]
async fn a_body_over_the_limit_is_refused_while_it_streams_and_leaves_nothing() {
    for content_type in ["content-type: application/json", "content-type: application/pdf"] {
        // It claims to be endless and goes silent: whoever waits for the end waits for ever.
        let server = Server::new(move |_, _| {
            Reply::new(200, &[content_type, "content-length: 9999999"], vec![b'x'; 200_000]).then_hangs()
        });
        let (server, bench) = (server.await, Bench::new());
        let definition = json!({"base_url": server.url(), "max_bytes": 1000});
        let failure = bench.run(definition, json!({})).await.expect_err("too large");
        assert_eq!((failure.error.code, failure.side_effect), (Code::ResponseTooLarge, SideEffect::None));
        server.was_left(1).await;

        let chunked = Server::new(move |_, _| {
            let mut body = b"30d40\r\n".to_vec();
            body.extend(vec![b'x'; 200_000]);
            Reply::new(200, &[content_type, "transfer-encoding: chunked", "content-length-is: unknown"], body)
                .then_hangs()
        });
        let chunked = chunked.await;
        let definition = json!({"method": "POST", "base_url": chunked.url(), "max_bytes": 1000});
        let failure = bench.run(definition, json!({})).await.expect_err("too large");
        assert_eq!((failure.error.code, failure.side_effect), (Code::ResponseTooLarge, SideEffect::Possible));
        assert!(bench.spooled().is_empty(), "{:?}", bench.spooled());
    }
}

#[tokio::test]
async fn the_limit_is_one_of_what_comes_out_of_a_compressed_body() {
    // 100,000 times the letter x.
    let compressed = "H4sIAAAAAAACA+3BMQEAAADCoNqLbw0PoAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAIBXA3ERB/6ghgEA";
    let compressed = base64::engine::general_purpose::STANDARD.decode(compressed).expect("base64");
    let headers = &["content-type: text/plain", "content-encoding: gzip"];
    let server = Server::new(move |_, _| Reply::new(200, headers, &compressed)).await;
    let text = json_of(Bench::new().run(json!({"base_url": server.url()}), json!({})).await);
    assert_eq!(text.as_str().map(str::len), Some(100_000));
    let definition = json!({"base_url": server.url(), "max_bytes": 50_000});
    let failure = Bench::new().run(definition, json!({})).await.expect_err("too large");
    assert_eq!(failure.error.code, Code::ResponseTooLarge);
}

#[tokio::test]
async fn what_is_no_json_is_a_bad_response() {
    let server = Server::new(|_, _| Reply::new(200, &["content-type: application/json"], "<html>login</html>")).await;
    let failure = Bench::new().run(json!({"base_url": server.url()}), json!({})).await.expect_err("no JSON");
    assert_eq!(failure.error.code, Code::BadResponse);
    assert_eq!(failure.error.details.get("starts_with"), Some(&json!("<html>login</html>")));
}

#[tokio::test]
async fn an_api_says_in_its_own_words_why_and_when_to_come_back() {
    let google = json!({"error": {"code": 503, "message": "Try later.", "status": "UNAVAILABLE"}});
    let server = Server::new(move |_, number| match number {
        0 => Reply::json(503, &google),
        1 => Reply::new(429, &["retry-after: 7"], "slow down"),
        _ => Reply::json(422, &json!({"message": "Validation Failed", "errors": [{"field": "title"}]})),
    });
    let (server, bench) = (server.await, Bench::new());
    let definition = || json!({"method": "POST", "base_url": server.url(), "path": "/things"});
    let mut seen = Vec::new();
    for _ in 0..3 {
        let failure = bench.run(definition(), json!({})).await.expect_err("an error");
        assert_eq!(failure.error.code, Code::ApiError);
        let said = failure.error.message.split(": ").skip(1).collect::<Vec<_>>().join(": ");
        seen.push((said, failure.error.details["http_status"].clone(), failure.retry, failure.side_effect));
    }
    assert_eq!(
        seen,
        [
            ("Try later. (UNAVAILABLE)".to_owned(), json!(503), Retry::Later, SideEffect::Possible),
            ("slow down".to_owned(), json!(429), Retry::After(Duration::from_secs(7)), SideEffect::None),
            ("Validation Failed (title)".to_owned(), json!(422), Retry::Never, SideEffect::None),
        ]
    );
}

#[tokio::test]
async fn nothing_was_sent_where_nobody_listens() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let base = format!("http://{}", listener.local_addr().expect("an address"));
    drop(listener);
    let failure = Bench::new().run(json!({"method": "POST", "base_url": base}), json!({})).await.expect_err("nobody");
    assert_eq!(
        (failure.error.code, failure.retry, failure.side_effect),
        (Code::Unreachable, Retry::Later, SideEffect::None)
    );
}

#[tokio::test]
async fn nothing_was_sent_where_tls_does_not_come_about() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let base = format!("https://{}", listener.local_addr().expect("an address"));
    let bench = Bench::new();
    let answered = async {
        let (mut stream, _) = listener.accept().await.expect("a connection");
        stream.write_all(b"HTTP/1.1 400 This is no TLS\r\n\r\n").await.expect("written");
        stream
    };
    let definition = json!({"method": "POST", "base_url": base});
    let (outcome, _stream) = tokio::join!(bench.run(definition, json!({})), answered);
    let failure = outcome.expect_err("no TLS");
    assert_eq!(
        (failure.error.code, failure.retry, failure.side_effect),
        (Code::Unreachable, Retry::Later, SideEffect::None)
    );
}

#[tokio::test]
async fn a_connection_that_breaks_after_sending_leaves_the_outcome_open() {
    let silent = Server::new(|_, _| Reply::nothing()).await;
    let halfway =
        Server::new(|_, _| Reply::new(200, &["content-type: application/json", "content-length: 100"], "{")).await;
    for server in [silent, halfway] {
        let definition = json!({"method": "POST", "base_url": server.url(), "body": {"json": {}}});
        let failure = Bench::new().run(definition, json!({})).await.expect_err("it breaks");
        assert_eq!(
            (failure.error.code, failure.retry, failure.side_effect),
            (Code::ConnectionLost, Retry::Later, SideEffect::Possible)
        );
        assert_eq!(server.received().len(), 1, "it was not repeated");
    }
}
