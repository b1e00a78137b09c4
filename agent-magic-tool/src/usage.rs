//! Says what is wrong with a command line, in our own words, and what to write in its place.
//!
//! clap's texts are for people who know its conventions. A model needs the value that is wrong, those that are allowed,
//! and a line that it can run.

use std::error::Error as _;
use std::ffi::OsString;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use executor::catalog::Sources;
use executor::catalog::listing::Listing;
use executor::config::Config;
use protocol::command_names::{AGENT_COMMANDS, instead_of, run_line, search};
use protocol::paths::{NoHomeFolder, Paths};

use crate::commands::run;
use crate::error::Error;

/// The hint if nothing is known about a word.
const COMMANDS: &str = "the commands are";

/// Converts clap's error to ours.
pub(crate) fn usage_error(
    error: &clap::Error,
    arguments: &[OsString],
    paths: impl FnOnce() -> Result<Paths, NoHomeFolder>,
) -> Error {
    let words = arguments.iter().skip(1).map(|word| word.to_string_lossy().into_owned());
    let words: Vec<String> = words.filter(|word| word != "--help").collect();
    let command = words.first().map(String::as_str).unwrap_or_default();
    let see_help = || format!("the options: agent-magic-tool help {command}");
    let argument = context(error, ContextKind::InvalidArg).map(|text| option_name(&text)).unwrap_or_default();
    match error.kind() {
        ErrorKind::InvalidSubcommand => {
            let wrong = context(error, ContextKind::InvalidSubcommand).unwrap_or_default();
            if wrong == command {
                unknown_command(&wrong, &words[1..], paths)
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
        ErrorKind::UnknownArgument => unknown_argument(error, &argument, &words),
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
fn unknown_command(word: &str, rest: &[String], paths: impl FnOnce() -> Result<Paths, NoHomeFolder>) -> Error {
    let error = Error::usage(format!("no command `{word}`"));
    if paths().is_ok_and(|paths| is_subtool(word, &paths)) {
        return error.hint(format!("`{word}` is a subtool: {}", run_line(word, rest)));
    }
    error.hint(instead_of(word, rest).unwrap_or_else(|| {
        format!("{COMMANDS} {}; to find a subtool: {}", AGENT_COMMANDS[..6].join(", "), search(&[]))
    }))
}

fn is_subtool(word: &str, paths: &Paths) -> bool {
    Config::read(paths).is_ok_and(|config| {
        let listing = Listing::of(&Sources::of(paths, &config), &paths.listing());
        listing.entries.iter().any(|entry| entry.name == word)
    })
}

/// The error for `executor WORD` or `secret WORD`.
fn unknown_subcommand(error: &clap::Error, command: &str, wrong: &str) -> Error {
    let known = contexts(error, ContextKind::ValidSubcommand).join(", ");
    let hint =
        if known.is_empty() { format!("agent-magic-tool {command} --help") } else { format!("write one of: {known}") };
    Error::usage(format!("`{command}` has no command `{wrong}`")).hint(hint)
}

fn unknown_argument(error: &clap::Error, argument: &str, words: &[String]) -> Error {
    let command = words.first().map(String::as_str).unwrap_or_default();
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
    let suggested =
        context(error, ContextKind::SuggestedArg).map(|text| format!("did you mean `{}`?", option_name(&text)));
    let other = match command {
        // A field of the input, written like an option.
        "run" => {
            let name = argument.trim_start_matches('-');
            let value = words.iter().find_map(|word| word.strip_prefix(argument)?.strip_prefix('=')).unwrap_or("VALUE");
            let tool = words.get(1).filter(|word| !word.starts_with('-')).map_or("NAME", String::as_str);
            Some(format!("a field of the input is written without dashes: agent-magic-tool run {tool} {name}={value}"))
        }
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
    Error::usage(format!("`{command}` has no option `{argument}`")).hint(hint)
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
