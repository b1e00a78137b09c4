//! Whether a lookup of `verify` or `preview` may be made: by the same rules as a call of the caller's own.
//!
//! A subtool that only reads and that no rule is about runs without a human, so what its author wrote works. A lookup
//! that would be refused or would ask is not made: it would have no card of its own.

use definition::Definition;
use ground::task::confirmation::Assurance;
use protocol::caller::Caller;
use protocol::code::Code;
use protocol::error::ErrorBody;
use runner::delegation::too_deep;
use serde_json::{Map, Value};

use super::policy::{PolicyCase, PolicyDecision};
use super::settings::LiveSettings;
use super::trust;
use crate::attempt::lookup::{LookupCall, LookupRules};

/// By the rules at the time of the call: an attempt may take long.
impl LookupRules for LiveSettings {
    fn check(&self, call: &LookupCall<'_>) -> Result<(), ErrorBody> {
        let LookupCall { name, definition, input, caller, is_for_caller } = *call;
        let settings = self.current();
        let refused = |why: String| ErrorBody::new(Code::RefusedByPolicy, why);
        if !settings.sources.admits(name.as_str(), definition, &caller.tool_scope) {
            return Err(refused("it needs a subtool that the caller does not have".to_owned()));
        }
        if definition.run.delegates()
            && let Some(error) = too_deep(name.as_str(), caller.depth, settings.config())
        {
            return Err(error);
        }
        // What a human is shown reaches no model.
        if let Some(error) = trust::beyond_trust(name.as_str(), definition, caller).filter(|_| is_for_caller) {
            return Err(error);
        }
        settings.sources.check_privileges(definition, input, &caller.tool_scope)?;
        let assurance = Assurance::Page;
        let ruling = settings.policy.decide_for_session(PolicyCase { name, definition, input, caller, assurance });
        match ruling.decision {
            PolicyDecision::Run => Ok(()),
            PolicyDecision::Refuse => Err(refused(format!("`{name}` is refused: {}", ruling.why))),
            PolicyDecision::Ask | PolicyDecision::NeedsAssurance => {
                Err(refused(format!("`{name}` needs a human itself: {}", ruling.why)))
            }
        }
    }

    fn admits(&self, name: &str, definition: &Definition, caller: &Caller) -> bool {
        self.current().sources.admits(name, definition, &caller.tool_scope)
    }

    fn check_privileges(
        &self,
        definition: &Definition,
        input: &Map<String, Value>,
        caller: &Caller,
    ) -> Result<(), ErrorBody> {
        self.current().sources.check_privileges(definition, input, &caller.tool_scope)
    }
}
