//! Calls that a client performs itself, in a conversation that it keeps: what led to them is remembered here.
//!
//! The client's history has its own calls and their results, but not what our model did before them in the same turn:
//! the calls of our tool, its signed thoughts. Without these a model would do the same again. So they are kept in memory
//! under the id of the client's call, and are put back when the client sends the result. Only a restart, or many
//! conversations since, loses them.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use agent_loop::driver::{LoopEvent, LoopObserver};
use agent_loop::journal::EntriesCopy;
use agent_loop::model::conversation::{JournalEntry, StopReason, TokenUsage, ToolCall};
use uuid::Uuid;

use super::log::EventLog;

/// What the ids of a client's calls begin with.
const ID_PREFIX: &str = "call_";

/// How many exchanges are kept, and how many bytes of them.
const MAX_EXCHANGES: usize = 4096;
const MAX_KEPT_BYTES: usize = 64 << 20;

/// What models did before they called tools of clients.
#[derive(Debug, Default)]
pub(super) struct ClientExchanges {
    kept: Mutex<(VecDeque<Exchange>, usize)>,
}

#[derive(Debug)]
struct Exchange {
    /// The name of the client's API key, if any: another client does not get it.
    key: Option<String>,
    /// The client's calls.
    calls: Vec<ToolCall>,
    led: LedToCalls,
    bytes: usize,
}

/// What led to calls of a client.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct LedToCalls {
    /// The question: its answer goes on after the calls, in another request.
    pub(super) question: Uuid,
    pub(super) entries: Vec<JournalEntry>,
}

impl ClientExchanges {
    /// What led to these calls, with the calls themselves. Clients of Ollama send no ids: they get the newest that is alike.
    pub(super) fn of(&self, key: Option<&String>, calls: &[ToolCall]) -> Option<LedToCalls> {
        let first = calls.first()?;
        let is_alike =
            |(ours, theirs): (&ToolCall, &ToolCall)| ours.name == theirs.name && ours.arguments == theirs.arguments;
        let has_id = first.id.starts_with(ID_PREFIX);
        let kept = lock(&self.kept);
        let is_it = |one: &&Exchange| {
            one.key.as_ref() == key
                && if has_id {
                    one.calls.iter().any(|call| call.id == first.id)
                } else {
                    one.calls.len() == calls.len() && one.calls.iter().zip(calls).all(is_alike)
                }
        };
        kept.0.iter().rev().find(is_it).map(|one| one.led.clone())
    }

    pub(super) fn keep(&self, key: Option<String>, calls: &[ToolCall], led: LedToCalls) {
        let bytes = led.entries.iter().map(weight).sum();
        let calls = calls.to_vec();
        let mut kept = lock(&self.kept);
        kept.0.push_back(Exchange { key, calls, led, bytes });
        kept.1 += bytes;
        while kept.0.len() > MAX_EXCHANGES || kept.1 > MAX_KEPT_BYTES {
            let Some(oldest) = kept.0.pop_front() else { return };
            kept.1 -= oldest.bytes;
        }
    }
}

/// Watches the loop of one request: gives the client's calls ids of our own, and keeps what led to them.
pub(super) struct ClientCallKeeper {
    log: Arc<EventLog>,
    exchanges: Arc<ClientExchanges>,
    key: Option<String>,
    question: Uuid,
    /// Everything that the loop recorded in this request.
    entries: EntriesCopy,
    /// Whether the client performs only one call at a time.
    one_call: bool,
    calls: Mutex<Vec<ToolCall>>,
}

impl ClientCallKeeper {
    pub(super) fn new(
        log: Arc<EventLog>,
        exchanges: Arc<ClientExchanges>,
        key: Option<String>,
        (question, entries): (Uuid, EntriesCopy),
        one_call: bool,
    ) -> Self {
        Self { log, exchanges, key, question, entries, one_call, calls: Mutex::default() }
    }

    /// The calls of the turn as the client gets them. Providers number theirs, so that ids repeat.
    fn renamed(&self, calls: &[ToolCall]) -> Vec<ToolCall> {
        let count = if self.one_call { 1 } else { calls.len() };
        let renamed =
            |call: &ToolCall| ToolCall { id: format!("{ID_PREFIX}{}", Uuid::now_v7().simple()), ..call.clone() };
        calls.iter().take(count).map(renamed).collect()
    }

    fn keep(&self) {
        let calls = std::mem::take(&mut *lock(&self.calls));
        let mut entries = std::mem::take(&mut *lock(&self.entries));
        entries.retain(|entry| !matches!(entry, JournalEntry::Asked { .. } | JournalEntry::Stopped { .. }));
        for entry in &mut entries {
            forget_spending(entry);
        }
        if let Some(JournalEntry::Answered { turn }) = entries.last_mut() {
            if turn.calls.len() != calls.len() {
                turn.raw = None;
            }
            turn.calls.clone_from(&calls);
        }
        self.exchanges.keep(self.key.clone(), &calls, LedToCalls { question: self.question, entries });
    }
}

impl LoopObserver for ClientCallKeeper {
    fn observe(&self, event: LoopEvent<'_>) {
        match event {
            LoopEvent::Turn { turn, question, session } => {
                let mut turn = turn.clone();
                turn.calls = self.renamed(&turn.calls);
                lock(&self.calls).clone_from(&turn.calls);
                self.log.observe(LoopEvent::Turn { turn: &turn, question, session });
            }
            event => {
                // Before the client learns of its calls.
                if matches!(event, LoopEvent::Done { reason: StopReason::CallsClient, .. }) {
                    self.keep();
                }
                self.log.observe(event);
            }
        }
    }
}

/// Each request of the client counts what it used itself.
fn forget_spending(entry: &mut JournalEntry) {
    match entry {
        JournalEntry::Answered { turn } | JournalEntry::Discarded { turn } | JournalEntry::Diagnosed { turn } => {
            (turn.usage, turn.cost) = (TokenUsage::default(), 0.0);
        }
        JournalEntry::Called { results } => results.iter_mut().for_each(|result| result.spent.clear()),
        _ => {}
    }
}

/// About how many bytes an entry takes.
fn weight(entry: &JournalEntry) -> usize {
    const ENTRY: usize = 256;
    ENTRY
        + match entry {
            JournalEntry::Answered { turn } => {
                let calls: usize = turn.calls.iter().map(|call| call.arguments.to_string().len()).sum();
                let raw = turn.raw.as_ref().map_or(0, |raw| raw.message.to_string().len());
                turn.text.len() + calls + raw
            }
            JournalEntry::Called { results } => results.iter().map(|result| result.text.len()).sum(),
            _ => 0,
        }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn call(id: &str) -> ToolCall {
        ToolCall { id: id.to_owned(), name: "theirs".to_owned(), arguments: json!({}) }
    }

    #[test]
    fn an_exchange_is_found_by_its_call_and_only_by_its_client() {
        let exchanges = ClientExchanges::default();
        let entries = vec![JournalEntry::Noted { text: "before".to_owned() }];
        let led = LedToCalls { question: Uuid::now_v7(), entries };
        exchanges.keep(Some("a".to_owned()), &[call("call_1"), call("call_2")], led.clone());
        let of = |key: Option<&str>, calls: &[ToolCall]| exchanges.of(key.map(str::to_owned).as_ref(), calls);
        assert_eq!(of(Some("a"), &[call("call_2")]), Some(led.clone()));
        assert_eq!(of(Some("a"), &[call("call-0"), call("call-1")]), Some(led), "without ids, by what they are");
        assert_eq!(of(Some("a"), &[call("call-0")]), None);
        assert_eq!(of(Some("b"), &[call("call_2")]), None);
        assert_eq!(of(None, &[call("call_1")]), None);
    }

    #[test]
    fn the_oldest_exchanges_are_forgotten_first() {
        let exchanges = ClientExchanges::default();
        let text = "x".repeat(MAX_KEPT_BYTES / 2);
        let of = |id: &str| exchanges.of(None, &[call(id)]);
        for id in ["call_1", "call_2", "call_3"] {
            let results = vec![agent_loop::model::conversation::ToolResult::new(&call(id), text.clone(), 0)];
            let entries = vec![JournalEntry::Called { results }];
            exchanges.keep(None, &[call(id)], LedToCalls { question: Uuid::now_v7(), entries });
        }
        assert!(of("call_1").is_none() && of("call_2").is_none() && of("call_3").is_some());
    }
}
