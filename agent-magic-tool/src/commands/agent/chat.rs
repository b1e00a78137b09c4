//! `agent` without a question on a terminal: a talk, with answers, tasks and questions as they come.
//!
//! The person types on this thread, the session works on its own. Nothing here decides for the human: a yes
//! is given on the page, and what answers a task's question goes through the page's own door.

use std::io::IsTerminal as _;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::mpsc::{self, Sender};

use executor::agent::journal::SessionStore;
use executor::config::{Config, RuleAction};
use executor::model::registry::ModelRegistry;
use protocol::code::Exit;

use super::Args;
use crate::context::{Context, Stdin};
use crate::error::Error;
use crate::output::Output;

mod commands;
mod editor;
mod input;
mod question;
mod running;
mod screen;
mod state;
mod watch;
mod words;

use editor::{Editor, TypedLine};
use input::{Input, Question};
use running::RunningSession;
use state::Activity;
use watch::{QuestionWatcher, TerminalSessions};
use words::{cut, line, plain, short};

/// The longest line about a session.
const WIDTH: usize = 100;

/// Whether the words ask for a talk, and somebody is there to have it.
pub(super) fn is_wanted(args: &Args, context: &Context) -> bool {
    let is_person =
        matches!(context.stdin, Stdin::Process) && std::io::stdin().is_terminal() && context.output.is_terminal();
    is_person && args.prompt.is_none() && args.focus.is_none() && args.report.is_none() && !args.json
}

/// All of one talk.
struct Chat<'a> {
    args: &'a Args,
    config: &'a Config,
    sessions: &'a SessionStore,
    context: &'a Context,
    to: Sender<String>,
    typing: Arc<AtomicBool>,
    doors: TerminalSessions,
    running: RunningSession,
    /// What stands on the next line before anything is typed.
    beginning: String,
}

/// Whether the talk goes on.
#[derive(Debug, PartialEq, Eq)]
enum ChatFlow {
    GoesOn,
    Ends,
}

pub(super) fn run(args: &Args, config: &Config, sessions: &SessionStore, context: &Context) -> Result<Exit, Error> {
    let typing = Arc::new(AtomicBool::new(false));
    let models = ModelRegistry::new(config).names().into_iter().map(str::to_owned).collect();
    let history = context.paths.state.join("agent-history");
    let mut editor = Editor::new(history, models, sessions.clone(), Arc::clone(&typing))?;
    let (to, messages) = mpsc::channel();
    let printer = editor.print_above(messages);
    let told = talk(args, config, sessions, context, &mut editor, to, typing);
    // Without the line nothing is kept back for it any more.
    drop(editor);
    if printer.join().is_err() {
        return Err(Error::internal("the printer of the talk ended in the middle of its work"));
    }
    context.output.text(&told?)?;
    Ok(Exit::Ok)
}

/// Talks until somebody leaves; the words to leave with.
fn talk(
    args: &Args,
    config: &Config,
    sessions: &SessionStore,
    context: &Context,
    editor: &mut Editor,
    to: Sender<String>,
    typing: Arc<AtomicBool>,
) -> Result<String, Error> {
    let aside = Context {
        paths: context.paths.clone(),
        output: Output::to_chat(to.clone()),
        stdin: Stdin::Text(String::new()),
        caller: context.caller.clone(),
        dispatch: context.dispatch,
    };
    let doors = Arc::new(QuestionWatcher::new(aside));
    let running = RunningSession::open(args, config, sessions, to.clone(), Arc::clone(&typing), &doors, context)?;
    let mut talk = Chat { args, config, sessions, context, to, typing, doors, running, beginning: String::new() };
    talk.greet();
    let done = talk.listen(editor);
    let Chat { running, doors, .. } = talk;
    let farewell = farewell(&running);
    let left = running.leave(sessions);
    doors.leave();
    done?;
    left?;
    Ok(farewell)
}

impl Chat<'_> {
    fn listen(&mut self, editor: &mut Editor) -> Result<(), Error> {
        loop {
            self.running.board.begin_line(editor.columns());
            let beginning = std::mem::take(&mut self.beginning);
            match editor.read(&beginning)? {
                TypedLine::End => return Ok(()),
                TypedLine::Interrupt { had_text } => self.interrupt(had_text),
                TypedLine::Text(text) if text.trim().is_empty() => {}
                TypedLine::Text(text) => {
                    if self.typed(&text, editor)? == ChatFlow::Ends {
                        return Ok(());
                    }
                }
            }
        }
    }

    fn interrupt(&self, had_text: bool) {
        let board = &self.running.board;
        match board.doing() {
            Activity::Sleeps => self.say("the open tasks go on: /cancel ID stops one, /exit or Ctrl-D leaves"),
            Activity::Nothing if !had_text => self.say("nothing is under way; /exit or Ctrl-D leaves"),
            Activity::Nothing | Activity::Works => {
                // A session that has ended says so when it is asked next.
                board.command(executor::agent::driver::LoopCommand::Cancel);
            }
        }
    }

    fn typed(&mut self, text: &str, editor: &mut Editor) -> Result<ChatFlow, Error> {
        let Input { commands, question } = match input::understand(text) {
            Ok(input) => input,
            Err(wrong) => {
                editor.remember(text);
                self.say(&wrong);
                return Ok(ChatFlow::GoesOn);
            }
        };
        // What answers a task may be the person's alone, and is not remembered.
        let answers = commands.is_empty() && self.running.board.question().is_some();
        if !answers {
            editor.remember(text);
        }
        for command in commands {
            if self.command(command)? == ChatFlow::Ends {
                return Ok(ChatFlow::Ends);
            }
        }
        match question {
            None => {}
            Some(question) if answers => self.answer(text, &question),
            Some(question) => self.ask(question)?,
        }
        Ok(ChatFlow::GoesOn)
    }

    fn ask(&mut self, question: Question) -> Result<(), Error> {
        let RunningSession { board, models, model, .. } = &self.running;
        let is_asked = match question.model {
            None => board.ask(question.text.clone()),
            Some(name) => {
                // Both are had before anything is asked: a model that is not there is asked nothing.
                let active_model = models
                    .take_here(Some(&name))
                    .and_then(|active_model| Ok((active_model, models.take_here(Some(model))?)));
                match active_model {
                    Ok((active_model, back)) => board.ask_once(question.text.clone(), active_model, back),
                    Err(error) => {
                        self.wrong(&error.into());
                        return Ok(());
                    }
                }
            }
        };
        is_there(is_asked)?;
        self.running.questions.push(question.text);
        Ok(())
    }

    /// Answers the task that asks, with what was typed.
    fn answer(&mut self, text: &str, question: &Question) {
        let Some(asked) = self.running.board.question() else { return };
        // An `@` is no model here.
        let typed = if question.model.is_some() { text } else { &question.text };
        match question::answer(&asked, typed) {
            Err(wrong) => self.say(&wrong),
            Ok((content, words)) => match self.doors.answer(&asked, Some(&content)) {
                Ok(()) => {
                    self.say(&format!("answered: {}", plain(&words)));
                    self.next_question(&asked);
                }
                Err(error) => {
                    self.wrong(&error);
                    text.clone_into(&mut self.beginning);
                }
            },
        }
    }

    fn next_question(&self, over: &executor::page::terminal::PendingQuestion) {
        if let Some(next) = self.running.board.next_question(over.id) {
            self.say(&question::text(&next));
        }
    }

    fn say(&self, text: &str) {
        self.running.screen.say(text);
    }

    fn wrong(&self, error: &Error) {
        let body = error.body();
        let hint = body.hint.as_ref().map_or_else(String::new, |hint| format!("\n  {hint}"));
        self.say(&plain(&format!("{}{hint}", body.message)));
    }

    /// What somebody should know before they ask anything.
    fn greet(&self) {
        let RunningSession { number, model, questions, answer, board, .. } = &self.running;
        let open = match board.open().len() {
            0 => "no open tasks".to_owned(),
            1 => "1 open task".to_owned(),
            count => format!("{count} open tasks"),
        };
        let state = if questions.is_empty() { "new" } else { "gone on with" };
        self.say(&format!("session {number} ({state}), model {model}, {open}; /help says what can be typed"));
        self.say(self.banner());
        if let Some(question) = questions.last() {
            self.say(&format!("> {}", line(question, WIDTH)));
            if let Some(answer) = answer {
                self.say(&cut(&plain(answer), self.config.agent.preview));
            }
        } else if let Ok(Some(last)) = self.sessions.last_before(*number, self.context.caller.folder.as_deref()) {
            self.say(&format!("the last session of this folder is {last}: /resume {last} goes on with it"));
        }
    }

    /// What becomes of what changes something.
    fn banner(&self) -> &'static str {
        if self.args.read_only || self.context.caller.read_only {
            return "READ-ONLY: what is not declared to only read is refused in this session";
        }
        match self.config.confirm.writes {
            RuleAction::Ask => "what changes something asks you first, on the page (`confirm.writes` is `ask`)",
            RuleAction::Refuse => "what changes something is refused (`confirm.writes` is `refuse`)",
            RuleAction::Allow => {
                "WRITES ARE ALLOWED: what changes something runs unasked (`confirm.writes` is `allow`)"
            }
        }
    }
}

/// A session that has ended takes no wish; it says why when it is left.
fn is_there(is_there: bool) -> Result<(), Error> {
    if is_there { Ok(()) } else { Err(Error::internal("the session has ended")) }
}

/// What goes on, and how to come back.
fn farewell(running: &RunningSession) -> String {
    let open = running.board.open();
    if open.is_empty() && running.questions.is_empty() {
        return String::new();
    }
    let names: Vec<_> = open.iter().map(|(id, task)| format!("{} ({})", task.tool, short(*id))).collect();
    let goes_on = match open.len() {
        0 => String::new(),
        1 => format!("1 task goes on: {}; ", names.join(", ")),
        count => format!("{count} tasks go on: {}; ", names.join(", ")),
    };
    format!(
        "left session {}; {goes_on}to come back: agent-magic-tool agent --session {}\n",
        running.number, running.number
    )
}
