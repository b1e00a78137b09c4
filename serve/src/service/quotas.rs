//! What one API key may have: questions at once, and sessions. Our own user without a key, and Slack, have no limit here.

use ground::config::ServeSettings;
use protocol::code::Code;
use protocol::error::ErrorBody;

use crate::limits::{ConcurrencyLimit, ConcurrencyPermit};
use crate::service::turn::Asker;

/// Counts a question from when it is taken until its turn ends. `None` is that of a client without a limit.
pub(crate) type TurnPermit = Option<ConcurrencyPermit<String>>;

/// The limits of each API key.
#[derive(Debug)]
pub(super) struct Quotas {
    turns: ConcurrencyLimit<String>,
    pub(super) max_sessions: usize,
}

impl Quotas {
    pub(super) fn of(settings: &ServeSettings) -> Self {
        Self { turns: ConcurrencyLimit::new(settings.max_turns.get()), max_sessions: settings.max_sessions.get() }
    }

    /// Takes a question of this client; an error if it has as many as it may.
    pub(super) fn turn(&self, asker: &Asker) -> Result<TurnPermit, ErrorBody> {
        let Some(key) = &asker.key else { return Ok(None) };
        self.turns.try_acquire(key).map(Some).ok_or_else(|| {
            let (name, max) = (key_name(key), self.turns.max());
            let message = format!("the API key `{name}` may ask {max} questions at once, and that many are unanswered");
            ErrorBody::new(Code::Throttled, message)
                .hint("ask again when one of them is answered; `max_turns` under [serve] is the limit")
        })
    }

    /// Counts the question that a session goes on with after a restart.
    pub(super) fn resumed_turn(&self, asker: &Asker) -> TurnPermit {
        asker.key.as_ref().map(|key| self.turns.acquire(key))
    }
}

/// The error for one session more than the key may have.
pub(super) fn too_many_sessions(key: &str, max: usize) -> ErrorBody {
    let message = format!("the API key `{}` may have {max} sessions, and has that many", key_name(key));
    ErrorBody::new(Code::TooManySessions, message).hint(
        "delete one: `DELETE /api/v1/session/{id}`, or `!delete N` in another session; `!sessions` lists them; \
         `max_sessions` under [serve] is the limit",
    )
}

/// What the user calls the key, without the id that tells it from a later one of that name.
fn key_name(key: &str) -> &str {
    key.rsplit_once('.').map_or(key, |(name, _)| name)
}

#[cfg(test)]
mod tests {
    use ground::config::Config;

    use super::*;

    #[test]
    fn a_key_has_a_number_of_questions_and_our_own_user_any() {
        let settings = Config::default().serve;
        let quotas = Quotas::of(&settings);
        let asker = |key: Option<&str>| Asker { key: key.map(str::to_owned), ..Asker::default() };
        let (phone, own) = (asker(Some("phone.1a2b3c4d")), asker(None));
        let taken: Vec<_> = (0..settings.max_turns.get()).map(|_| quotas.turn(&phone).expect("room")).collect();
        let error = quotas.turn(&phone).expect_err("one more");
        assert_eq!(error.code, Code::Throttled);
        assert!(error.message.contains("`phone` may ask 16 questions"), "{error:?}");
        assert!(quotas.turn(&asker(Some("phone.ffffffff"))).expect("a later key of the name").is_some());
        assert!((0..100).all(|_| quotas.turn(&own).is_ok_and(|permit| permit.is_none())));
        drop(taken);
        assert!(quotas.turn(&phone).is_ok() && quotas.resumed_turn(&phone).is_some());
    }
}
