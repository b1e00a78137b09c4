//! Which API keys follow what waits for a human: someone who decides is there, though no page is open.
//!
//! Decides nothing. Only the executor says who may decide, and a key follows only as long as it does.

use std::sync::Arc;

use tokio_util::sync::CancellationToken;

use super::SessionService;
use crate::limits::{ConcurrencyLimit, ConcurrencyPermit};

/// The most streams of one key. Each asks the executor all the time.
const MAX_STREAMS_OF_KEY: usize = 8;

/// The keys that follow now, by the name of their client.
#[derive(Debug, Clone)]
pub(crate) struct Followers(Arc<ConcurrencyLimit<String>>);

/// A key follows, until this is dropped.
pub(crate) type FollowPermit = ConcurrencyPermit<String>;

impl Followers {
    pub(crate) fn new() -> Self {
        Self(Arc::new(ConcurrencyLimit::new(MAX_STREAMS_OF_KEY)))
    }

    /// Counts a stream of this key; `None` if it has as many as it may.
    pub(crate) fn follow(&self, key: &str) -> Option<FollowPermit> {
        self.0.try_acquire(&key.to_owned())
    }

    /// Whether someone follows who may approve what `asker` asks: no key approves what it asked itself.
    pub(crate) fn can_decide_for(&self, asker: Option<&str>) -> bool {
        self.0.is_used_by(|key| asker != Some(key.as_str()))
    }
}

impl SessionService {
    /// Which keys follow what waits for a human.
    pub(crate) fn followers(&self) -> &Followers {
        &self.approvers.followers
    }

    pub(crate) fn is_stopping(&self) -> bool {
        self.stopping.is_cancelled()
    }

    /// Cancelled when the server stops.
    pub(crate) fn stop_token(&self) -> CancellationToken {
        self.stopping.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_there_for_others_alone_and_while_it_follows() {
        let followers = Followers::new();
        assert!(!followers.can_decide_for(None));
        let stream = followers.follow("phone.1").expect("the first");
        assert!(followers.can_decide_for(None) && followers.can_decide_for(Some("ci.2")));
        assert!(!followers.can_decide_for(Some("phone.1")));
        let more: Vec<_> = std::iter::from_fn(|| followers.follow("phone.1")).collect();
        assert_eq!(more.len(), MAX_STREAMS_OF_KEY - 1);
        drop((stream, more));
        assert!(!followers.can_decide_for(None));
    }
}
