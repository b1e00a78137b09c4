//! What a model is given of a session: its entries as messages, as many as it can take.
//!
//! Whole exchanges are left out, the oldest first; the first question, the newest one and the newest
//! exchange stay, and a call is never parted from its result.

use protocol::task::State;

use super::conversation::{EndedTask, JournalEntry, ToolResult, Turn};
use super::provider::Message;

/// Below every request of a model that writes its calls as text.
const AGAIN: &str = "The question was:";

/// How a model reads calls and results.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CallStyle {
    /// In its provider's own form.
    Native,
    /// As text: it has no tools, or none are offered this time. A request without tools must not speak of
    /// calls in the provider's form; some refuse it.
    Text,
}

/// How much a model is given at most.
#[derive(Debug, Clone, Copy)]
pub struct ContextBounds {
    pub messages: usize,
    /// Roughly.
    pub tokens: u64,
}

/// One exchange: what stays or goes together.
struct Exchange {
    messages: Vec<Message>,
    is_question: bool,
}

/// The messages of a request.
pub fn messages(entries: &[JournalEntry], style: CallStyle, bounds: ContextBounds) -> Vec<Message> {
    let mut exchanges = exchanges(entries, style);
    let left_out = prune(&mut exchanges, bounds);
    if style == CallStyle::Text {
        ask_again(&mut exchanges);
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
    for entry in entries {
        match entry {
            JournalEntry::Asked { text } => {
                exchanges.push(Exchange { messages: vec![Message::User(text.clone())], is_question: true });
            }
            JournalEntry::Answered { turn } => exchanges.push(of(assistant(turn, style))),
            JournalEntry::Called { results } => {
                let results = match style {
                    CallStyle::Native if !results.iter().any(|result| result.call.starts_with("text-")) => {
                        Message::Results(results.clone())
                    }
                    _ => Message::User(as_text(results)),
                };
                match exchanges.last_mut() {
                    Some(exchange) => exchange.messages.push(results),
                    None => exchanges.push(of(results)),
                }
            }
            JournalEntry::Woken { tasks } => exchanges.push(of(Message::User(woken(tasks)))),
            JournalEntry::Noted { text } => exchanges.push(of(Message::User(text.clone()))),
            JournalEntry::Diagnosed { turn } => exchanges.push(of(assistant(turn, style))),
            // A question that was not answered is not left standing.
            JournalEntry::Stopped { reason } => {
                let last = exchanges.last_mut().and_then(|exchange| exchange.messages.last());
                if last.is_some_and(|last| !matches!(last, Message::Assistant { .. })) {
                    let text = format!("[No answer was given: {}.]", reason.as_str());
                    exchanges.push(of(Message::Assistant { text, calls: Vec::new(), raw: None }));
                }
            }
            JournalEntry::UsesModel { .. } | JournalEntry::Undone | JournalEntry::Cleared => {}
        }
    }
    exchanges
}

fn of(message: Message) -> Exchange {
    Exchange { messages: vec![message], is_question: false }
}

fn assistant(turn: &Turn, style: CallStyle) -> Message {
    // Calls that were found in the text stand there already.
    if style == CallStyle::Native && !turn.in_text {
        return Message::Assistant { text: turn.text.clone(), calls: turn.calls.clone(), raw: turn.raw.clone() };
    }
    let mut text = turn.text.clone();
    for call in turn.calls.iter().filter(|_| !turn.in_text) {
        let call = serde_json::json!({"name": call.name, "arguments": call.arguments});
        text = format!("{text}\n<tool_call>{call}</tool_call>");
    }
    Message::Assistant { text: text.trim().to_owned(), calls: Vec::new(), raw: None }
}

fn as_text(results: &[ToolResult]) -> String {
    let each = results.iter().map(|result| format!("<tool_response>\n{}\n</tool_response>", result.text));
    each.collect::<Vec<_>>().join("\n")
}

/// What the model is told when tasks became final: which, how, and where. Nothing of what is in them, so
/// that a result is read as a result.
pub fn woken(tasks: &[EndedTask]) -> String {
    let one = |task: &EndedTask| {
        let state = match task.state {
            Some(State::Succeeded) => "succeeded".to_owned(),
            Some(State::Failed) => "failed".to_owned(),
            Some(State::Denied) => "was denied by a human".to_owned(),
            Some(State::Expired) => "expired: no human answered".to_owned(),
            Some(State::Cancelled) => "was cancelled".to_owned(),
            Some(State::TimedOut) => "timed out".to_owned(),
            Some(State::Unknown) => "ended, and nobody knows whether it took effect".to_owned(),
            Some(_) | None => "is gone, with its result".to_owned(),
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

/// Takes exchanges out until what stays is within bounds; how many messages went.
fn prune(exchanges: &mut Vec<Exchange>, bounds: ContextBounds) -> usize {
    let mut left_out = 0;
    loop {
        let messages: usize = exchanges.iter().map(|exchange| exchange.messages.len()).sum();
        let tokens: u64 = exchanges.iter().map(|exchange| size(&exchange.messages)).sum();
        if messages <= bounds.messages && tokens <= bounds.tokens {
            return left_out;
        }
        let newest_question = exchanges.iter().rposition(|exchange| exchange.is_question).unwrap_or(0);
        let newest = exchanges.len().saturating_sub(1);
        let Some(oldest) = (1..newest).find(|place| *place != newest_question) else { return left_out };
        left_out += exchanges.remove(oldest).messages.len();
    }
}

/// The question once more, below the results that answer it: who reads calls as text loses sight of it.
fn ask_again(exchanges: &mut [Exchange]) {
    let question = exchanges.iter().rev().find(|exchange| exchange.is_question).and_then(|exchange| {
        match exchange.messages.first() {
            Some(Message::User(text)) => Some(text.clone()),
            _ => None,
        }
    });
    let (Some(question), Some(last)) = (question, exchanges.last_mut()) else { return };
    if let [_, .., Message::User(results)] = last.messages.as_mut_slice() {
        *results = format!("{results}\n\n{AGAIN} {question}");
    }
}

/// Neighbouring words of the user's side as one message: some providers want the sides to alternate.
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

/// About how many tokens these messages have.
pub fn size(messages: &[Message]) -> u64 {
    messages.iter().map(tokens).sum()
}

/// About how many tokens a text has: four letters of ASCII each, or one of another script.
pub fn words(text: &str) -> u64 {
    let ascii = text.bytes().filter(u8::is_ascii).count();
    let others = text.chars().count() - ascii;
    (ascii / 4 + others) as u64
}

fn tokens(message: &Message) -> u64 {
    // What a provider writes around each.
    const FRAME: u64 = 4;
    match message {
        Message::User(text) => words(text) + FRAME,
        Message::Assistant { text, calls, .. } => {
            words(text) + FRAME + calls.iter().map(|call| words(&call.arguments.to_string()) + FRAME).sum::<u64>()
        }
        Message::Results(results) => results.iter().map(|result| words(&result.text) + FRAME).sum(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::conversation::ToolCall;
    use super::*;

    const WIDE: ContextBounds = ContextBounds { messages: 100, tokens: 100_000 };

    fn asked(text: &str) -> JournalEntry {
        JournalEntry::Asked { text: text.to_owned() }
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
        };
        let turn = Turn { calls: vec![call], ..Turn::default() };
        [JournalEntry::Answered { turn: Box::new(turn) }, JournalEntry::Called { results: vec![result] }]
    }

    fn words(messages: &[Message]) -> Vec<String> {
        let one = |message: &Message| match message {
            Message::User(text) => format!("user: {text}"),
            Message::Assistant { text, calls, .. } => format!("assistant: {text}{}", "*".repeat(calls.len())),
            Message::Results(results) => {
                let each: Vec<_> = results.iter().map(|result| format!("{}: {}", result.call, result.text)).collect();
                each.join(", ")
            }
        };
        messages.iter().map(one).collect()
    }

    #[test]
    fn the_head_and_the_newest_stay_and_a_call_keeps_its_result() {
        let mut entries = vec![asked("first")];
        entries.extend((1..4).flat_map(called));
        entries.push(asked("second"));
        entries.extend((4..6).flat_map(called));
        let kept = messages(&entries, CallStyle::Native, ContextBounds { messages: 6, ..WIDE });
        assert_eq!(
            words(&kept),
            [
                "user: first\n\n[6 older messages are left out here.]\n\nsecond",
                "assistant: *",
                "c4: result 4",
                "assistant: *",
                "c5: result 5",
            ]
        );
        let least = messages(&entries, CallStyle::Native, ContextBounds { messages: 1, ..WIDE });
        assert_eq!(least.len(), 3);
        assert_eq!(messages(&entries, CallStyle::Native, WIDE).len(), 12);
    }

    #[test]
    fn without_tools_calls_are_words_and_the_question_is_asked_again() {
        let mut entries = vec![asked("how many?")];
        entries.extend(called(1));
        assert_eq!(
            words(&messages(&entries, CallStyle::Text, WIDE)),
            [
                "user: how many?",
                "assistant: <tool_call>{\"name\":\"command_executor\",\"arguments\":{\"command\":\"x\"}}</tool_call>",
                "user: <tool_response>\nresult 1\n</tool_response>\n\nThe question was: how many?",
            ]
        );
    }

    #[test]
    fn a_wake_names_tasks_and_files_and_nothing_of_what_is_in_them() {
        let id = "0198a7b2c3d47e5f8a9b0c1d2e3f4a5b";
        let ended = EndedTask {
            id: id.parse().expect("an id"),
            tool: "send".to_owned(),
            state: Some(State::Denied),
            result_file: "/r/result.json".into(),
        };
        assert_eq!(
            woken(&[ended]),
            format!(
                "[agent-magic-tool] This result is final:\n- send was denied by a human: /r/result.json (id {id})\n\
                 Read it with `agent-magic-tool read ID`, then go on."
            )
        );
    }
}
