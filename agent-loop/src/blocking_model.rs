//! A model that a command asks without a session.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use ground::base::async_runtime;
use protocol::error::ErrorBody;
use tokio::runtime::Runtime;

use super::model_factory::ModelFactory;
use crate::model::answer_options::AnswerOptions;
use crate::model::conversation::ModelTurn;
use crate::model::provider::{Message, ModelFailure, ModelRequest, Provider};

/// How often a request that failed in passing is repeated.
const RETRIES: u32 = 3;
/// The longest delay that a provider may ask for.
const MAX_WAIT: Duration = Duration::from_mins(1);

/// A model for a caller outside a runtime.
pub struct BlockingModel {
    runtime: Runtime,
    provider: Arc<dyn Provider>,
}

impl BlockingModel {
    /// Opens the model with this name, or the configured one if `name` is `None`. Blocks while the key is read.
    pub fn open(models: &ModelFactory, name: Option<&str>) -> Result<Self, ErrorBody> {
        let runtime = async_runtime::start_on_this_thread()?;
        let provider = runtime.block_on(models.activate(name))?.provider;
        Ok(Self { runtime, provider })
    }

    /// Asks one question, which belongs to no conversation. Blocks; a request that fails in passing is repeated.
    pub fn ask(&self, system: &str, question: &str) -> Result<ModelTurn, ModelFailure> {
        self.runtime.block_on(async {
            let mut attempt = 0;
            loop {
                let messages = vec![Message::User(question.to_owned())];
                let request = ModelRequest {
                    system: system.to_owned(),
                    messages,
                    tools: Vec::new(),
                    options: AnswerOptions::default(),
                };
                match self.provider.ask(request, &|_| ()).await {
                    Err(failure) if is_passing(&failure) && attempt < RETRIES => {
                        tokio::time::sleep(failure.retry_delay(attempt)).await;
                        attempt += 1;
                    }
                    answer => return answer,
                }
            }
        })
    }
}

/// Whether to ask again. A human waits for the command, so not if that would take long.
fn is_passing(failure: &ModelFailure) -> bool {
    failure.class.is_transient() && failure.retry_after.is_none_or(|wanted| wanted <= MAX_WAIT)
}

impl fmt::Debug for BlockingModel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BlockingModel").finish_non_exhaustive()
    }
}
