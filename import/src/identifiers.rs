//! Names of input fields: words that a template can use, each standing for a name of the description.

use std::collections::HashSet;

/// Words that a template cannot use for a field.
const RESERVED: [&str; 19] = [
    "input", "task", "caller", "vars", "and", "or", "not", "in", "is", "if", "else", "true", "false", "none", "True",
    "False", "None", "loop", "self",
];

/// Field names of one input.
#[derive(Debug, Default)]
pub(crate) struct Identifiers {
    taken: HashSet<String>,
}

impl Identifiers {
    /// Makes a field name of `wire`, the name on the wire; other than those made before, for which `role` is added.
    ///
    /// A name that can stay as it is does: `pageToken` stays, `filter[status]` becomes `filter_status`.
    pub(crate) fn make(&mut self, wire: &str, role: &str) -> String {
        let mut name = String::new();
        for letter in wire.chars() {
            if letter.is_ascii_alphanumeric() || letter == '_' {
                name.push(letter);
            } else if !name.is_empty() && !name.ends_with('_') {
                name.push('_');
            }
        }
        let mut name = name.trim_end_matches('_').to_owned();
        if name.is_empty() {
            "field".clone_into(&mut name);
        }
        if name.starts_with(|first: char| first.is_ascii_digit()) {
            name.insert(0, 'n');
        }
        if RESERVED.contains(&name.as_str()) {
            name.push_str("_value");
        }
        if self.taken.contains(&name) {
            name = format!("{role}_{name}");
        }
        let base = name.clone();
        let mut number = 1;
        while !self.taken.insert(name.clone()) {
            number += 1;
            name = format!("{base}_{number}");
        }
        name
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_field_name_can_stand_in_a_template_and_is_unique() {
        let mut names = Identifiers::default();
        for (wire, expected) in [
            ("pageToken", "pageToken"),
            ("filter[status]", "filter_status"),
            ("X-Request-Id", "X_Request_Id"),
            ("$top", "top"),
            ("2fa", "n2fa"),
            ("input", "input_value"),
            ("in", "in_value"),
            ("pageToken", "body_pageToken"),
            ("pageToken", "body_pageToken_2"),
            ("+1", "n1"),
            ("_id", "_id"),
            ("年", "field"),
        ] {
            assert_eq!(names.make(wire, "body"), expected, "{wire}");
        }
    }
}
