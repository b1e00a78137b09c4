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
