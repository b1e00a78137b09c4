//! Collects the output of a command line, and the tasks that it created or read.

use serde_json::Value;

use super::reading::task_in;
use super::{CommandOutput, OpenedTask, result_of};
use crate::code::Exit;
use crate::error::ErrorBody;
use crate::excerpt;
use crate::mailbox::Mailbox;
use crate::shell::PrintedOutput;
use crate::task::TaskId;
use crate::wording::counted;

/// The longest text for the model, in bytes: the model pays for all of it again at every turn.
pub(super) const MAX_BYTES: usize = 50_000;
/// The part of it that standard error may use.
const MAX_STDERR_BYTES: usize = 8_000;
/// The part of it that is reserved for the note about cut output.
const MAX_NOTE_BYTES: usize = 600;

#[derive(Debug, Default)]
pub(super) struct OutputBuilder {
    stdout: Vec<u8>,
    stderr: String,
    /// The tasks that the line created.
    created: Vec<TaskId>,
    opened: Vec<OpenedTask>,
    collected: Vec<TaskId>,
}

impl OutputBuilder {
    pub(super) fn print(&mut self, text: &[u8]) {
        self.stdout.extend(text);
    }

    pub(super) fn print_error(&mut self, text: &str) {
        self.stderr.push_str(text);
    }

    pub(super) fn collect(&mut self, tasks: impl IntoIterator<Item = TaskId>) {
        for task in tasks {
            if !self.collected.contains(&task) {
                self.collected.push(task);
            }
        }
    }

    /// Records the tasks that a call of `agent-magic-tool` created, and those whose final results it printed. Returns the
    /// task that it created, unless its result is final.
    pub(super) fn record_call(
        &mut self,
        arguments: &[String],
        printed: &PrintedOutput,
        mailbox: &Mailbox,
    ) -> Option<&OpenedTask> {
        let (command, rest) = arguments.split_first()?;
        match command.as_str() {
            "run" => {
                let printed: Value = serde_json::from_str(&printed.stdout).ok()?;
                let (id, is_final) = result_of(&printed)?;
                self.created.push(id);
                match (id, is_final) {
                    (id, true) => self.collect([id]),
                    (id, false) => {
                        let tool = printed["tool"].as_str().unwrap_or_default().to_owned();
                        self.opened.push(OpenedTask { id, tool, result_file: mailbox.result_file(id) });
                        return self.opened.last();
                    }
                }
            }
            // What is printed is not the result itself, so nothing in it names the task.
            "wait" if has_jq(rest) && is_result(printed.status) => self.collect(final_tasks(rest, mailbox)),
            "wait" => {
                let printed: Value = serde_json::from_str(&printed.stdout).ok()?;
                let results = match &printed {
                    Value::Array(results) => results.as_slice(),
                    result => std::slice::from_ref(result),
                };
                self.collect(results.iter().filter_map(result_of).filter(|(_, is_final)| *is_final).map(|(id, _)| id));
            }
            "read" if is_result(printed.status) => self.collect(final_tasks(rest, mailbox)),
            _ => {}
        }
        None
    }

    /// The output for a line of which no command was run.
    pub(super) fn refused(mut self, error: &ErrorBody) -> CommandOutput {
        let PrintedOutput { status, stderr, .. } = PrintedOutput::refused(error);
        self.print_error(&stderr);
        self.finish(status, false)
    }

    pub(super) fn finish(mut self, status: u8, only_reads: bool) -> CommandOutput {
        self.opened.retain(|opened| !self.collected.contains(&opened.id));
        if status != 0 {
            self.name_created();
        }
        let text = self.text(status);
        CommandOutput { text, status, opened: self.opened, collected: self.collected, only_reads }
    }

    /// Names the tasks that no output names: a caller of a line that failed would run it again, and do twice what was done.
    fn name_created(&mut self) {
        let shown = format!("{}{}", String::from_utf8_lossy(&self.stdout), self.stderr);
        for id in std::mem::take(&mut self.created) {
            if !shown.contains(&id.to_string()) {
                let note =
                    format!("note: the line started this task, so do not run it again: agent-magic-tool wait {id}\n");
                self.print_error(&note);
            }
        }
    }

    fn text(&self, status: u8) -> String {
        let stdout = String::from_utf8_lossy(&self.stdout);
        let mut after = String::new();
        push_lines(&mut after, &truncated(&self.stderr, MAX_STDERR_BYTES));
        if status != 0 {
            push_lines(&mut after, &format!("exit status: {status}"));
        }
        let mut text = String::new();
        let room = MAX_BYTES - MAX_NOTE_BYTES - after.len();
        if stdout.len() > room {
            let (shown, _) = excerpt::bytes(&stdout, room);
            push_lines(&mut text, shown);
            text.push_str(&self.cut_note(shown.len(), stdout.len()));
        } else {
            push_lines(&mut text, &stdout);
        }
        text + &after
    }

    /// The note that says how to read the output that was cut.
    fn cut_note(&self, shown: usize, all: usize) -> String {
        let id = self.collected.first().map_or_else(|| "ID".to_owned(), TaskId::to_string);
        format!(
            "[cut: {shown} of {all} bytes are shown. Read the rest in parts: agent-magic-tool read {id} --jq EXPR, \
             or --page 1, --lines 1-100, --bytes {shown}-; or reduce the output: | head, | grep, | jq]\n"
        )
    }
}

/// Whether a command with this exit status printed a result, rather than why it cannot.
fn is_result(status: u8) -> bool {
    [Exit::Ok, Exit::Failed, Exit::Refused].into_iter().any(|exit| exit as u8 == status)
}

fn has_jq(words: &[String]) -> bool {
    words.iter().any(|word| word == "--jq" || word.starts_with("--jq="))
}

/// The tasks among `words` that are final.
fn final_tasks(words: &[String], mailbox: &Mailbox) -> Vec<TaskId> {
    words.iter().filter_map(|word| task_in(word)).filter(|id| mailbox.is_final(*id)).collect()
}

/// Appends `more`, and a line break if it does not end with one.
fn push_lines(text: &mut String, more: &str) {
    text.push_str(more);
    if !more.is_empty() && !more.ends_with('\n') {
        text.push('\n');
    }
}

fn truncated(text: &str, max: usize) -> String {
    match excerpt::bytes(text, max) {
        (_, 0) => text.to_owned(),
        (shown, left_out) => format!("{shown}\n[cut: {}]\n", counted(left_out, "more byte")),
    }
}
