//! From a client's messages to a conversation that it keeps: in which order results belong to calls, and what is refused.

use agent_loop::model::conversation::{ToolCall, ToolResult};

use super::failure::ProxyFailure;
use super::message::{ClientResult, ClientText, SenderRole};
use crate::service::turn::ClientMessage;

/// The text of a message that has nothing but images; providers reject an empty one.
const ONLY_IMAGES: &str = "(images)";

/// The client's instructions, and its messages.
pub(super) fn read(messages: &[ClientText]) -> Result<(Vec<String>, Vec<ClientMessage>), ProxyFailure> {
    let mut system = Vec::new();
    let mut read: Vec<ClientMessage> = Vec::new();
    let mut messages = messages.iter().peekable();
    while let Some(message) = messages.next() {
        message.readable()?;
        let (text, place) = (message.text.clone(), &message.place);
        let calls = match (message.role, read.last()) {
            (SenderRole::User | SenderRole::Tool, Some(ClientMessage::Assistant { calls, .. })) => calls.clone(),
            _ => Vec::new(),
        };
        match message.role {
            SenderRole::System => system.push(text),
            SenderRole::Assistant => {
                // OpenAI's responses have an item for each call of one answer.
                if let Some(ClientMessage::Assistant { text: before, calls }) = read.last_mut() {
                    let gap = if before.is_empty() || text.is_empty() { "" } else { "\n\n" };
                    *before = format!("{before}{gap}{text}");
                    calls.extend(message.calls.iter().cloned());
                } else {
                    read.push(ClientMessage::Assistant { text, calls: message.calls.clone() });
                }
            }
            SenderRole::User | SenderRole::Tool => {
                let (mut results, mut images) = (message.results.clone(), message.images.clone());
                while message.role == SenderRole::Tool
                    && let Some(more) = messages.next_if(|next| next.role == SenderRole::Tool)
                {
                    results.extend(more.readable()?.results.iter().cloned());
                    images.extend(more.images.iter().cloned());
                }
                if !calls.is_empty() || !results.is_empty() {
                    read.push(ClientMessage::Results(paired(&calls, results, place)?));
                }
                let text = if text.is_empty() && !images.is_empty() { ONLY_IMAGES.to_owned() } else { text };
                let is_said = message.role == SenderRole::User && message.results.is_empty();
                if is_said || !text.is_empty() {
                    read.push(ClientMessage::User { text, images });
                }
            }
            SenderRole::Other => {
                let failure = "it is neither of the user nor of the assistant; only their messages can be continued";
                return Err(ProxyFailure::invalid(place, failure));
            }
        }
    }
    Ok((system, read))
}

/// The results in the order of their calls. A result without an id belongs to the next call of its tool.
fn paired(calls: &[ToolCall], mut results: Vec<ClientResult>, place: &str) -> Result<Vec<ToolResult>, ProxyFailure> {
    let mut paired = Vec::new();
    for call in calls {
        let is_its = |result: &ClientResult| match result.call.as_str() {
            "" => result.name.as_ref().is_none_or(|name| *name == call.name),
            id => id == call.id,
        };
        let Some(found) = results.iter().position(is_its) else {
            let message = format!("the call `{}` of the tool `{}` has no result", call.id, call.name);
            return Err(ProxyFailure::invalid(place, message));
        };
        let result = results.remove(found);
        paired.push(ToolResult { only_reads: true, ..ToolResult::new(call, shown(result.text), 0) });
    }
    match results.first() {
        None => Ok(paired),
        Some(left) => {
            let message = format!("the result of `{}` belongs to no call of the message before", left.call);
            Err(ProxyFailure::invalid(place, message))
        }
    }
}

/// The text of a result; some providers reject an empty one.
fn shown(text: String) -> String {
    if text.is_empty() { "(no output)".to_owned() } else { text }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::proxy::message;

    fn of(messages: &Value) -> Result<Vec<ClientMessage>, ProxyFailure> {
        read(&message::read(messages, "messages").expect("read")).map(|(_, messages)| messages)
    }

    fn call(id: &str) -> Value {
        json!({"id": id, "type": "function", "function": {"name": "f", "arguments": "{}"}})
    }

    #[test]
    fn results_are_in_the_order_of_their_calls() {
        let messages = of(&json!([
            {"role": "user", "content": "x"},
            {"role": "assistant", "content": "", "tool_calls": [call("1"), call("2")]},
            {"role": "tool", "tool_call_id": "2", "content": "two"},
            {"role": "tool", "tool_call_id": "1", "content": ""},
        ]))
        .expect("read");
        let Some(ClientMessage::Results(results)) = messages.last() else { panic!("{messages:?}") };
        let texts: Vec<_> = results.iter().map(|result| result.text.as_str()).collect();
        assert_eq!(texts, ["(no output)", "two"]);
    }

    #[test]
    fn items_of_one_answer_are_one_message() {
        let messages = of(&json!([
            {"role": "user", "content": "x"},
            {"type": "function_call", "call_id": "1", "name": "f", "arguments": "{}"},
            {"type": "function_call", "call_id": "2", "name": "f", "arguments": "{}"},
            {"type": "function_call_output", "call_id": "1", "output": "one"},
            {"type": "function_call_output", "call_id": "2", "output": "two"},
        ]))
        .expect("read");
        assert!(matches!(&messages[1], ClientMessage::Assistant { calls, .. } if calls.len() == 2), "{messages:?}");
        assert!(matches!(&messages[2], ClientMessage::Results(results) if results.len() == 2), "{messages:?}");
        assert_eq!(messages.len(), 3);
    }

    #[test]
    fn a_call_without_a_result_and_a_result_without_a_call_are_refused() {
        let asked = json!({"role": "user", "content": "x"});
        let called = json!({"role": "assistant", "content": "", "tool_calls": [call("1")]});
        let result = |id: &str| json!({"role": "tool", "tool_call_id": id, "content": "3"});
        for (messages, words) in [
            (json!([asked, called, asked]), "the call `1` of the tool `f` has no result"),
            (json!([asked, called, result("7")]), "has no result"),
            (json!([asked, called, result("1"), result("7")]), "the result of `7` belongs to no call"),
            (json!([asked, result("1")]), "the result of `1` belongs to no call"),
        ] {
            let failure = of(&messages).expect_err("refused");
            assert!(failure.message.contains(words), "{messages}: {}", failure.message);
        }
    }
}
