//! The answer to a question in words, also when the work on it was stopped.

use super::machine::Spending;
use crate::model::conversation::StopReason;
use crate::model::provider::ModelFailure;
use protocol::wording::{counted, inflected};

/// The model's last answer, and why it is the last one if a limit or a refusal ended the work. `failure` is the one that
/// ended it, if any; `open` is the number of tasks whose end the model does not know about.
pub fn answer_text(
    last_answer: &str,
    reason: StopReason,
    question: Spending,
    failure: Option<&ModelFailure>,
    open: usize,
) -> String {
    match reason {
        StopReason::BudgetExhausted => {
            let open_tasks = match open {
                0 => String::new(),
                open => format!(" {}.", inflected(open, "task is still open", "tasks are still open")),
            };
            let tokens = question.usage.input.saturating_add(question.usage.output);
            let why = failure.map_or_else(
                || {
                    let requests = counted(question.requests, "request");
                    format!("this question used up its budget after {requests} and {}", counted(tokens, "token"))
                },
                |failure| failure.message.clone(),
            );
            [last_answer, &format!("[Stopped: {why}.{open_tasks}]")].join("\n\n").trim_start().to_owned()
        }
        StopReason::Refused => [last_answer, "[Stopped: the model or its provider refused to answer.]"]
            .join("\n\n")
            .trim_start()
            .to_owned(),
        _ => last_answer.to_owned(),
    }
}
