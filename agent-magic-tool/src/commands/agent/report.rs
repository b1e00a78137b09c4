//! The report of a question as Markdown: the answer, how the question ended, its cost and its tasks.

use std::fmt::Write as _;
use std::path::Path;

use agent_loop::model::conversation::JournalEntry;
use agent_side::error::Error;

use super::one_shot::Outcome;

/// Writes the report atomically.
pub(super) fn write(
    file: &Path,
    question: Option<&str>,
    outcome: &Outcome,
    entries: &[JournalEntry],
) -> Result<(), Error> {
    let failed = |error: std::io::Error| Error::io(&format!("failed to write report `{}`", file.display()), &error);
    let folder = file.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let mut written = tempfile::NamedTempFile::new_in(folder).map_err(failed)?;
    std::io::Write::write_all(&mut written, text(question, outcome, entries).as_bytes()).map_err(failed)?;
    written.persist(file).map_err(|error| failed(error.error))?;
    Ok(())
}

fn text(question: Option<&str>, outcome: &Outcome, entries: &[JournalEntry]) -> String {
    let mut text = format!("{}\n", outcome.answer.trim());
    let mut add = |line: String| {
        // Writing to a string cannot fail.
        if writeln!(text, "{line}").is_ok() {}
    };
    add("\n---\n".to_owned());
    if let Some(question) = question {
        add(format!("- question: {}", question.trim().replace('\n', " ")));
    }
    let usage = &outcome.usage;
    add(format!(
        "- ended: {}{}",
        outcome.termination,
        if outcome.truncated { ", the answer may be incomplete" } else { "" }
    ));
    add(format!("- model: {}; session: {}", outcome.model, outcome.session));
    add(format!(
        "- requests: {}; tokens: {} in, {} out; cost: {}",
        usage["requests"], usage["input_tokens"], usage["output_tokens"], usage["cost"]
    ));
    let ran = entries.iter().flat_map(|entry| match entry {
        JournalEntry::Called { results } => results.iter().flat_map(|result| &result.opened).collect(),
        _ => Vec::new(),
    });
    for task in ran {
        add(format!("- ran {}: `{}`", task.tool, task.result_file.display()));
    }
    text
}
