//! Comparisons of a computed value that tell nothing, whatever the input is: `input.x | length > '5'`.
//!
//! Only what is certain from the filters and operators themselves: of which type their result is, in which case a text
//! is, and which numbers a length can be. Comparisons of plain fields are the matter of `field_uses.rs`.

use minijinja::machinery::ast::{BinOpKind, CompareOpKind, Expr, UnaryOpKind};
use protocol::excerpt;
use serde_json::Value;

use super::MAX_SHOWN_CHARS;
use super::field_uses::{JsonType, equal_to, holds};

/// How two values are compared. What is said of an equality holds for its opposite as well.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Comparison {
    Equal,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
    /// The left one begins or ends with the right one.
    AtAnEnd,
    /// The left one contains the right one.
    Contains,
}

/// What is certain about the value of an expression, also of a constant.
#[derive(Debug, Clone)]
struct ComputedValue {
    /// What computes it; `None` of a constant.
    by: Option<String>,
    is: JsonType,
    case: Option<Case>,
    number: NumberKind,
    constant: Option<Value>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Case {
    Upper,
    Lower,
}

/// Which numbers it can be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum NumberKind {
    Any,
    Whole,
    /// Whole, and at least 0.
    Count,
}

impl Comparison {
    pub(super) fn of_operator(operator: BinOpKind) -> Option<Self> {
        Some(match operator {
            BinOpKind::Eq | BinOpKind::Ne => Self::Equal,
            BinOpKind::Lt => Self::Less,
            BinOpKind::Lte => Self::LessOrEqual,
            BinOpKind::Gt => Self::Greater,
            BinOpKind::Gte => Self::GreaterOrEqual,
            _ => return None,
        })
    }

    pub(super) fn of_chain(operator: CompareOpKind) -> Option<Self> {
        Some(match operator {
            CompareOpKind::Eq | CompareOpKind::Ne => Self::Equal,
            CompareOpKind::Lt => Self::Less,
            CompareOpKind::Lte => Self::LessOrEqual,
            CompareOpKind::Gt => Self::Greater,
            CompareOpKind::Gte => Self::GreaterOrEqual,
            CompareOpKind::In | CompareOpKind::NotIn => return None,
        })
    }

    /// Of a test like `is gt(5)`.
    pub(super) fn of_test(name: &str) -> Option<Self> {
        Some(match name {
            "eq" | "equalto" | "==" | "ne" | "!=" | "sameas" => Self::Equal,
            "lt" | "lessthan" | "<" => Self::Less,
            "le" | "<=" => Self::LessOrEqual,
            "gt" | "greaterthan" | ">" => Self::Greater,
            "ge" | ">=" => Self::GreaterOrEqual,
            "startingwith" | "endingwith" => Self::AtAnEnd,
            _ => return None,
        })
    }

    /// The same with its sides exchanged.
    fn turned(self) -> Self {
        match self {
            Self::Less => Self::Greater,
            Self::LessOrEqual => Self::GreaterOrEqual,
            Self::Greater => Self::Less,
            Self::GreaterOrEqual => Self::LessOrEqual,
            same => same,
        }
    }
}

/// Why a comparison of `left` with `right` tells nothing, if one of them is computed and that is certain.
pub(super) fn impossible(left: &Expr<'_>, how: Comparison, right: &Expr<'_>) -> Option<String> {
    let (left, right) = (ComputedValue::of(left)?, ComputedValue::of(right)?);
    match (&left.by, &right.by) {
        (None, None) => None,
        (Some(by), _) => left.never(by, how, &right),
        (None, Some(by)) if how == Comparison::Contains => right.never_within(by, &left),
        (None, Some(by)) => right.never(by, how.turned(), &left),
    }
}

impl ComputedValue {
    fn of(expression: &Expr<'_>) -> Option<Self> {
        if let Some(constant) = expression.as_const() {
            let constant = serde_json::to_value(constant).ok()?;
            let is = JsonType::of(&constant)?;
            return Some(Self { by: None, is, case: None, number: NumberKind::Any, constant: Some(constant) });
        }
        match expression {
            Expr::Filter(filter) => Self::of_filter(filter.name, filter.expr.as_ref()),
            Expr::Test(test) => Some(Self::new(&format!("is {}", test.name), JsonType::Boolean)),
            Expr::UnaryOp(operation) => Some(match operation.op {
                UnaryOpKind::Not => Self::new("not", JsonType::Boolean),
                UnaryOpKind::Neg => Self::new("-", JsonType::Number),
            }),
            Expr::BinOp(operation) => Self::of_operation(operation.op),
            Expr::GetAttr(attribute) => match &attribute.expr {
                Expr::Var(name) if name.id == "caller" => Self::of_caller(attribute.name),
                _ => None,
            },
            _ => None,
        }
    }

    fn new(by: &str, is: JsonType) -> Self {
        Self { by: Some(by.to_owned()), is, case: None, number: NumberKind::Any, constant: None }
    }

    fn of_filter(name: &str, operand: Option<&Expr<'_>>) -> Option<Self> {
        let known = |is| Self::new(name, is);
        Some(match name {
            "length" | "count" => Self { number: NumberKind::Count, ..known(JsonType::Number) },
            "int" => Self { number: NumberKind::Whole, ..known(JsonType::Number) },
            "float" | "abs" | "round" => known(JsonType::Number),
            "upper" => Self { case: Some(Case::Upper), ..known(JsonType::Text) },
            "lower" => Self { case: Some(Case::Lower), ..known(JsonType::Text) },
            // They leave the letters as they are.
            "trim" | "string" => {
                let inner = operand.and_then(Self::of).filter(|inner| inner.case.is_some());
                inner.unwrap_or_else(|| known(JsonType::Text))
            }
            "title" | "replace" | "join" | "json" | "b64url" => known(JsonType::Text),
            "bool" => known(JsonType::Boolean),
            "list" | "lines" | "split" | "map" | "select" | "selectattr" | "reject" | "rejectattr" | "sort"
            | "unique" | "items" | "dictsort" => known(JsonType::List),
            _ => return None,
        })
    }

    fn of_operation(operator: BinOpKind) -> Option<Self> {
        use BinOpKind::{Concat, Div, Eq, FloorDiv, Gt, Gte, In, Lt, Lte, Mul, Ne, Pow, Rem, Sub};
        Some(match operator {
            Concat => Self::new("~", JsonType::Text),
            Sub => Self::new("-", JsonType::Number),
            Mul => Self::new("*", JsonType::Number),
            Div => Self::new("/", JsonType::Number),
            FloorDiv => Self::new("//", JsonType::Number),
            Rem => Self::new("%", JsonType::Number),
            Pow => Self::new("**", JsonType::Number),
            Eq | Ne | Lt | Lte | Gt | Gte | In => Self::new("a comparison", JsonType::Boolean),
            _ => return None,
        })
    }

    fn of_caller(field: &str) -> Option<Self> {
        let is = match field {
            "uid" | "depth" | "hour" | "weekday" => JsonType::Number,
            "wakes" | "read_only" | "unattended" => JsonType::Boolean,
            _ => return None,
        };
        Some(Self::new(&format!("caller.{field}"), is))
    }

    /// Why the value, which `by` computes, is never to `other` as `how` says.
    fn never(&self, by: &str, how: Comparison, other: &Self) -> Option<String> {
        let types = match how {
            Comparison::Contains => return self.never_containing(by, other),
            Comparison::AtAnEnd => vec![JsonType::Text],
            _ => equal_to(self.is),
        };
        let shown = other.shown();
        if !types.contains(&other.is) {
            return Some(format!(
                "`{by}` gives {}, and is compared with {shown}, which is {}",
                self.is.name(),
                other.is.name()
            ));
        }
        if matches!(how, Comparison::Equal | Comparison::AtAnEnd)
            && let Some(case) = self.case.filter(|case| other.is_beyond(*case))
        {
            return Some(format!("`{by}` gives {}, and is compared with {shown}", case.name()));
        }
        self.is_out_of_range(how, other)
            .then(|| format!("`{by}` gives {}, and is compared with {shown}", self.number.name()))
    }

    fn never_containing(&self, by: &str, other: &Self) -> Option<String> {
        let shown = other.shown();
        if !holds(other.is).contains(&self.is) {
            return Some(format!("`{by}` gives {}, in which {shown} is never found", self.is.name()));
        }
        let case = self.case.filter(|case| other.is_beyond(*case))?;
        Some(format!("`{by}` gives {}, in which {shown} is never found", case.name()))
    }

    /// Why the value, which `by` computes, is never found in the constant `other`.
    fn never_within(&self, by: &str, other: &Self) -> Option<String> {
        let is_possible = match other.is {
            JsonType::Text => [JsonType::Text, JsonType::Number].contains(&self.is),
            JsonType::List | JsonType::Object => true,
            JsonType::Number | JsonType::Boolean => false,
        };
        (!is_possible).then(|| format!("`{by}` gives {}, which is never found in {}", self.is.name(), other.shown()))
    }

    /// Whether it is a constant text that is not all in this case.
    fn is_beyond(&self, case: Case) -> bool {
        let text = self.constant.as_ref().and_then(Value::as_str);
        text.is_some_and(|text| match case {
            Case::Upper => text.to_uppercase() != text,
            Case::Lower => text.to_lowercase() != text,
        })
    }

    fn is_out_of_range(&self, how: Comparison, other: &Self) -> bool {
        let Some(number) = other.constant.as_ref().and_then(Value::as_f64) else { return false };
        let is_count = self.number == NumberKind::Count;
        match how {
            Comparison::Equal => {
                (self.number != NumberKind::Any && number.fract() != 0.0) || (is_count && number < 0.0)
            }
            Comparison::Less => is_count && number <= 0.0,
            Comparison::LessOrEqual => is_count && number < 0.0,
            _ => false,
        }
    }

    fn shown(&self) -> String {
        match (&self.constant, &self.by) {
            (Some(constant), _) => format!("`{}`", excerpt::line(&constant.to_string(), MAX_SHOWN_CHARS)),
            (None, by) => format!("what `{}` gives", by.as_deref().unwrap_or_default()),
        }
    }
}

impl Case {
    fn name(self) -> &'static str {
        match self {
            Self::Upper => "a text in upper case",
            Self::Lower => "a text in lower case",
        }
    }
}

impl NumberKind {
    fn name(self) -> &'static str {
        match self {
            Self::Any => "a number",
            Self::Whole => "a whole number",
            Self::Count => "a whole number of at least 0",
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::base::template::field_uses::FieldUses;

    #[test]
    fn a_comparison_that_can_never_hold_is_found_and_one_that_can_is_not() {
        for (condition, expected) in [
            ("(input.x|length) > '5'", "`length` gives a number, and is compared with `\"5\"`, which is a string"),
            ("'5' < input.x|length", "`length` gives a number, and is compared with `\"5\"`, which is a string"),
            ("input.x|upper == 'lower'", "`upper` gives a text in upper case, and is compared with `\"lower\"`"),
            (
                "input.x|lower|trim in ['ann', 'Bob']",
                "`lower` gives a text in lower case, and is compared with `\"Bob\"`",
            ),
            ("'Bob' in input.x|lower", "`lower` gives a text in lower case, in which `\"Bob\"` is never found"),
            ("input.x|lower is startingwith('A')", "`lower` gives a text in lower case, and is compared with `\"A\"`"),
            ("input.x|int == '5'", "`int` gives a number, and is compared with `\"5\"`, which is a string"),
            ("input.x|int is eq(1.5)", "`int` gives a whole number, and is compared with `1.5`"),
            ("input.x|length < 0", "`length` gives a whole number of at least 0, and is compared with `0`"),
            ("0 > input.x|count", "`count` gives a whole number of at least 0, and is compared with `0`"),
            ("input.x|trim == 5", "`trim` gives a string, and is compared with `5`, which is a number"),
            ("input.x * 2 >= '10'", "`*` gives a number, and is compared with `\"10\"`, which is a string"),
            (
                "input.x|length == input.y|lower",
                "`length` gives a number, and is compared with what `lower` gives, which is a string",
            ),
            ("1 < input.x|length < 'b'", "`length` gives a number, and is compared with `\"b\"`, which is a string"),
            ("'a' in input.x|length", "`length` gives a number, in which `\"a\"` is never found"),
            ("not (input.x|upper != 'a')", "`upper` gives a text in upper case, and is compared with `\"a\"`"),
            ("caller.depth == '1'", "`caller.depth` gives a number, and is compared with `\"1\"`, which is a string"),
            (
                "input.x is defined == 'yes'",
                "`is defined` gives a boolean, and is compared with `\"yes\"`, which is a string",
            ),
        ] {
            let found = FieldUses::of(condition).impossible;
            assert_eq!(found, [expected], "{condition}");
        }
        for condition in [
            "(input.x|length) > 5",
            "input.x|length >= 0",
            "input.x|upper == 'UPPER 5'",
            "input.x|upper == input.y",
            "input.x|lower in ['ann', 'bob']",
            "'ann' in input.x|lower",
            "input.x|lower|replace('a', 'B') == 'B'",
            "input.x|int > 1.5",
            "input.x|int == 5",
            "input.x|int == true",
            "input.x|default('5') == 5",
            "input.x|first == 5",
            "input.x + 1 == 'a'",
            "input.x|length in 'abc5'",
            "1 in input.x|split(',')",
            "'1' in input.x|join(',')",
            "input.x|bool == 1",
            "input.x|trim == none",
            "not (",
        ] {
            assert_eq!(FieldUses::of(condition).impossible, [""; 0], "{condition}");
        }
    }
}
