//! Policy: whether a task may run by itself.
//!
//! Decides from the definition, the input and what a human configured. A subtool is never let
//! through because nobody thought of it: what changes something and says nothing needs a human.

use serde_json::{Map, Value};

use crate::config::{Config, Writes};
use crate::subtool::{Confirm, Definition, EffectClass};
use crate::task::Caller;
use crate::template::Scope;

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Decision {
    Run,
    /// A human must say yes, because of this.
    Ask(String),
}

/// Decides about one run.
pub fn decide(definition: &Definition, input: &Map<String, Value>, caller: &Caller, config: &Config) -> Decision {
    match &definition.confirm {
        Some(Confirm::Never) => Decision::Run,
        Some(Confirm::Always) => Decision::Ask("its definition always asks".to_owned()),
        Some(Confirm::When(condition)) => {
            let caller = serde_json::to_value(caller).expect("a caller is plain JSON");
            match Scope::of_condition(input, &caller).holds(condition) {
                Ok(false) => Decision::Run,
                Ok(true) => Decision::Ask(format!("`{condition}` holds")),
                Err(error) => Decision::Ask(format!("its condition could not be decided: {error}")),
            }
        }
        None if definition.annotations.effect_class() == EffectClass::Read => Decision::Run,
        None if config.confirm.writes == Writes::Allow => Decision::Run,
        None => Decision::Ask("it changes something, and nothing says that it may do so unasked".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn decided(fields: Value, input: Value, writes: Writes) -> Decision {
        let mut whole = json!({"description": "d", "input": {}, "run": {"process": {"argv": ["true"]}}});
        let (Value::Object(whole), Value::Object(fields), Value::Object(input)) = (&mut whole, fields, input) else {
            panic!("objects")
        };
        whole.extend(fields);
        let definition = serde_json::from_value(Value::Object(whole.clone())).expect("a definition");
        let mut config = Config::default();
        config.confirm.writes = writes;
        let caller = Caller { uid: 1000, session: Some("s".to_owned()), folder: None };
        decide(&definition, &input, &caller, &config)
    }

    #[test]
    fn what_changes_something_asks_unless_a_human_said_otherwise() {
        let read = json!({"annotations": {"readOnlyHint": true}});
        let idempotent = json!({"annotations": {"idempotentHint": true}});
        let harmless_claim = json!({"annotations": {"destructiveHint": false, "openWorldHint": false}});
        for (fields, asks, asks_when_allowed) in [
            (read, false, false),
            (json!({}), true, false),
            (idempotent, true, false),
            (harmless_claim, true, false),
            (json!({"confirm": "never"}), false, false),
            (json!({"confirm": "always"}), true, true),
            (json!({"confirm": "always", "annotations": {"readOnlyHint": true}}), true, true),
        ] {
            let asked = |writes| decided(fields.clone(), json!({}), writes) != Decision::Run;
            assert_eq!((asked(Writes::Ask), asked(Writes::Allow)), (asks, asks_when_allowed), "{fields}");
        }
    }

    #[test]
    fn a_condition_decides_over_input_and_caller_and_asks_when_it_cannot() {
        for (condition, input, expected) in [
            ("input.amount > 100", json!({"amount": 101}), Some("`input.amount > 100` holds")),
            ("input.amount > 100", json!({"amount": 100}), None),
            ("caller.uid == 1000", json!({}), Some("`caller.uid == 1000` holds")),
            ("caller.session == 'other'", json!({}), None),
            ("input.to | no_such_filter", json!({"to": 1}), Some("its condition could not be decided")),
        ] {
            for writes in [Writes::Ask, Writes::Allow] {
                let decision = decided(json!({"confirm": {"when": condition}}), input.clone(), writes);
                match (&decision, expected) {
                    (Decision::Run, None) => {}
                    (Decision::Ask(why), Some(expected)) => assert!(why.starts_with(expected), "{why}"),
                    _ => panic!("{condition} with {input}: {decision:?}"),
                }
            }
        }
    }
}
