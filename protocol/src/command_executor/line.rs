//! Parses a command line as a shell would, but never expands anything.
//!
//! Whatever a shell would expand (`$VAR`, `$(...)`, globs, `~`, braces) or do itself (redirection to files,
//! background jobs, control structures) is a [`Refusal`] that names it. So every word of an accepted line is
//! exactly the argument that a shell would pass to the program. `words.rs` parses words, `here.rs`
//! here-documents. The grammar is POSIX.1-2024, "Shell Command Language", with bash's `$'..'` and `<<<`.

mod here;
mod words;

use here::HereDocument;
use words::{Word, WordReader};

/// A line that can be run.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct CommandLine {
    pub pipelines: Vec<Pipeline>,
    /// The texts of here-documents and here-strings; commands refer to them by index.
    texts: Vec<String>,
}

/// Commands connected by pipes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Pipeline {
    pub condition: PipelineCondition,
    pub commands: Vec<SimpleCommand>,
}

/// The outcome of the previous pipeline after which a pipeline is run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PipelineCondition {
    Always,
    Success,
    Failure,
}

/// A program's name and its arguments.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct SimpleCommand {
    pub words: Vec<String>,
    pub stdout: StreamTarget,
    pub stderr: StreamTarget,
    /// Index of the text that the command reads.
    stdin: Option<usize>,
}

/// Where standard output or standard error of a command goes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum StreamTarget {
    /// The default target of the stream.
    #[default]
    Own,
    /// The default target of the other stream.
    Other,
    Null,
}

/// Why a line is not run.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum Refusal {
    /// The line needs a real shell.
    #[error("`{construct}` is not supported here: nothing is expanded, redirected or run in the background")]
    Shell { construct: String, hint: &'static str },
    #[error("{problem}")]
    Malformed { problem: String, hint: &'static str },
}

impl Refusal {
    fn shell(construct: impl Into<String>, hint: &'static str) -> Self {
        Self::Shell { construct: construct.into(), hint }
    }

    fn malformed(problem: impl Into<String>, hint: &'static str) -> Self {
        Self::Malformed { problem: problem.into(), hint }
    }

    pub(super) fn hint(&self) -> &'static str {
        match self {
            Self::Shell { hint, .. } | Self::Malformed { hint, .. } => hint,
        }
    }
}

/// The reserved words of POSIX and bash, which are special in place of a program's name.
const RESERVED: [&str; 21] = [
    "!", "{", "}", "[[", "]]", "case", "coproc", "do", "done", "elif", "else", "esac", "fi", "for", "function", "if",
    "select", "then", "time", "until", "while",
];

const PLAIN_COMMANDS: &str = "write plain commands, joined by `;`, `&&`, `||` or `|`";
const PASS_FILES: &str = "pass the file's path as an argument: cat, head, tail, grep, jq, wc and ls read result files";
const NO_FILES: &str = "files cannot be written here; every result is already in its result file";

/// Parses `text`; an empty line has no pipelines.
pub(super) fn parse(text: &str) -> Result<CommandLine, Refusal> {
    if text.contains('\0') {
        return Err(Refusal::malformed("the line contains a NUL byte", "remove it"));
    }
    Parser { reader: WordReader::new(text), ..Parser::default() }.parse()
}

impl CommandLine {
    /// The here-document or here-string of `command`, if any.
    pub(super) fn stdin_of(&self, command: &SimpleCommand) -> Option<&str> {
        self.texts.get(command.stdin?).map(String::as_str)
    }

    /// All commands, in the order of the line.
    pub(super) fn commands(&self) -> impl Iterator<Item = &SimpleCommand> {
        self.pipelines.iter().flat_map(|pipeline| &pipeline.commands)
    }
}

#[derive(Debug, Default)]
struct Parser {
    reader: WordReader,
    line: CommandLine,
    /// The pipeline that is being parsed, and its condition.
    commands: Vec<SimpleCommand>,
    condition: Option<PipelineCondition>,
    command: SimpleCommand,
    /// The here-documents whose text starts on the next line.
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
                    // After an operator the pipeline continues on the next line.
                    let continues = self.command == SimpleCommand::default()
                        && (!self.commands.is_empty() || self.condition.is_some());
                    if !continues {
                        self.end_pipeline(None)?;
                    }
                    self.read_here_documents()?;
                }
                Some(';') if self.reader.follows(";;") => return Err(Refusal::shell(";;", PLAIN_COMMANDS)),
                Some(';') => {
                    self.reader.next();
                    self.require_command("`;`")?;
                    self.end_pipeline(None)?;
                }
                Some('&') => self.ampersand()?,
                Some('|') => self.bar()?,
                Some(parenthesis @ ('(' | ')')) => return Err(Refusal::shell(parenthesis, PLAIN_COMMANDS)),
                Some('<') => self.input()?,
                Some('>') => self.output("1")?,
                Some(_) => self.word()?,
            }
        }
        if let Some(open) = self.pending.first() {
            return Err(open.unterminated());
        }
        if self.condition.is_some() || !self.commands.is_empty() {
            self.require_command("the end of the line")?;
        }
        self.end_pipeline(None)?;
        Ok(self.line)
    }

    fn ampersand(&mut self) -> Result<(), Refusal> {
        if self.reader.take("&&") {
            self.require_command("`&&`")?;
            return self.end_pipeline(Some(PipelineCondition::Success));
        }
        if self.reader.follows("&>") {
            let operator = if self.reader.take("&>>") { "&>>" } else { "&>" };
            self.reader.take("&>");
            self.discard(operator)?;
            (self.command.stdout, self.command.stderr) = (StreamTarget::Null, StreamTarget::Null);
            return Ok(());
        }
        Err(Refusal::shell(
            "&",
            "`run` already works in the background: it returns at once, and `wait` gets the result",
        ))
    }

    fn bar(&mut self) -> Result<(), Refusal> {
        if self.reader.take("||") {
            self.require_command("`||`")?;
            return self.end_pipeline(Some(PipelineCondition::Failure));
        }
        if self.reader.follows("|&") {
            return Err(Refusal::shell("|&", "write `2>&1 |`"));
        }
        self.reader.next();
        self.require_command("`|`")?;
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
            self.pending.push(HereDocument { delimiter: word.text, is_literal: word.is_quoted, strips_tabs, text });
            return Ok(());
        }
        let construct = ["<(", "<&", "<>"].into_iter().find(|operator| self.reader.follows(operator)).unwrap_or("<");
        Err(Refusal::shell(construct, PASS_FILES))
    }

    /// Parses a redirection of output; the only supported file is `/dev/null`.
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
                    StreamTarget::Null => StreamTarget::Null,
                },
                _ => return Err(Refusal::shell(format!(">&{to}"), NO_FILES)),
            };
            return if self.reader.is_at_word_end() { Ok(()) } else { Err(Refusal::shell(">&", NO_FILES)) };
        }
        let operator = if self.reader.take(">") { ">>" } else { ">" };
        self.discard(operator)?;
        let SimpleCommand { stdout, stderr, .. } = &mut self.command;
        *if is_stdout { stdout } else { stderr } = StreamTarget::Null;
        Ok(())
    }

    /// Parses the file after `operator`, which must be `/dev/null`.
    fn discard(&mut self, operator: &str) -> Result<(), Refusal> {
        match self.operand(operator)?.text.as_str() {
            "/dev/null" => Ok(()),
            file => Err(Refusal::shell(format!("{operator} {file}"), NO_FILES)),
        }
    }

    fn operand(&mut self, operator: &str) -> Result<Word, Refusal> {
        self.reader.skip_blanks();
        if self.reader.is_at_word_end() || self.reader.peek() == Some('#') {
            return Err(Refusal::malformed(format!("`{operator}` has no operand"), PLAIN_COMMANDS));
        }
        let word = self.reader.word()?;
        if word.is_number() && matches!(self.reader.peek(), Some('<' | '>')) {
            // To a shell, the number belongs to the next redirection.
            return Err(Refusal::malformed(format!("`{operator}` has no operand"), PLAIN_COMMANDS));
        }
        Ok(word)
    }

    fn word(&mut self) -> Result<(), Refusal> {
        let word = self.reader.word()?;
        match self.reader.peek() {
            Some('>') if word.is_number() => return self.output(&word.text),
            Some('<') if word.is_number() => return Err(Refusal::shell(format!("{}<", word.text), PASS_FILES)),
            _ => {}
        }
        if self.command.words.is_empty() {
            if let Some(name) = word.assigned() {
                let hint = "variables are not supported; write the value where it is needed";
                return Err(Refusal::shell(format!("{name}="), hint));
            }
            if !word.is_quoted && RESERVED.contains(&word.text.as_str()) {
                return Err(Refusal::shell(word.text, PLAIN_COMMANDS));
            }
        }
        self.command.words.push(word.text);
        Ok(())
    }

    fn require_command(&self, before: &str) -> Result<(), Refusal> {
        if self.command.words.is_empty() {
            return Err(Refusal::malformed(format!("there is no command before {before}"), PLAIN_COMMANDS));
        }
        Ok(())
    }

    fn end_command(&mut self) -> Result<(), Refusal> {
        let command = std::mem::take(&mut self.command);
        if command.words.is_empty() && command != SimpleCommand::default() {
            return Err(Refusal::malformed("there is a redirection without a command", PLAIN_COMMANDS));
        }
        if !command.words.is_empty() {
            self.commands.push(command);
        }
        Ok(())
    }

    fn end_pipeline(&mut self, next: Option<PipelineCondition>) -> Result<(), Refusal> {
        self.end_command()?;
        let condition = std::mem::replace(&mut self.condition, next).unwrap_or(PipelineCondition::Always);
        let commands = std::mem::take(&mut self.commands);
        if !commands.is_empty() {
            self.line.pipelines.push(Pipeline { condition, commands });
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
