//! Which fields of the input a condition reads, and with what it compares them.
//!
//! A field that is written in another way than `input.NAME` is the same field, and a mistake in its name is as silent: an
//! absent field is no error in a condition. A comparison with a value of another type is silent as well: it never holds.

use std::collections::BTreeSet;

use minijinja::machinery::ast::{BinOpKind, Call, CallArg, Expr, Filter, Test};
use minijinja::machinery::parse_expr;
use minijinja::value::Value as Scoped;
use protocol::excerpt;
use serde_json::Value;

use super::MAX_SHOWN_CHARS;
use super::computed::{self, Comparison};

/// A type that a value can have in JSON, but for null: that is like an absent value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum JsonType {
    Text,
    Number,
    Boolean,
    List,
    Object,
}

impl JsonType {
    /// The type that JSON Schema calls `name`; `None` for `null` and what is no type.
    pub fn of_schema(name: &str) -> Option<Self> {
        Some(match name {
            "string" => Self::Text,
            "number" | "integer" => Self::Number,
            "boolean" => Self::Boolean,
            "array" => Self::List,
            "object" => Self::Object,
            _ => return None,
        })
    }

    /// With its article.
    pub fn name(self) -> &'static str {
        match self {
            Self::Text => "a string",
            Self::Number => "a number",
            Self::Boolean => "a boolean",
            Self::List => "a list",
            Self::Object => "an object",
        }
    }

    /// `None` of null.
    pub fn of(value: &Value) -> Option<Self> {
        match value {
            Value::String(_) => Some(Self::Text),
            Value::Number(_) => Some(Self::Number),
            Value::Bool(_) => Some(Self::Boolean),
            Value::Array(_) => Some(Self::List),
            Value::Object(_) => Some(Self::Object),
            Value::Null => None,
        }
    }
}

/// A comparison of a field with a value that stands in the condition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FieldComparison {
    pub field: String,
    /// The value, as JSON.
    pub value: String,
    /// The types that the field must be able to have if the comparison is ever to tell anything.
    pub types: Vec<JsonType>,
}

/// What a condition does with the input.
#[derive(Debug, Default)]
pub struct FieldUses {
    pub fields: BTreeSet<String>,
    pub comparisons: Vec<FieldComparison>,
    /// Why a comparison of a computed value tells nothing, in a sentence for each.
    pub impossible: Vec<String>,
    /// Whether it computes the name of a field, so that it is not known which one it reads.
    pub computes_name: bool,
}

impl FieldUses {
    /// Of a condition that cannot be read: nothing.
    pub fn of(condition: &str) -> Self {
        let mut uses = Self::default();
        if let Ok(parsed) = parse_expr(condition) {
            uses.read(&parsed);
        }
        uses
    }

    fn read(&mut self, expression: &Expr<'_>) {
        match expression {
            Expr::Var(_) | Expr::Const(_) => {}
            Expr::GetAttr(attribute) => {
                self.note(expression);
                self.read(&attribute.expr);
            }
            Expr::GetItem(item) => {
                self.note(expression);
                self.read(&item.expr);
                self.read(&item.subscript_expr);
            }
            Expr::Slice(slice) => {
                self.read(&slice.expr);
                [&slice.start, &slice.stop, &slice.step].into_iter().flatten().for_each(|bound| self.read(bound));
            }
            Expr::UnaryOp(operation) => self.read(&operation.expr),
            Expr::BinOp(operation) => {
                let (left, right) = (&operation.left, &operation.right);
                match operation.op {
                    BinOpKind::In => self.contained(left, right),
                    operator => {
                        if let Some(how) = Comparison::of_operator(operator) {
                            self.compared(left, how, right);
                        }
                    }
                }
                self.read(left);
                self.read(right);
            }
            Expr::Compare(comparison) => {
                self.read(&comparison.expr);
                let mut left = &comparison.expr;
                for operation in &comparison.ops {
                    match Comparison::of_chain(operation.op) {
                        None => self.contained(left, &operation.expr),
                        Some(how) => self.compared(left, how, &operation.expr),
                    }
                    self.read(&operation.expr);
                    left = &operation.expr;
                }
            }
            Expr::IfExpr(choice) => {
                self.read(&choice.test_expr);
                self.read(&choice.true_expr);
                choice.false_expr.iter().for_each(|other| self.read(other));
            }
            Expr::Test(test) => self.tested(test),
            Expr::Filter(filter) => {
                self.note(expression);
                filter.expr.iter().for_each(|operand| self.read(operand));
                self.arguments(&filter.args);
            }
            Expr::Call(call) => {
                let call: &Call<'_> = call;
                self.read(&call.expr);
                self.arguments(&call.args);
            }
            Expr::List(list) => list.items.iter().for_each(|item| self.read(item)),
            Expr::Tuple(tuple) => tuple.items.iter().for_each(|item| self.read(item)),
            Expr::Map(map) => map.keys.iter().chain(&map.values).for_each(|part| self.read(part)),
        }
    }

    /// Notes the field that `expression` is, if it is one.
    fn note(&mut self, expression: &Expr<'_>) {
        match field(expression) {
            Some(Named::Field(name)) => drop(self.fields.insert(name)),
            Some(Named::Computed) => self.computes_name = true,
            None => {}
        }
    }

    fn tested(&mut self, test: &Test<'_>) {
        if let Some(CallArg::Pos(other)) = test.args.first() {
            match Comparison::of_test(test.name) {
                Some(how) => self.compared(&test.expr, how, other),
                None if test.name == "in" => self.contained(&test.expr, other),
                None => {}
            }
        }
        self.read(&test.expr);
        self.arguments(&test.args);
    }

    fn arguments(&mut self, arguments: &[CallArg<'_>]) {
        for argument in arguments {
            let (CallArg::Pos(value)
            | CallArg::Kwarg(_, value)
            | CallArg::PosSplat(value)
            | CallArg::KwargSplat(value)) = argument;
            self.read(value);
        }
    }

    /// Either side may be the field.
    fn compared(&mut self, left: &Expr<'_>, how: Comparison, right: &Expr<'_>) {
        self.impossible.extend(computed::impossible(left, how, right));
        for (of, value) in [(left, right), (right, left)] {
            if let (Some(Named::Field(field)), Some(value)) = (field(of), value.as_const()) {
                self.compare(field, &value, equal_to);
            }
        }
    }

    /// `left in right`.
    fn contained(&mut self, left: &Expr<'_>, right: &Expr<'_>) {
        if let (Some(Named::Field(field)), Some(value)) = (field(right), left.as_const()) {
            self.compare(field, &value, holds);
        }
        self.impossible_in(left, right);
        // The name of a field may be looked for in the whole input.
        if is_input(right) {
            match left.as_const() {
                Some(name) => drop(self.fields.insert(name.to_string())),
                None => self.computes_name = true,
            }
        }
        let Some(Named::Field(field)) = field(left) else { return };
        let items = match right {
            Expr::List(list) => &list.items,
            Expr::Tuple(tuple) => &tuple.items,
            _ => {
                if let Some(text) = right.as_const().filter(|value| value.as_str().is_some()) {
                    self.compare(field, &text, |_| vec![JsonType::Text, JsonType::Number]);
                }
                return;
            }
        };
        for value in items.iter().filter_map(Expr::as_const) {
            self.compare(field.clone(), &value, equal_to);
        }
    }

    /// `left in right`, where one of them is computed.
    fn impossible_in(&mut self, left: &Expr<'_>, right: &Expr<'_>) {
        let items = match right {
            Expr::List(list) => &list.items,
            Expr::Tuple(tuple) => &tuple.items,
            _ => return self.impossible.extend(computed::impossible(right, Comparison::Contains, left)),
        };
        let never = items.iter().filter_map(|item| computed::impossible(left, Comparison::Equal, item));
        self.impossible.extend(never);
    }

    fn compare(&mut self, field: String, value: &Scoped, types: impl FnOnce(JsonType) -> Vec<JsonType>) {
        let Ok(value) = serde_json::to_value(value) else { return };
        let Some(is) = JsonType::of(&value) else { return };
        let value = excerpt::line(&value.to_string(), MAX_SHOWN_CHARS);
        self.comparisons.push(FieldComparison { field, value, types: types(is) });
    }
}

/// The types in which a value of this type can be found: the text of a number may be part of a text.
pub(super) fn holds(is: JsonType) -> Vec<JsonType> {
    match is {
        JsonType::Text => vec![JsonType::Text, JsonType::List, JsonType::Object],
        JsonType::Number => vec![JsonType::Text, JsonType::List],
        _ => vec![JsonType::List],
    }
}

/// The types that a value of this type can be equal to: `true` is 1.
pub(super) fn equal_to(is: JsonType) -> Vec<JsonType> {
    match is {
        JsonType::Number | JsonType::Boolean => vec![JsonType::Number, JsonType::Boolean],
        other => vec![other],
    }
}

/// A field of the input, as an expression names it.
enum Named {
    Field(String),
    Computed,
}

/// The field that `expression` is: `input.x`, `input['x']` or `input | attr('x')`.
fn field(expression: &Expr<'_>) -> Option<Named> {
    let written = |name: &Expr<'_>| name.as_const().map_or(Named::Computed, |name| Named::Field(name.to_string()));
    match expression {
        Expr::GetAttr(attribute) if is_input(&attribute.expr) => Some(Named::Field(attribute.name.to_owned())),
        Expr::GetItem(item) if is_input(&item.expr) => Some(written(&item.subscript_expr)),
        Expr::Filter(filter) => {
            let filter: &Filter<'_> = filter;
            let is_of_input = filter.name == "attr" && filter.expr.as_ref().is_some_and(is_input);
            is_of_input.then(|| match filter.args.first() {
                Some(CallArg::Pos(name)) => written(name),
                _ => Named::Computed,
            })
        }
        _ => None,
    }
}

/// Whether `expression` is the whole input, or another value only in its absence.
fn is_input(expression: &Expr<'_>) -> bool {
    match expression {
        Expr::Var(name) => name.id == "input",
        Expr::BinOp(operation) => matches!(operation.op, BinOpKind::ScOr) && is_input(&operation.left),
        Expr::Filter(filter) => matches!(filter.name, "d" | "default") && filter.expr.as_ref().is_some_and(is_input),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_field_is_found_however_it_is_written() {
        for condition in [
            "input.to == 'x'",
            "input['to'] == 'x'",
            "input[\"to\"].name == 'x'",
            "input['t' ~ 'o']",
            "input | attr('to')",
            "(input or {}).to",
            "(input | default({}))['to'] is defined",
            "'to' in input",
            "'to' not in input",
            "not (1 if input['to'] else 2)",
            "[{'a': input['to']}] | length > 1",
            "caller.depth in [input['to'][0], 1]",
            "1 < input['to'] < 5",
            "5 is in(input['to'])",
            "range(input['to'])[0:input.to]",
        ] {
            let uses = FieldUses::of(condition);
            assert_eq!(uses.fields.iter().collect::<Vec<_>>(), ["to"], "{condition}");
            assert!(!uses.computes_name, "{condition}");
        }
        for condition in ["input[caller.session]", "input | attr(caller.session)", "caller.session in input"] {
            assert!(FieldUses::of(condition).computes_name, "{condition}");
        }
        for condition in ["caller['session'] == 'x'", "input | length > 3", "input", "not valid ("] {
            let uses = FieldUses::of(condition);
            assert!(uses.fields.is_empty() && !uses.computes_name, "{condition}");
        }
    }

    #[test]
    fn a_comparison_says_which_types_it_can_tell_anything_of() {
        use JsonType::{Boolean, List, Number, Object, Text};
        for (condition, value, types) in [
            ("input.x > '100'", "\"100\"", &[Text][..]),
            ("-1 == input['x']", "-1", &[Number, Boolean]),
            ("0 < input.x", "0", &[Number, Boolean]),
            ("input.x is eq(true)", "true", &[Number, Boolean]),
            ("input.x == ['a']", "[\"a\"]", &[List]),
            ("input.x in ['a']", "\"a\"", &[Text]),
            ("input.x not in ['a']", "\"a\"", &[Text]),
            ("input.x in 'abc'", "\"abc\"", &[Text, Number]),
            ("'a' in input.x", "\"a\"", &[Text, List, Object]),
            ("1 in input.x", "1", &[Text, List]),
        ] {
            let comparison = FieldComparison { field: "x".to_owned(), value: value.to_owned(), types: types.to_vec() };
            assert_eq!(FieldUses::of(condition).comparisons, [comparison], "{condition}");
        }
        for condition in
            ["input.x == none", "input.x.y == 'a'", "input.x | int > 5", "input.x == input.y", "input.x + 1"]
        {
            assert_eq!(FieldUses::of(condition).comparisons, [], "{condition}");
        }
    }
}
