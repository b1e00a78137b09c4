//! What the configuration in force allows: which models may answer, how deep agents may call each other, and whether a model
//! can do what a client's conversation needs. What it cannot do is refused, and never left out.

use agent_loop::model::conversation::{Image, ImageSource};
use agent_loop::model::provider::embeddings::Embeddings;
use agent_loop::model::registry::ChosenModel;
use agent_loop::model::view;
use agent_loop::one_tool;
use ground::config::ProviderKind;
use protocol::code::Code;
use protocol::error::ErrorBody;
use tokio::sync::watch;

use super::info::ModelInfo;
use super::{SessionService, account_of};
use crate::service::turn::{Asker, ClientConversation, ClientMessage};

impl SessionService {
    /// Why no question can be answered now, if no model is configured. A changed configuration may change that.
    pub fn check_model(&self) -> Result<(), ErrorBody> {
        self.settings.current().factory(false).models().choose(None).map(drop)
    }

    /// The models that may answer.
    pub fn models(&self) -> Vec<ModelInfo> {
        let settings = self.settings.current();
        let factory = settings.factory(false);
        let listed = factory.models().listed().map(|(name, model)| ModelInfo {
            name: name.to_owned(),
            description: model.description.clone(),
            window: model.window(),
            is_default: name == settings.config.agent.model,
        });
        listed.collect()
    }

    /// The names of the models that make embeddings.
    pub(crate) fn embedders(&self) -> Vec<String> {
        let settings = self.settings.current();
        settings.factory(false).models().embedders().into_iter().map(str::to_owned).collect()
    }

    /// Returns a vector for each text by the model of this name, at the expense of who asks.
    pub(crate) async fn embed(
        &self,
        asker: &Asker,
        model: &str,
        texts: Vec<String>,
        dimensions: Option<usize>,
    ) -> Result<Embeddings, ErrorBody> {
        let _permit = self.quotas.turn(asker)?;
        let settings = self.settings.current();
        let account = account_of(asker, &asker.narrow(&self.caller), &settings.config);
        let factory = settings.factory(false).as_ref().clone().at_expense_of(account);
        factory.embed(model, texts, dimensions).await
    }

    /// About how many tokens our own prompt and tool have in a request to this model.
    pub(crate) fn prompt_tokens(&self, model: Option<&str>) -> Result<u64, ErrorBody> {
        let (_, prompt) = self.settings.current().factory(false).system_prompt(model)?;
        let tool = one_tool::definition();
        let texts = [prompt, tool.description, tool.parameters.to_string()];
        Ok(texts.iter().map(|text| view::estimate_tokens(text)).sum())
    }

    /// Refuses a question of agents that called each other too often.
    pub(super) fn check_depth(&self, depth: u8) -> Result<(), ErrorBody> {
        let allowed = self.settings.current().config.agent.depth;
        if depth <= allowed {
            return Ok(());
        }
        Err(ErrorBody::new(Code::TooDeep, format!("{depth} agents called each other, and {allowed} may"))
            .hint("do it yourself, or ask the user; `depth` under [agent] is the limit"))
    }

    /// Why the configuration that was read last is not in force, whenever that changes.
    pub(crate) fn config_problem(&self) -> watch::Receiver<Option<String>> {
        self.settings.problem()
    }

    /// Refuses a conversation that needs what its model cannot do.
    pub(super) fn check_abilities(&self, conversation: &ClientConversation) -> Result<(), ErrorBody> {
        let factory = self.settings.current().factory(false);
        check(&factory.models().choose(conversation.model.as_deref())?, conversation)
    }
}

fn check(chosen: &ChosenModel, conversation: &ClientConversation) -> Result<(), ErrorBody> {
    let ChosenModel { name, model } = chosen;
    let refused = |message: String, hint: String| Err(ErrorBody::new(Code::InvalidInput, message).hint(hint));
    if !conversation.tools.is_empty() && !model.tools {
        let message = format!("the model `{name}` writes its calls as text, and can be given no `tools` of the client");
        return refused(message, "leave `tools` out, or name another model".to_owned());
    }
    let images = conversation.messages.iter().flat_map(images);
    let mut images = images.peekable();
    if images.peek().is_some() && !model.takes_images() {
        let message = format!("the model `{name}` takes no images");
        return refused(
            message,
            format!("send text only; if it does take them, set `images = true` under [models.{name}]"),
        );
    }
    let takes_urls = !matches!(model.provider, ProviderKind::Ollama | ProviderKind::Gemini);
    if !takes_urls && images.any(|image| matches!(image.source, ImageSource::Url(_))) {
        let message = format!("the provider of the model `{name}` does not fetch images");
        return refused(message, "send the data of the image itself".to_owned());
    }
    if let Some(option) = conversation.answers.unknown_to(model.provider) {
        let message = format!("the provider of the model `{name}` has no field for {option}");
        return refused(message, "leave it out, or name another model".to_owned());
    }
    Ok(())
}

fn images(message: &ClientMessage) -> &[Image] {
    match message {
        ClientMessage::User { images, .. } => images,
        ClientMessage::Assistant { .. } | ClientMessage::Results(_) => &[],
    }
}
