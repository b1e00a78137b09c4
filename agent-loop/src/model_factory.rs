//! Creates the models of sessions: the client with its key, and the system prompt.

use std::path::PathBuf;
use std::sync::Arc;

use ground::base::async_runtime;
use ground::config::secret::Secrets;
use ground::config::{Config, ModelSettings};
use net::clients::HttpClients;
use nix::unistd::Uid;
use protocol::code::Code;
use protocol::error::{ErrorBody, chain};
use protocol::paths::Paths;
use protocol::tool_scope::ToolScope;

use super::driver::ActiveModel;
use super::one_tool;
use crate::model::ledger::{Budgeted, ChargedAccount, Ledger, SpendingAccount};
use crate::model::prompt::{self, PromptMode, PromptSection};
use crate::model::provider::client::{ModelClient, trust_of};
use crate::model::provider::embeddings::Embeddings;
use crate::model::registry::ModelRegistry;
use crate::model::view::ContextBounds;

/// Creates the active model of a session: its client and its system prompt.
#[derive(Debug, Clone)]
pub struct ModelFactory {
    models: Arc<ModelRegistry>,
    ledger: Arc<Ledger>,
    account: ChargedAccount,
    mode: PromptMode,
    clients: Arc<HttpClients>,
    secrets: Secrets,
    prompt_folder: PathBuf,
    focus: Option<String>,
    /// The instructions for a delegated agent, added to the end of the system prompt.
    instructions: Option<String>,
    stream: bool,
}

impl ModelFactory {
    pub fn new(config: &Config, paths: &Paths, mode: PromptMode, focus: Option<String>) -> Result<Self, ErrorBody> {
        let clients = HttpClients::new(config).map_err(|error| ErrorBody::new(Code::BadConfig, chain(&error)))?;
        Ok(Self {
            models: Arc::new(ModelRegistry::new(config)),
            ledger: Arc::new(Ledger::in_state(&paths.state)),
            account: ChargedAccount::new(SpendingAccount::new(
                Uid::effective().as_raw(),
                None,
                &ToolScope::default(),
                config,
            )),
            mode,
            clients: Arc::new(clients),
            secrets: Secrets::of(paths, config),
            prompt_folder: paths.prompts(),
            focus,
            instructions: None,
            stream: config.agent.stream,
        })
    }

    /// Adds instructions to the end of the system prompt.
    #[must_use]
    pub fn instructed(self, instructions: Option<String>) -> Self {
        Self { instructions, ..self }
    }

    /// Asks at the expense of this account, and not at that of our own user.
    #[must_use]
    pub fn at_expense_of(self, account: SpendingAccount) -> Self {
        Self { account: ChargedAccount::new(account), ..self }
    }

    /// From here on, its models ask at the expense of this account.
    pub fn charge(&self, account: SpendingAccount) {
        self.account.set(account);
    }

    /// Overrides whether answers are streamed.
    #[must_use]
    pub fn streaming(self, stream: Option<bool>) -> Self {
        Self { stream: stream.unwrap_or(self.stream), ..self }
    }

    pub fn models(&self) -> &ModelRegistry {
        &self.models
    }

    /// Returns whether the model of this name writes its calls as text.
    pub fn writes_calls(&self, name: &str) -> bool {
        self.models.choose(Some(name)).is_ok_and(|chosen| !chosen.model.tools)
    }

    /// Creates the active model with this name, or the configured one if `name` is `None`.
    pub async fn activate(&self, name: Option<&str>) -> Result<ActiveModel, ErrorBody> {
        let chosen = self.models.choose(name)?;
        let (_, system) = self.prompt_for(Some(&chosen.model))?;
        // An eighth is for the answer, the system prompt and the tool.
        let tokens = chosen.model.window() - chosen.model.window() / 8;
        let (native_calls, bounds) = (chosen.model.tools, ContextBounds { messages: chosen.model.max_context, tokens });
        let (name, trust) = (chosen.name.clone(), trust_of(&chosen.model));
        let client = ModelClient::new(chosen, self.stream, &self.clients, &self.secrets).await?;
        Ok(ActiveModel { name, provider: Arc::new(self.budgeted(client)), system, native_calls, bounds, trust })
    }

    /// Returns a vector for each text by the model of this name, of `dimensions` numbers if the model can shorten them.
    pub async fn embed(
        &self,
        name: &str,
        texts: Vec<String>,
        dimensions: Option<usize>,
    ) -> Result<Embeddings, ErrorBody> {
        let chosen = self.models.choose_embedder(name)?;
        let client = ModelClient::new(chosen, false, &self.clients, &self.secrets).await?;
        Ok(self.budgeted(client).embed(texts, dimensions).await?)
    }

    fn budgeted(&self, client: ModelClient) -> Budgeted<ModelClient> {
        Budgeted::new(client, Some(Arc::clone(&self.ledger)), self.account.clone())
    }

    /// Like [`Self::activate`], for a caller outside a runtime. Blocks while the key is read.
    pub fn activate_blocking(&self, name: Option<&str>) -> Result<ActiveModel, ErrorBody> {
        async_runtime::start_on_this_thread()?.block_on(self.activate(name))
    }

    /// Returns the sections that the user added, and the whole system prompt of a model. Without a name and a
    /// configured model, it is the prompt for a model with native tool calls.
    pub fn system_prompt(&self, name: Option<&str>) -> Result<(Vec<PromptSection>, String), ErrorBody> {
        match self.models.choose(name) {
            Ok(chosen) => self.prompt_for(Some(&chosen.model)),
            Err(_) if name.is_none() => self.prompt_for(None),
            Err(error) => Err(error),
        }
    }

    fn prompt_for(&self, model: Option<&ModelSettings>) -> Result<(Vec<PromptSection>, String), ErrorBody> {
        let sections = prompt::sections(&self.prompt_folder).map_err(|error| {
            ErrorBody::new(Code::BadConfig, chain(&error)).hint("fix the file, or remove it from `prompt/`")
        })?;
        let tool = one_tool::definition();
        let writes_calls = model.is_some_and(|model| !model.tools);
        let preamble = model.and_then(|model| model.system.as_deref());
        let mut text = prompt::compose(preamble, self.mode, &sections, writes_calls.then_some(&tool));
        if let Some(focus) = &self.focus {
            text = format!("{text}\n\n# focus\n\nKeep to this: {focus}");
        }
        if let Some(instructions) = &self.instructions {
            text = format!("{text}\n\n# your part\n\n{instructions}");
        }
        Ok((sections, text))
    }
}
