//! Performs the commands of the chat.

use agent_loop::driver::LoopCommand;
use agent_loop::input::{ChatCommand, InputPlace};
use agent_loop::machine::Spending;
use agent_side::error::Error;
use agent_side::in_process::InProcess;
use agent_side::sanitized::sanitize;
use protocol::shell::Shell as _;
use protocol::task::State;
use protocol::wording::{counted, inflected};
use serde_json::Value;

use super::super::Args;
use super::running::RunningSession;
use super::state::Activity;
use super::text::{format_duration, one_line, short_id};
use super::{Chat, ChatFlow, WIDTH, ensure_alive, farewell};

impl Chat<'_> {
    pub(super) fn command(&mut self, command: ChatCommand) -> Result<ChatFlow, Error> {
        match command {
            ChatCommand::Exit => return Ok(ChatFlow::Exit),
            ChatCommand::Help => self.say(&InputPlace::Terminal.help()),
            ChatCommand::Model(None) => {
                self.say(&format!("the current model is {}; /models lists the others", self.running.model));
            }
            ChatCommand::Model(Some(name)) => self.switch_model(&name)?,
            ChatCommand::Models => self.say(&self.models()),
            ChatCommand::Tools(words) => self.say(&self.tools(&words)),
            ChatCommand::Tasks => self.say(&self.tasks()),
            ChatCommand::Cancel(None) if self.running.state.activity() == Activity::Idle => {
                self.say("nothing is running");
            }
            ChatCommand::Cancel(None) => ensure_alive(self.running.state.stop())?,
            ChatCommand::Cancel(Some(id)) => self.cancel(&id),
            ChatCommand::Page => self.say(&self.page.link()),
            ChatCommand::Decline => self.decline(),
            ChatCommand::Later => match self.running.state.question() {
                None => self.say("no task is asking you a question"),
                Some(pending) => {
                    self.say(&format!("you can answer it on the page: {}", self.page.link()));
                    self.next_question(&pending);
                }
            },
            ChatCommand::Preview(None) => match self.running.screen.preview() {
                0 => self.say("each result is shown whole"),
                chars => {
                    let (one, many) = ("character of each result is shown", "characters of each result are shown");
                    self.say(&inflected(chars, one, many));
                }
            },
            ChatCommand::Preview(Some(chars)) => {
                self.running.screen.set_preview(chars);
                ensure_alive(self.running.state.send(LoopCommand::ShowAtMost(chars)))?;
            }
            ChatCommand::Session => self.say(&format!(
                "session {}, model {}, {}",
                self.running.number,
                self.running.model,
                counted(self.running.questions.len(), "question")
            )),
            ChatCommand::Usage => self.say(&self.usage()),
            ChatCommand::Undo => self.undo()?,
            ChatCommand::Clear => {
                let state = &self.running.state;
                ensure_alive(state.stop() && state.send(LoopCommand::Clear))?;
                self.running.questions.clear();
                self.say("the conversation starts over; open tasks continue");
            }
            ChatCommand::New => {
                let model = Some(self.running.model.clone());
                self.switch(&Args { session: None, continue_newest: false, model, ..self.args.clone() })?;
            }
            ChatCommand::Sessions => self.say(&self.sessions()?),
            ChatCommand::Resume(word) => self.resume(word)?,
            ChatCommand::Delete(word) => self.delete(&word),
        }
        Ok(ChatFlow::Continue)
    }

    fn switch_model(&mut self, name: &str) -> Result<(), Error> {
        match self.running.model_factory.activate_blocking(Some(name)) {
            Err(error) => self.say_error(&error.into()),
            Ok(active_model) => {
                ensure_alive(self.running.state.use_model(active_model))?;
                name.clone_into(&mut self.running.model);
                self.say(&format!("switched to {name}"));
            }
        }
        Ok(())
    }

    fn models(&self) -> String {
        let models = self.running.model_factory.models().listed().map(|(name, model)| {
            let mark = if name == self.running.model { "*" } else { " " };
            let description = model.description.as_deref().or(model.model.as_deref()).unwrap_or_default();
            format!("{mark} {name:<16} {}\n", one_line(description, WIDTH))
        });
        models.collect()
    }

    /// The subtools that fit some words, as `list tools` prints them; without words, the packs.
    fn tools(&self, words: &str) -> String {
        let list = match words {
            "" => vec!["list".to_owned(), "packs".to_owned()],
            words => vec!["list".to_owned(), "tools".to_owned(), format!("--query={words}")],
        };
        let printed = InProcess::of(self.context).call(&list, "", &self.context.caller);
        sanitize(if printed.stdout.is_empty() { &printed.stderr } else { &printed.stdout })
    }

    fn tasks(&self) -> String {
        let open = self.running.state.open_tasks();
        if open.is_empty() {
            return "no open tasks".to_owned();
        }
        let one = |(id, task): &(protocol::task::TaskId, super::state::ChatTask)| {
            let state = match task.state {
                State::AwaitingConfirmation => "needs your approval: /page".to_owned(),
                state => state.to_string(),
            };
            format!("  {} ({}) {state}, {}\n", task.tool, short_id(*id), format_duration(task.since.elapsed()))
        };
        open.iter().map(one).collect()
    }

    /// Cancels a task. `word` is its id, or the end of the id of an open task of this session.
    fn cancel(&self, word: &str) {
        let open = self.running.state.open_tasks();
        let matching: Vec<_> = open.iter().map(|(id, _)| id.to_string()).filter(|id| id.ends_with(word)).collect();
        let id = match matching.as_slice() {
            [one] => one.clone(),
            [] => word.to_owned(),
            [..] => return self.say(&format!("several task ids end with `{word}`; type more of the id")),
        };
        let words = ["cancel".to_owned(), id];
        let printed = InProcess::of(self.context).call(&words, "", &self.context.caller);
        let answer: Value = serde_json::from_str(&printed.stdout).unwrap_or_default();
        let error: Value = serde_json::from_str(printed.stderr.lines().last().unwrap_or_default()).unwrap_or_default();
        match answer["state"].as_str().or(answer["status"].as_str()) {
            Some(state) => self.say(&format!("{}: {state}", words[1])),
            None => self.say(&sanitize(error["error"]["message"].as_str().unwrap_or("failed to cancel the task"))),
        }
    }

    fn decline(&self) {
        let Some(pending) = self.running.state.question() else {
            return self.say("no task is asking you a question");
        };
        match self.page.answer(&pending, None) {
            Ok(()) => {
                self.say("declined");
                self.next_question(&pending);
            }
            Err(error) => self.say_error(&error),
        }
    }

    fn usage(&self) -> String {
        let (question, session) = self.running.state.spending();
        format!("this question: {}\nthis session:  {}", format_spending(question), format_spending(session))
    }

    fn undo(&mut self) -> Result<(), Error> {
        let state = &self.running.state;
        let Some(question) = self.running.questions.pop() else {
            self.say("there is no question to take back");
            return Ok(());
        };
        ensure_alive(state.stop() && state.send(LoopCommand::Undo))?;
        self.say("question taken back; what its tasks did is not undone. Edit it and ask again:");
        self.prefill = question;
        Ok(())
    }

    fn sessions(&self) -> Result<String, Error> {
        let listed = self.sessions.list()?;
        let lines = listed.iter().map(|session| {
            let mark = if session.number == self.running.number { "*" } else { " " };
            let question = one_line(session.question.as_deref().unwrap_or("(no question yet)"), WIDTH);
            format!("{mark} {:<6} {:.16} {question}\n", session.number, session.began_at.to_string())
        });
        Ok(lines.collect())
    }

    fn resume(&mut self, word: String) -> Result<(), Error> {
        if word == self.running.number.to_string() {
            self.say("this is the current session");
            return Ok(());
        }
        self.switch(&Args { session: Some(word), continue_newest: false, model: None, ..self.args.clone() })
    }

    /// Switches to another session; stays in the current one if the other cannot be opened.
    fn switch(&mut self, args: &Args) -> Result<(), Error> {
        let (lines, typing) = (self.lines.clone(), std::sync::Arc::clone(&self.typing));
        match RunningSession::open(args, self.config, self.sessions, lines, typing, &self.page, self.context) {
            Err(error) => self.say_error(&error),
            Ok(opened) => {
                let left = std::mem::replace(&mut self.running, opened);
                let farewell = farewell(&left);
                left.leave(self.sessions)?;
                if !farewell.is_empty() {
                    self.say(&farewell);
                }
                self.greet();
            }
        }
        Ok(())
    }

    fn delete(&self, word: &str) {
        match self.sessions.delete(word) {
            Ok(_) => self.say(&format!("deleted session {word}")),
            Err(error) => self.say_error(&error.into()),
        }
    }
}

fn format_spending(spending: Spending) -> String {
    let Spending { requests, usage, cost } = spending;
    let cached = if usage.cached > 0 { format!(" ({} cached)", usage.cached) } else { String::new() };
    let (requests, input) = (counted(requests, "request"), counted(usage.input, "token"));
    format!("{requests}, {input} in{cached}, {} out, cost {cost:.4}", usage.output)
}
