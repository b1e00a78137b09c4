//! What the commands of a talk do.

use executor::agent::driver::LoopCommand;
use executor::agent::machine::Spending;
use protocol::shell::Shell as _;
use protocol::task::State;
use serde_json::Value;

use super::super::Args;
use super::input::{self, ChatCommand};
use super::running::RunningSession;
use super::state::Activity;
use super::words::{line, plain, short, span};
use super::{Chat, ChatFlow, WIDTH, farewell, is_there};
use crate::error::Error;
use crate::in_process::InProcess;

impl Chat<'_> {
    pub(super) fn command(&mut self, command: ChatCommand) -> Result<ChatFlow, Error> {
        match command {
            ChatCommand::Exit => return Ok(ChatFlow::Ends),
            ChatCommand::Help => self.say(&input::help()),
            ChatCommand::Model(None) => self.say(&format!("{} answers; /models shows the others", self.running.model)),
            ChatCommand::Model(Some(name)) => self.model(&name)?,
            ChatCommand::Models => self.say(&self.models()),
            ChatCommand::Tasks => self.say(&self.tasks()),
            ChatCommand::Cancel(None) if self.running.board.doing() == Activity::Nothing => {
                self.say("nothing is under way");
            }
            ChatCommand::Cancel(None) => is_there(self.running.board.stop())?,
            ChatCommand::Cancel(Some(id)) => self.cancel(&id),
            ChatCommand::Page => self.say(&self.doors.way()),
            ChatCommand::Decline => self.decline(),
            ChatCommand::Later => match self.running.board.question() {
                None => self.say("no task asks you anything"),
                Some(asked) => {
                    self.say(&format!("it waits on the page: {}", self.doors.way()));
                    self.next_question(&asked);
                }
            },
            ChatCommand::Usage => self.say(&self.usage()),
            ChatCommand::Undo => self.undo()?,
            ChatCommand::Clear => {
                let board = &self.running.board;
                is_there(board.stop() && board.command(LoopCommand::Clear))?;
                self.running.questions.clear();
                self.say("the conversation begins anew; open tasks go on");
            }
            ChatCommand::New => {
                let model = Some(self.running.model.clone());
                self.switch(&Args { session: None, go_on: false, model, ..self.args.clone() })?;
            }
            ChatCommand::Sessions => self.say(&self.sessions()?),
            ChatCommand::Resume(word) => self.resume(word)?,
            ChatCommand::Delete(word) => self.delete(&word),
        }
        Ok(ChatFlow::GoesOn)
    }

    fn model(&mut self, name: &str) -> Result<(), Error> {
        match self.running.models.take_here(Some(name)) {
            Err(error) => self.wrong(&error.into()),
            Ok(active_model) => {
                is_there(self.running.board.use_model(active_model))?;
                name.clone_into(&mut self.running.model);
                self.say(&format!("{name} answers from now on"));
            }
        }
        Ok(())
    }

    fn models(&self) -> String {
        let models = self.running.models.models().listed().map(|(name, model)| {
            let mark = if name == self.running.model { "*" } else { " " };
            let about = model.description.as_deref().or(model.model.as_deref()).unwrap_or_default();
            format!("{mark} {name:<16} {}\n", line(about, WIDTH))
        });
        models.collect()
    }

    fn tasks(&self) -> String {
        let open = self.running.board.open();
        if open.is_empty() {
            return "no open tasks".to_owned();
        }
        let one = |(id, task): &(protocol::task::TaskId, super::state::ChatTask)| {
            let state = match task.state {
                State::AwaitingConfirmation => "needs your yes: /page".to_owned(),
                state => state.to_string(),
            };
            format!("  {} ({}) {state}, {}\n", task.tool, short(*id), span(task.since.elapsed()))
        };
        open.iter().map(one).collect()
    }

    /// `word` is an id, or the end of one that is open here.
    fn cancel(&self, word: &str) {
        let open = self.running.board.open();
        let meant: Vec<_> = open.iter().map(|(id, _)| id.to_string()).filter(|id| id.ends_with(word)).collect();
        let id = match meant.as_slice() {
            [one] => one.clone(),
            [] => word.to_owned(),
            [..] => return self.say(&format!("several tasks end with `{word}`: type more of it")),
        };
        let words = ["cancel".to_owned(), id];
        let printed = InProcess::of(self.context).call(&words, "", &self.context.caller);
        let told: Value = serde_json::from_str(&printed.stdout).unwrap_or_default();
        let error: Value = serde_json::from_str(printed.stderr.lines().last().unwrap_or_default()).unwrap_or_default();
        match told["state"].as_str().or(told["status"].as_str()) {
            Some(state) => self.say(&format!("{}: {state}", words[1])),
            None => self.say(&plain(error["error"]["message"].as_str().unwrap_or("it could not be cancelled"))),
        }
    }

    fn decline(&self) {
        let Some(asked) = self.running.board.question() else { return self.say("no task asks you anything") };
        match self.doors.answer(&asked, None) {
            Ok(()) => {
                self.say("declined");
                self.next_question(&asked);
            }
            Err(error) => self.wrong(&error),
        }
    }

    fn usage(&self) -> String {
        let (question, session) = self.running.board.cost();
        format!("this question: {}\nthis session:  {}", used(question), used(session))
    }

    fn undo(&mut self) -> Result<(), Error> {
        let board = &self.running.board;
        let Some(question) = self.running.questions.pop() else {
            self.say("there is no question to take back");
            return Ok(());
        };
        is_there(board.stop() && board.command(LoopCommand::Undo))?;
        self.say("taken back, with what came of it; what tasks did stays done. Change it and ask again:");
        self.beginning = question;
        Ok(())
    }

    fn sessions(&self) -> Result<String, Error> {
        let listed = self.sessions.list()?;
        let lines = listed.iter().map(|one| {
            let mark = if one.number == self.running.number { "*" } else { " " };
            let question = line(one.question.as_deref().unwrap_or("(nothing was asked)"), WIDTH);
            format!("{mark} {:<6} {:.16} {question}\n", one.number, one.began_at.to_string())
        });
        Ok(lines.collect())
    }

    fn resume(&mut self, word: String) -> Result<(), Error> {
        if word == self.running.number.to_string() {
            self.say("it is this one");
            return Ok(());
        }
        self.switch(&Args { session: Some(word), go_on: false, model: None, ..self.args.clone() })
    }

    /// Goes over to another session; stays where that cannot be opened.
    fn switch(&mut self, args: &Args) -> Result<(), Error> {
        let (to, typing) = (self.to.clone(), std::sync::Arc::clone(&self.typing));
        match RunningSession::open(args, self.config, self.sessions, to, typing, &self.doors, self.context) {
            Err(error) => self.wrong(&error),
            Ok(opened) => {
                let left = std::mem::replace(&mut self.running, opened);
                let words = farewell(&left);
                left.leave(self.sessions)?;
                if !words.is_empty() {
                    self.say(&words);
                }
                self.greet();
            }
        }
        Ok(())
    }

    fn delete(&self, word: &str) {
        match self.sessions.delete(word) {
            Ok(_) => self.say(&format!("session {word} is deleted")),
            Err(error) => self.wrong(&error.into()),
        }
    }
}

fn used(spent: Spending) -> String {
    let Spending { requests, usage, cost } = spent;
    let cached = if usage.cached > 0 { format!(" ({} of them cached)", usage.cached) } else { String::new() };
    format!("{requests} requests, {} tokens in{cached}, {} out, cost {cost:.4}", usage.input, usage.output)
}
