//! Which commands a model may run, and the errors for the others.

use super::reading::PROGRAMS;
use crate::code::Code;
use crate::command_names::{AGENT_COMMANDS, OTHER_COMMANDS, instead_of, run_line, search};
use crate::error::ErrorBody;

/// Arguments that agents may pass in place of a command.
const AGENT_FLAGS: [&str; 5] = ["help", "--help", "-h", "--version", "-V"];

/// The last component of a program's path.
fn base(word: &str) -> &str {
    word.rsplit('/').next().unwrap_or(word)
}

/// The arguments of a call of `agent-magic-tool`, by name or by path; `None` for other programs. The name may be left
/// out before a command for agents, as models do.
pub(super) fn arguments(words: &[String]) -> Option<&[String]> {
    let (program, arguments) = words.split_first()?;
    if AGENT_COMMANDS.contains(&program.as_str()) {
        return Some(words);
    }
    (base(program) == "agent-magic-tool").then_some(arguments)
}

/// Whether the command can be run without a real shell.
pub(super) fn is_ours(words: &[String]) -> bool {
    arguments(words).is_some() || words.first().is_some_and(|program| PROGRAMS.contains(&base(program)))
}

pub(super) fn is_run(words: &[String]) -> bool {
    arguments(words).and_then(<[_]>::first).is_some_and(|command| command == "run")
}

/// Has a `list` that names no format print signatures: a model does as well with them as with schemas, and they are shorter.
/// What goes to jq stays JSON.
pub(super) fn list_as_signatures(words: &mut Vec<String>) {
    let Some(("list", rest)) = arguments(words).and_then(<[_]>::split_first).map(|(name, rest)| (name.as_str(), rest))
    else {
        return;
    };
    if !rest.iter().any(|word| word.split('=').next() == Some("--format")) {
        let place = words.len() - rest.len();
        words.insert(place, "--format=typescript".to_owned());
    }
}

/// Whether the command waits for results.
pub(super) fn waits(words: &[String]) -> bool {
    arguments(words).and_then(<[_]>::split_first).is_some_and(|(command, rest)| match command.as_str() {
        "wait" => true,
        "run" => rest.iter().any(|word| word == "--wait" || word.starts_with("--wait=")),
        _ => false,
    })
}

/// Whether the command evaluates a jq expression.
pub(super) fn evaluates_jq(words: &[String]) -> bool {
    match arguments(words) {
        Some(arguments) => arguments.iter().any(|word| word.starts_with("--jq")),
        None => is_jq(words),
    }
}

pub(super) fn is_jq(words: &[String]) -> bool {
    words.first().is_some_and(|program| base(program) == "jq")
}

/// Whether the command only waits for results or reads them.
pub(super) fn only_reads(words: &[String]) -> bool {
    match arguments(words) {
        Some(arguments) => {
            arguments.first().is_some_and(|command| ["wait", "read", "tasks"].contains(&command.as_str()))
        }
        None => is_ours(words),
    }
}

/// Why a model may not make this call of `agent-magic-tool`; `None` if it may.
pub(super) fn forbidden_call(arguments: &[String]) -> Option<ErrorBody> {
    let (command, rest) = arguments.split_first()?;
    if OTHER_COMMANDS.contains(&command.as_str()) {
        let message = format!("`agent-magic-tool {command}` is not a command for agents");
        return Some(ErrorBody::new(Code::HumansOnly, message).hint(format!(
            "if it is needed, tell the user to run it in a terminal; the commands for agents are {}",
            AGENT_COMMANDS[..8].join(", ")
        )));
    }
    if !AGENT_COMMANDS.into_iter().chain(AGENT_FLAGS).any(|name| name == command) {
        let hint = instead_of(command, rest).unwrap_or_else(|| {
            format!("if it is a subtool: {}; to find one: {}", run_line(command, rest), search(&[]))
        });
        return Some(ErrorBody::new(Code::Usage, format!("no command `{command}`")).hint(hint));
    }
    let is_file = |word: &&String| ["", "--input=", "-i", "-i="].iter().any(|option| is_file_of(word, option));
    match command.as_str() {
        "run" | "inspect" => rest.iter().find(is_file).map(|word| {
            ErrorBody::new(Code::NotCarriedOut, format!("`{word}`: input cannot be read from a file here"))
                .hint("pass it on standard input: --input=- <<'EOF', or: cat RESULT_FILE | jq -c .data | agent-magic-tool run NAME --input=-")
        }),
        "lint" => rest.iter().find(|word| !word.starts_with('-')).map(|word| {
            ErrorBody::new(Code::HumansOnly, format!("`{word}`: only the configured definitions are checked here"))
                .hint("without a path it checks all of them: agent-magic-tool lint")
        }),
        "doctor" => rest.iter().find(|word| *word == "--repair").map(|_| {
            ErrorBody::new(Code::HumansOnly, "only a human may repair the installation")
                .hint("tell the user to run in a terminal: agent-magic-tool doctor --repair")
        }),
        _ => None,
    }
}

fn is_file_of(word: &str, option: &str) -> bool {
    word.strip_prefix(option).is_some_and(|value| value.starts_with('@'))
}

/// What to do instead of a command that makes no sense here, even if foreign commands are allowed.
pub(super) fn advice(words: &[String]) -> Option<&'static str> {
    match base(words.first()?) {
        "sleep" => Some("do not sleep: `agent-magic-tool wait ID` blocks until the result is there"),
        "cd" | "pushd" | "popd" => Some(
            "there is no working folder to change: subtools have their own, and result files are named by their paths",
        ),
        _ => None,
    }
}

/// The error for a program that cannot be run here.
pub(super) fn foreign_program(words: &[String]) -> ErrorBody {
    let program = words.first().map(String::as_str).unwrap_or_default();
    let message = format!("`{program}` cannot be run here; no command of the line was run");
    let general = || {
        let programs = PROGRAMS.join(", ");
        format!(
            "only agent-magic-tool and, for result files, {programs} can be run; \
             to find a subtool for it: agent-magic-tool list tools --query=\"what it should do\""
        )
    };
    ErrorBody::new(Code::NotCarriedOut, message).hint(advice(words).map_or_else(general, str::to_owned))
}
