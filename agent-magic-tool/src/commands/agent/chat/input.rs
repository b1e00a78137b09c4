//! What a person typed: commands, in their order, and what is left for the model.
//!
//! A line that begins with `/word` or `!word` is a command wherever it stands, and one that is not known
//! stops all of it: what was meant for us never reaches a model. A blank before it makes it text.

use protocol::nearest::{did_you_mean, nearest};

/// A command, its name for the help, and what it does.
pub(super) const COMMANDS: [(&str, &str, &str); 19] = [
    ("help", "", "this"),
    ("model", "[NAME]", "the model that answers from now on; without a name: which one does"),
    ("models", "", "the models that there are; `@NAME question` asks one of them once"),
    ("tasks", "", "this session's open tasks"),
    ("cancel", "[ID]", "stop a task; without an id: stop the answer that is under way"),
    ("page", "", "the page where you confirm"),
    ("decline", "", "give no answer to the question that a task asks you"),
    ("later", "", "leave that question to the page"),
    ("usage", "", "tokens and cost of this question and of the session"),
    ("undo-prompt", "", "take the last question back, with all that came of it (/undo)"),
    ("undo", "", ""),
    ("clear", "", "begin the conversation anew; open tasks go on (/reset)"),
    ("reset", "", ""),
    ("new", "", "begin another session"),
    ("sessions", "", "the sessions that there are"),
    ("resume", "N", "go on with a session"),
    ("delete", "N", "delete a session"),
    ("exit", "", "leave; open tasks go on (Ctrl-D, /quit)"),
    ("quit", "", ""),
];

/// One thing to do.
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

/// All of one input.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Input {
    pub(super) commands: Vec<ChatCommand>,
    pub(super) question: Option<Question>,
}

/// What goes to a model.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Question {
    /// The one that is to answer this alone.
    pub(super) model: Option<String>,
    pub(super) text: String,
}

/// What was typed, understood; or in words what is wrong, and then nothing of it is done.
pub(super) fn understand(typed: &str) -> Result<Input, String> {
    let mut commands = Vec::new();
    let mut rest = Vec::new();
    for line in typed.replace("\\\n", "\n").split('\n') {
        match words_of(line) {
            Some((name, argument)) => commands.push(command(name, argument)?),
            None => rest.push(line.to_owned()),
        }
    }
    let text = rest.join("\n").trim().to_owned();
    Ok(Input { commands, question: question(&text)? })
}

/// The name and the argument of a line that is a command.
fn words_of(line: &str) -> Option<(&str, &str)> {
    let rest = line.strip_prefix(['/', '!'])?;
    let (name, argument) = rest.split_once(char::is_whitespace).unwrap_or((rest, ""));
    let is_name = name.starts_with(|c: char| c.is_ascii_alphabetic())
        && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '-' || c == '_');
    is_name.then(|| (name, argument.trim()))
}

fn command(name: &str, argument: &str) -> Result<ChatCommand, String> {
    let given = || (!argument.is_empty()).then(|| argument.to_owned());
    let needed = || given().ok_or_else(|| format!("`/{name}` wants a number: /sessions shows them"));
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
        "resume" => ChatCommand::Resume(needed()?),
        "delete" => ChatCommand::Delete(needed()?),
        "exit" | "quit" => ChatCommand::Exit,
        _ => return Err(unknown(name)),
    };
    let takes_none = COMMANDS.iter().any(|(known, argument, _)| *known == name && argument.is_empty());
    if takes_none && !argument.is_empty() {
        return Err(format!("`/{name}` stands alone on its line"));
    }
    Ok(command)
}

fn unknown(name: &str) -> String {
    let near = nearest(name, COMMANDS.iter().map(|(name, ..)| *name), 1).pop();
    let hint = did_you_mean(near.map(|near| format!("/{near}"))).unwrap_or_else(|| "/help shows them".to_owned());
    format!("there is no command `/{name}`: {hint} (a blank before it makes it a question)")
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
        "" => Err(format!("what is `{model}` to be asked? `@{model} QUESTION`; for good: /model {model}")),
        text => Ok(Some(Question { model: Some(model.to_owned()), text: text.to_owned() })),
    }
}

/// What `/help` says.
pub(super) fn help() -> String {
    let shown = COMMANDS.iter().filter(|(.., what)| !what.is_empty());
    let lines = shown.map(|(name, argument, what)| format!("  {:<14} {what}\n", format!("/{name} {argument}")));
    let more = "A line that ends with \\ goes on in the next one. A `!` does as well as the `/`.\n\
                What you ask while an answer comes in stops that answer. Ctrl-C stops it too.\n";
    lines.chain([more.to_owned()]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asks(text: &str) -> Question {
        Question { model: None, text: text.to_owned() }
    }

    #[test]
    fn commands_are_taken_out_in_their_order_and_the_rest_is_asked() {
        let input = understand("/model b\nfirst\n!usage\nsecond \\\nthird").expect("understood");
        assert_eq!(input.commands, [ChatCommand::Model(Some("b".to_owned())), ChatCommand::Usage]);
        assert_eq!(input.question, Some(asks("first\nsecond \nthird")));
        assert_eq!(understand("  ").expect("nothing"), Input::default());
    }

    #[test]
    fn what_is_no_command_is_text_and_an_unknown_one_is_neither() {
        for text in ["/etc/passwd: whose is it?", "#!/bin/sh", "/", "!= is what?", "1/2"] {
            assert_eq!(understand(text).expect("text").question, Some(asks(text)));
        }
        assert_eq!(understand(" /models are dear").expect("text").question, Some(asks("/models are dear")));
        let told = understand("ask this\n!modle b").expect_err("unknown");
        assert!(told.starts_with("there is no command `/modle`: did you mean `/model`?"), "{told}");
        for wrong in ["/resume", "/exit now", "/zzzz"] {
            understand(wrong).expect_err(wrong);
        }
    }

    #[test]
    fn a_model_can_be_asked_once() {
        let input = understand("@local what is\nthis?").expect("understood");
        let expected = Question { model: Some("local".to_owned()), text: "what is\nthis?".to_owned() };
        assert_eq!(input.question, Some(expected));
        understand("@local").expect_err("nothing is asked");
    }

    #[test]
    fn every_command_of_the_list_is_one() {
        for (name, argument, _) in COMMANDS {
            let argument = if argument.is_empty() { "" } else { " 1" };
            let input = understand(&format!("/{name}{argument}")).expect(name);
            assert_eq!(input.commands.len(), 1, "{name}");
        }
        assert!(help().contains("/undo-prompt"));
    }
}
