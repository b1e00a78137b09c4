//! Builds the messages of a request from the entries of a session, within the model's context limits.
//!
//! To stay within the limits, whole exchanges are left out, oldest first. The first question, the newest
//! question and the newest exchange stay, and a call stays together with its result.

use protocol::task::State;

use super::conversation::{EndedTask, JournalEntry, ModelTurn, ToolCall, ToolResult};
use super::provider::Message;

/// Introduces the question that is repeated for a model that writes its calls as text.
const REPEATED_QUESTION: &str = "The question was:";

/// How calls and results are represented in a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CallStyle {
    /// In the provider's own format.
    Native,
    /// As text, because the model has no native tool calls or the request offers no tools. Some providers
    /// reject native calls in a request without tools.
    Text,
}

/// The most that a request may contain.
#[derive(Debug, Clone, Copy)]
pub struct ContextBounds {
    pub messages: usize,
    /// An estimate, see [`estimate_message_tokens`].
    pub tokens: u64,
}

/// Messages that are kept or left out together.
struct Exchange {
    messages: Vec<Message>,
    is_question: bool,
}

/// Returns the messages of a request.
pub fn messages(entries: &[JournalEntry], style: CallStyle, bounds: ContextBounds) -> Vec<Message> {
    let mut exchanges = exchanges(entries, style);
    let left_out = prune(&mut exchanges, bounds);
    if style == CallStyle::Text {
        repeat_question(&mut exchanges);
    }
    let mut messages: Vec<_> = exchanges.into_iter().flat_map(|exchange| exchange.messages).collect();
    if left_out > 0
        && let Some(Message::User(first)) = messages.first_mut()
    {
        *first = format!("{first}\n\n[{left_out} older messages are left out here.]");
    }
    merge_users(messages)
}

fn exchanges(entries: &[JournalEntry], style: CallStyle) -> Vec<Exchange> {
    let mut exchanges: Vec<Exchange> = Vec::new();
    // The position of the entry with the last calls.
    let mut calls_at = 0;
    for (position, entry) in entries.iter().enumerate() {
        match entry {
            JournalEntry::Asked { text, images } => {
                let images = Some(images.clone()).filter(|images| !images.is_empty()).map(Message::Images);
                let messages = [Message::User(text.clone())].into_iter().chain(images).collect();
                exchanges.push(Exchange { messages, is_question: true });
            }
            JournalEntry::Answered { turn } => {
                calls_at = position;
                exchanges.extend(assistant(turn, style, position).map(exchange));
            }
            JournalEntry::Called { results } => {
                let results = match style {
                    CallStyle::Native if !results.iter().any(|result| result.call.starts_with("text-")) => {
                        let result = |(number, result): (usize, &ToolResult)| ToolResult {
                            call: call_id(calls_at, number),
                            ..result.clone()
                        };
                        Message::Results(results.iter().enumerate().map(result).collect())
                    }
                    _ => Message::User(results_as_text(results)),
                };
                match exchanges.last_mut() {
                    Some(exchange) => exchange.messages.push(results),
                    None => exchanges.push(exchange(results)),
                }
            }
            JournalEntry::Woken { tasks } => exchanges.push(exchange(Message::User(wake_message(tasks)))),
            JournalEntry::Noted { text } => exchanges.push(exchange(Message::User(text.clone()))),
            JournalEntry::Diagnosed { turn } => exchanges.extend(assistant(turn, style, position).map(exchange)),
            // Close a question that has no answer, so that the model does not take it up again.
            JournalEntry::Stopped { reason } => {
                let last = exchanges.last_mut().and_then(|exchange| exchange.messages.last());
                if last.is_some_and(|last| !matches!(last, Message::Assistant { .. })) {
                    let text = format!("[No answer was given: {}.]", reason.as_str());
                    exchanges.push(exchange(Message::Assistant { text, calls: Vec::new(), raw: None }));
                }
            }
            JournalEntry::Discarded { .. }
            | JournalEntry::UsesModel { .. }
            | JournalEntry::ShowsAtMost { .. }
            | JournalEntry::Undone
            | JournalEntry::Cleared => {}
        }
    }
    exchanges
}

fn exchange(message: Message) -> Exchange {
    Exchange { messages: vec![message], is_question: false }
}

/// The id of a call in requests: unique in the conversation, whatever ids the providers gave, and in the form that
/// the strictest of them accepts (nine letters and digits).
fn call_id(position: usize, number: usize) -> String {
    format!("c{position:05}{number:03}")
}

/// The message of an answer; `None` for an empty one, which providers reject.
fn assistant(turn: &ModelTurn, style: CallStyle, position: usize) -> Option<Message> {
    if turn.calls.is_empty() && turn.text.trim().is_empty() {
        return None;
    }
    // Calls that were parsed from the text are already part of it.
    if style == CallStyle::Native && !turn.in_text {
        let calls = turn.calls.iter().enumerate();
        let calls = calls.map(|(number, call)| ToolCall { id: call_id(position, number), ..call.clone() });
        return Some(Message::Assistant { text: turn.text.clone(), calls: calls.collect(), raw: turn.raw.clone() });
    }
    let mut text = turn.text.clone();
    for call in turn.calls.iter().filter(|_| !turn.in_text) {
        let call = serde_json::json!({"name": call.name, "arguments": call.arguments});
        text = format!("{text}\n<tool_call>{call}</tool_call>");
    }
    Some(Message::Assistant { text: text.trim().to_owned(), calls: Vec::new(), raw: None })
}

fn results_as_text(results: &[ToolResult]) -> String {
    let each = results.iter().map(|result| format!("<tool_response>\n{}\n</tool_response>", result.text));
    each.collect::<Vec<_>>().join("\n")
}

/// Returns the message that wakes the model: which tasks are final, their states and result files.
///
/// It contains nothing from the results, so that the model reads those as data.
fn wake_message(tasks: &[EndedTask]) -> String {
    let one = |task: &EndedTask| {
        let state = match task.state {
            Some(State::Succeeded) => "succeeded".to_owned(),
            Some(State::Failed) => "failed".to_owned(),
            Some(State::Denied) => "was denied by a human".to_owned(),
            Some(State::Expired) => "expired because no human answered".to_owned(),
            Some(State::Cancelled) => "was cancelled".to_owned(),
            Some(State::TimedOut) => "timed out".to_owned(),
            Some(State::Unknown) => "ended, but it is not known whether it took effect".to_owned(),
            Some(_) | None => "was removed together with its result".to_owned(),
        };
        format!("- {} {state}: {} (id {})", task.tool, task.result_file.display(), task.id)
    };
    let list: Vec<_> = tasks.iter().map(one).collect();
    let (results, them) = if tasks.len() == 1 { ("This result is", "it") } else { ("These results are", "each") };
    format!(
        "[agent-magic-tool] {results} final:\n{}\nRead {them} with `agent-magic-tool read ID`, then go on.",
        list.join("\n")
    )
}

/// Removes exchanges until the rest is within bounds, and returns the number of removed messages.
fn prune(exchanges: &mut Vec<Exchange>, bounds: ContextBounds) -> usize {
    let mut left_out = 0;
    loop {
        let messages: usize = exchanges.iter().map(|exchange| exchange.messages.len()).sum();
        let tokens: u64 = exchanges.iter().map(|exchange| estimate_message_tokens(&exchange.messages)).sum();
        if messages <= bounds.messages && tokens <= bounds.tokens {
            return left_out;
        }
        let newest_question = exchanges.iter().rposition(|exchange| exchange.is_question).unwrap_or(0);
        let newest = exchanges.len().saturating_sub(1);
        let Some(oldest) = (1..newest).find(|index| *index != newest_question) else { return left_out };
        left_out += exchanges.remove(oldest).messages.len();
    }
}

/// Repeats the question below the newest results: models that write calls as text tend to lose track of it.
fn repeat_question(exchanges: &mut [Exchange]) {
    let question = exchanges.iter().rev().find(|exchange| exchange.is_question).and_then(|exchange| {
        match exchange.messages.first() {
            Some(Message::User(text)) => Some(text.clone()),
            _ => None,
        }
    });
    let (Some(question), Some(last)) = (question, exchanges.last_mut()) else { return };
    if let [_, .., Message::User(results)] = last.messages.as_mut_slice() {
        *results = format!("{results}\n\n{REPEATED_QUESTION} {question}");
    }
}

/// Merges consecutive user messages, since some providers require the roles to alternate.
fn merge_users(messages: Vec<Message>) -> Vec<Message> {
    let mut merged: Vec<Message> = Vec::new();
    for message in messages {
        match (merged.last_mut(), message) {
            (Some(Message::User(before)), Message::User(text)) => *before = format!("{before}\n\n{text}"),
            (_, message) => merged.push(message),
        }
    }
    merged
}

/// Estimates the number of tokens in the messages.
pub fn estimate_message_tokens(messages: &[Message]) -> u64 {
    messages.iter().map(message_tokens).sum()
}

/// Estimates the number of tokens in a text: four ASCII characters, or one other character, make one token.
pub fn estimate_tokens(text: &str) -> u64 {
    let ascii = text.bytes().filter(u8::is_ascii).count();
    let others = text.chars().count() - ascii;
    (ascii / 4 + others) as u64
}

fn message_tokens(message: &Message) -> u64 {
    // What a provider adds around each message.
    const OVERHEAD: u64 = 4;
    // About what a large picture counts at the big providers.
    const IMAGE: u64 = 1_600;
    match message {
        Message::User(text) => estimate_tokens(text) + OVERHEAD,
        Message::Images(images) => images.len() as u64 * IMAGE,
        Message::Assistant { text, calls, .. } => {
            let calls = calls.iter().map(|call| estimate_tokens(&call.arguments.to_string()) + OVERHEAD);
            estimate_tokens(text) + OVERHEAD + calls.sum::<u64>()
        }
        Message::Results(results) => results.iter().map(|result| estimate_tokens(&result.text) + OVERHEAD).sum(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const UNBOUNDED: ContextBounds = ContextBounds { messages: 100, tokens: 100_000 };

    fn asked(text: &str) -> JournalEntry {
        JournalEntry::asked(text.to_owned())
    }

    fn called(number: u32) -> [JournalEntry; 2] {
        let call = ToolCall {
            id: format!("c{number}"),
            name: "command_executor".to_owned(),
            arguments: json!({"command": "x"}),
        };
        let result = ToolResult {
            call: call.id.clone(),
            name: call.name.clone(),
            text: format!("result {number}"),
            status: 0,
            opened: Vec::new(),
            collected: Vec::new(),
            only_reads: false,
            spent: Vec::new(),
            data_class: None,
        };
        let turn = ModelTurn { calls: vec![call], ..ModelTurn::default() };
        [JournalEntry::Answered { turn: Box::new(turn) }, JournalEntry::Called { results: vec![result] }]
    }

    fn summary(messages: &[Message]) -> Vec<String> {
        let one = |message: &Message| match message {
            Message::User(text) => format!("user: {text}"),
            Message::Images(images) => format!("{} images", images.len()),
            Message::Assistant { text, calls, .. } => format!("assistant: {text}{}", "*".repeat(calls.len())),
            Message::Results(results) => {
                let each: Vec<_> = results.iter().map(|result| format!("{}: {}", result.call, result.text)).collect();
                each.join(", ")
            }
        };
        messages.iter().map(one).collect()
    }

    #[test]
    fn the_first_question_and_the_newest_exchanges_stay() {
        let mut entries = vec![asked("first")];
        entries.extend((1..4).flat_map(called));
        entries.push(asked("second"));
        entries.extend((4..6).flat_map(called));
        let kept = messages(&entries, CallStyle::Native, ContextBounds { messages: 6, ..UNBOUNDED });
        assert_eq!(
            summary(&kept),
            [
                "user: first\n\n[6 older messages are left out here.]\n\nsecond",
                "assistant: *",
                "c00008000: result 4",
                "assistant: *",
                "c00010000: result 5",
            ]
        );
        let fewest = messages(&entries, CallStyle::Native, ContextBounds { messages: 1, ..UNBOUNDED });
        assert_eq!(fewest.len(), 3);
        assert_eq!(messages(&entries, CallStyle::Native, UNBOUNDED).len(), 12);
    }

    #[test]
    fn without_tools_calls_are_text_and_the_question_is_repeated() {
        let mut entries = vec![asked("how many?")];
        entries.extend(called(1));
        assert_eq!(
            summary(&messages(&entries, CallStyle::Text, UNBOUNDED)),
            [
                "user: how many?",
                "assistant: <tool_call>{\"name\":\"command_executor\",\"arguments\":{\"command\":\"x\"}}</tool_call>",
                "user: <tool_response>\nresult 1\n</tool_response>\n\nThe question was: how many?",
            ]
        );
    }

    #[test]
    fn ids_that_a_provider_repeats_are_unique_in_a_request_and_an_empty_answer_is_left_out() {
        let mut entries = vec![asked("q")];
        entries.extend(called(1));
        entries.push(JournalEntry::Answered { turn: Box::default() });
        entries.push(JournalEntry::Discarded { turn: Box::default() });
        entries.push(asked("r"));
        entries.extend(called(1));
        let expected =
            ["user: q", "assistant: *", "c00001000: result 1", "user: r", "assistant: *", "c00006000: result 1"];
        assert_eq!(summary(&messages(&entries, CallStyle::Native, UNBOUNDED)), expected);
    }

    #[test]
    fn a_wake_message_names_tasks_and_files_but_no_content() {
        let id = "0198a7b2c3d47e5f8a9b0c1d2e3f4a5b";
        let ended = EndedTask {
            id: id.parse().expect("an id"),
            tool: "send".to_owned(),
            state: Some(State::Denied),
            result_file: "/r/result.json".into(),
            spent: None,
        };
        assert_eq!(
            wake_message(&[ended]),
            format!(
                "[agent-magic-tool] This result is final:\n- send was denied by a human: /r/result.json (id {id})\n\
                 Read it with `agent-magic-tool read ID`, then go on."
            )
        );
    }
}
