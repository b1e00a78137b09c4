//! What is known of programs and their commands before their help is read.

/// Commands that wait for a human, go on for ever, or are only about the program itself, with the reason why they are
/// left out.
const LEFT_OUT: [(&str, &[&str]); 6] = [
    (
        "waits for a human at a terminal",
        &[
            "attach",
            "bash",
            "browse",
            "citool",
            "console",
            "difftool",
            "edit",
            "gitk",
            "gui",
            "instaweb",
            "interactive",
            "login",
            "mergetool",
            "monitor",
            "repl",
            "shell",
            "ssh",
            "tui",
            "top",
            "ui",
            "vim",
        ],
    ),
    (
        "runs until it is stopped",
        &[
            "daemon",
            "fsmonitor--daemon",
            "http-backend",
            "listen",
            "lsp",
            "proxy",
            "serve",
            "server",
            "start-server",
            "watch",
        ],
    ),
    ("prints a script for a shell", &["completion", "completions", "generate-completion", "shell-completion"]),
    (
        "is about the program itself",
        &["help", "help-search", "version", "man", "gen-docs", "self-update", "upgrade-self", "feedback", "bugreport"],
    ),
    ("runs another program or command line", &["alias", "extension", "for-each-repo", "explore"]),
    ("asks for a secret", &["adduser", "credential", "credential-cache", "credential-store", "logout", "passwd"]),
];

/// Words in the description of a command that waits for a human or goes on for ever.
const TELLTALES: [(&str, &str); 9] = [
    ("interactive session", "waits for a human at a terminal"),
    ("interactive shell", "waits for a human at a terminal"),
    ("opens an editor", "waits for a human at a terminal"),
    ("open an editor", "waits for a human at a terminal"),
    ("in the browser", "waits for a human at a terminal"),
    ("start a server", "runs until it is stopped"),
    ("starts a server", "runs until it is stopped"),
    ("language server", "runs until it is stopped"),
    ("graphical", "waits for a human at a terminal"),
];

/// Options that are about the help itself, or about how a human sees the output.
const UNUSED_OPTIONS: [&str; 22] = [
    "--help",
    "--version",
    "--usage",
    "--color",
    "--colour",
    "--no-color",
    "--colors",
    "--no-pager",
    "--pager",
    "--progress",
    "--no-progress",
    "--progress-bar",
    "--help-all",
    "--full-help",
    "--manual",
    "--license",
    "--interactive",
    "--completion",
    "--paginate",
    "--web",
    "--edit",
    "--editor",
];

/// Programs whose plain help does not list all their commands, and the arguments that do.
const LISTS: [(&str, &[&str]); 2] = [("git", &["help", "-a"]), ("cargo", &["--list"])];

/// Returns why a command is left out, if it is.
pub(super) fn reason_to_leave_out(name: &str, description: &str) -> Option<&'static str> {
    let by_name = LEFT_OUT.iter().find(|(_, names)| names.contains(&name)).map(|(reason, _)| *reason);
    let lower = description.to_lowercase();
    let is_alias = ["alias:", "alias for", "removed:", "deprecated"].iter().any(|start| lower.starts_with(start));
    let by_words = TELLTALES.iter().find(|(words, _)| lower.contains(words)).map(|(_, reason)| *reason);
    by_name.or(is_alias.then_some("is another name of a command, or out of use")).or(by_words)
}

pub(super) fn is_unused(flag: &str) -> bool {
    UNUSED_OPTIONS.contains(&flag)
}

/// Returns the arguments with which the program lists its commands, if its help does not.
pub(super) fn list_arguments(program: &str) -> Option<Vec<String>> {
    let (_, arguments) = LISTS.iter().find(|(name, _)| *name == program)?;
    Some(arguments.iter().map(|it| (*it).to_owned()).collect())
}

/// The arguments that ask for help: git would open its manual for `--help`, and curl shows a tenth.
pub(super) fn help_arguments(program: &str) -> &'static [&'static str] {
    match program {
        "git" => &["-h"],
        "curl" => &["--help", "all"],
        _ => &["--help"],
    }
}
