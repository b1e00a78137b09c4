//! A human approves in between. Nothing that a client sends can do that.

use serde_json::json;

use super::peers::{HttpServer, Peer, Reach, Sdk, define, document, packages, text, uri};
use crate::executor::bounds::decide;
use crate::world::World;

#[test]
fn a_client_is_told_when_the_human_has_approved() {
    let Some(packages) = packages() else { return };
    let world = World::new();
    define(&world);
    let server = HttpServer::start(&world, &[]);
    for sdk in [Sdk::Python, Sdk::TypeScript1] {
        let mut peer = Peer::start(&world, &packages, sdk, Reach::Http(&server), false);
        let id = peer.delegate("agent-magic-tool run change");
        let waiting = peer.line(&format!("wait {id}"));
        assert_eq!(waiting["isError"], false, "{waiting}");
        assert!(text(&waiting).contains("agent-magic-tool executor page"), "{waiting}");
        assert!(!text(&waiting).contains("http"), "no address that signs in a browser: {waiting}");
        if sdk.is_modern() {
            peer.ask(&json!({"op": "listen", "filter": {"resource_subscriptions": [uri(&id)]}}));
            peer.until_told("the client listens", |event| event["method"] == "listening");
        } else {
            peer.ask(&json!({"op": "subscribe", "uri": uri(&id)}));
        }
        decide(&world, &id, "approve");
        peer.until_told("the client is told", |event| {
            event["params"]["uri"] == uri(&id).as_str() || event["uri"] == uri(&id).as_str()
        });
        let ended = peer.line(&format!("wait {id}"));
        let printed = document(&ended);
        assert_eq!((&printed["status"], &printed["data"]), (&json!("succeeded"), &json!("changed")), "{sdk:?}");
    }
}

#[test]
fn a_denied_call_is_an_error_and_no_line_approves() {
    let Some(packages) = packages() else { return };
    let world = World::new();
    define(&world);
    let mut peer = Peer::start(&world, &packages, Sdk::TypeScript, Reach::Stdio(&["--expose", "change"]), false);
    let receipt = peer.call("change", &json!({"text": "a"}));
    assert_eq!(receipt["isError"], false, "{receipt}");
    let printed = document(&receipt);
    assert_eq!((&printed["status"], &printed["state"]), (&json!("pending"), &json!("awaiting_confirmation")));
    let id = printed["id"].as_str().expect("an id");
    for line in [format!("approve {id}"), "executor page".to_owned(), format!("resolve {id} happened")] {
        let refused = peer.line(&format!("agent-magic-tool {line}"));
        assert_eq!(refused["isError"], true, "{line}: {refused}");
    }
    decide(&world, id, "deny");
    let ended = peer.line(&format!("wait {id}"));
    assert!(ended["isError"] == true && text(&ended).contains("denied"), "{ended}");
}
