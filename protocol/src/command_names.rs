//! The names of the commands, and what to write in place of a name that is not one of them.
//!
//! Models try the words that they know from other tools. The table answers those with a whole command line. Similarity
//! is the last resort, and never suggests a command for humans or `resolve`, which decides something for good.

use crate::nearest::nearest;

/// The commands that agents may use.
pub const AGENT_COMMANDS: [&str; 11] =
    ["list", "run", "wait", "read", "tasks", "cancel", "script", "resolve", "inspect", "lint", "doctor"];

/// The commands of agents that show an installation as a whole: not for the clients of a server, who share it.
pub const INSTALLATION_COMMANDS: [&str; 12] = [
    "doctor",
    "lint",
    "inspect",
    "logs",
    "pack",
    "verify",
    "secret",
    "approver",
    "new",
    "import",
    "setup",
    "completions",
];

/// The commands for humans and for programs, which agents are told about by name.
pub const OTHER_COMMANDS: [&str; 21] = [
    "secret",
    "pack",
    "executor",
    "approver",
    "verify",
    "agent",
    "command-executor",
    "mcp",
    "serve",
    "setup",
    "hook",
    "jq",
    "jq-worker",
    "script-worker",
    "demo",
    "completions",
    "man",
    "new",
    "import",
    "test",
    "logs",
];

/// Words that mean `run`.
const RUN: [&str; 10] = ["call", "exec", "execute", "invoke", "start", "do", "use", "delegate", "submit", "launch"];
/// Words that mean `list tools --query`.
const LIST: [&str; 9] = ["search", "find", "tools", "ls", "tool", "subtools", "discover", "query", "lookup"];
/// Words that mean `list tools NAME`.
const DESCRIBE: [&str; 5] = ["describe", "schema", "info", "show-tool", "usage"];
/// Words that mean `read`.
const READ: [&str; 8] = ["get", "show", "result", "results", "status", "output", "cat", "view"];
/// Words that mean `wait`.
const WAIT: [&str; 5] = ["await", "join", "watch", "poll", "follow"];
/// Words that mean `cancel`.
const CANCEL: [&str; 7] = ["stop", "kill", "abort", "terminate", "delete", "remove", "rm"];
/// Words for what only the user can do, on the page.
const DECIDE: [&str; 8] = ["approve", "confirm", "accept", "allow", "deny", "reject", "decline", "answer"];
/// Words that mean `run --at` or `run --in`.
const SCHEDULE: [&str; 5] = ["schedule", "later", "at", "remind", "cron"];
/// Words that mean `tasks`.
const TASKS: [&str; 5] = ["jobs", "task", "queue", "ps", "history"];

/// Returns the command line to write in place of `agent-magic-tool WORD REST…`; `None` if nothing is known about it.
pub fn instead_of(word: &str, rest: &[String]) -> Option<String> {
    let lower = word.trim_start_matches('-').to_lowercase();
    let is_in = |words: &[&str]| words.contains(&lower.as_str());
    let given = |placeholder: &str| if rest.is_empty() { placeholder.to_owned() } else { shell_words(rest) };
    if is_in(&DECIDE) {
        return Some(
            "only the user can decide, on the page; tell them to run: agent-magic-tool executor page".to_owned(),
        );
    }
    let line = if is_in(&SCHEDULE) {
        "run NAME key=value --at=09:00".to_owned()
    } else if is_in(&RUN) {
        format!("run {}", given("NAME key=value"))
    } else if is_in(&LIST) {
        return Some(search(rest));
    } else if is_in(&DESCRIBE) {
        format!("list tools {}", given("NAME"))
    } else if is_in(&READ) {
        format!("read {}", given("ID"))
    } else if is_in(&WAIT) {
        format!("wait {}", given("ID"))
    } else if is_in(&CANCEL) {
        format!("cancel {}", given("ID"))
    } else if is_in(&TASKS) {
        "tasks".to_owned()
    } else {
        // `secrets` is no script.
        let known = AGENT_COMMANDS.into_iter().filter(|name| !["resolve", "script"].contains(name));
        let near = nearest(&lower, known, 1).pop()?;
        if near == "list" { "list tools".to_owned() } else { format!("{near} {}", given("")) }
    };
    Some(format!("agent-magic-tool {}", line.trim_end()))
}

/// The command line with these words.
pub fn line(words: &[String]) -> String {
    format!("agent-magic-tool {}", shell_words(words))
}

/// The command line that runs the subtool `name` with these fields.
pub fn run_line(name: &str, fields: &[String]) -> String {
    let fields = if fields.is_empty() { "key=value".to_owned() } else { shell_words(fields) };
    format!("agent-magic-tool run {name} {fields}")
}

/// The command line that searches for the words among `rest`.
pub fn search(rest: &[String]) -> String {
    let words: Vec<_> = rest.iter().filter(|word| !word.starts_with('-') && *word != "tools").cloned().collect();
    let query = if words.is_empty() { "two or three words".to_owned() } else { words.join(" ") };
    format!("agent-magic-tool list tools --query={}", quoted(&query))
}

/// Joins words as a shell would have to be given them.
pub fn shell_words(words: &[String]) -> String {
    let is_plain = |word: &str| {
        !word.is_empty() && word.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_=:./,@%+".contains(&byte))
    };
    let word = |word: &String| if is_plain(word) { word.clone() } else { quoted(word) };
    words.iter().map(word).collect::<Vec<_>>().join(" ")
}

/// Quotes `text` as one shell word.
pub fn quoted(text: &str) -> String {
    if text.contains(['"', '$', '`', '\\', '!']) || text.contains('\'') {
        format!("'{}'", text.replace('\'', r"'\''"))
    } else {
        format!("\"{text}\"")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn instead(line: &str) -> Option<String> {
        let mut words = line.split(' ').map(str::to_owned);
        let word = words.next().unwrap_or_default();
        instead_of(&word, &words.collect::<Vec<_>>()).map(|line| line.replace("agent-magic-tool ", ""))
    }

    #[test]
    fn the_words_of_other_tools_get_a_whole_command_line() {
        for (line, expected) in [
            ("call", "run NAME key=value"),
            ("exec web_search query=rust", "run web_search query=rust"),
            ("invoke x {\"a\":1}", "run x '{\"a\":1}'"),
            ("search", "list tools --query=\"two or three words\""),
            ("find send mail", "list tools --query=\"send mail\""),
            ("ls", "list tools --query=\"two or three words\""),
            ("describe gmail_send", "list tools gmail_send"),
            ("schema", "list tools NAME"),
            ("get 01a1", "read 01a1"),
            ("status", "read ID"),
            ("stop 01a1", "cancel 01a1"),
            ("jobs", "tasks"),
            ("delete 01a1", "cancel 01a1"),
            ("schedule x", "run NAME key=value --at=09:00"),
            ("approve 01a1", "only the user can decide, on the page; tell them to run: executor page"),
            ("rum x", "run x"),
            ("lst", "list tools"),
            ("Lists", "list tools"),
        ] {
            assert_eq!(instead(line).as_deref(), Some(expected), "{line}");
        }
    }

    #[test]
    fn no_word_leads_to_a_command_for_humans_or_to_resolve() {
        for word in ["resolv", "resolved", "secrets", "secret-list", "executors", "setups", "zzz", "gmail_send"] {
            let line = instead(word).unwrap_or_default();
            assert!(
                !line.starts_with("resolve") && OTHER_COMMANDS.iter().all(|command| !line.starts_with(command)),
                "{word}: {line}"
            );
        }
    }
}
