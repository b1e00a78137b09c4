//! A dry run of every example: builds what would be sent, and sends nothing.

use catalog::Subtool;
use definition::Lookup;
use ground::config::Config;
use protocol::caller::Caller;
use runner::Invocation;
use runner::Runner as _;
use serde_json::{Map, Value};

use super::{Finding, Level, finding};

pub(super) fn check(subtool: &Subtool, config: &Config, findings: &mut Vec<Finding>) {
    let definition = &subtool.definition;
    for (index, example) in definition.examples.iter().enumerate() {
        let place = format!("examples[{index}]");
        let mut error = |code, message| findings.push(finding(subtool, Level::Error, code, &place, message));
        let mut input = example.input.clone();
        subtool.schema.normalize(&mut input);
        let caller = Caller { folder: std::env::current_dir().ok(), ..Caller::default() };
        let invocation = Invocation { id: "example".to_owned(), attempt: 1, input, caller, ..Invocation::default() };
        if let Err(failure) = definition.run.plan(&invocation, config) {
            let hint = failure.error.hint.map(|hint| format!("; {hint}")).unwrap_or_default();
            error("example-fails", format!("its dry run fails: {}{hint}", failure.error.message));
        }
        let verify = definition.verify.as_ref().map(|it| ("verify", &it.subtool, &it.input, &it.lookup));
        let preview = definition.preview.as_ref().map(|it| ("preview", &it.subtool, &it.input, &it.lookup));
        let by_another = definition.dry_run.as_ref().and_then(|it| Some((it, it.subtool.as_ref()?)));
        let dry_run = by_another.map(|(it, subtool)| ("dry_run", subtool, &it.input, &it.lookup));
        for (key, name, templates, lookup) in [verify, preview, dry_run].into_iter().flatten() {
            let Some(lookup) = lookup else { continue };
            if let Err(message) = looked_up(templates, lookup, &invocation) {
                error("lookup-fails", format!("its `{key}` could not call `{name}`: {message}"));
            }
        }
    }
}

/// Fills the input of a lookup and checks it.
fn looked_up(templates: &Map<String, Value>, lookup: &Lookup, invocation: &Invocation) -> Result<(), String> {
    let filled = invocation.values().fields(templates);
    let mut input = filled.map_err(|error| error.to_string())?;
    lookup.schema.normalize(&mut input);
    match lookup.schema.problems(&Value::Object(input)).first() {
        None => Ok(()),
        Some(problem) if problem.pointer.is_empty() => Err(problem.to_string()),
        Some(problem) => Err(format!("{}: {problem}", problem.pointer)),
    }
}
