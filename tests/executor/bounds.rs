//! The limits on confirmations survive a restart of the executor.

use executor::page::{PageSite, make_link};
use reqwest::header::{COOKIE, HeaderMap, HeaderValue, ORIGIN, SET_COOKIE};
use serde_json::{Value, json};

use crate::world::{World, until};

fn world(confirm: &str) -> World {
    let world = World::new();
    world.configure(&format!("[confirm]\n{confirm}\n"));
    world.define(
        "send.json",
        &json!({"send_it": {"description": "Sends it.", "input": {"type": "object", "properties": {"n": {"type": "integer"}}},
            "run": {"process": {"argv": ["true"]}}}}),
    );
    world
}

fn refusal(world: &World, n: u32) -> Value {
    let ran = world.run(&["run", "send_it", &format!("n:={n}")]);
    assert_eq!(ran.exit, 5, "{ran}");
    ran.error()
}

#[test]
fn the_hourly_limit_of_confirmations_survives_a_restart() {
    let world = world("asks_per_hour = 3");
    // Cancelled confirmations count too.
    let ended = world.start("send_it", &json!({"n": 0}));
    assert_eq!(world.run(&["cancel", &ended]).exit, 0);
    world.start("send_it", &json!({"n": 1}));
    world.kill_executor().expect("a running executor");
    world.start("send_it", &json!({"n": 2}));
    let before = refusal(&world, 3);
    world.kill_executor().expect("a running executor");
    let after = refusal(&world, 3);
    assert_eq!(after["code"], "throttled", "{after}");
    assert_eq!(after, before, "the limit should last until the same time");
}

#[test]
fn the_cool_down_after_a_denial_survives_a_restart() {
    let world = world("cool_down = \"10m\"");
    let id = world.start("send_it", &json!({"n": 7}));
    decide(&world, &id, "deny");
    until("the task is denied", || world.result_file(&id)["status"] == "denied");
    let before = refusal(&world, 7);
    world.kill_executor().expect("a running executor");
    let after = refusal(&world, 7);
    assert_eq!((&after["code"], &after), (&json!("denied"), &before));
    world.start("send_it", &json!({"n": 8}));
}

/// Decides a task on the page, without a browser. An approval types the name of the subtool, as the page asks.
#[tokio::main(flavor = "current_thread")]
pub(crate) async fn decide(world: &World, id: &str, verdict: &str) {
    let folders = std::fs::read_dir(world.state().join("executors")).expect("the folder of an executor");
    let folder = folders.flatten().next().expect("the folder of an executor").path();
    let site = PageSite::load_or_create(&folder).expect("the page is served");
    let address = format!("http://127.0.0.1:{}", site.port);
    let text = |text: String| HeaderValue::from_str(&text).expect("a valid header value");
    let mut headers = HeaderMap::new();
    headers.insert("host", text(format!("{}:{}", site.host, site.port)));
    headers.insert(ORIGIN, text(site.origin()));
    headers.insert("content-type", HeaderValue::from_static("application/json"));
    // Another test may have installed the provider already.
    drop(rustls::crypto::ring::default_provider().install_default());
    let client = reqwest::Client::builder().no_proxy().build().expect("a client");
    let link = json!({"token": make_link(&folder).expect("a link")}).to_string();
    let login = client.post(format!("{address}/login")).headers(headers.clone()).body(link);
    let login = login.send().await.expect("a response");
    let cookie =
        login.headers()[SET_COOKIE].to_str().expect("a cookie").split(';').next().expect("a cookie").to_owned();
    let session: Value = serde_json::from_str(&login.text().await.expect("a body")).expect("JSON");
    headers.insert(COOKIE, text(cookie));
    headers.insert("x-page-token", text(session["token"].as_str().expect("a token").to_owned()));

    let card = client.get(format!("{address}/card/{id}")).headers(headers.clone()).send().await.expect("a response");
    let card = card.text().await.expect("a card");
    let digest = card.split("data-digest=\"").nth(1).and_then(|rest| rest.split('"').next()).expect("a digest");
    let tool = world.result_file(id)["tool"].take();
    let typed = if verdict == "approve" { tool } else { Value::Null };
    let decision = json!({"decisions": [{"id": id, "digest": digest}], "verdict": verdict, "typed": typed}).to_string();
    let request = client.post(format!("{address}/decide")).headers(headers).body(decision);
    let response = request.send().await.expect("a response");
    assert!(response.status().is_success(), "{}", response.text().await.expect("a body"));
}
