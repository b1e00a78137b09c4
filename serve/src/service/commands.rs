//! The commands of a message, as every interface has them.

use std::fmt::Write as _;
use std::sync::Arc;

use agent_loop::driver::LoopCommand;
use agent_loop::input::{ChatCommand, InputPlace};
use agent_loop::machine::Spending;
use protocol::caller::Caller;
use protocol::code::Code;
use protocol::error::ErrorBody;
use protocol::task::State;
use protocol::wording::counted;
use serde_json::Value;

use super::SessionService;
use crate::service::turn::Asker;

impl SessionService {
    /// Performs the commands in their order, and returns what they print. A program is told of the first that fails, and
    /// none after it is performed; people read it among the answers.
    pub(super) async fn perform(
        self: &Arc<Self>,
        commands: Vec<ChatCommand>,
        number: u32,
        asker: &Asker,
    ) -> Result<String, ErrorBody> {
        let mut printed = String::new();
        for command in commands {
            let text = match Box::pin(self.command(command, number, asker)).await {
                Ok(text) => text,
                Err(error) if asker.interface == "api" => return Err(error),
                Err(error) => match &error.hint {
                    Some(hint) => format!("{}; {hint}", error.message),
                    None => error.message,
                },
            };
            printed.push_str(text.trim_end());
            printed.push('\n');
        }
        Ok(printed)
    }

    /// Makes sure that an executor runs.
    pub(crate) async fn ensure_executor(self: &Arc<Self>) {
        let harmless = ["tasks", "--state=pending", "--limit=1"].map(str::to_owned).to_vec();
        drop(self.call(harmless, self.caller.clone()).await);
    }

    async fn command(self: &Arc<Self>, command: ChatCommand, number: u32, asker: &Asker) -> Result<String, ErrorBody> {
        Ok(match command {
            ChatCommand::Help => InputPlace::Client.help(),
            ChatCommand::Models => self.model_list(number, asker).await,
            ChatCommand::Model(None) => {
                format!("the current model is {}; !models lists the others", self.current_model(number).await)
            }
            ChatCommand::Model(Some(name)) => {
                asker.allowed_model(Some(name.clone()))?;
                self.load(number, Some(asker)).await?.use_model(&name).await?;
                format!("switched to {name}")
            }
            ChatCommand::Tools(words) => self.tools(words, asker).await?,
            ChatCommand::Tasks => self.task_list(number, asker).await?,
            ChatCommand::Cancel(None) => {
                let (_, was_busy) = self.cancel(&number.to_string(), asker, false).await?;
                if was_busy { "stopped; open tasks continue" } else { "nothing is running" }.to_owned()
            }
            ChatCommand::Cancel(Some(id)) => self.cancel_task(&id, number, asker).await?,
            ChatCommand::Page => "open the page from your own terminal: agent-magic-tool executor page".to_owned(),
            ChatCommand::Preview(None) => {
                let live = self.load(number, Some(asker)).await?;
                match live.log.preview() {
                    0 => "each result is shown whole".to_owned(),
                    chars => format!("{chars} characters of each result are shown"),
                }
            }
            ChatCommand::Preview(Some(chars)) => {
                let live = self.load(number, Some(asker)).await?;
                live.log.set_preview(chars);
                live.send(LoopCommand::ShowAtMost(chars)).await?;
                format!("{chars} characters of each result are shown, 0 means all; the model always reads all of it")
            }
            ChatCommand::Usage => {
                let (question, session) = self.load(number, Some(asker)).await?.log.spending();
                format!("last question: {}\nthis session:  {}", spent(question), spent(session))
            }
            ChatCommand::Undo => {
                let live = self.load(number, Some(asker)).await?;
                if !live.log.take_back() {
                    return Ok("there is no question to take back".to_owned());
                }
                live.send(LoopCommand::Cancel).await?;
                live.send(LoopCommand::Undo).await?;
                "the last question is taken back; what its tasks did is not undone".to_owned()
            }
            ChatCommand::Clear => {
                self.reset(&number.to_string(), asker).await?;
                "the conversation starts over; open tasks continue".to_owned()
            }
            ChatCommand::Session => {
                let id = &asker.session;
                format!("session {number} ({id}), model {}", self.current_model(number).await)
            }
            ChatCommand::Sessions if asker.only_asks => {
                return Err(ErrorBody::new(Code::NeedsScope, "this API key may not read its sessions")
                    .hint("use one with the scope `read`"));
            }
            ChatCommand::Sessions => self.session_list(number, asker).await,
            ChatCommand::Delete(word) => {
                let deleted = self.delete(&word, asker, false).await?;
                format!("deleted session {deleted}; its open tasks continue")
            }
            // The terminal's own: its table does not offer them to clients.
            ChatCommand::Decline
            | ChatCommand::Later
            | ChatCommand::New
            | ChatCommand::Resume(_)
            | ChatCommand::Exit => "this command exists on the terminal only".to_owned(),
        })
    }

    async fn current_model(&self, number: u32) -> String {
        match self.loaded(number).await {
            // The last question may have been asked of another one.
            Some(live) => self.ledger.of(number).previous_model.unwrap_or_else(|| live.log.model()),
            None => self.settings.current().config.agent.model.clone(),
        }
    }

    async fn model_list(&self, number: u32, asker: &Asker) -> String {
        let current = self.current_model(number).await;
        let models = self.models().into_iter();
        let models = models.filter(|model| asker.model.as_ref().is_none_or(|only| *only == model.name));
        let lines = models.map(|model| {
            let mark = if model.name == current { "*" } else { " " };
            format!("{mark} {:<16} {}\n", model.name, model.description.unwrap_or_default())
        });
        lines.collect()
    }

    async fn session_list(&self, number: u32, asker: &Asker) -> String {
        let listed = self.sessions(asker).await;
        let lines = listed.into_iter().map(|session| {
            let mark = if session.number == number { "*" } else { " " };
            let client = session.client.as_deref().unwrap_or("terminal").to_owned();
            format!("{mark} {:<6} {:.16} {client}\n", session.number, session.began_at)
        });
        lines.collect()
    }

    async fn task_list(self: &Arc<Self>, number: u32, asker: &Asker) -> Result<String, ErrorBody> {
        let open = self.load(number, Some(asker)).await?.log.open_tasks();
        if open.is_empty() {
            return Ok("no open tasks".to_owned());
        }
        let mut text = String::new();
        for (task, state) in open {
            let state = match state {
                State::AwaitingConfirmation => "needs a decision on the page".to_owned(),
                state => state.to_string(),
            };
            // Writing to a string cannot fail.
            if writeln!(text, "  {} ({}) {state}", task.tool, task.id).is_ok() {}
        }
        Ok(text)
    }

    /// The subtools that fit some words, as `list tools` prints them; without words, the packs.
    async fn tools(self: &Arc<Self>, words: String, asker: &Asker) -> Result<String, ErrorBody> {
        let list = match words.as_str() {
            "" => vec!["list".to_owned(), "packs".to_owned()],
            words => vec!["list".to_owned(), "tools".to_owned(), format!("--query={words}")],
        };
        self.call(list, asker.narrow(&self.caller)).await
    }

    /// Cancels a task of the session. `word` is its id or the end of it.
    async fn cancel_task(self: &Arc<Self>, word: &str, number: u32, asker: &Asker) -> Result<String, ErrorBody> {
        let live = self.load(number, Some(asker)).await?;
        let open = live.log.open_tasks();
        let matching: Vec<_> =
            open.iter().map(|(task, _)| task.id.to_string()).filter(|id| id.ends_with(word)).collect();
        match matching.as_slice() {
            [id] => {
                let caller = Caller { session: Some(live.label.clone()), ..self.caller.clone() };
                self.call(vec!["cancel".to_owned(), id.clone()], caller).await
            }
            [] => Ok(format!("no open task of this session has an id that ends with `{word}`; !tasks lists them")),
            [..] => Ok(format!("several task ids end with `{word}`; type more of the id")),
        }
    }

    pub(super) async fn call(self: &Arc<Self>, words: Vec<String>, caller: Caller) -> Result<String, ErrorBody> {
        let shell = Arc::clone(&self.shell);
        let printed = tokio::task::spawn_blocking(move || shell.call(&words, "", &caller)).await;
        let printed = printed.map_err(|_| super::stopping())?;
        if !printed.stdout.is_empty() {
            return Ok(printed.stdout);
        }
        let error: Value = serde_json::from_str(printed.stderr.lines().last().unwrap_or_default()).unwrap_or_default();
        Ok(error["error"]["message"].as_str().unwrap_or(printed.stderr.as_str()).to_owned())
    }
}

fn spent(Spending { requests, usage, cost }: Spending) -> String {
    let (requests, input) = (counted(requests, "request"), counted(usage.input, "token"));
    format!("{requests}, {input} in, {} out, cost {cost:.4}", usage.output)
}
