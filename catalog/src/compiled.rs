//! The subtools that were used last, ready for use. Bounded: any other is loaded again when it is needed.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use definition::run::Run;
use ground::task::name::SubtoolName;

use super::Subtool;
use super::dependencies::NodeVerdict;

/// The most subtools that are kept. More than a session uses.
const MAX_KEPT: usize = 256;
/// The most bytes of definitions that are kept; a compiled subtool takes some twenty times its definition.
const MAX_KEPT_BYTES: usize = 1 << 20;

/// What callers get for the name of a definition.
#[derive(Debug, Clone)]
pub(super) enum Availability {
    Usable(Arc<Subtool>),
    /// It is defined, and callers may not use it.
    Hidden,
    /// It has a mistake, or one that it needs does.
    Broken,
}

impl Availability {
    /// How much the file has that the definition names as its program.
    pub(super) fn program_bytes(&self) -> usize {
        let Self::Usable(subtool) = self else { return 0 };
        let Run::Script(script) = &subtool.definition.run else { return 0 };
        script.content.as_ref().map_or(0, String::len)
    }
}

/// What is known of the definitions that were needed.
#[derive(Debug, Default)]
pub(super) struct CompiledSubtools {
    kept: HashMap<SubtoolName, KeptSubtool>,
    bytes: usize,
    /// Counts the uses.
    clock: u64,
    /// Of subtools that need others, and of what they need.
    pub(super) verdicts: BTreeMap<SubtoolName, NodeVerdict>,
}

#[derive(Debug)]
struct KeptSubtool {
    resolved: Availability,
    bytes: usize,
    used_at: u64,
}

impl CompiledSubtools {
    pub(super) fn get(&mut self, name: &str) -> Option<Availability> {
        self.clock += 1;
        let kept = self.kept.get_mut(name)?;
        kept.used_at = self.clock;
        Some(kept.resolved.clone())
    }

    /// Keeps a subtool whose definition has `bytes`, in place of those that were not used for the longest time.
    pub(super) fn keep(&mut self, name: &SubtoolName, resolved: Availability, bytes: usize) {
        self.clock += 1;
        let kept = KeptSubtool { resolved, bytes, used_at: self.clock };
        self.bytes += bytes;
        if let Some(earlier) = self.kept.insert(name.clone(), kept) {
            self.bytes -= earlier.bytes;
        }
        while self.kept.len() > MAX_KEPT || (self.bytes > MAX_KEPT_BYTES && self.kept.len() > 1) {
            let oldest = self.kept.iter().min_by_key(|(_, kept)| kept.used_at).map(|(name, _)| name.clone());
            let Some(removed) = oldest.and_then(|name| self.kept.remove(&name)) else { break };
            self.bytes -= removed.bytes;
        }
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.kept.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(number: usize) -> SubtoolName {
        format!("subtool_{number}").parse().expect("a name")
    }

    #[test]
    fn only_what_was_used_last_is_kept() {
        let mut compiled = CompiledSubtools::default();
        for number in 0..2 * MAX_KEPT {
            compiled.keep(&name(number), Availability::Hidden, 1);
            assert!(compiled.get("subtool_0").is_some(), "it is used all the time");
        }
        assert_eq!((compiled.len(), compiled.bytes), (MAX_KEPT, MAX_KEPT));
        assert!(compiled.get("subtool_1").is_none());
        assert!(compiled.get(name(2 * MAX_KEPT - 1).as_str()).is_some());
        for _ in 0..3 {
            compiled.keep(&name(0), Availability::Hidden, MAX_KEPT_BYTES + 1);
            assert_eq!((compiled.len(), compiled.bytes), (1, MAX_KEPT_BYTES + 1), "one that is large, but not two");
        }
    }
}
