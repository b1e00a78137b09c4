//! The help of the program: its commands in the groups of the README.

use clap::Command;

/// The commands that are shown, by what they are for.
const GROUPS: [(&str, &[&str]); 5] = [
    ("What agents call", &["list", "run", "wait", "read", "tasks", "cancel", "script", "resolve"]),
    (
        "To look after the installation",
        &["inspect", "lint", "doctor", "logs", "secret", "executor", "approver", "verify"],
    ),
    ("To add subtools", &["new", "import", "test", "pack"]),
    ("To connect agents", &["agent", "setup", "hook", "command-executor", "mcp", "serve"]),
    ("To get to know it", &["demo", "completions", "man"]),
];

/// The help of `program`, without a list of all commands but with one for each group.
pub(crate) fn help(program: Command) -> String {
    let groups: Vec<_> =
        GROUPS.iter().map(|(heading, names)| format!("{heading}:\n{}\n\n", list(&program, names))).collect();
    let template = "{about}.\n\n{before-help}{usage-heading} {usage}\n\nGROUPSOptions:\n{options}{after-help}";
    program.help_template(template.replace("GROUPS", &groups.concat())).render_help().to_string()
}

/// The commands of `program` with these names, each with what it does.
fn list(program: &Command, names: &[&str]) -> String {
    let commands = names.iter().filter_map(|name| program.find_subcommand(name)).enumerate();
    let commands = commands.map(|(place, command)| command.clone().display_order(place));
    let group = Command::new("group").disable_help_flag(true).disable_help_subcommand(true).max_term_width(100);
    group.help_template("{subcommands}").subcommands(commands).render_help().to_string().trim_end().to_owned()
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;
    use crate::cli::Cli;

    #[test]
    fn every_command_that_is_shown_is_in_one_group() {
        let mut grouped: Vec<_> = GROUPS.iter().flat_map(|(_, names)| *names).copied().collect();
        let program = Cli::command();
        let commands = program.get_subcommands().filter(|command| !command.is_hide_set());
        let mut shown: Vec<_> = commands.map(Command::get_name).collect();
        grouped.sort_unstable();
        shown.sort_unstable();
        assert_eq!(grouped, shown);
    }
}
