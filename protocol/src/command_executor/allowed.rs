//! Which commands a model may give, and what it is told about the others.

use super::reading::PROGRAMS;
use crate::code::Code;
use crate::error::ErrorBody;
use crate::nearest::{did_you_mean, nearest};

/// The commands of `agent-magic-tool` that agents may call; every other command is for humans.
pub const AGENT_COMMANDS: [&str; 10] =
    ["list", "run", "wait", "read", "tasks", "cancel", "resolve", "inspect", "lint", "doctor"];

/// Arguments that agents may pass in place of a command.
const AGENT_FLAGS: [&str; 4] = ["--help", "-h", "--version", "-V"];

fn base(word: &str) -> &str {
    word.rsplit('/').next().unwrap_or(word)
}

/// The arguments of a call of `agent-magic-tool`, by whatever path.
pub(super) fn arguments(words: &[String]) -> Option<&[String]> {
    let (program, arguments) = words.split_first()?;
    (base(program) == "agent-magic-tool").then_some(arguments)
}

/// Whether it is carried out here.
pub(super) fn is_ours(words: &[String]) -> bool {
    arguments(words).is_some() || words.first().is_some_and(|program| PROGRAMS.contains(&base(program)))
}

pub(super) fn is_run(words: &[String]) -> bool {
    arguments(words).and_then(<[_]>::first).is_some_and(|command| command == "run")
}

/// Whether it waits or reads and does nothing else.
pub(super) fn only_reads(words: &[String]) -> bool {
    match arguments(words) {
        Some(arguments) => {
            arguments.first().is_some_and(|command| ["wait", "read", "tasks"].contains(&command.as_str()))
        }
        None => is_ours(words),
    }
}

/// Why a call of `agent-magic-tool` is none that a model may make.
pub(super) fn barred(arguments: &[String]) -> Option<ErrorBody> {
    let (command, rest) = arguments.split_first()?;
    let allowed = || AGENT_COMMANDS.into_iter().chain(AGENT_FLAGS);
    if !allowed().any(|name| name == command) {
        let message = format!("`agent-magic-tool {command}` is no command for agents");
        let near = nearest(command, allowed(), 1).pop();
        let hint = did_you_mean(near.map(|near| format!("agent-magic-tool {near}"))).unwrap_or_else(|| {
            format!(
                "for agents are {}; what is for humans tell the user to run in a terminal, if it is needed",
                AGENT_COMMANDS[..8].join(", ")
            )
        });
        return Some(ErrorBody::new(Code::HumansOnly, message).hint(hint));
    }
    let is_file = |word: &&String| ["", "--input=", "-i", "-i="].iter().any(|option| is_file_of(word, option));
    match command.as_str() {
        "run" | "inspect" => rest.iter().find(is_file).map(|word| {
            ErrorBody::new(Code::NotCarriedOut, format!("`{word}`: no input is read from files here"))
                .hint("give it on standard input: --input=- <<'EOF', or: cat RESULT_FILE | jq -c .data | agent-magic-tool run NAME --input=-")
        }),
        "lint" => rest.iter().find(|word| !word.starts_with('-')).map(|word| {
            ErrorBody::new(Code::HumansOnly, format!("`{word}`: only what is configured is looked at here"))
                .hint("without a path it checks every definition there is: agent-magic-tool lint")
        }),
        "doctor" => rest.iter().find(|word| *word == "--repair").map(|_| {
            ErrorBody::new(Code::HumansOnly, "a human repairs the installation")
                .hint("tell the user to run in a terminal: agent-magic-tool doctor --repair")
        }),
        _ => None,
    }
}

fn is_file_of(word: &str, option: &str) -> bool {
    word.strip_prefix(option).is_some_and(|value| value.starts_with('@'))
}

/// What to do in place of a command that has no place here, whatever others may do.
pub(super) fn advice(words: &[String]) -> Option<&'static str> {
    match base(words.first()?) {
        "sleep" => Some("do not sleep: `agent-magic-tool wait ID` blocks until the result is there"),
        "cd" | "pushd" | "popd" => {
            Some("there is no folder to change to: subtools have theirs, and result files are given by their paths")
        }
        _ => None,
    }
}

/// What a model is told about a program that is none of ours.
pub(super) fn foreign(words: &[String]) -> ErrorBody {
    let program = words.first().map(String::as_str).unwrap_or_default();
    let message = format!("`{program}` is not carried out here, and neither was anything else of the line");
    let general = || {
        let programs = PROGRAMS.join(", ");
        format!(
            "there are agent-magic-tool, and for result files {programs}; \
             find a subtool that does it: agent-magic-tool list tools --query=\"what it should do\""
        )
    };
    ErrorBody::new(Code::NotCarriedOut, message).hint(advice(words).map_or_else(general, str::to_owned))
}
