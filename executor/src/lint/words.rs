//! Words that a model reads and that have another purpose than to say what the subtool does.

use catalog::Subtool;
use ground::base::suspicion;

use super::{Finding, warning};

pub(super) fn check(subtool: &Subtool, findings: &mut Vec<Finding>) {
    let definition = &subtool.definition;
    for suspicion in suspicion::of_definition(&definition.description, &definition.input) {
        let message = format!("{}; a model reads this: if it is not yours, remove the subtool", suspicion.message);
        findings.push(warning(subtool, suspicion.code, &suspicion.place, message));
    }
}
