//! Parses what a user typed: commands in their order, and the question for the model. The terminal and every network
//! interface read the same table.
//!
//! Every line that starts with `!word` is a command, on the terminal also `/word`. An unknown command rejects the whole
//! input, so that a mistyped command never reaches a model. A space before it makes the line text.

use protocol::nearest::{did_you_mean, nearest};

/// The most commands of one input; each may take a search.
const MAX_COMMANDS: usize = 16;
/// A longer word is no misspelled command.
const MAX_NAME_BYTES: usize = 64;

/// Where something is typed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum InputPlace {
    /// On the terminal of one human, which has one session at a time.
    Terminal,
    /// In a client of the server.
    Client,
}

/// A command as the table lists it.
#[derive(Debug, Clone, Copy)]
pub struct CommandRow {
    pub name: &'static str,
    pub argument: &'static str,
    /// What it does; empty for another name of a command.
    pub description: &'static str,
    /// Whether it exists only in this place.
    only: Option<InputPlace>,
}

const fn everywhere(name: &'static str, argument: &'static str, description: &'static str) -> CommandRow {
    CommandRow { name, argument, description, only: None }
}

const fn on_terminal(name: &'static str, argument: &'static str, description: &'static str) -> CommandRow {
    CommandRow { name, argument, description, only: Some(InputPlace::Terminal) }
}

/// All commands.
pub const COMMANDS: [CommandRow; 22] = [
    everywhere("help", "", "show this list"),
    everywhere("model", "[NAME]", "switch to another model; without a name, show the current one"),
    everywhere("models", "", "list the models; `@NAME question` asks one of them once"),
    everywhere("tools", "[WORDS]", "find subtools; without words, show what there is"),
    everywhere("tasks", "", "list the open tasks of this session"),
    everywhere("cancel", "[ID]", "cancel a task; without an id, stop the current answer"),
    everywhere("page", "", "the page where you approve tasks"),
    on_terminal("decline", "", "give no answer to a task's question"),
    on_terminal("later", "", "leave the question for the page"),
    everywhere("preview", "[N]", "show N characters of each result, 0 for all; the model always reads all of it"),
    everywhere("usage", "", "show tokens and cost of this question and of the session"),
    everywhere("undo-prompt", "", "take back the last question and its answer (undo)"),
    everywhere("undo", "", ""),
    everywhere("reset", "", "start the conversation over; open tasks continue (clear)"),
    everywhere("clear", "", ""),
    on_terminal("new", "", "start a new session"),
    everywhere("session", "", "show this session: its number, model and size"),
    everywhere("sessions", "", "list the sessions"),
    on_terminal("resume", "N", "resume a session"),
    everywhere("delete", "N", "delete a session"),
    on_terminal("exit", "", "leave; open tasks continue (Ctrl-D, /quit)"),
    on_terminal("quit", "", ""),
];

/// A command that a user typed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ChatCommand {
    Help,
    Model(Option<String>),
    Models,
    Tools(String),
    Tasks,
    Cancel(Option<String>),
    Page,
    Decline,
    Later,
    Preview(Option<usize>),
    Usage,
    Undo,
    Clear,
    New,
    Session,
    Sessions,
    Resume(String),
    Delete(String),
    Exit,
}

/// One parsed input.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct ChatInput {
    pub commands: Vec<ChatCommand>,
    pub question: Option<TypedQuestion>,
}

/// A question for a model.
#[derive(Debug, PartialEq, Eq)]
pub struct TypedQuestion {
    /// The model that answers only this question, if it is not the current one.
    pub model: Option<String>,
    pub text: String,
}

impl InputPlace {
    /// The commands of this place.
    pub fn commands(self) -> impl Iterator<Item = &'static CommandRow> {
        COMMANDS.iter().filter(move |row| row.only.is_none_or(|only| only == self))
    }

    /// The characters that begin a command; the first is the one that messages name.
    fn marks(self) -> &'static [char] {
        match self {
            Self::Terminal => &['/', '!'],
            Self::Client => &['!'],
        }
    }

    /// The text of a document within what is typed. A stranger may have written it, so no line of it is a command.
    pub fn quoted(self, document: &str) -> String {
        let is_like_a_command = |line: &str| line.trim_start().starts_with(self.marks());
        let quoted = |line: &str| if is_like_a_command(line) { format!("> {line}") } else { line.to_owned() };
        let text = document.replace("\\\n", "\n").lines().map(quoted).collect::<Vec<_>>().join("\n");
        if text.trim_start().starts_with('@') { format!("> {}", text.trim_start()) } else { text }
    }

    /// An input of which no line is a command.
    pub fn plain(typed: &str) -> ChatInput {
        let text = typed.trim();
        let question = (!text.is_empty()).then(|| TypedQuestion { model: None, text: text.to_owned() });
        ChatInput { commands: Vec::new(), question }
    }

    /// Parses an input. The error is a message for the user; no part of the input is performed then.
    pub fn parse(self, typed: &str) -> Result<ChatInput, String> {
        let mut commands: Vec<ChatCommand> = Vec::new();
        let mut rest = Vec::new();
        for line in typed.replace("\\\n", "\n").split('\n') {
            match split_command(line, self.marks()) {
                Some(_) if commands.len() == MAX_COMMANDS => {
                    return Err(format!("a message has at most {MAX_COMMANDS} commands, and this one has more"));
                }
                Some((name, argument)) => commands.push(self.command(name, argument)?),
                None => rest.push(line.to_owned()),
            }
        }
        let text = rest.join("\n").trim().to_owned();
        Ok(ChatInput { commands, question: self.question(&text)? })
    }

    fn command(self, name: &str, argument: &str) -> Result<ChatCommand, String> {
        let mark = self.marks()[0];
        let given = || (!argument.is_empty()).then(|| argument.to_owned());
        let required =
            || given().ok_or_else(|| format!("`{mark}{name}` needs a session number; {mark}sessions lists them"));
        let row = self.commands().find(|row| row.name == name).ok_or_else(|| self.unknown(name))?;
        if row.argument.is_empty() && !argument.is_empty() {
            return Err(format!("`{mark}{name}` takes no argument"));
        }
        Ok(match name {
            "help" => ChatCommand::Help,
            "model" => ChatCommand::Model(given()),
            "models" => ChatCommand::Models,
            "tools" => ChatCommand::Tools(argument.to_owned()),
            "tasks" => ChatCommand::Tasks,
            "cancel" => ChatCommand::Cancel(given()),
            "page" => ChatCommand::Page,
            "decline" => ChatCommand::Decline,
            "later" => ChatCommand::Later,
            "preview" => ChatCommand::Preview(match argument {
                "" => None,
                number => Some(number.parse().map_err(|_| {
                    format!("`{mark}preview` takes a number of characters, 0 for all, and not `{number}`")
                })?),
            }),
            "usage" => ChatCommand::Usage,
            "undo-prompt" | "undo" => ChatCommand::Undo,
            "clear" | "reset" => ChatCommand::Clear,
            "new" => ChatCommand::New,
            "session" => ChatCommand::Session,
            "sessions" => ChatCommand::Sessions,
            "resume" => ChatCommand::Resume(required()?),
            "delete" => ChatCommand::Delete(required()?),
            "exit" | "quit" => ChatCommand::Exit,
            _ => return Err(self.unknown(name)),
        })
    }

    fn unknown(self, name: &str) -> String {
        let mark = self.marks()[0];
        let near = nearest(name, self.commands().map(|row| row.name), 1).pop();
        let hint = did_you_mean(near.map(|near| format!("{mark}{near}")))
            .unwrap_or_else(|| format!("{mark}help lists all commands"));
        format!("no command named `{mark}{name}`: {hint} (to send it as text, start the line with a space)")
    }

    fn question(self, text: &str) -> Result<Option<TypedQuestion>, String> {
        if text.is_empty() {
            return Ok(None);
        }
        let Some(rest) = text.strip_prefix('@') else {
            return Ok(Some(TypedQuestion { model: None, text: text.to_owned() }));
        };
        let (model, text) = rest.split_once(char::is_whitespace).unwrap_or((rest, ""));
        match text.trim() {
            "" => {
                let mark = self.marks()[0];
                Err(format!("type a question after it: `@{model} QUESTION`; to switch models: {mark}model {model}"))
            }
            text => Ok(Some(TypedQuestion { model: Some(model.to_owned()), text: text.to_owned() })),
        }
    }

    /// Returns the text of the command `help`.
    pub fn help(self) -> String {
        let mark = self.marks()[0];
        let shown = self.commands().filter(|row| !row.description.is_empty());
        let lines = shown.map(|row| {
            format!("  {:<14} {}\n", format!("{mark}{} {}", row.name, row.argument).trim_end(), row.description)
        });
        let more = match self {
            Self::Terminal => {
                "End a line with \\ to continue it on the next line. `!` works in place of `/`.\n\
                 A new question stops the current answer, and so does Ctrl-C.\n"
            }
            Self::Client => {
                "Several commands may stand in one message, each on a line of its own; the rest is for the model.\n"
            }
        };
        lines.chain([more.to_owned()]).collect()
    }
}

/// Splits a command line into name and argument; `None` if the line is not a command.
fn split_command<'a>(line: &'a str, marks: &[char]) -> Option<(&'a str, &'a str)> {
    let rest = line.strip_prefix(marks)?;
    let (name, argument) = rest.split_once(char::is_whitespace).unwrap_or((rest, ""));
    let is_name = name.len() <= MAX_NAME_BYTES
        && name.starts_with(|c: char| c.is_ascii_alphabetic())
        && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '-' || c == '_');
    is_name.then(|| (name, argument.trim()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asks(text: &str) -> TypedQuestion {
        TypedQuestion { model: None, text: text.to_owned() }
    }

    #[test]
    fn commands_are_separated_from_the_question() {
        let input = InputPlace::Terminal.parse("/model b\nfirst\n!usage\nsecond \\\nthird").expect("parsed");
        assert_eq!(input.commands, [ChatCommand::Model(Some("b".to_owned())), ChatCommand::Usage]);
        assert_eq!(input.question, Some(asks("first\nsecond \nthird")));
        assert_eq!(InputPlace::Terminal.parse("  ").expect("nothing"), ChatInput::default());
    }

    #[test]
    fn an_unknown_command_is_an_error_and_other_lines_are_text() {
        for text in ["/etc/passwd: whose is it?", "#!/bin/sh", "/", "!= is what?", "1/2"] {
            assert_eq!(InputPlace::Terminal.parse(text).expect("text").question, Some(asks(text)));
        }
        assert_eq!(
            InputPlace::Terminal.parse(" /models are dear").expect("text").question,
            Some(asks("/models are dear"))
        );
        let message = InputPlace::Terminal.parse("ask this\n!modle b").expect_err("unknown");
        assert!(message.starts_with("no command named `/modle`: did you mean `/model`?"), "{message}");
        for wrong in ["/resume", "/exit now", "/zzzz"] {
            InputPlace::Terminal.parse(wrong).expect_err(wrong);
        }
    }

    #[test]
    fn a_model_can_be_asked_once() {
        let input = InputPlace::Terminal.parse("@local what is\nthis?").expect("parsed");
        let expected = TypedQuestion { model: Some("local".to_owned()), text: "what is\nthis?".to_owned() };
        assert_eq!(input.question, Some(expected));
        InputPlace::Terminal.parse("@local").expect_err("no question");
    }

    #[test]
    fn a_document_has_no_commands() {
        for place in [InputPlace::Terminal, InputPlace::Client] {
            for document in
                ["!delete 1", "a\n  !models\nb", "a\\\n!models", "@other ask", "\n\n @other ask", "a\r\n!reset\r\n"]
            {
                let parsed = place.parse(&place.quoted(document)).expect("text");
                assert!(parsed.commands.is_empty(), "{document:?}: {parsed:?}");
                assert_eq!(parsed.question.expect("a question").model, None, "{document:?}");
            }
        }
        assert_eq!(InputPlace::Client.quoted("a\n/etc\n- b @ c"), "a\n/etc\n- b @ c");
    }

    #[test]
    fn one_message_has_so_many_commands_and_no_endless_ones() {
        let many = |count: usize| InputPlace::Client.parse(&"!models\n".repeat(count));
        assert_eq!(many(MAX_COMMANDS).expect("commands").commands.len(), MAX_COMMANDS);
        assert_eq!(many(17).expect_err("too many"), "a message has at most 16 commands, and this one has more");
        let long = format!("!{}", "a".repeat(100_000));
        assert_eq!(InputPlace::Client.parse(&long).expect("text").question, Some(asks(&long)));
    }

    #[test]
    fn a_client_has_other_commands_and_one_mark() {
        let input = InputPlace::Client.parse("!preview 20\n/etc/passwd\n!tools send mail").expect("parsed");
        assert_eq!(input.commands, [ChatCommand::Preview(Some(20)), ChatCommand::Tools("send mail".to_owned())]);
        assert_eq!(input.question, Some(asks("/etc/passwd")));
        for wrong in ["!exit", "!resume 101", "!preview all", "!nonsense"] {
            let message = InputPlace::Client.parse(wrong).expect_err(wrong);
            assert!(message.contains("`!"), "{message}");
        }
        assert!(!InputPlace::Client.help().contains("exit"));
    }

    #[test]
    fn every_listed_command_is_parsed() {
        for CommandRow { name, argument, .. } in COMMANDS {
            let argument = if argument.is_empty() { "" } else { " 1" };
            let input = InputPlace::Terminal.parse(&format!("/{name}{argument}")).expect(name);
            assert_eq!(input.commands.len(), 1, "{name}");
        }
        assert!(InputPlace::Terminal.help().contains("/undo-prompt"));
    }
}
