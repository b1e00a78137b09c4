//! Whether the model of a caller may get what a subtool returns.

use protocol::caller::Caller;
use protocol::code::Code;
use protocol::error::ErrorBody;

use crate::catalog::definition::Definition;

/// Returns the error if the caller's model may not get the data of the subtool.
pub(super) fn beyond_trust(tool: &str, definition: &Definition, caller: &Caller) -> Option<ErrorBody> {
    let (class, trust) = (definition.data_class(), caller.trust?);
    (class > trust).then(|| {
        let message = format!(
            "`{tool}` returns data of the class `{}`, and this model may get `{}` data at most",
            class.as_str(),
            trust.as_str()
        );
        ErrorBody::new(Code::TrustZone, message)
            .hint("do not look for another way to the data; tell the user, who can use a model that may get it, or set `trust` under [models.NAME]")
    })
}
