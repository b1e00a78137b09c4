//! The privileges that a subtool requires, checked against those that the configuration gives to callers.
//!
//! A privilege may depend on the input, as `{{ entity }}:read` does. Listing knows no input, so it checks only the
//! constant ones; intake and each attempt check all of them.

use definition::Definition;
use ground::base::template::TemplateValues;
use protocol::code::Code;
use protocol::error::ErrorBody;
use serde_json::{Map, Value};

/// Refuses an input for which the caller lacks a privilege. `lacking` tells the section of the configuration that does not
/// grant one.
pub(super) fn check(
    definition: &Definition,
    input: &Map<String, Value>,
    lacking: impl Fn(&str) -> Option<String>,
) -> Result<(), ErrorBody> {
    if definition.requires.is_empty() {
        return Ok(());
    }
    let values = TemplateValues::of_input(input);
    for required in &definition.requires {
        // Values are encoded, so that none can add a `:` or become a part of another privilege.
        let (privilege, section) = match values.url_part(required) {
            Ok(privilege) => match lacking(&privilege) {
                None => continue,
                Some(section) => (privilege, section),
            },
            Err(_) => (required.clone(), "access".to_owned()),
        };
        return Err(ErrorBody::new(Code::RefusedByPolicy, format!("callers lack the privilege `{privilege}`")).hint(
            format!("do not work around it: tell the user, who can grant it with `privileges` under [{section}]"),
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use protocol::access::{AccessFilter, AccessRules};
    use serde_json::json;

    use super::*;

    fn is_allowed(requires: &Value, input: &Value, granted: &[&str]) -> bool {
        let definition = json!({
            "description": "d", "input": {}, "run": {"process": {"argv": ["true"]}}, "requires": requires
        });
        let definition = serde_json::from_value(definition).expect("a definition");
        let privileges = granted.iter().map(|glob| (*glob).to_owned()).collect();
        let filter = AccessFilter::new(&AccessRules { privileges, ..AccessRules::default() }).expect("globs");
        let lacking = |privilege: &str| (!filter.grants(privilege)).then(|| "access".to_owned());
        check(&definition, input.as_object().expect("an object"), lacking).is_ok()
    }

    #[test]
    fn a_privilege_depends_on_the_real_argument() {
        let requires = json!(["{{ entity }}:{{ operation }}"]);
        let granted = ["product:*", "customer:read"];
        for (entity, operation, allowed) in [
            ("product", "delete", true),
            ("customer", "read", true),
            ("customer", "delete", false),
            ("order", "read", false),
            // A value cannot smuggle in the end of another privilege.
            ("product:x", "read", false),
            ("customer:read", "", false),
            ("*", "read", false),
        ] {
            let input = json!({"entity": entity, "operation": operation});
            assert_eq!(is_allowed(&requires, &input, &granted), allowed, "{entity} {operation}");
        }
        assert!(!is_allowed(&requires, &json!({"entity": "product"}), &granted), "an absent value grants nothing");
        assert!(is_allowed(&json!(["mail:send"]), &json!({}), &["mail:*"]));
    }
}
