//! How far back rate limits reach, found without loading the subtools that have them.

use std::time::Duration;

use protocol::duration::PositiveDuration;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use super::variables::fill;
use super::{Catalog, DefinitionId};

impl Catalog {
    /// Returns the longest window of the rate limits in definitions and manifests, at least: those with mistakes count too.
    pub fn longest_window(&self) -> Option<Duration> {
        let limiting = self.by_name.iter().filter(|id| {
            let (file, found) = self.definition(**id);
            found.may_limit_rate
                || file.defaults.contains_key("rate_limit")
                || self.overrides.contains_key(found.name.as_str())
        });
        let of_packs = self.packs.iter().flat_map(|pack| [pack.manifest.limits.read, pack.manifest.limits.write]);
        let of_packs = of_packs.flatten().map(|limit| limit.per.get());
        limiting.filter_map(|id| window(&mut self.filled(*id)?)).chain(of_packs).max()
    }

    fn filled(&self, id: DefinitionId) -> Option<Map<String, Value>> {
        let (merged, _) = self.merged(id).ok()?;
        let mut merged = Value::Object(merged);
        fill(&mut merged, "", self.sources.variables(), &mut Vec::new());
        let Value::Object(fields) = merged else { unreachable!("filling in variables keeps an object") };
        Some(fields)
    }
}

fn window(fields: &mut Map<String, Value>) -> Option<Duration> {
    let mut limit: Map<String, Value> = take(fields, "rate_limit")?;
    take::<PositiveDuration>(&mut limit, "per").map(PositiveDuration::get)
}

fn take<T: DeserializeOwned>(fields: &mut Map<String, Value>, key: &str) -> Option<T> {
    serde_json::from_value(fields.get_mut(key)?.take()).ok()
}
