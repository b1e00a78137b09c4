//! `agent` without a question on a terminal: an interactive chat that shows answers and tasks as they happen.
//!
//! This thread reads what the user types; the session runs on its own thread. The chat cannot approve a task:
//! a human does that on the page. The answer to a task's question goes through a session of the page.

use std::io::IsTerminal as _;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::mpsc::{self, Sender};

use agent_loop::input::{ChatInput, InputPlace, TypedQuestion};
use agent_loop::journal::SessionStore;
use agent_loop::model::registry::ModelRegistry;
use agent_side::context::{Context, Stdin};
use agent_side::error::Error;
use agent_side::output::Output;
use agent_side::sanitized::sanitize;
use ground::config::{Config, RuleAction};
use ground::results::shown::preview;
use protocol::code::Exit;
use protocol::wording::inflected;

use super::Args;

mod commands;
mod editor;
mod question;
mod running;
mod screen;
mod state;
mod text;
mod watch;

use editor::{Editor, TypedLine};
use running::RunningSession;
use state::Activity;
use text::{one_line, short_id};
use watch::PageAccess;

/// The longest line about a session, in characters.
const WIDTH: usize = 100;

/// Returns whether the arguments ask for a chat, and the command runs on a terminal.
pub(super) fn is_wanted(args: &Args, context: &Context) -> bool {
    let is_interactive =
        matches!(context.stdin, Stdin::Process) && std::io::stdin().is_terminal() && context.output.is_terminal();
    is_interactive && args.prompt.is_none() && args.focus.is_none() && args.report.is_none() && !args.json
}

/// The state of one chat.
struct Chat<'a> {
    args: &'a Args,
    config: &'a Config,
    sessions: &'a SessionStore,
    context: &'a Context,
    /// Lines to print above the input line.
    lines: Sender<String>,
    typing: Arc<AtomicBool>,
    page: Arc<PageAccess>,
    running: RunningSession,
    /// The text that the next input line starts with.
    prefill: String,
}

/// Whether the chat continues.
#[derive(Debug, PartialEq, Eq)]
enum ChatFlow {
    Continue,
    Exit,
}

pub(super) fn run(args: &Args, config: &Config, sessions: &SessionStore, context: &Context) -> Result<Exit, Error> {
    let typing = Arc::new(AtomicBool::new(false));
    let models = ModelRegistry::new(config).names().into_iter().map(str::to_owned).collect();
    let history = context.paths.state.join("agent-history");
    let mut editor = Editor::new(history, models, sessions.clone(), Arc::clone(&typing))?;
    let (lines, printed_lines) = mpsc::channel();
    let printer = editor.print_above(printed_lines);
    let farewell = chat(args, config, sessions, context, &mut editor, lines, typing);
    // Without an input line, the printer prints everything that is left.
    drop(editor);
    if printer.join().is_err() {
        return Err(Error::internal("the printer thread of the chat panicked"));
    }
    context.output.text(&farewell?)?;
    Ok(Exit::Ok)
}

/// Runs the chat until the user leaves, and returns the farewell message.
fn chat(
    args: &Args,
    config: &Config,
    sessions: &SessionStore,
    context: &Context,
    editor: &mut Editor,
    lines: Sender<String>,
    typing: Arc<AtomicBool>,
) -> Result<String, Error> {
    let page_context = Context {
        paths: context.paths.clone(),
        output: Output::to_chat(lines.clone()),
        stdin: Stdin::Text(String::new()),
        caller: context.caller.clone(),
        dispatch: context.dispatch,
    };
    let page = Arc::new(PageAccess::new(page_context));
    let running = RunningSession::open(args, config, sessions, lines.clone(), Arc::clone(&typing), &page, context)?;
    let mut chat = Chat { args, config, sessions, context, lines, typing, page, running, prefill: String::new() };
    chat.greet();
    let done = chat.read_lines(editor);
    let Chat { running, page, .. } = chat;
    let farewell = farewell(&running);
    let left = running.leave(sessions);
    page.log_out();
    done?;
    left?;
    Ok(farewell)
}

impl Chat<'_> {
    fn read_lines(&mut self, editor: &mut Editor) -> Result<(), Error> {
        loop {
            self.running.state.begin_line(editor.columns());
            let prefill = std::mem::take(&mut self.prefill);
            match editor.read(&prefill)? {
                TypedLine::EndOfInput => return Ok(()),
                TypedLine::Interrupt { had_text } => self.interrupt(had_text),
                TypedLine::Text(text) if text.trim().is_empty() => {}
                TypedLine::Text(text) => {
                    if self.handle_line(&text, editor)? == ChatFlow::Exit {
                        return Ok(());
                    }
                }
            }
        }
    }

    fn interrupt(&self, had_text: bool) {
        let state = &self.running.state;
        match state.activity() {
            Activity::Sleeping => self.say("open tasks continue; /cancel ID cancels one, /exit or Ctrl-D leaves"),
            Activity::Idle if !had_text => self.say("nothing is running; /exit or Ctrl-D leaves"),
            Activity::Idle | Activity::Working => {
                // If the session has ended, the next question reports it.
                state.send(agent_loop::driver::LoopCommand::Cancel);
            }
        }
    }

    fn handle_line(&mut self, text: &str, editor: &mut Editor) -> Result<ChatFlow, Error> {
        let ChatInput { commands, question } = match InputPlace::Terminal.parse(text) {
            Ok(input) => input,
            Err(message) => {
                editor.remember(text);
                self.say(&message);
                return Ok(ChatFlow::Continue);
            }
        };
        // The answer to a task's question may be private, so it is not stored in the history.
        let answers_task = commands.is_empty() && self.running.state.question().is_some();
        if !answers_task {
            editor.remember(text);
        }
        for command in commands {
            if self.command(command)? == ChatFlow::Exit {
                return Ok(ChatFlow::Exit);
            }
        }
        match question {
            None => {}
            Some(question) if answers_task => self.answer(text, &question),
            Some(question) => self.ask(question)?,
        }
        Ok(ChatFlow::Continue)
    }

    fn ask(&mut self, question: TypedQuestion) -> Result<(), Error> {
        let RunningSession { state, model_factory, model, .. } = &self.running;
        let is_alive = match question.model {
            None => state.ask(question.text.clone()),
            Some(name) => {
                // Create both before asking, so that an unknown model changes nothing.
                let both = model_factory
                    .activate_blocking(Some(&name))
                    .and_then(|asked| Ok((asked, model_factory.activate_blocking(Some(model))?)));
                match both {
                    Ok((asked, current)) => state.ask_once(question.text.clone(), asked, current),
                    Err(error) => {
                        self.say_error(&error.into());
                        return Ok(());
                    }
                }
            }
        };
        ensure_alive(is_alive)?;
        self.running.questions.push(question.text);
        Ok(())
    }

    /// Answers a task's question with the text that the user typed.
    fn answer(&mut self, text: &str, question: &TypedQuestion) {
        let Some(pending) = self.running.state.question() else { return };
        // A leading `@` does not name a model here.
        let typed = if question.model.is_some() { text } else { &question.text };
        match question::answer(&pending, typed) {
            Err(message) => self.say(&message),
            Ok((content, shown)) => match self.page.answer(&pending, Some(&content)) {
                Ok(()) => {
                    self.say(&format!("answered: {}", sanitize(&shown)));
                    self.next_question(&pending);
                }
                Err(error) => {
                    self.say_error(&error);
                    text.clone_into(&mut self.prefill);
                }
            },
        }
    }

    /// Shows the question after `finished`, if another one waits.
    fn next_question(&self, finished: &ground::page_client::terminal::PendingQuestion) {
        if let Some(next) = self.running.state.next_question(finished.id) {
            self.say(&question::text(&next));
        }
    }

    fn say(&self, text: &str) {
        self.running.screen.say(text);
    }

    fn say_error(&self, error: &Error) {
        let body = error.body();
        let hint = body.hint.as_ref().map_or_else(String::new, |hint| format!("\n  {hint}"));
        self.say(&sanitize(&format!("{}{hint}", body.message)));
    }

    /// Shows the session, the confirmation policy, and the end of the conversation so far.
    fn greet(&self) {
        let RunningSession { number, model, questions, last_answer, state, .. } = &self.running;
        let open = match state.open_tasks().len() {
            0 => "no open tasks".to_owned(),
            1 => "1 open task".to_owned(),
            count => format!("{count} open tasks"),
        };
        let origin = if questions.is_empty() { "new" } else { "resumed" };
        self.say(&format!("session {number} ({origin}), model {model}, {open}; type /help for the commands"));
        self.say(self.policy());
        if let Some(question) = questions.last() {
            self.say(&format!("> {}", one_line(question, WIDTH)));
            if let Some(answer) = last_answer {
                self.say(&preview(&sanitize(answer), self.config.agent.preview));
            }
        } else if let Ok(Some(last)) = self.sessions.newest_before(*number, self.context.caller.folder.as_deref()) {
            self.say(&format!("the last session in this folder was {last}; to continue it, type /resume {last}"));
        }
    }

    /// Says what happens to tasks that change something.
    fn policy(&self) -> &'static str {
        let caller = super::caller(self.args, false, self.config, self.context);
        if caller.is_ok_and(|caller| self.config.restricts_to_reading(&caller)) {
            return "READ-ONLY: this session refuses every subtool that is not declared read-only";
        }
        match self.config.confirm.writes {
            RuleAction::Ask => "changes need your approval on the page (`confirm.writes` is `ask`)",
            RuleAction::Refuse => "changes are refused (`confirm.writes` is `refuse`)",
            RuleAction::Allow => {
                "WRITES ARE ALLOWED: changes are made without asking you (`confirm.writes` is `allow`)"
            }
        }
    }
}

/// Fails if the session has ended. [`RunningSession::leave`] then returns the reason.
fn ensure_alive(is_alive: bool) -> Result<(), Error> {
    if is_alive { Ok(()) } else { Err(Error::internal("the session has ended")) }
}

/// Says which tasks continue, and how to resume the session.
fn farewell(running: &RunningSession) -> String {
    let open = running.state.open_tasks();
    if open.is_empty() && running.questions.is_empty() {
        return String::new();
    }
    let names: Vec<_> = open.iter().map(|(id, task)| format!("{} ({})", task.tool, short_id(*id))).collect();
    let tasks = match open.len() {
        0 => String::new(),
        count => format!("{}: {}; ", inflected(count, "task continues", "tasks continue"), names.join(", ")),
    };
    format!(
        "left session {}; {tasks}to resume it: agent-magic-tool agent --session {}\n",
        running.number, running.number
    )
}
