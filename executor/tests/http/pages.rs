//! Pagination: pages are fetched and joined.

use protocol::code::Code;
use serde_json::{Value, json};

use crate::fixture::{Fixture, json_of};
use crate::server::{Reply, Server};

/// Seven pages of two items each, linked by tokens.
async fn by_token() -> Server {
    Server::new(|request, number| {
        let mut page = json!({"total": 14, "items": [2 * number, 2 * number + 1]});
        if number < 6 {
            page["next"] = json!(format!("t{}", number + 1));
        }
        let asked = if number == 0 { "/x?q=a".to_owned() } else { format!("/x?q=a&pageToken=t{number}") };
        assert_eq!(request.target, asked);
        Reply::json(200, &page)
    })
    .await
}

fn definition(server: &Server, changes: &[(&str, Value)]) -> Value {
    let mut pagination = json!({"next_token": {"query": "pageToken", "response": "next"}, "items": "items"});
    for (key, value) in changes {
        pagination[*key] = value.clone();
    }
    json!({"base_url": server.url(), "path": "/x", "query": {"q": "a"}, "pagination": pagination})
}

#[tokio::test]
async fn pages_are_joined_until_there_is_no_token() {
    let server = by_token().await;
    let definition = definition(&server, &[("max_pages", json!(20))]);
    let success = Fixture::new().run(definition, json!({})).await.expect("it succeeds");
    assert_eq!((success.meta.get("pages"), success.meta.get("more_pages")), (Some(&json!(7)), None));
    assert_eq!(json_of(Ok(success)), json!({"total": 14, "items": (0..14).collect::<Vec<_>>()}));
}

#[tokio::test]
async fn remaining_pages_are_reported() {
    let server = by_token().await;
    let success = Fixture::new().run(definition(&server, &[]), json!({})).await.expect("it succeeds");
    assert_eq!((success.meta.get("pages"), success.meta.get("more_pages")), (Some(&json!(5)), Some(&json!(true))));
    assert_eq!(json_of(Ok(success)), json!({"total": 14, "items": (0..10).collect::<Vec<_>>(), "next": "t5"}));
}

#[tokio::test]
async fn only_as_many_pages_are_fetched_as_needed_for_max_items() {
    let server = by_token().await;
    let definition = definition(&server, &[("max_items", json!("{{ limit }}"))]);
    let success = Fixture::new().run(definition, json!({"limit": 3})).await.expect("it succeeds");
    assert_eq!(json_of(Ok(success))["items"], json!([0, 1, 2]));
    assert_eq!(server.received().len(), 2);
}

#[tokio::test]
async fn a_link_header_is_followed_with_the_secret() {
    let server = Server::new(|request, number| {
        let link = "link: </x?page=2>; rel=\"next\", </x?page=9>; rel=\"last\"";
        let expected = if number == 0 { "/x?key=k3y-value&n=1" } else { "/x?page=2&key=k3y-value" };
        assert_eq!((request.target.as_str(), request.header("x-key")), (expected, Some("k3y-value")));
        let headers: &[&str] =
            if number == 0 { &["content-type: application/json", link] } else { &["content-type: application/json"] };
        Reply::new(200, headers, format!("[{number}]"))
    });
    let (server, fixture) = (server.await, Fixture::new().secret("key", "k3y-value"));
    let definition = json!({
        "base_url": server.url(), "path": "/x", "query": {"key": "secret:key", "n": 1}, "headers": {"x-key": "secret:key"},
        "pagination": {"link_header": true}
    });
    assert_eq!(json_of(fixture.run(definition, json!({})).await), json!([0, 1]));
}

#[tokio::test]
async fn a_link_to_another_host_is_not_followed() {
    let server = Server::new(|_, _| {
        Reply::new(200, &["content-type: application/json", "link: <https://evil.example/>; rel=next"], "[1]")
    });
    let server = server.await;
    let definition = json!({"base_url": server.url(), "pagination": {"link_header": true}});
    let failure = Fixture::new().run(definition, json!({})).await.expect_err("refused");
    assert_eq!(failure.error.code, Code::BadResponse);
}
