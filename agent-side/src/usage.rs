//! Says what is wrong with a command line, in our own words, and what to write in its place.
//!
//! clap's texts are for people who know its conventions. A model needs the value that is wrong, those that are allowed,
//! and a line that it can run.

use std::error::Error as _;
use std::ffi::OsString;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use protocol::command_names::{AGENT_COMMANDS, instead_of, line, run_line, search};
use protocol::duration::PositiveDuration;

use crate::commands::run;
use crate::error::Error;

/// The hint if nothing is known about a word.
const COMMANDS: &str = "the commands are";

/// Returns the names of the input fields of a subtool; `None` if there is no such subtool.
pub type FieldsOf<'a> = &'a dyn Fn(&str) -> Option<Vec<String>>;

/// Converts clap's error to ours.
pub fn usage_error(error: &clap::Error, arguments: &[OsString], fields_of: FieldsOf<'_>) -> Error {
    let words = arguments.iter().skip(1).map(|word| word.to_string_lossy().into_owned());
    let words: Vec<String> = words.filter(|word| word != "--help").collect();
    let command = words.first().map(String::as_str).unwrap_or_default();
    let see_help = || format!("the options: agent-magic-tool help {command}");
    let argument = context(error, ContextKind::InvalidArg).map(|text| option_name(&text)).unwrap_or_default();
    match error.kind() {
        ErrorKind::InvalidSubcommand => {
            let wrong = context(error, ContextKind::InvalidSubcommand).unwrap_or_default();
            if wrong == command {
                let similar = contexts(error, ContextKind::SuggestedSubcommand);
                unknown_command(&wrong, &words[1..], similar.last(), fields_of)
            } else {
                unknown_subcommand(error, command, &wrong)
            }
        }
        ErrorKind::ValueValidation => {
            let reason = error.source().map(ToString::to_string).unwrap_or_default();
            // Our parsers say after the semicolon how to write it.
            let (problem, hint) = match reason.split_once("; ") {
                Some((problem, hint)) => (problem, hint.to_owned()),
                None => (reason.as_str(), see_help()),
            };
            Error::usage(format!("`{argument}`: {problem}")).hint(hint)
        }
        ErrorKind::InvalidValue => {
            let value = context(error, ContextKind::InvalidValue).unwrap_or_default();
            let allowed = contexts(error, ContextKind::ValidValue).join(", ");
            let message = match value.as_str() {
                "" => format!("`{argument}` needs a value"),
                value => format!("`{argument}`: `{value}` is not one of its values"),
            };
            Error::usage(message).hint(if allowed.is_empty() {
                see_help()
            } else {
                format!("its values are {allowed}")
            })
        }
        ErrorKind::UnknownArgument => unknown_argument(error, &argument, &words, fields_of),
        ErrorKind::MissingRequiredArgument => {
            let missing: Vec<_> =
                contexts(error, ContextKind::InvalidArg).iter().map(|name| name.replace(['<', '>'], "")).collect();
            Error::usage(format!("`{command}` needs {}", missing.join(" and ")))
                .hint(usage_line(error).unwrap_or_else(see_help))
        }
        ErrorKind::ArgumentConflict => {
            let other = context(error, ContextKind::PriorArg).map(|text| option_name(&text));
            let message = match other {
                Some(other) if other == argument => format!("`{argument}` is given twice"),
                Some(other) => format!("`{argument}` cannot be combined with `{other}`"),
                None => format!("`{argument}` cannot be combined with the other options"),
            };
            Error::usage(message).hint(see_help())
        }
        ErrorKind::NoEquals => {
            Error::usage(format!("the value of `{argument}` must follow a `=`")).hint(format!("{argument}=VALUE"))
        }
        _ => {
            let text = error.to_string();
            let message = text.lines().next().unwrap_or_default().trim_start_matches("error: ").to_owned();
            Error::usage(message).hint(usage_line(error).unwrap_or_else(see_help))
        }
    }
}

/// The error for a word that is not a command: usually one that another tool would understand, or a subtool's name.
fn unknown_command(word: &str, rest: &[String], similar: Option<&String>, fields_of: FieldsOf<'_>) -> Error {
    let error = Error::usage(format!("no command `{word}`"));
    if fields_of(word).is_some() {
        return error.hint(format!("`{word}` is a subtool: {}", run_line(word, rest)));
    }
    let similar = || similar.map(|similar| format!("did you mean `agent-magic-tool {similar}`?"));
    error.hint(instead_of(word, rest).or_else(similar).unwrap_or_else(|| {
        format!("{COMMANDS} {}; to find a subtool: {}", AGENT_COMMANDS[..6].join(", "), search(&[]))
    }))
}

/// The error for `executor WORD` or `secret WORD`.
fn unknown_subcommand(error: &clap::Error, command: &str, wrong: &str) -> Error {
    let known = contexts(error, ContextKind::ValidSubcommand).join(", ");
    let hint =
        if known.is_empty() { format!("agent-magic-tool {command} --help") } else { format!("write one of: {known}") };
    Error::usage(format!("`{command}` has no command `{wrong}`")).hint(hint)
}

/// The command line that imports from an MCP server that is a program.
pub fn with_dashes(name: &str, command: &[String]) -> String {
    let words = ["import", "mcp", name, "--"].map(str::to_owned);
    line(&[&words[..], command].concat())
}

fn unknown_argument(error: &clap::Error, argument: &str, words: &[String], fields_of: FieldsOf<'_>) -> Error {
    let command = words.first().map(String::as_str).unwrap_or_default();
    if command.starts_with('-') {
        return leading_option(command, &words[1..]);
    }
    if !argument.starts_with('-') {
        let hint = match command {
            "list" => search(&words[1..]),
            _ => usage_line(error).unwrap_or_else(|| format!("agent-magic-tool help {command}")),
        };
        return Error::usage(format!("`{argument}` is one argument too many")).hint(hint);
    }
    if has_json_without_quotes(words) {
        return Error::usage(format!("`{command}` has no option `{argument}`")).hint(run::USE_STDIN);
    }
    let no_option = Error::usage(format!("`{command}` has no option `{argument}`"));
    if command == "run" {
        return no_option.hint(option_of_run(error, argument, words, fields_of));
    }
    if let ("import", [_, kind, name, program @ ..]) = (command, words)
        && kind == "mcp"
        && program.first().is_some_and(|first| !first.starts_with('-') && !first.contains("://"))
    {
        return no_option.hint(format!("a program stands after `--`: {}", with_dashes(name, program)));
    }
    if ["--json", "--output"].contains(&argument) {
        return no_option.hint("leave it out: the output is JSON");
    }
    let suggested = suggestion(error);
    let other = match command {
        "list" if suggested.is_none() => {
            let value =
                words.iter().filter_map(|word| word.strip_prefix(argument)?.strip_prefix('=')).map(str::to_owned);
            Some(search(&value.collect::<Vec<_>>()))
        }
        _ => None,
    };
    let hint = match (suggested, other) {
        (Some(suggested), Some(other)) => format!("{suggested} Or {other}"),
        (Some(hint), None) | (None, Some(hint)) => hint,
        (None, None) => format!("the options: agent-magic-tool help {command}"),
    };
    no_option.hint(hint)
}

fn suggestion(error: &clap::Error) -> Option<String> {
    context(error, ContextKind::SuggestedArg).map(|text| format!("did you mean `{}`?", option_name(&text)))
}

/// The error for an option in place of a command.
fn leading_option(option: &str, rest: &[String]) -> Error {
    let error = Error::usage(format!("`{option}` is given before a command"));
    let (name, value) = option.split_once('=').unwrap_or((option, ""));
    if ["--query", "-q", "--search"].contains(&name) {
        let words: Vec<_> = [value.to_owned()].into_iter().filter(|value| !value.is_empty()).collect();
        return error.hint(search(&[words.as_slice(), rest].concat()));
    }
    error.hint(match rest.iter().position(|word| AGENT_COMMANDS.contains(&word.as_str())) {
        Some(0) => format!("begin with the command, and leave `{name}` out: {}", line(rest)),
        _ => format!("{COMMANDS} {}; all of them: agent-magic-tool --help", AGENT_COMMANDS[..6].join(", ")),
    })
}

/// The hint for an option that `run` does not have: a field of the input written like one, or an option of another
/// command.
fn option_of_run(error: &clap::Error, argument: &str, words: &[String], fields_of: FieldsOf<'_>) -> String {
    let name = argument.trim_start_matches('-');
    let at = words.iter().position(|word| word.split('=').next() == Some(argument)).unwrap_or(words.len());
    let attached = words.get(at).and_then(|word| Some(word.split_once('=')?.1));
    let next = words.get(at + 1).filter(|word| !word.starts_with('-') && !word.contains('='));
    let value = attached.or(next.map(String::as_str));
    let tool = words.get(1).filter(|word| !word.starts_with('-'));
    let known = tool.and_then(|tool| fields_of(tool));
    let tool = tool.map_or("NAME", String::as_str);
    let as_field = |field: &str| {
        let value = value.unwrap_or("VALUE");
        format!("a field of the input is written without dashes: agent-magic-tool run {tool} {field}={value}")
    };
    let field = known.iter().flatten().find(|field| field.replace('_', "-") == name.replace('_', "-"));
    match (field, name) {
        (Some(field), _) => as_field(field),
        (None, "timeout" | "limit-time" | "max-time") => {
            let duration = value.filter(|value| value.parse::<PositiveDuration>().is_ok()).unwrap_or("30s");
            let is_other = |(index, word): &(usize, &String)| *index != at && Some(word.as_str()) != value;
            let mut kept: Vec<_> = words.iter().enumerate().filter(is_other).map(|(_, word)| word.clone()).collect();
            kept.push(format!("--wait={duration}"));
            format!("to wait for the result, at most so long: {}", line(&kept))
        }
        (None, "page" | "page-size" | "lines" | "bytes") => {
            "it is for a result that is there: run it with --wait, then agent-magic-tool read ID --page 1".to_owned()
        }
        (None, "json" | "output" | "format") => "leave it out: the output is JSON".to_owned(),
        // clap also suggests what only has some letters in common.
        (None, _) => match (
            suggestion(error)
                .filter(|suggested| suggested.contains(&format!("`--{}", name.chars().next().unwrap_or_default()))),
            known,
        ) {
            (Some(suggested), _) => suggested,
            (None, Some(known)) if !known.is_empty() => format!(
                "leave it out; the fields of `{tool}` are {}, written like {}=VALUE; the options: agent-magic-tool help run",
                known.join(", "),
                known[0],
            ),
            (None, Some(_)) => "leave it out; the options: agent-magic-tool help run".to_owned(),
            (None, None) => as_field(name),
        },
    }
}

/// The option in clap's description of an argument, such as `--wait[=<DURATION>]`; a positional is left as it is.
fn option_name(text: &str) -> String {
    let end = text.find(['[', '=', ' ', '<']).filter(|end| text.starts_with('-') && *end > 0).unwrap_or(text.len());
    text[..end].replace(['<', '>'], "")
}

fn usage_line(error: &clap::Error) -> Option<String> {
    let text = error.to_string();
    text.lines().find_map(|line| line.trim().strip_prefix("Usage: ")).map(|line| line.replace(['<', '>'], ""))
}

fn context(error: &clap::Error, kind: ContextKind) -> Option<String> {
    match error.get(kind) {
        Some(ContextValue::String(text)) => Some(text.clone()),
        Some(ContextValue::Strings(texts)) => texts.first().cloned(),
        _ => None,
    }
}

fn contexts(error: &clap::Error, kind: ContextKind) -> Vec<String> {
    match error.get(kind) {
        Some(ContextValue::String(text)) => vec![text.clone()],
        Some(ContextValue::Strings(texts)) => texts.clone(),
        _ => Vec::new(),
    }
}

/// Whether the words look like JSON from which a shell has removed the quotes.
fn has_json_without_quotes(words: &[String]) -> bool {
    let text = words.join(" ");
    text.contains('{') && text.contains(':') && !text.contains('"')
}
