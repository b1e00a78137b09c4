//! What is read of a request, and what is refused.

use std::net::IpAddr;

use agent_loop::model::answer_options::ToolChoice;
use axum::http::HeaderMap;
use protocol::tool_scope::ToolScope;
use serde_json::json;

use super::*;
use crate::http::{HistoryKeeper, HttpClient};

fn of(body: &Value) -> Result<Demands, ProxyFailure> {
    let client = HttpClient {
        address: IpAddr::from([127, 0, 0, 1]),
        key: None,
        bearer: None,
        history: HistoryKeeper::Client,
        model: None,
        tool_scope: ToolScope::default(),
        read_only: false,
        may_read: true,
        has_no_commands: false,
        depth: 0,
    };
    read(&ProxyRequest {
        interface: "openai",
        client,
        headers: HeaderMap::new(),
        body: body.as_object().expect("an object").clone(),
        messages_field: "messages",
        messages: Vec::new(),
        system: None,
        model: None,
        demands: Demands::default(),
        goes_on: None,
    })
}

#[test]
fn what_a_model_can_be_given_is_read() {
    let schema = json!({"type": "object"});
    let (name, description) = ("n".to_owned(), Some("What is wanted.".to_owned()));
    let wanted = OutputSchema { name, description, schema: schema.clone(), strict: Some(false) };
    let wanted = OutputFormat::Schema(wanted);
    let chat = json!({"type": "json_schema", "json_schema":
        {"name": "n", "description": "What is wanted.", "schema": schema, "strict": false}});
    let response = json!({"format":
        {"type": "json_schema", "name": "n", "description": "What is wanted.", "schema": schema, "strict": false}});
    for body in [json!({"response_format": chat}), json!({"text": response})] {
        let demands = of(&body).expect("read");
        assert_eq!(demands.answers.format, Some(wanted.clone()), "{body}");
        demands.fit_a_session().expect_err("not in a session");
    }
    let tools = json!([{"type": "function", "function": {"name": "f"}}]);
    let forced = json!({"tools": tools, "tool_choice": {"type": "function", "function": {"name": "f"}}});
    assert_eq!(of(&forced).expect("read").answers.tool_choice, ToolChoice::Named("f".to_owned()));
    let hints = json!({"max_completion_tokens": 9, "temperature": 0.5, "top_p": 0.1, "stop": "END", "tool_choice": "auto",
        "response_format": {"type": "text"}, "reasoning_effort": "low"});
    let demands = of(&hints).expect("read");
    assert_eq!((demands.answers.max_tokens, demands.answers.stop.clone()), (Some(9), vec!["END".to_owned()]));
    demands.fit_a_session().expect("hints do not matter there");
}

#[test]
fn what_cannot_be_read_is_refused() {
    for (body, field) in [
        (json!({"functions": []}), "functions"),
        (json!({"tool_choice": "required"}), "tool_choice"),
        (json!({"tool_choice": {"type": "allowed_tools"}}), "tool_choice"),
        (json!({"response_format": {"type": "grammar"}}), "response_format"),
        (json!({"text": {"format": {"type": "json_schema", "name": "n"}}}), "text.format"),
        (json!({"tools": [{"type": "custom", "name": "f"}]}), "tools.0"),
        (json!({"max_tokens": 1.5}), "max_tokens"),
        (json!({"temperature": "hot"}), "temperature"),
        (json!({"stop": 7}), "stop"),
        (json!({"tools": {}}), "tools"),
        (json!({"tools": [{"type": "web_search"}]}), "tools.0"),
    ] {
        assert_eq!(of(&body).expect_err("refused").param.as_deref(), Some(field), "{body}");
    }
}
