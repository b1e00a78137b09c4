//! Programs in definitions: whether they parse, and whether they call what they may.

use catalog::{Catalog, Subtool};
use definition::run::Run;
use definition::run::script::ScriptText;
use ground::base::template;
use protocol::tool_scope::ToolScope;
use protocol::wording::in_backticks;
use runner::script::{called_subtools, mistake_in};

use super::{Finding, Level, finding, warning};

pub(super) fn check(subtool: &Subtool, catalog: &Catalog, findings: &mut Vec<Finding>) {
    let Run::Script(script) = &subtool.definition.run else { return };
    for pattern in script.calls.iter().flatten() {
        if let Some(message) = catalog.unmatched(pattern) {
            findings.push(warning(subtool, "unknown-call", "run.script.calls", message));
        }
    }
    let (source, place) = match script.text() {
        ScriptText::Constant(source) => (source, "run.script.file"),
        ScriptText::Template(source) if template::is_constant(source) => (source, "run.script.source"),
        ScriptText::Template(_) => return,
    };
    if let Some(mistake) = mistake_in(source, script.file.as_deref()) {
        findings.push(finding(subtool, Level::Error, "script-syntax", place, mistake));
        return;
    }
    let Some(calls) = &script.calls else { return };
    let Ok(callable) = ToolScope::default().narrowed(calls.clone()) else { return };
    let others = called_subtools(source, catalog).into_iter().filter(|name| !callable.covers(name));
    let others: Vec<_> = others.map(|name| in_backticks(&name)).collect();
    if !others.is_empty() {
        let message = format!("the program calls {}, which it may not: `calls` does not name it", others.join(", "));
        findings.push(finding(subtool, Level::Error, "uncallable", place, message));
    }
}
