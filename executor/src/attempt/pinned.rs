//! Performs a definition, if the pack that it is from is still as a human enabled it.

use definition::Definition;
use definition::run::Run;
use ground::task::failure::Failure;
use protocol::code::Code;
use runner::{Invocation, Runner as _, RunnerContext, RunnerOutput};
use tokio_util::sync::CancellationToken;

/// Performs it, if the pack that it is from is still as a human enabled it.
pub async fn perform(
    definition: &Definition,
    invocation: &Invocation,
    context: &RunnerContext,
    cancel: &CancellationToken,
) -> Result<RunnerOutput, Failure> {
    let Some(pinned) = definition.pinned.clone() else {
        return Box::pin(definition.run.perform(invocation, context, cancel)).await;
    };
    let mut bound = None;
    if matches!(definition.run, Run::Process(_) | Run::Mcp(_)) {
        let files = definition.run.files(invocation, context)?;
        pinned.check_run(&files, &definition.run.code_folders(invocation)?, invocation.caller.uid)?;
        // What was compared is what runs, also if no human was asked.
        if invocation.approved.is_none() {
            bound = Some(Invocation { approved: Some(files), ..invocation.clone() });
        }
    }
    let checked = tokio::task::spawn_blocking(move || pinned.check()).await;
    checked.map_err(|error| Failure::new(Code::Internal, format!("failed to compare its pack: {error}")))??;
    Box::pin(definition.run.perform(bound.as_ref().unwrap_or(invocation), context, cancel)).await
}
