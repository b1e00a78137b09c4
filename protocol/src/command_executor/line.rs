//! A command line as a model writes it: read as a shell reads it, and nothing of it ever expanded.
//!
//! What a shell would replace (`$VAR`, `$(...)`, globs, `~`, braces) or do by itself (files, background,
//! control) is no word of the result but a [`Refusal`] that names it, so that every accepted word is
//! exactly what a shell would hand to the program. `words.rs` reads words, `here.rs` here-documents.
//! Grammar: POSIX.1-2024, "Shell Command Language", with bash's `$'..'` and `<<<`.

mod here;
mod words;

use here::HereDocument;
use words::{Word, WordReader};

/// A line that can be carried out.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct CommandLine {
    pub pipelines: Vec<Pipeline>,
    /// What here-documents say; commands refer to it.
    texts: Vec<String>,
}

/// Commands of which each reads what the one before printed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Pipeline {
    pub after: PipelineCondition,
    pub commands: Vec<SimpleCommand>,
}

/// When a pipeline has its turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PipelineCondition {
    Anything,
    Success,
    Failure,
}

/// A program's name and its arguments.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct SimpleCommand {
    pub words: Vec<String>,
    pub stdout: StreamTarget,
    pub stderr: StreamTarget,
    stdin: Option<usize>,
}

/// Where one of the two output streams goes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum StreamTarget {
    /// Where it goes by itself.
    #[default]
    Own,
    /// Where the other one goes by itself.
    Other,
    Nowhere,
}

/// Why a line is not carried out.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum Refusal {
    #[error("`{construct}` is not carried out here: nothing is expanded, redirected or run in the background")]
    Shell { construct: String, instead: &'static str },
    #[error("{problem}")]
    Broken { problem: String, instead: &'static str },
}

impl Refusal {
    fn shell(construct: impl Into<String>, instead: &'static str) -> Self {
        Self::Shell { construct: construct.into(), instead }
    }

    fn broken(problem: impl Into<String>, instead: &'static str) -> Self {
        Self::Broken { problem: problem.into(), instead }
    }

    /// The way on.
    pub(super) fn hint(&self) -> &'static str {
        match self {
            Self::Shell { instead, .. } | Self::Broken { instead, .. } => instead,
        }
    }
}

/// What would make a word more than a program's name.
const RESERVED: [&str; 21] = [
    "!", "{", "}", "[[", "]]", "case", "coproc", "do", "done", "elif", "else", "esac", "fi", "for", "function", "if",
    "select", "then", "time", "until", "while",
];

const ONE_BY_ONE: &str = "write the commands one by one, joined by `;`, `&&`, `||` or `|`";
const GIVE_FILES: &str = "give the file's path as an argument: cat, head, tail, grep, jq, wc and ls read result files";
const NO_FILES: &str = "nothing can be written here; every result is in its result file already";

/// Reads `text`; an empty line has no pipelines.
pub(super) fn parse(text: &str) -> Result<CommandLine, Refusal> {
    if text.contains('\0') {
        return Err(Refusal::broken("the line contains a NUL byte", "leave it out"));
    }
    Parser { reader: WordReader::new(text), ..Parser::default() }.parse()
}

impl CommandLine {
    /// The text that `command` was given to read, if any.
    pub(super) fn stdin_of(&self, command: &SimpleCommand) -> Option<&str> {
        self.texts.get(command.stdin?).map(String::as_str)
    }

    /// Every command, in the order in which they stand.
    pub(super) fn commands(&self) -> impl Iterator<Item = &SimpleCommand> {
        self.pipelines.iter().flat_map(|pipeline| &pipeline.commands)
    }
}

#[derive(Debug, Default)]
struct Parser {
    reader: WordReader,
    line: CommandLine,
    /// The pipeline that is being read, and how it follows what is before it.
    commands: Vec<SimpleCommand>,
    after: Option<PipelineCondition>,
    command: SimpleCommand,
    pending: Vec<HereDocument>,
}

impl Parser {
    fn parse(mut self) -> Result<CommandLine, Refusal> {
        loop {
            self.reader.skip_blanks();
            match self.reader.peek() {
                None => break,
                Some('#') => self.reader.skip_comment(),
                Some('\n') => {
                    self.reader.next();
                    // What ends with an operator goes on.
                    let is_open =
                        self.command == SimpleCommand::default() && (!self.commands.is_empty() || self.after.is_some());
                    if !is_open {
                        self.end_pipeline(None)?;
                    }
                    self.read_here_documents()?;
                }
                Some(';') if self.reader.follows(";;") => return Err(Refusal::shell(";;", ONE_BY_ONE)),
                Some(';') => {
                    self.reader.next();
                    self.require_command(";")?;
                    self.end_pipeline(None)?;
                }
                Some('&') => self.ampersand()?,
                Some('|') => self.bar()?,
                Some(parenthesis @ ('(' | ')')) => return Err(Refusal::shell(parenthesis, ONE_BY_ONE)),
                Some('<') => self.input()?,
                Some('>') => self.output("1")?,
                Some(_) => self.word()?,
            }
        }
        if let Some(open) = self.pending.first() {
            return Err(open.never_ended());
        }
        if self.after.is_some() || !self.commands.is_empty() {
            self.require_command("the end")?;
        }
        self.end_pipeline(None)?;
        Ok(self.line)
    }

    fn ampersand(&mut self) -> Result<(), Refusal> {
        if self.reader.take("&&") {
            self.require_command("&&")?;
            return self.end_pipeline(Some(PipelineCondition::Success));
        }
        if self.reader.follows("&>") {
            let operator = if self.reader.take("&>>") { "&>>" } else { "&>" };
            self.reader.take("&>");
            self.discard(operator)?;
            (self.command.stdout, self.command.stderr) = (StreamTarget::Nowhere, StreamTarget::Nowhere);
            return Ok(());
        }
        Err(Refusal::shell(
            "&",
            "every `run` is in the background already: it returns at once, and `wait` gets the result",
        ))
    }

    fn bar(&mut self) -> Result<(), Refusal> {
        if self.reader.take("||") {
            self.require_command("||")?;
            return self.end_pipeline(Some(PipelineCondition::Failure));
        }
        if self.reader.follows("|&") {
            return Err(Refusal::shell("|&", "write `2>&1 |`"));
        }
        self.reader.next();
        self.require_command("|")?;
        self.end_command()
    }

    fn input(&mut self) -> Result<(), Refusal> {
        if self.reader.take("<<<") {
            let word = self.operand("<<<")?;
            self.command.stdin = Some(self.line.texts.len());
            self.line.texts.push(format!("{}\n", word.text));
            return Ok(());
        }
        if self.reader.take("<<") {
            let strips_tabs = self.reader.take("-");
            let word = self.operand("<<")?;
            self.command.stdin = Some(self.line.texts.len());
            self.line.texts.push(String::new());
            let text = self.line.texts.len() - 1;
            self.pending.push(HereDocument { end: word.text, is_literal: word.is_quoted, strips_tabs, text });
            return Ok(());
        }
        let construct = ["<(", "<&", "<>"].into_iter().find(|operator| self.reader.follows(operator)).unwrap_or("<");
        Err(Refusal::shell(construct, GIVE_FILES))
    }

    /// What follows `>`: of files only the one that keeps nothing.
    fn output(&mut self, descriptor: &str) -> Result<(), Refusal> {
        self.reader.next();
        let is_stdout = match descriptor {
            "1" => true,
            "2" => false,
            other => return Err(Refusal::shell(format!("{other}>"), NO_FILES)),
        };
        if let Some(operator) = [">(", "|"].into_iter().find(|operator| self.reader.follows(operator)) {
            return Err(Refusal::shell(format!(">{}", operator.trim_start_matches('>')), NO_FILES));
        }
        let SimpleCommand { stdout, stderr, .. } = &mut self.command;
        let (this, other) = if is_stdout { (stdout, *stderr) } else { (stderr, *stdout) };
        if self.reader.take("&") {
            let to = self.reader.digits();
            *this = match (to.as_str(), is_stdout) {
                ("1", true) | ("2", false) => *this,
                ("1", false) | ("2", true) => match other {
                    StreamTarget::Own => StreamTarget::Other,
                    StreamTarget::Other => StreamTarget::Own,
                    StreamTarget::Nowhere => StreamTarget::Nowhere,
                },
                _ => return Err(Refusal::shell(format!(">&{to}"), NO_FILES)),
            };
            return if self.reader.is_at_word_end() { Ok(()) } else { Err(Refusal::shell(">&", NO_FILES)) };
        }
        let operator = if self.reader.take(">") { ">>" } else { ">" };
        self.discard(operator)?;
        let SimpleCommand { stdout, stderr, .. } = &mut self.command;
        *if is_stdout { stdout } else { stderr } = StreamTarget::Nowhere;
        Ok(())
    }

    fn discard(&mut self, operator: &str) -> Result<(), Refusal> {
        match self.operand(operator)?.text.as_str() {
            "/dev/null" => Ok(()),
            file => Err(Refusal::shell(format!("{operator} {file}"), NO_FILES)),
        }
    }

    fn operand(&mut self, operator: &str) -> Result<Word, Refusal> {
        self.reader.skip_blanks();
        if self.reader.is_at_word_end() || self.reader.peek() == Some('#') {
            return Err(Refusal::broken(format!("nothing follows `{operator}`"), ONE_BY_ONE));
        }
        let word = self.reader.word()?;
        if word.is_number() && matches!(self.reader.peek(), Some('<' | '>')) {
            // To a shell the number belongs to what follows.
            return Err(Refusal::broken(format!("nothing follows `{operator}`"), ONE_BY_ONE));
        }
        Ok(word)
    }

    fn word(&mut self) -> Result<(), Refusal> {
        let word = self.reader.word()?;
        match self.reader.peek() {
            Some('>') if word.is_number() => return self.output(&word.text),
            Some('<') if word.is_number() => return Err(Refusal::shell(format!("{}<", word.text), GIVE_FILES)),
            _ => {}
        }
        if self.command.words.is_empty() {
            if let Some(name) = word.assigned() {
                let instead = "variables are not kept; write the value where it is needed";
                return Err(Refusal::shell(format!("{name}="), instead));
            }
            if !word.is_quoted && RESERVED.contains(&word.text.as_str()) {
                return Err(Refusal::shell(word.text, ONE_BY_ONE));
            }
        }
        self.command.words.push(word.text);
        Ok(())
    }

    fn require_command(&self, before: &str) -> Result<(), Refusal> {
        if self.command.words.is_empty() {
            return Err(Refusal::broken(format!("there is no command before `{before}`"), ONE_BY_ONE));
        }
        Ok(())
    }

    fn end_command(&mut self) -> Result<(), Refusal> {
        let command = std::mem::take(&mut self.command);
        if command.words.is_empty() && command != SimpleCommand::default() {
            return Err(Refusal::broken("there is a redirection and no command", ONE_BY_ONE));
        }
        if !command.words.is_empty() {
            self.commands.push(command);
        }
        Ok(())
    }

    fn end_pipeline(&mut self, next: Option<PipelineCondition>) -> Result<(), Refusal> {
        self.end_command()?;
        let after = std::mem::replace(&mut self.after, next).unwrap_or(PipelineCondition::Anything);
        let commands = std::mem::take(&mut self.commands);
        if !commands.is_empty() {
            self.line.pipelines.push(Pipeline { after, commands });
        }
        Ok(())
    }

    fn read_here_documents(&mut self) -> Result<(), Refusal> {
        for pending in std::mem::take(&mut self.pending) {
            self.line.texts[pending.text] = pending.read(&mut self.reader)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
