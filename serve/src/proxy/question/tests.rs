//! Which session and which question a request is.

use std::net::IpAddr;

use axum::http::{HeaderMap, HeaderName, HeaderValue};
use protocol::tool_scope::ToolScope;
use serde_json::json;

use super::*;
use crate::proxy::message;

/// A client with this API key.
fn client(key: Option<&str>) -> HttpClient {
    HttpClient {
        address: IpAddr::from([192, 0, 2, 7]),
        key: key.map(str::to_owned),
        bearer: None,
        history: HistoryKeeper::Server,
        model: None,
        tool_scope: ToolScope::default(),
        read_only: false,
        may_read: true,
        has_no_commands: false,
        depth: 0,
    }
}

fn request(key: Option<&str>, headers: &[(&'static str, &str)], body: &Value) -> ProxyRequest {
    let value = |value: &str| HeaderValue::from_str(value).expect("a header");
    let headers: HeaderMap = headers.iter().map(|(name, text)| (HeaderName::from_static(name), value(text))).collect();
    let body = body.as_object().expect("an object").clone();
    ProxyRequest {
        interface: "openai",
        client: client(key),
        headers,
        body,
        messages_field: "messages",
        messages: Vec::new(),
        system: None,
        model: None,
        demands: Demands::default(),
        goes_on: None,
    }
}

/// A request with these messages.
fn prompt(headers: &[(&'static str, &str)], messages: &Value) -> ProxyRequest {
    let messages = message::read(messages, "messages").expect("read");
    ProxyRequest { messages, ..request(None, headers, &json!({})) }
}

fn session(key: Option<&str>, headers: &[(&'static str, &str)], body: &Value) -> String {
    let request = request(key, headers, body);
    session_of(&request).unwrap_or_else(|| own_session(&request))
}

#[test]
fn a_client_names_a_session_only_among_its_own() {
    assert_eq!(session(None, &[], &json!({})), "llama-192.0.2.7");
    assert_eq!(session(Some("home"), &[], &json!({})), "llama-192.0.2.7-home");
    assert_eq!(session(None, &[("x-session-id", "home")], &json!({})), "llama-192.0.2.7@home");
    assert_ne!(session(Some("home"), &[], &json!({})), session(None, &[("x-session-id", "home")], &json!({})));
    // A name with other characters is hashed, so that no name leaves its place.
    for name in ["../x", "a b", "a@b", "ü", &"x".repeat(41)] {
        let session = session(None, &[], &json!({"user": name}));
        let hash = session.strip_prefix("llama-192.0.2.7@").expect("its own");
        assert!(hash.len() == 32 && hash.chars().all(|c| c.is_ascii_hexdigit()), "{name}: {session}");
    }
}

#[test]
fn the_first_name_counts() {
    let body =
        json!({"metadata": {"session_id": "m"}, "conversation": {"id": "c"}, "user": "u", "safety_identifier": "s"});
    let chat = ("x-openwebui-chat-id", "5f0a");
    let user = ("x-openwebui-user-id", "w");
    assert_eq!(session(None, &[("x-session-id", "x"), chat, user], &body), "llama-192.0.2.7@x");
    assert_eq!(session(None, &[chat, user], &body), "llama-192.0.2.7@5f0a");
    assert_eq!(session(None, &[user], &body), "llama-192.0.2.7@m");
    assert_eq!(session(None, &[user], &json!({"conversation": "c", "user": "u"})), "llama-192.0.2.7@c");
    assert_eq!(session(None, &[user], &json!({"conversation": {"id": "c"}, "user": "u"})), "llama-192.0.2.7@c");
    assert_eq!(session(None, &[user], &json!({"user": "u", "safety_identifier": "s"})), "llama-192.0.2.7@u");
    assert_eq!(session(None, &[user], &json!({"safety_identifier": "s"})), "llama-192.0.2.7@s");
    assert_eq!(session(None, &[user], &json!({"prompt_cache_key": "p"})), "llama-192.0.2.7@w");
}

#[test]
fn a_repetition_has_the_same_key_and_the_next_question_another() {
    let key = |headers: &[(&'static str, &str)], messages: Value| {
        let request = prompt(headers, &messages);
        repeat_key(&request, "llama-192.0.2.7", &request.messages.last().expect("a question").text)
    };
    let yes = || json!([{"role": "user", "content": "yes"}]);
    let later = json!([{"role": "user", "content": "yes"}, {"role": "assistant", "content": "ok"}, {"role": "user", "content": "yes"}]);
    assert_eq!(key(&[], yes()), key(&[("x-stainless-retry-count", "1")], yes()));
    assert_ne!(key(&[], yes()), key(&[], later.clone()), "the same word later in a conversation is another question");
    assert_ne!(key(&[], yes()), key(&[], json!([{"role": "user", "content": "no"}])));
    let named = [("idempotency-key", "k1")];
    assert_eq!(key(&named, yes()), key(&named, later));
    assert_ne!(key(&named, yes()), key(&[("idempotency-key", "k2")], yes()));
}

#[test]
fn a_prompt_for_a_title_is_told_from_a_question_about_documents() {
    assert!(is_housekeeping(
        "### Task:\nGenerate a title.\n### Chat History:\n<chat_history>\nUSER: hi\n</chat_history>"
    ));
    assert!(!is_housekeeping("### Task:\nRespond to the user query using the provided context.\n<context>…</context>"));
    assert!(!is_housekeeping("What is in <chat_history>?"));
}

#[test]
fn a_request_without_a_question_is_refused() {
    let question = |messages: Value| {
        prompt(&[], &messages).question().map(|message| message.text.clone()).map_err(|failure| failure.message)
    };
    assert_eq!(question(json!([])), Err("`messages` is empty; send a question".to_owned()));
    let without = question(json!([{"role": "system", "content": "Be kind."}]));
    assert!(without.expect_err("refused").contains("role `user`"));
    let earlier = json!([{"role": "user", "content": "a"}, {"role": "user", "content": "b"}, {"role": "assistant", "content": "c"}]);
    assert_eq!(question(earlier), Ok("b".to_owned()));
}
