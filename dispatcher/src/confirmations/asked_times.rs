//! When a human was asked in the last hour, and the limit for that.

use std::collections::{HashMap, VecDeque};

use jiff::{SignedDuration, Timestamp};
use protocol::caller::Caller;
use protocol::code::Code;
use protocol::error::ErrorBody;
use protocol::wording::counted;

/// The window of the limit [`super::ConfirmationLimits::per_hour`].
pub const CONFIRMATION_WINDOW: SignedDuration = SignedDuration::from_hours(1);

/// One of several clients that share a server may use this part of the hour, 1 of so many.
const CLIENT_SHARE: usize = 2;

/// When a human was asked.
#[derive(Debug, Default)]
pub(super) struct AskedTimes {
    by_user: HashMap<u32, VecDeque<Timestamp>>,
    /// Of each user's clients that share a server; those of an earlier executor are not known.
    by_client: HashMap<(u32, String), VecDeque<Timestamp>>,
}

impl AskedTimes {
    pub(super) fn add(&mut self, caller: &Caller, now: Timestamp) {
        self.restore(caller.uid, now);
        if let Some(client) = caller.client() {
            self.by_client.entry((caller.uid, client.to_owned())).or_default().push_back(now);
        }
    }

    /// Adds a time that an earlier executor recorded.
    pub(super) fn restore(&mut self, uid: u32, at: Timestamp) {
        self.by_user.entry(uid).or_default().push_back(at);
    }

    /// Returns the refusal if a human may not be asked again for this caller; no limit if `per_hour` is 0.
    pub(super) fn refuse(&mut self, caller: &Caller, per_hour: usize, now: Timestamp) -> Option<ErrorBody> {
        if per_hour == 0 {
            return None;
        }
        self.by_client.retain(|_, asked| {
            forget_old(asked, now);
            !asked.is_empty()
        });
        let client = caller.client().map(|client| (caller.uid, client.to_owned()));
        let of_client = client.and_then(|client| self.by_client.get(&client));
        let of_user = self.by_user.entry(caller.uid).or_default();
        forget_old(of_user, now);
        let shares =
            [(of_client, per_hour.div_ceil(CLIENT_SHARE), " for this client"), (Some(&*of_user), per_hour, "")];
        shares.into_iter().find_map(|(asked, limit, whose)| {
            let asked = asked.filter(|asked| asked.len() >= limit)?;
            let times = counted(asked.len(), "time");
            let message = format!("a human was asked {times}{whose} within an hour, which is the limit");
            Some(
                ErrorBody::new(Code::Throttled, message)
                    .hint(
                        "tell the user what you were about to do, and continue with what needs no approval; a human can \
                         raise `asks_per_hour` under [confirm] in config.toml",
                    )
                    .detail("again_at", (*asked.front()? + CONFIRMATION_WINDOW).to_string()),
            )
        })
    }
}

fn forget_old(asked: &mut VecDeque<Timestamp>, now: Timestamp) {
    while asked.front().is_some_and(|at| now.duration_since(*at) >= CONFIRMATION_WINDOW) {
        asked.pop_front();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn caller(session: &str) -> Caller {
        Caller { uid: 1, session: Some(session.to_owned()), ..Caller::default() }
    }

    #[test]
    fn a_client_that_shares_a_server_leaves_questions_for_others() {
        let mut asked = AskedTimes::default();
        let start = Timestamp::UNIX_EPOCH;
        let message = |asked: &mut AskedTimes, session: &str, now| {
            asked.refuse(&caller(session), 4, now).map(|refusal| refusal.message)
        };
        asked.add(&caller("shared-alice.1-a"), start);
        asked.add(&caller("shared-alice.1-b"), start);
        let refused = message(&mut asked, "shared-alice.1-c", start).expect("its share is used up");
        assert_eq!(refused, "a human was asked 2 times for this client within an hour, which is the limit");
        assert_eq!(message(&mut asked, "shared-bob.2-a", start), None);
        assert_eq!(message(&mut asked, "agent-a", start), None);
        asked.add(&caller("agent-a"), start);
        asked.add(&caller("agent-a"), start);
        let refused = message(&mut asked, "shared-bob.2-a", start).expect("that of the user is used up");
        assert_eq!(refused, "a human was asked 4 times within an hour, which is the limit");
        assert_eq!(message(&mut asked, "shared-alice.1-a", start + CONFIRMATION_WINDOW), None);
    }
}
