//! Whether a call says why it is made, where its subtool demands that.

use catalog::Subtool;
use protocol::code::Code;
use protocol::error::ErrorBody;

/// Fails if `subtool` demands a reason and the call gives none.
pub(super) fn check(subtool: &Subtool, reason: Option<&str>) -> Result<(), ErrorBody> {
    if !subtool.definition.needs_reason || reason.is_some_and(|reason| !reason.trim().is_empty()) {
        return Ok(());
    }
    let name = &subtool.name;
    Err(ErrorBody::new(Code::InvalidInput, format!("`{name}` must be told why it is called"))
        .hint(format!("add `--reason '...'` with a short reason that a human understands: agent-magic-tool run {name} ... --reason '...'")))
}
