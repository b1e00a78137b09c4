//! Which calls may be parts of a task: those that the executor makes itself, and no deeper than a script in a script.

use definition::Definition;
use definition::run::Run;
use ground::config::Config;
use ground::task::part_of;
use protocol::caller::Caller;
use protocol::code::Code;
use protocol::error::ErrorBody;
use runner::delegation::too_deep;

/// Fails if the idempotency key is one of those of parts, and this is no request of the executor.
pub(super) fn check_key(key: Option<&str>, is_own: impl FnOnce() -> bool) -> Result<(), ErrorBody> {
    if !key.is_some_and(part_of::is_reserved) || is_own() {
        return Ok(());
    }
    let message = "idempotency keys of this form are those of the parts of a task";
    Err(ErrorBody::new(Code::Usage, message).hint("choose another key"))
}

/// Fails if the caller of the subtool `name` is nested too deeply in others for what that calls in turn.
pub(super) fn check_depth(
    name: &str,
    definition: &Definition,
    caller: &Caller,
    config: &Config,
) -> Result<(), ErrorBody> {
    // A script in a script may be a subtool that someone saved; more would multiply.
    if matches!(definition.run, Run::Script(_)) && caller.depth > 1 {
        let error = ErrorBody::new(Code::TooDeep, "a script that is called by a script calls no other script");
        return Err(error.hint("call the subtools themselves"));
    }
    too_deep(name, caller.depth, config).filter(|_| definition.run.delegates()).map_or(Ok(()), Err)
}
