//! A conversation that began elsewhere, as the journal of a session has it, and sessions of conversations without a name.

use std::sync::Arc;

use agent_loop::model::conversation::{JournalEntry, ModelTurn, StopReason};

use super::SessionService;
use super::conversations::{Conversations, FoundConversation, SentHistory};
use super::log::Activity;
use super::responses::StoredResponses;
use crate::service::turn::{Asker, ClientMessage};

/// The entries of these messages; only what was said is kept.
pub(super) fn entries(messages: &[ClientMessage]) -> Vec<JournalEntry> {
    let mut entries = Vec::new();
    for message in messages {
        match message {
            ClientMessage::User { text, .. } => entries.push(JournalEntry::asked(text.as_str())),
            ClientMessage::Assistant { text, .. } => {
                let turn = ModelTurn { text: text.clone(), ..ModelTurn::default() };
                entries.push(JournalEntry::Answered { turn: Box::new(turn) });
                entries.push(JournalEntry::Stopped { reason: StopReason::Completed });
            }
            ClientMessage::Results(_) => {}
        }
    }
    entries
}

impl SessionService {
    pub(crate) fn conversations(&self) -> &Conversations {
        &self.conversations
    }

    pub(crate) fn responses(&self) -> &StoredResponses {
        &self.responses
    }

    /// The session of a client that names none, by what it sent. Makes room for it if the client has too many.
    pub(crate) async fn conversation(self: &Arc<Self>, asker: &Asker, sent: &SentHistory<'_>) -> FoundConversation {
        let client = asker.session.as_str();
        let exists = |session: &str| self.index.find(session, asker).is_ok();
        let found = self.conversations.find(client, sent, exists);
        if found.is_new {
            self.make_room(client, asker).await;
        }
        found
    }

    /// Deletes the oldest sessions of conversations without a name, if the client has too many.
    async fn make_room(self: &Arc<Self>, client: &str, asker: &Asker) {
        while let Some(oldest) = self.conversations.forget_surplus(client, self.quotas.max_sessions) {
            let is_busy = match self.index.find(&oldest, asker) {
                Ok(number) => {
                    self.ledger.of(number).is_waiting()
                        || self.loaded(number).await.is_some_and(|live| live.activity() != Activity::Idle)
                }
                Err(_) => continue,
            };
            if is_busy {
                continue;
            }
            if let Err(error) = self.delete(&oldest, asker, false).await {
                tracing::warn!(error = error.message, session = oldest, "failed to delete an old conversation");
            }
        }
    }
}
