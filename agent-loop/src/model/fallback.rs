//! Parses tool calls that a model wrote as text, because the model or its server has no native tool calls.
//!
//! Local models write a call in a dozen forms: bare JSON, JSON between tags or fences, tags alone, Python.
//! For a model with native calls a text counts as calls only if it contains nothing else, so that a model that
//! explains a call does not make it, and only if it names an offered tool. A model that was told to write its calls as
//! text may write prose before them, and name a tool that does not exist: the call then gets the same hint as a native
//! one. A bare shell or SQL line is never a call.

use serde_json::{Map, Value};

use super::conversation::ToolCall;
use super::view::CallStyle;

/// Markers around a call, which carry no other meaning. A longer marker comes before its own prefix.
const WRAPPERS: &[&str] = &[
    "<tool_calls>",
    "</tool_calls>",
    "<tool_call>",
    "</tool_call>",
    "<|tool_call|>",
    "<|/tool_call|>",
    "<function_calls>",
    "</function_calls>",
    "<function_call>",
    "</function_call>",
    "<|tool_calls_section_begin|>",
    "<|tool_calls_section_end|>",
    "[TOOL_CALLS]",
    "[/TOOL_CALLS]",
    "[TOOL_CALL]",
    "[/TOOL_CALL]",
    "<|python_tag|>",
    "<|eom_id|>",
    "<|eot_id|>",
    "functools",
    "```tool_call",
    "```tool_code",
    "```json",
    "```python",
    "```xml",
    "```",
];
/// How many lines of prose are searched for the beginning of a call.
const MAX_LINES: usize = 500;
/// The JSON keys for the name of the tool.
const NAME_KEYS: [&str; 3] = ["name", "tool", "tool_name"];
/// The JSON keys for the arguments.
const ARGUMENT_KEYS: [&str; 5] = ["arguments", "parameters", "input", "args", "tool_input"];

/// The markers that only stand around a call: text may follow the closing one.
const CALL_TAGS: [(&str, &str); 5] = [
    ("<tool_call>", "</tool_call>"),
    ("<tool_calls>", "</tool_calls>"),
    ("<function_call>", "</function_call>"),
    ("<function_calls>", "</function_calls>"),
    ("[TOOL_CALL]", "[/TOOL_CALL]"),
];

/// Returns the distinct calls in `text`. With [`CallStyle::Native`] the list is empty if it contains anything else.
pub fn parse_calls(text: &str, offered: &[&str], style: CallStyle) -> Vec<ToolCall> {
    let text = strip_thoughts(text);
    let found = match style {
        CallStyle::Native => only_calls(text, &OfferedNames { names: offered, takes_others: false }),
        CallStyle::Text => calls_after_prose(text, &OfferedNames { names: offered, takes_others: true }),
    };
    let mut distinct: Vec<ToolCall> = Vec::new();
    for (name, arguments) in found.unwrap_or_default() {
        if !distinct.iter().any(|call| call.name == name && call.arguments == arguments) {
            distinct.push(ToolCall { id: format!("text-{}", distinct.len() + 1), name, arguments });
        }
    }
    distinct
}

type FoundCalls = Vec<(String, Value)>;

/// Which names a call may have.
struct OfferedNames<'a> {
    names: &'a [&'a str],
    /// Whether a call of another tool counts, if its form leaves no doubt.
    takes_others: bool,
}

impl OfferedNames<'_> {
    fn contains(&self, name: &str) -> bool {
        self.names.contains(&name)
    }
}

/// Parses a text that consists of calls alone.
fn only_calls(text: &str, offered: &OfferedNames<'_>) -> Option<FoundCalls> {
    let mut rest = text;
    let mut found = Vec::new();
    loop {
        rest = rest.trim_start_matches([' ', '\t', '\r', '\n', ',', ';']);
        if rest.is_empty() {
            return Some(found).filter(|found| !found.is_empty());
        }
        if let Some(after) = WRAPPERS.iter().find_map(|wrapper| strip_prefix_ignoring_case(rest, wrapper)) {
            rest = after;
        } else {
            let call =
                json_calls(rest, offered).or_else(|| tagged_call(rest, offered)).or_else(|| plain_call(rest, offered));
            let (calls, after) = call?;
            found.extend(calls);
            rest = after;
        }
    }
}

/// Parses the calls at the end of a text, from the first line on that begins with one; or, wherever they stand, the
/// calls between tags that mean nothing else.
fn calls_after_prose(text: &str, offered: &OfferedNames<'_>) -> Option<FoundCalls> {
    let starts = std::iter::once(0).chain(text.match_indices('\n').map(|(index, _)| index + 1));
    // A call that begins in the middle of a line is part of a sentence.
    starts.take(MAX_LINES).find_map(|start| only_calls(&text[start..], offered)).or_else(|| tagged_calls(text, offered))
}

/// Parses the calls between tags. What stands outside of them is prose.
fn tagged_calls(text: &str, offered: &OfferedNames<'_>) -> Option<FoundCalls> {
    let mut found = Vec::new();
    let mut rest = text;
    loop {
        let next = CALL_TAGS.iter().filter_map(|(open, close)| Some((rest.find(open)?, *open, *close))).min();
        let Some((start, open, close)) = next else { return Some(found).filter(|found| !found.is_empty()) };
        let inside = &rest[start + open.len()..];
        // The closing tag may be missing at the end of a text.
        let (inside, after) = inside.split_once(close).unwrap_or((inside, ""));
        found.extend(only_calls(inside, offered).unwrap_or_default());
        rest = after;
    }
}

/// Removes the thoughts that some models write before their answer.
fn strip_thoughts(text: &str) -> &str {
    let text = text.trim();
    match text.strip_prefix("<think>").and_then(|inside| inside.split_once("</think>")) {
        Some((_, after)) => after,
        // Some servers drop the opening tag.
        None => {
            text.split_once("</think>").filter(|(before, _)| !before.contains('<')).map_or(text, |(_, after)| after)
        }
    }
}

/// Parses one JSON value: a call, an object that contains calls, or a list of them.
fn json_calls<'a>(text: &'a str, offered: &OfferedNames<'_>) -> Option<(FoundCalls, &'a str)> {
    // A chat template that was rendered twice leaves double braces.
    let doubled = text.starts_with("{{");
    let source = if doubled { &text[1..] } else { text };
    if !source.starts_with(['{', '[']) {
        return None;
    }
    let mut values = serde_json::Deserializer::from_str(source).into_iter::<Value>();
    let value = values.next()?.ok()?;
    let mut after = &source[values.byte_offset()..];
    if doubled {
        after = after.trim_start().strip_prefix('}')?;
    }
    Some((calls_in_value(&value, offered)?, after))
}

fn calls_in_value(value: &Value, offered: &OfferedNames<'_>) -> Option<FoundCalls> {
    match value {
        Value::Array(values) if !values.is_empty() => {
            let each = values.iter().map(|value| calls_in_value(value, offered)).collect::<Option<Vec<_>>>()?;
            Some(each.into_iter().flatten().collect())
        }
        Value::Object(object) => {
            if let Some(inner) =
                object.get("tool_calls").or_else(|| object.get("function").filter(|inner| inner.is_object()))
            {
                return calls_in_value(inner, offered);
            }
            let name = NAME_KEYS.iter().find_map(|key| object.get(*key)?.as_str())?;
            let arguments = ARGUMENT_KEYS.iter().find_map(|key| object.get(*key))?;
            let arguments = match arguments {
                // OpenAI's form: JSON in a string.
                Value::String(text) => serde_json::from_str(text).ok().filter(Value::is_object)?,
                Value::Object(_) => arguments.clone(),
                _ => return None,
            };
            // JSON that is an answer may have a name and an input too; a call has nothing else.
            let is_only_a_call = || {
                let is_known =
                    |key: &String| matches!(key.as_str(), "name" | "tool" | "arguments" | "parameters" | "id" | "type");
                offered.takes_others && object.keys().all(is_known)
            };
            (offered.contains(name) || is_only_a_call()).then(|| vec![(name.to_owned(), arguments)])
        }
        _ => None,
    }
}

/// Parses `<function=NAME>` or `<invoke name="NAME">`, which contains JSON or one tag per parameter.
fn tagged_call<'a>(text: &'a str, offered: &OfferedNames<'_>) -> Option<(FoundCalls, &'a str)> {
    let (head, inside) = text.strip_prefix('<')?.split_once('>')?;
    let (kind, name) = if let Some(name) = head.strip_prefix("function=") {
        ("function", name)
    } else {
        ("invoke", name_attribute(head.strip_prefix("invoke")?)?)
    };
    if !offered.contains(name) && !offered.takes_others {
        return None;
    }
    let (mut inside, after) = inside.split_once(&format!("</{kind}>"))?;
    if let Ok(arguments @ Value::Object(_)) = serde_json::from_str(inside.trim()) {
        return Some((vec![(name.to_owned(), arguments)], after));
    }
    let mut arguments = Map::new();
    loop {
        inside = inside.trim_start();
        if inside.is_empty() {
            return Some((vec![(name.to_owned(), arguments.into())], after));
        }
        let (head, value) = inside.strip_prefix("<parameter")?.split_once('>')?;
        let key = head.strip_prefix('=').or_else(|| name_attribute(head))?;
        let (value, rest) = value.split_once("</parameter>")?;
        arguments.insert(key.to_owned(), value.trim_matches('\n').into());
        inside = rest;
    }
}

/// Returns the value of ` name="NAME"`.
fn name_attribute(head: &str) -> Option<&str> {
    head.trim().strip_prefix("name=").map(|quoted| quoted.trim_matches(['"', '\'']))
}

/// Parses `Action: NAME` with `Action Input: {...}`, or `NAME(key="text")` with or without brackets around it.
fn plain_call<'a>(text: &'a str, offered: &OfferedNames<'_>) -> Option<(FoundCalls, &'a str)> {
    if let Some(rest) = text.strip_prefix("Action:") {
        let (name, rest) = rest.split_once('\n')?;
        let rest = rest.trim_start().strip_prefix("Action Input:")?.trim_start();
        let mut values = serde_json::Deserializer::from_str(rest).into_iter::<Map<String, Value>>();
        let arguments = values.next()?.ok()?;
        let name = offered.names.iter().find(|offered| **offered == name.trim())?;
        return Some((vec![((*name).to_owned(), arguments.into())], &rest[values.byte_offset()..]));
    }
    let bracketed = text.strip_prefix('[');
    let source = bracketed.unwrap_or(text);
    let (name, rest) = source.split_once('(')?;
    let name = offered.names.iter().find(|offered| **offered == name.trim())?;
    let (arguments, rest) = keyword_arguments(rest)?;
    let rest = match bracketed {
        Some(_) => rest.trim_start().strip_prefix(']')?,
        None => rest,
    };
    Some((vec![((*name).to_owned(), arguments.into())], rest))
}

/// Parses Python keyword arguments with string values, up to the closing parenthesis: `key="text", ...)`.
fn keyword_arguments(mut rest: &str) -> Option<(Map<String, Value>, &str)> {
    let mut arguments = Map::new();
    loop {
        rest = rest.trim_start_matches([' ', '\n', ',']);
        if let Some(after) = rest.strip_prefix(')') {
            return Some((arguments, after));
        }
        let (key, value) = rest.split_once('=')?;
        let (text, after) = string_literal(value.trim_start())?;
        arguments.insert(key.trim().to_owned(), text.into());
        rest = after;
    }
}

/// Parses a string literal in single or double quotes.
fn string_literal(text: &str) -> Option<(String, &str)> {
    let quote = text.chars().next().filter(|first| matches!(first, '"' | '\''))?;
    let mut read = String::new();
    let mut characters = text.char_indices().skip(1);
    while let Some((index, character)) = characters.next() {
        match character {
            '\\' => match characters.next()?.1 {
                'n' => read.push('\n'),
                't' => read.push('\t'),
                other => read.push(other),
            },
            _ if character == quote => return Some((read, &text[index + 1..])),
            _ => read.push(character),
        }
    }
    None
}

fn strip_prefix_ignoring_case<'a>(text: &'a str, prefix: &str) -> Option<&'a str> {
    let head = text.get(..prefix.len())?;
    head.eq_ignore_ascii_case(prefix).then(|| &text[prefix.len()..])
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn commands(text: &str) -> Vec<String> {
        let found = parse_calls(text, &["command_executor"], CallStyle::Native);
        found.iter().map(|call| call.arguments["command"].as_str().expect("a command").to_owned()).collect()
    }

    #[test]
    fn every_known_form_is_parsed_as_the_same_call() {
        let forms = [
            r#"{"tool": "command_executor", "arguments": {"command": "ls"}}"#,
            r#"{"name": "command_executor", "arguments": {"command": "ls"}}"#,
            r#"{"name": "command_executor", "parameters": {"command": "ls"}}"#,
            r#"{"name": "command_executor", "input": {"command": "ls"}}"#,
            r#"{"name": "command_executor", "arguments": "{\"command\": \"ls\"}"}"#,
            r#"{"type": "function", "function": {"name": "command_executor", "arguments": {"command": "ls"}}}"#,
            r#"{"tool_calls": [{"name": "command_executor", "arguments": {"command": "ls"}}]}"#,
            r#"{{"name": "command_executor", "arguments": {"command": "ls"}}}"#,
            "<tool_call>\n{\"name\": \"command_executor\", \"arguments\": {\"command\": \"ls\"}}\n</tool_call>",
            r#"[TOOL_CALL]{"tool": "command_executor", "arguments": {"command": "ls"}}[/TOOL_CALL]"#,
            r#"[TOOL_CALLS] [{"name": "command_executor", "arguments": {"command": "ls"}}]"#,
            "```json\n{\"name\": \"command_executor\", \"arguments\": {\"command\": \"ls\"}}\n```",
            r#"<|python_tag|>{"name": "command_executor", "parameters": {"command": "ls"}}<|eom_id|>"#,
            r#"functools[{"name": "command_executor", "arguments": {"command": "ls"}}]"#,
            r#"<function=command_executor>{"command": "ls"}</function>"#,
            "<tool_call>\n<function=command_executor>\n<parameter=command>\nls\n</parameter>\n</function>\n</tool_call>",
            "<function_calls><invoke name=\"command_executor\"><parameter name=\"command\">ls</parameter></invoke></function_calls>",
            "Action: command_executor\nAction Input: {\"command\": \"ls\"}",
            r#"[command_executor(command="ls")]"#,
            "```tool_code\ncommand_executor(command='ls')\n```",
            "<think>I should look { first.</think>\n{\"name\": \"command_executor\", \"arguments\": {\"command\": \"ls\"}}",
        ];
        for form in forms {
            assert_eq!(commands(form), ["ls"], "{form}");
        }
    }

    #[test]
    fn several_calls_are_found_and_a_duplicate_counts_once() {
        let call = |command: &str| json!({"name": "command_executor", "arguments": {"command": command}}).to_string();
        let text = format!("<tool_call>{}</tool_call>\n<tool_call>{}</tool_call>{}", call("a"), call("b"), call("a"));
        assert_eq!(commands(&text), ["a", "b"]);
    }

    #[test]
    fn text_that_is_not_only_a_call_is_not_a_call() {
        let call = r#"{"name": "command_executor", "arguments": {"command": "ls"}}"#;
        let prose = [
            &format!("You could say {call}"),
            &format!("{call} would list the files."),
            "ls -la",
            "agent-magic-tool list tools",
            "SELECT * FROM users;",
            "```sh\nrm -rf /\n```",
            r#"{"name": "bash", "arguments": {"command": "ls"}}"#,
            r#"{"name": "command_executor"}"#,
            r#"{"name": "command_executor", "arguments": "ls"}"#,
            r#"{"answer": 42}"#,
            "",
            "command_executor(command=ls)",
            "<function=command_executor>ls",
        ];
        for text in prose {
            assert_eq!(commands(text), [""; 0], "{text}");
        }
    }

    #[test]
    fn a_model_that_was_told_to_write_calls_may_write_prose_before_them() {
        let calls = |text: &str| {
            let found = parse_calls(text, &["command_executor"], CallStyle::Text);
            found.iter().map(|call| format!("{} {}", call.name, call.arguments["command"])).collect::<Vec<_>>()
        };
        let call = r#"{"name": "command_executor", "arguments": {"command": "ls"}}"#;
        let understood = [
            format!("I will look.\n{call}"),
            format!("I will look.\n\n```json\n{call}\n```"),
            format!("Let me see.\n```\n{call}\n```\n"),
            format!("Sure: <tool_call>{call}</tool_call>"),
            format!("Sure.\n<tool_call>\n{call}\n</tool_call>\nThis lists the files."),
            format!("Sure.\n<tool_call>\n{call}"),
            "First:\n<tool_call>\n<function=command_executor>\n<parameter=command>\nls\n</parameter>\n</function>\n</tool_call>".to_owned(),
            "I need this.\nAction: command_executor\nAction Input: {\"command\": \"ls\"}".to_owned(),
        ];
        for text in understood {
            assert_eq!(calls(&text), ["command_executor \"ls\""], "{text}");
        }
        let other = r#"{"name": "gmail_send", "arguments": {"command": "x"}}"#;
        assert_eq!(calls(other), ["gmail_send \"x\""], "the hint about an unknown name comes with the result");
        assert_eq!(calls(&format!("<tool_call>{other}</tool_call>")), ["gmail_send \"x\""]);
        let prose = [
            format!("You could say {call}"),
            format!("You could say:\n```json\n{call}\n```\nThat lists the files."),
            r#"{"name": "Ada", "input": {"command": "x"}}"#.to_owned(),
            r#"{"name": "Ada", "arguments": {"command": "x"}, "age": 36}"#.to_owned(),
            "Run this:\nagent-magic-tool list tools".to_owned(),
            "```sh\nrm -rf /\n```".to_owned(),
            "shell(command=\"rm\")".to_owned(),
        ];
        for text in prose {
            assert_eq!(calls(&text), [""; 0], "{text}");
        }
    }

    proptest::proptest! {
        #[test]
        fn no_text_makes_it_panic(text in "[\\[\\](){}<>`\"'=:,\\\\a-c_/ \n]{0,60}|.{0,60}") {
            parse_calls(&text, &["command_executor", "a"], CallStyle::Native);
            parse_calls(&text, &["command_executor", "a"], CallStyle::Text);
        }
    }
}
