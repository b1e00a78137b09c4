//! The privileges that a subtool requires, checked against those that the configuration gives to callers.
//!
//! A privilege may depend on the input, as `{{ entity }}:read` does. Listing knows no input, so it checks only the
//! constant ones; intake and each attempt check all of them.

use definition::Definition;
use globset::{Glob, GlobSet, GlobSetBuilder};
use ground::base::template::{self, TemplateValues};
use protocol::code::Code;
use protocol::error::ErrorBody;
use serde_json::{Map, Value};

/// Whether callers have each constant privilege that `definition` requires.
pub(super) fn may_list(definition: &Definition, granted: &GlobSet) -> bool {
    let mut constant = definition.requires.iter().filter(|required| template::is_constant(required));
    constant.all(|privilege| granted.is_match(privilege))
}

/// Refuses an input for which callers lack a privilege. `granted` are the globs of `access.privileges`.
pub fn check(definition: &Definition, input: &Map<String, Value>, granted: &[String]) -> Result<(), ErrorBody> {
    if definition.requires.is_empty() {
        return Ok(());
    }
    let mut globs = GlobSetBuilder::new();
    // A malformed glob, which is reported elsewhere, grants nothing.
    for glob in granted.iter().filter_map(|glob| Glob::new(glob).ok()) {
        globs.add(glob);
    }
    let globs = globs.build().unwrap_or_default();
    let values = TemplateValues::of_input(input);
    for required in &definition.requires {
        // Values are encoded, so that none can add a `:` or become a part of another privilege.
        let privilege = match values.url_part(required) {
            Ok(privilege) if globs.is_match(&privilege) => continue,
            Ok(privilege) => privilege,
            Err(_) => required.clone(),
        };
        return Err(ErrorBody::new(Code::RefusedByPolicy, format!("callers lack the privilege `{privilege}`"))
            .hint("do not work around it: tell the user, who can grant it with `privileges` under [access]"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn is_allowed(requires: &Value, input: &Value, granted: &[&str]) -> bool {
        let definition = json!({
            "description": "d", "input": {}, "run": {"process": {"argv": ["true"]}}, "requires": requires
        });
        let definition = serde_json::from_value(definition).expect("a definition");
        let granted: Vec<String> = granted.iter().map(|glob| (*glob).to_owned()).collect();
        check(&definition, input.as_object().expect("an object"), &granted).is_ok()
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
