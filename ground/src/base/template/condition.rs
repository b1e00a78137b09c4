//! Conditions of rules: expressions over `input` and `caller`.
//!
//! An optional field may be absent. A rule that restricts treats it like an empty value, so that it need not test for
//! it first; a rule that allows does not hold for what it cannot judge.

use minijinja::value::Value as Scoped;
use minijinja::{AutoEscape, UndefinedBehavior};

use super::names::DeclaredNames;
use super::{TemplateError, TemplateValues, growth};

impl TemplateValues {
    /// Evaluates `condition`. An absent field is undefined: it equals nothing, contains nothing and has the length 0.
    pub fn holds_leniently(&self, condition: &str) -> Result<bool, TemplateError> {
        let bounds = growth::of_expression(condition, &|name| self.is_number(name))?;
        let mut engine = self.engine(condition, bounds, AutoEscape::None);
        engine.set_undefined_behavior(UndefinedBehavior::Chainable);
        for name in ["length", "count"] {
            engine.add_filter(name, |value: Scoped| value.len().unwrap_or_default());
        }
        self.evaluate(condition, &engine).map(|value| value.is_true())
    }
}

/// Checks the syntax of the condition of a rule, and that every name, filter, test and function in it exists.
pub fn check(condition: &str) -> Result<(), TemplateError> {
    check_with(condition, &DeclaredNames::default())
}

/// The same for a risk mark, which also knows when the call was asked.
pub fn check_mark(condition: &str) -> Result<(), TemplateError> {
    check_with(condition, &DeclaredNames { knows_time: true, ..DeclaredNames::default() })
}

fn check_with(condition: &str, names: &DeclaredNames) -> Result<(), TemplateError> {
    let mistakes = names.mistakes_in_condition(condition)?;
    match mistakes.into_iter().next() {
        None => Ok(()),
        Some(reason) => Err(TemplateError { template: condition.to_owned(), reason }),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn values(input: Value) -> TemplateValues {
        let Value::Object(input) = input else { panic!("an input must be an object") };
        TemplateValues::of_condition(&input, &json!({"uid": 1}))
    }

    #[test]
    fn an_absent_field_is_like_an_empty_one() {
        let empty = values(json!({}));
        for (condition, expected) in [
            ("input.amount > 100", false),
            ("input.cc | length > 1", false),
            ("'eve' in input.cc", false),
            ("input.to.name == 'eve'", false),
            ("not input.cc", true),
            ("input.cc is defined", false),
        ] {
            assert_eq!(empty.holds_leniently(condition).ok(), Some(expected), "{condition}");
        }
        assert_eq!(values(json!({"cc": [1, 2]})).holds_leniently("input.cc | length > 1").ok(), Some(true));
    }

    #[test]
    fn a_value_of_another_type_is_never_equal() {
        let values = values(json!({"number": 1, "text": "1", "boolean": true}));
        for never in ["input.number == '1'", "input.text == 1", "input.boolean == 'true'", "input.number in ['1']"] {
            assert_eq!(values.holds_leniently(never).ok(), Some(false), "{never}");
        }
        assert_eq!(values.holds_leniently("input.boolean == 1 and input.number == true").ok(), Some(true));
    }

    #[test]
    fn an_unknown_name_filter_or_test_is_found_even_where_it_is_not_evaluated() {
        for wrong in [
            "input.to | no_such_filter",
            "false and (input.to | lowr == 'a')",
            "input.to is strng",
            "input.to is not strng",
            "inptu.to == 1",
            "nosuch(input)",
            "input.get('to') == 1",
            "input[caller.session] == 1",
            "input | attr(caller.session) == 1",
            "input.",
        ] {
            assert!(check(wrong).is_err(), "{wrong}");
        }
        for right in [
            "input.to | lower == 'a'",
            "input.to is not defined or input.to is string",
            "input.to == 'a | no_such_filter is strng'",
            "caller.depth > 0 and input.cc | default([]) | length > 1",
            "input.n in range(3)",
        ] {
            assert!(check(right).is_ok(), "{right}: {:?}", check(right));
        }
    }
}
