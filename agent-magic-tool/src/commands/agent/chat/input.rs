//! Parses what the user typed: commands in their order, and the question for the model.
//!
//! Every line that starts with `/word` or `!word` is a command. An unknown command rejects the whole input, so
//! that a mistyped command never reaches a model. A space before it makes the line text.

use protocol::nearest::{did_you_mean, nearest};

/// The name of each command, its argument, and what it does. A command without a description is an alias.
pub(super) const COMMANDS: [(&str, &str, &str); 19] = [
    ("help", "", "show this list"),
    ("model", "[NAME]", "switch to another model; without a name, show the current one"),
    ("models", "", "list the models; `@NAME question` asks one of them once"),
    ("tasks", "", "list the open tasks of this session"),
    ("cancel", "[ID]", "cancel a task; without an id, stop the current answer"),
    ("page", "", "open the page where you approve tasks"),
    ("decline", "", "give no answer to a task's question"),
    ("later", "", "leave the question for the page"),
    ("usage", "", "show tokens and cost of this question and of the session"),
    ("undo-prompt", "", "take back the last question and its answer (/undo)"),
    ("undo", "", ""),
    ("clear", "", "start the conversation over; open tasks continue (/reset)"),
    ("reset", "", ""),
    ("new", "", "start a new session"),
    ("sessions", "", "list the sessions"),
    ("resume", "N", "resume a session"),
    ("delete", "N", "delete a session"),
    ("exit", "", "leave; open tasks continue (Ctrl-D, /quit)"),
    ("quit", "", ""),
];

/// A command of the chat.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum ChatCommand {
    Help,
    Model(Option<String>),
    Models,
    Tasks,
    Cancel(Option<String>),
    Page,
    Decline,
    Later,
    Usage,
    Undo,
    Clear,
    New,
    Sessions,
    Resume(String),
    Delete(String),
    Exit,
}

/// One parsed input.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Input {
    pub(super) commands: Vec<ChatCommand>,
    pub(super) question: Option<Question>,
}

/// A question for a model.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Question {
    /// The model that answers only this question, if it is not the current one.
    pub(super) model: Option<String>,
    pub(super) text: String,
}

/// Parses an input. The error is a message for the user; no part of the input is performed then.
pub(super) fn parse(typed: &str) -> Result<Input, String> {
    let mut commands = Vec::new();
    let mut rest = Vec::new();
    for line in typed.replace("\\\n", "\n").split('\n') {
        match split_command(line) {
            Some((name, argument)) => commands.push(command(name, argument)?),
            None => rest.push(line.to_owned()),
        }
    }
    let text = rest.join("\n").trim().to_owned();
    Ok(Input { commands, question: question(&text)? })
}

/// Splits a command line into name and argument; `None` if the line is not a command.
fn split_command(line: &str) -> Option<(&str, &str)> {
    let rest = line.strip_prefix(['/', '!'])?;
    let (name, argument) = rest.split_once(char::is_whitespace).unwrap_or((rest, ""));
    let is_name = name.starts_with(|c: char| c.is_ascii_alphabetic())
        && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '-' || c == '_');
    is_name.then(|| (name, argument.trim()))
}

fn command(name: &str, argument: &str) -> Result<ChatCommand, String> {
    let given = || (!argument.is_empty()).then(|| argument.to_owned());
    let required = || given().ok_or_else(|| format!("`/{name}` needs a session number; /sessions lists them"));
    let command = match name {
        "help" => ChatCommand::Help,
        "model" => ChatCommand::Model(given()),
        "models" => ChatCommand::Models,
        "tasks" => ChatCommand::Tasks,
        "cancel" => ChatCommand::Cancel(given()),
        "page" => ChatCommand::Page,
        "decline" => ChatCommand::Decline,
        "later" => ChatCommand::Later,
        "usage" => ChatCommand::Usage,
        "undo-prompt" | "undo" => ChatCommand::Undo,
        "clear" | "reset" => ChatCommand::Clear,
        "new" => ChatCommand::New,
        "sessions" => ChatCommand::Sessions,
        "resume" => ChatCommand::Resume(required()?),
        "delete" => ChatCommand::Delete(required()?),
        "exit" | "quit" => ChatCommand::Exit,
        _ => return Err(unknown(name)),
    };
    let takes_none = COMMANDS.iter().any(|(known, argument, _)| *known == name && argument.is_empty());
    if takes_none && !argument.is_empty() {
        return Err(format!("`/{name}` takes no argument"));
    }
    Ok(command)
}

fn unknown(name: &str) -> String {
    let near = nearest(name, COMMANDS.iter().map(|(name, ..)| *name), 1).pop();
    let hint =
        did_you_mean(near.map(|near| format!("/{near}"))).unwrap_or_else(|| "/help lists all commands".to_owned());
    format!("no command named `/{name}`: {hint} (to send it as text, start the line with a space)")
}

fn question(text: &str) -> Result<Option<Question>, String> {
    if text.is_empty() {
        return Ok(None);
    }
    let Some(rest) = text.strip_prefix('@') else {
        return Ok(Some(Question { model: None, text: text.to_owned() }));
    };
    let (model, text) = rest.split_once(char::is_whitespace).unwrap_or((rest, ""));
    match text.trim() {
        "" => Err(format!("type a question after it: `@{model} QUESTION`; to switch models: /model {model}")),
        text => Ok(Some(Question { model: Some(model.to_owned()), text: text.to_owned() })),
    }
}

/// Returns the text of `/help`.
pub(super) fn help() -> String {
    let shown = COMMANDS.iter().filter(|(.., description)| !description.is_empty());
    let lines =
        shown.map(|(name, argument, description)| format!("  {:<14} {description}\n", format!("/{name} {argument}")));
    let more = "End a line with \\ to continue it on the next line. `!` works in place of `/`.\n\
                A new question stops the current answer, and so does Ctrl-C.\n";
    lines.chain([more.to_owned()]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asks(text: &str) -> Question {
        Question { model: None, text: text.to_owned() }
    }

    #[test]
    fn commands_are_separated_from_the_question() {
        let input = parse("/model b\nfirst\n!usage\nsecond \\\nthird").expect("parsed");
        assert_eq!(input.commands, [ChatCommand::Model(Some("b".to_owned())), ChatCommand::Usage]);
        assert_eq!(input.question, Some(asks("first\nsecond \nthird")));
        assert_eq!(parse("  ").expect("nothing"), Input::default());
    }

    #[test]
    fn an_unknown_command_is_an_error_and_other_lines_are_text() {
        for text in ["/etc/passwd: whose is it?", "#!/bin/sh", "/", "!= is what?", "1/2"] {
            assert_eq!(parse(text).expect("text").question, Some(asks(text)));
        }
        assert_eq!(parse(" /models are dear").expect("text").question, Some(asks("/models are dear")));
        let message = parse("ask this\n!modle b").expect_err("unknown");
        assert!(message.starts_with("no command named `/modle`: did you mean `/model`?"), "{message}");
        for wrong in ["/resume", "/exit now", "/zzzz"] {
            parse(wrong).expect_err(wrong);
        }
    }

    #[test]
    fn a_model_can_be_asked_once() {
        let input = parse("@local what is\nthis?").expect("parsed");
        let expected = Question { model: Some("local".to_owned()), text: "what is\nthis?".to_owned() };
        assert_eq!(input.question, Some(expected));
        parse("@local").expect_err("no question");
    }

    #[test]
    fn every_listed_command_is_parsed() {
        for (name, argument, _) in COMMANDS {
            let argument = if argument.is_empty() { "" } else { " 1" };
            let input = parse(&format!("/{name}{argument}")).expect(name);
            assert_eq!(input.commands.len(), 1, "{name}");
        }
        assert!(help().contains("/undo-prompt"));
    }
}
