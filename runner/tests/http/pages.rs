//! Pagination: pages are fetched and joined.

use protocol::code::Code;
use serde_json::{Value, json};

use crate::fixture::{Fixture, json_of};
use crate::server::{Received, Reply, Server};

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
async fn the_joined_pages_do_not_name_a_page_that_was_fetched() {
    let server = Server::new(|request, _| match request.target.as_str() {
        "/x?page=1" => Reply::json(
            200,
            &json!({"total": 3, "next": "/x?page=2", "nextPage": 2, "links": {"next": 2}, "items": [1, 2]}),
        ),
        "/x?page=2" => Reply::json(200, &json!({"next": null, "links": {}, "items": [3]})),
        _ => Reply::json(200, &json!({"next": null, "links": {}, "items": []})),
    });
    let server = server.await;
    let definition = json!({"base_url": server.url(), "path": "/x", "query": {"page": 1},
        "pagination": {"page": {"query": "page"}, "items": "items"}});
    let joined = json_of(Fixture::new().run(definition, json!({})).await);
    assert_eq!(joined, json!({"total": 3, "next": null, "links": {}, "items": [1, 2, 3]}));
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
    let some = Fixture::new().run(definition, json!({})).await.expect("it succeeds");
    assert_eq!(some.meta.get("more_pages"), Some(&json!(true)));
    assert!(some.meta.contains_key("not_fetched"), "{:?}", some.meta);
    assert_eq!(json_of(Ok(some)), json!([1]));
}

/// A server with ten items that answers with a slice of them, and the definition's `pagination`.
async fn slices(slice: impl Fn(&Received) -> (usize, usize) + Send + Sync + 'static) -> Server {
    Server::new(move |request, _| {
        let (from, count) = slice(request);
        let items: Vec<_> = (from..(from + count).min(10)).map(|id| json!({"id": id})).collect();
        Reply::json(200, &json!({"items": items, "has_more": from + count < 10}))
    })
    .await
}

/// The number in the query parameter `name`.
fn number(request: &Received, name: &str) -> usize {
    let query = request.target.split_once('?').map_or("", |(_, query)| query);
    let value = query.split('&').find_map(|pair| pair.strip_prefix(&format!("{name}=")));
    value.map_or(0, |value| value.parse().expect("a number"))
}

fn ids(data: &Value) -> Vec<u64> {
    let items = data["items"].as_array().expect("an array");
    items.iter().map(|item| item["id"].as_u64().expect("an id")).collect()
}

#[tokio::test]
async fn pages_are_fetched_by_number_offset_and_last_item() {
    let all: Vec<u64> = (0..10).collect();
    for (pagination, query, last) in [
        (json!({"page": {"query": "page"}}), json!({}), "/x?page=4"),
        (json!({"page": {"query": "page"}, "has_more": "has_more"}), json!({"page": 1}), "/x?page=3"),
        (json!({"page": {"query": "page", "first": 0}, "has_more": "has_more"}), json!({}), "/x?page=2"),
        (json!({"offset": {"query": "from"}, "has_more": "has_more"}), json!({"n": 4}), "/x?n=4&from=8"),
        (json!({"offset": {"query": "from"}}), json!({}), "/x?from=10"),
        (json!({"last_item": {"query": "after", "field": "id"}, "has_more": "has_more"}), json!({}), "/x?after=7"),
    ] {
        let is_zero_based = pagination["page"]["first"] == 0;
        let server = slices(move |request| {
            let page = number(request, "page");
            let after = if request.target.contains("after=") { number(request, "after") + 1 } else { 0 };
            let from = if is_zero_based { 4 * page } else { 4 * page.saturating_sub(1) };
            (from + number(request, "from") + after, 4)
        })
        .await;
        let mut pagination = pagination;
        pagination["items"] = json!("items");
        let definition = json!({"base_url": server.url(), "path": "/x", "query": query, "pagination": pagination});
        let success = Fixture::new().run(definition, json!({})).await.expect("it succeeds");
        assert_eq!(success.meta.get("more_pages"), None);
        assert_eq!(ids(&json_of(Ok(success))), all, "{pagination}");
        assert_eq!(server.received().last().expect("a request").target, last, "{pagination}");
    }
}

#[tokio::test]
async fn the_next_url_in_the_body_is_followed_on_the_same_server_only() {
    let server = Server::new(|request, _| match request.target.as_str() {
        "/v1/x?key=k3y-value" => Reply::json(200, &json!({"items": [1], "links": {"next": "/v1/x?p=2"}})),
        "/v1/x?p=2&key=k3y-value" => {
            Reply::json(200, &json!({"items": [2], "links": {"next": "https://evil.example/"}}))
        }
        other => panic!("{other}"),
    })
    .await;
    let fixture = Fixture::new().secret("key", "k3y-value");
    let definition = |max: u32| {
        json!({
            "base_url": server.url(), "path": "/v1/x", "query": {"key": "secret:key"},
            "pagination": {"next_url": "/links/next", "items": "items", "max_pages": max}
        })
    };
    let one = fixture.run(definition(1), json!({})).await.expect("it succeeds");
    assert_eq!(one.meta.get("more_pages"), Some(&json!(true)));
    let expected = json!({"items": [1], "links": {"next": format!("{}/v1/x?p=2", server.url())}});
    assert_eq!(json_of(Ok(one)), expected);
    // What lies on another server is not asked for, and what was read is not thrown away.
    let some = fixture.run(definition(5), json!({})).await.expect("it succeeds");
    assert_eq!(some.meta.get("more_pages"), Some(&json!(true)));
    let why = some.meta.get("not_fetched").and_then(Value::as_str).expect("it is said");
    assert!(why.contains("another server"), "{why}");
    assert_eq!(json_of(Ok(some)), json!({"items": [1, 2], "links": {"next": "https://evil.example/"}}));
}

#[tokio::test]
async fn a_cursor_in_a_post_body_is_sent_back() {
    let server = Server::new(|request, _| {
        let body: Value = serde_json::from_slice(&request.body).expect("JSON");
        assert_eq!((request.method.as_str(), &body["q"], &body["key"]), ("POST", &json!("a"), &json!("k3y-value")));
        match &body["page"]["cursor"] {
            Value::Null => Reply::json(200, &json!({"items": [1], "cursor": "c1"})),
            cursor if cursor == "c1" => Reply::json(200, &json!({"items": [2], "cursor": "c2"})),
            _ => Reply::json(200, &json!({"items": [3], "cursor": null})),
        }
    })
    .await;
    let definition = json!({
        "method": "POST", "base_url": server.url(),
        "body": {"json": {"q": "{{ q }}", "page": {"size": 1}, "key": "secret:key"}},
        "pagination": {"next_token": {"body": "/page/cursor", "response": "cursor"}, "items": "items"}
    });
    let fixture = Fixture::new().secret("key", "k3y-value");
    assert_eq!(json_of(fixture.run(definition, json!({"q": "a"})).await), json!({"items": [1, 2, 3]}));
}

#[tokio::test]
async fn the_joined_page_says_whether_there_are_more() {
    let server = slices(|request| (number(request, "from"), 4)).await;
    let definition = json!({
        "base_url": server.url(), "path": "/x",
        "pagination": {"offset": {"query": "from"}, "has_more": "has_more", "items": "items", "max_pages": 2}
    });
    let success = Fixture::new().run(definition, json!({})).await.expect("it succeeds");
    assert_eq!(success.meta.get("more_pages"), Some(&json!(true)));
    let data = json_of(Ok(success));
    assert_eq!((ids(&data).len(), &data["has_more"]), (8, &json!(true)));
}

#[tokio::test]
async fn a_server_that_ignores_the_page_is_noticed() {
    let server = slices(|_| (0, 3)).await;
    let definition = json!({
        "base_url": server.url(), "pagination": {"page": {"query": "page"}, "items": "items"}
    });
    let failure = Fixture::new().run(definition, json!({})).await.expect_err("the same page twice");
    assert_eq!((failure.error.code, server.received().len()), (Code::BadResponse, 2));
}
