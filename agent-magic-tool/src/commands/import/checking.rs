//! Asks the catalog whether generated definitions load, before any is written.
//!
//! What the loader refuses is tried once more in a simpler form; if that does not help, it is left out, with the
//! loader's own words as the reason. So what an import writes always loads.

use std::collections::BTreeMap;

use catalog::problems_of_definitions;
use import::kinds::Kind;
use import::{Imported, LeftOut};
use serde_json::{Map, Value};

/// Removes the definitions that would not load, and says so in `left_out`.
pub(super) fn remove_what_does_not_load(kind: &Kind, imported: &mut Imported) {
    let first = problems(imported);
    if first.is_empty() {
        return;
    }
    for subtool in &mut imported.subtools {
        if let Some(problem) = first.get(&subtool.name) {
            let simplified = (kind.loosen)(&mut subtool.definition);
            imported.simplified.push(LeftOut::new(subtool.what.as_str(), format!("{simplified}: {problem}")));
        }
    }
    let second = problems(imported);
    let (left_out, simplified) = (&mut imported.left_out, &mut imported.simplified);
    imported.subtools.retain(|subtool| match second.get(&subtool.name) {
        None => true,
        Some(problem) => {
            simplified.retain(|simplified| simplified.what != subtool.what);
            left_out.push(LeftOut::new(subtool.what.as_str(), format!("it does not load: {problem}")));
            false
        }
    });
}

/// The first problem of each definition that does not load, by its name.
fn problems(imported: &Imported) -> BTreeMap<String, String> {
    let definitions: Map<String, Value> = imported
        .subtools
        .iter()
        .map(|subtool| (subtool.name.clone(), Value::Object(subtool.definition.clone())))
        .collect();
    let mut problems = BTreeMap::new();
    for problem in problems_of_definitions(&imported.defaults, definitions) {
        let place = problem.place.map(|place| format!("{place}: ")).unwrap_or_default();
        let name = problem.subtool.unwrap_or_default();
        problems.entry(name).or_insert_with(|| format!("{place}{}", problem.message));
    }
    problems
}
