//! Changes whose service can show them without making them, and whose definition does not say so.

use catalog::Subtool;
use ground::task::effect::EffectClass;
use serde_json::Value;

use super::{Finding, Level, finding};

/// What services call the parameter, in lower case and without what joins the words.
const NAMES: [&str; 3] = ["dryrun", "validateonly", "preview"];

pub(super) fn check(subtool: &Subtool, findings: &mut Vec<Finding>) {
    let definition = &*subtool.definition;
    if definition.annotations.effect_class() == EffectClass::Read || definition.has_dry_run() {
        return;
    }
    let properties = definition.input.get("properties").and_then(Value::as_object);
    let is_switch = |(name, schema): &(&String, &Value)| schema["type"] == "boolean" && is_name(name);
    if let Some((name, _)) = properties.into_iter().flatten().find(is_switch) {
        let message = format!(
            "if the service changes nothing with `{name}`, say so, and callers and the human are shown what would change: \
             \"dry_run\": {{\"input\": {{\"{name}\": true}}}}"
        );
        findings.push(finding(
            subtool,
            Level::Advice,
            "undeclared-dry-run",
            &format!("input.properties.{name}"),
            message,
        ));
    }
}

/// Whether a parameter is called like one with which nothing is changed.
fn is_name(name: &str) -> bool {
    let letters: String = name.chars().filter(char::is_ascii_alphanumeric).collect();
    NAMES.contains(&letters.to_ascii_lowercase().as_str())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_parameter_is_known_however_its_words_are_joined() {
        for name in ["dryRun", "dry_run", "dry-run", "validateOnly", "validate_only", "preview"] {
            assert!(is_name(name), "{name}");
        }
        for name in ["dry", "run", "previews", "validate"] {
            assert!(!is_name(name), "{name}");
        }
    }
}
