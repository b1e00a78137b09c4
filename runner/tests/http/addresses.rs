//! Which addresses a URL from the input can reach, and `fetch_guarded`.

use protocol::code::Code;
use serde_json::json;
use tokio_util::sync::CancellationToken;
use url::Url;

use crate::fixture::{Fixture, json_of};
use crate::server::{Reply, Server};

async fn fetched(fixture: &Fixture, url: &str) -> Result<String, Code> {
    let url = Url::parse(url).expect("a URL");
    let fetched = fixture.context.http.fetch_guarded(&url, 1000, &CancellationToken::new()).await;
    fetched
        .map(|fetched| format!("{} {} {}", fetched.status, fetched.final_url.path(), fetched.text()))
        .map_err(|f| f.error.code)
}

#[tokio::test]
async fn a_private_host_from_the_input_is_refused_by_number_and_by_name() {
    let server = Server::new(|_, _| Reply::json(200, &json!("inside"))).await;
    let (_, port) = server.host.rsplit_once(':').expect("a port");
    for host in ["127.0.0.1", "0x7f.1", "localhost", "[::ffff:127.0.0.1]", "0"] {
        let url = format!("http://{host}:{port}/");
        let definition = json!({"base_url": "{{ url }}"});
        let failure = Fixture::new().run(definition, json!({"url": url})).await.expect_err("refused");
        assert_eq!(failure.error.code, Code::ForbiddenAddress, "{url}");
        let by_part = json!({"base_url": format!("http://{{{{ host }}}}:{port}")});
        if !host.starts_with('[') {
            let failure = Fixture::new().run(by_part, json!({"host": host})).await.expect_err("refused");
            assert_eq!(failure.error.code, Code::ForbiddenAddress, "{host}");
        }
        assert_eq!(fetched(&Fixture::new(), &url).await, Err(Code::ForbiddenAddress), "{url}");
    }
    assert!(server.received().is_empty());
}

#[tokio::test]
async fn an_allowed_host_is_reachable_only_on_its_port() {
    let server = Server::new(|_, _| Reply::json(200, &json!("inside"))).await;
    let other = Server::new(|_, _| Reply::json(200, &json!("inside"))).await;
    let (_, port) = server.host.rsplit_once(':').expect("a port");
    let listed = [server.host.clone(), format!("localhost:{port}")];
    let fixture = Fixture::with(|config| config.http.private_hosts = listed.to_vec());
    for url in [server.url(), format!("http://localhost:{port}")] {
        let data = json_of(fixture.run(json!({"base_url": "{{ url }}"}), json!({"url": url})).await);
        assert_eq!(data, json!("inside"));
    }
    assert_eq!(fetched(&fixture, &other.url()).await, Err(Code::ForbiddenAddress));
}

#[tokio::test]
async fn every_hop_of_a_fetch_is_checked() {
    let inner = Server::new(|_, _| Reply::json(200, &json!("inside"))).await;
    let target = inner.url();
    let server = Server::new(move |request, _| match request.target.as_str() {
        "/in" => Reply::new(302, &[&format!("location: {target}")], ""),
        "/here" => Reply::new(302, &["location: /page"], ""),
        "/large" => Reply::new(200, &["content-type: text/html"], vec![b'x'; 5000]),
        _ => Reply::new(404, &["content-type: text/plain; charset=latin1"], b"caf\xe9"),
    });
    let server = server.await;
    let fixture = Fixture::with(|config| config.http.private_hosts = vec![server.host.clone()]);
    assert_eq!(fetched(&fixture, &format!("{}/in", server.url())).await, Err(Code::ForbiddenAddress));
    assert_eq!(fetched(&fixture, &format!("{}/here", server.url())).await.as_deref(), Ok("404 /page café"));
    assert_eq!(fetched(&fixture, &format!("{}/large", server.url())).await, Err(Code::ResponseTooLarge));
    assert_eq!(fetched(&fixture, "file:///etc/passwd").await, Err(Code::Rejected));
    assert!(inner.received().is_empty());
}

#[tokio::test]
async fn a_host_in_the_definition_may_be_private() {
    let server = Server::new(|_, _| Reply::json(200, &json!("inside"))).await;
    assert_eq!(json_of(Fixture::new().run(json!({"base_url": server.url()}), json!({})).await), json!("inside"));
}
