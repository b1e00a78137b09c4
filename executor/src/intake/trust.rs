//! Whether the model of a caller may get what a subtool returns.

use definition::Definition;
use protocol::caller::{BeyondTrust, Caller};
use protocol::error::ErrorBody;

/// Returns the error if the caller's model may not get the data of the subtool.
pub(super) fn beyond_trust(tool: &str, definition: &Definition, caller: &Caller) -> Option<ErrorBody> {
    let (class, trust) = (definition.data_class(), caller.trust?);
    (class > trust).then(|| BeyondTrust { class, trust }.error(&format!("`{tool}`")))
}
