//! jq expressions over JSON, evaluated by jaq: `result.select` of a definition and `read --jq`.
//!
//! `env` and `halt` are removed: an expression sees only the data it is given.

use jaq_core::load::{Arena, File, Loader};
use jaq_core::{Compiler, Ctx, Filter, Vars, data, unwrap_valr};
use jaq_json::{Val, read};
use protocol::excerpt;
use serde_json::Value;

use crate::missing;
use crate::worker::CheckedOutputs;

/// The longest reason in an error.
const MAX_REASON_CHARS: usize = 300;
/// The most values that one expression may produce.
const MAX_OUTPUTS: usize = 100_000;

/// The longest expression.
const MAX_EXPRESSION_BYTES: usize = 8 << 10;
/// An expression that is longer than this might nest too deeply for the stack of an ordinary thread.
const MAX_ORDINARY_BYTES: usize = 100;
/// A stack for the deepest expression that is allowed.
const DEEP_STACK_BYTES: usize = 512 << 20;

#[derive(Debug, thiserror::Error)]
pub enum SelectError {
    #[error("`{expression}` is not a valid jq expression: {reason}")]
    Syntax { expression: String, reason: String },
    #[error("`{expression}` failed on the data: {reason}")]
    Failed { expression: String, reason: String },
    #[error("the evaluation was stopped")]
    Stopped,
}

/// Checks that `expression` compiles.
pub fn check(expression: &str) -> Result<(), SelectError> {
    check_with(expression, &[])
}

/// Like [`check`], for an expression that may use the variables `names`, which begin with `$`.
pub fn check_with(expression: &str, names: &[&str]) -> Result<(), SelectError> {
    if expression.len() > MAX_EXPRESSION_BYTES {
        let reason = format!("it has {} bytes; the most is {MAX_EXPRESSION_BYTES}", expression.len());
        return Err(SelectError::Syntax { expression: excerpt::line(expression, MAX_REASON_CHARS), reason });
    }
    if expression.len() <= MAX_ORDINARY_BYTES {
        return compile(expression, names).map(|_| ());
    }
    std::thread::scope(|scope| {
        let checking = std::thread::Builder::new()
            .stack_size(DEEP_STACK_BYTES)
            .spawn_scoped(scope, || compile(expression, names).map(|_| ()));
        let checked = checking.ok().and_then(|checking| checking.join().ok());
        checked.unwrap_or_else(|| {
            let reason = "it could not be checked; it may nest too deeply".to_owned();
            Err(SelectError::Syntax { expression: excerpt::line(expression, MAX_REASON_CHARS), reason })
        })
    })
}

/// Evaluates `expression` on `data`: returns its value, `null` if it produces none, an array if it produces several.
///
/// Like all evaluation in this module it may take any time and memory, so the executor uses a
/// `JqPool` of `ground/src/base/jq_pool.rs`.
pub fn select(expression: &str, data: &Value) -> Result<Value, SelectError> {
    select_with(expression, data, &[])
}

/// Like [`select`], with the values of variables, whose names begin with `$`.
pub fn select_with(expression: &str, data: &Value, variables: &[(&str, &Value)]) -> Result<Value, SelectError> {
    outputs_with(expression, data.to_string().as_bytes(), variables).map(one_value)
}

/// Returns the value of an expression that produced these `outputs`, as in [`select`].
pub fn one_value(mut outputs: Vec<Value>) -> Value {
    match outputs.len() {
        0 => Value::Null,
        1 => outputs.remove(0),
        _ => Value::Array(outputs),
    }
}

/// Evaluates an expression that is a plain path, like `.`, `.a` or `.a.b`. `None` if it is another one, or if it
/// fails.
pub fn path(expression: &str, data: &Value) -> Option<Value> {
    let path = expression.trim().strip_prefix('.')?;
    if path.is_empty() {
        return Some(data.clone());
    }
    let is_name = |name: &str| {
        let mut bytes = name.bytes();
        bytes.next().is_some_and(|first| first.is_ascii_alphabetic() || first == b'_')
            && bytes.all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
    };
    let mut value = data;
    for name in path.split('.') {
        value = match value {
            Value::Object(fields) if is_name(name) => fields.get(name).unwrap_or(&Value::Null),
            Value::Null if is_name(name) => value,
            _ => return None,
        };
    }
    Some(value.clone())
}

/// Returns every value that `expression` produces.
pub fn outputs(expression: &str, data: &Value) -> Result<Vec<Value>, SelectError> {
    outputs_of(expression, data.to_string().as_bytes())
}

/// Like [`outputs`], for JSON text: saves the memory of a second parsed copy.
pub fn outputs_of(expression: &str, text: &[u8]) -> Result<Vec<Value>, SelectError> {
    outputs_with(expression, text, &[])
}

/// Like [`outputs_of`], with the values of variables, whose names begin with `$`.
pub fn outputs_with(expression: &str, text: &[u8], variables: &[(&str, &Value)]) -> Result<Vec<Value>, SelectError> {
    let (compiled, values) = Compiled::with_variables(expression, variables)?;
    let outputs = compiled.json_outputs(text, &values, u64::MAX)?;
    serde_json::from_slice(&outputs).map_err(|error| compiled.failed(&error.to_string()))
}

/// Like [`outputs_with`]; also returns what `expression` asks for and the data does not have.
pub fn checked_outputs(
    expression: &str,
    text: &[u8],
    variables: &[(&str, &Value)],
) -> Result<CheckedOutputs, SelectError> {
    let (compiled, values) = Compiled::with_variables(expression, variables)?;
    let (outputs, missing) = compiled.checked_outputs(text, &values, u64::MAX)?;
    let values = serde_json::from_slice(&outputs).map_err(|error| compiled.failed(&error.to_string()))?;
    Ok(CheckedOutputs { values, missing })
}

/// An expression that is ready to be evaluated.
#[derive(Debug)]
pub(crate) struct Compiled {
    expression: String,
    /// The names of its variables, which begin with `$`.
    names: Vec<String>,
    filter: JqFilter,
}

struct JqFilter(Filter<data::JustLut<Val>>);

impl std::fmt::Debug for JqFilter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("JqFilter")
    }
}

impl Compiled {
    pub(crate) fn new(expression: &str, names: Vec<String>) -> Result<Self, SelectError> {
        let borrowed: Vec<&str> = names.iter().map(String::as_str).collect();
        let filter = JqFilter(compile(expression, &borrowed)?);
        Ok(Self { expression: expression.to_owned(), names, filter })
    }

    /// Also returns the values of its variables.
    fn with_variables(expression: &str, variables: &[(&str, &Value)]) -> Result<(Self, Vec<Value>), SelectError> {
        let names = variables.iter().map(|(name, _)| (*name).to_owned()).collect();
        Ok((Self::new(expression, names)?, variables.iter().map(|(_, value)| (*value).clone()).collect()))
    }

    /// Whether it was compiled from this.
    pub(crate) fn is_of(&self, expression: &str, names: &[String]) -> bool {
        self.expression == expression && self.names == names
    }

    /// Evaluates it on JSON text, with the values of its variables. Returns the outputs as the text of one JSON array,
    /// of at most `max_bytes`.
    pub(crate) fn json_outputs(&self, text: &[u8], values: &[Value], max_bytes: u64) -> Result<Vec<u8>, SelectError> {
        self.outputs_on(self.parse(text)?, values, max_bytes)
    }

    /// Like [`Self::json_outputs`]; also returns what the expression asks for and the input does not have.
    pub(crate) fn checked_outputs(
        &self,
        text: &[u8],
        values: &[Value],
        max_bytes: u64,
    ) -> Result<(Vec<u8>, Vec<String>), SelectError> {
        let input = self.parse(text)?;
        let outputs = self.outputs_on(input.clone(), values, max_bytes)?;
        Ok((outputs, missing::findings(&self.expression, &input)))
    }

    fn parse(&self, text: &[u8]) -> Result<Val, SelectError> {
        read::parse_single(text).map_err(|error| self.failed(&error.to_string()))
    }

    fn outputs_on(&self, input: Val, values: &[Value], max_bytes: u64) -> Result<Vec<u8>, SelectError> {
        let JqFilter(filter) = &self.filter;
        let values =
            values.iter().map(|value| self.parse(value.to_string().as_bytes())).collect::<Result<Vec<Val>, _>>()?;
        let context = Ctx::<data::JustLut<Val>>::new(&filter.lut, Vars::new(values));
        let mut outputs = vec![b'['];
        for (count, output) in filter.id.run((context, input)).map(unwrap_valr).enumerate() {
            if count == MAX_OUTPUTS {
                return Err(self.failed(&format!("it produces more than {MAX_OUTPUTS} values")));
            }
            let text = output.map_err(|error| self.failed(&error.to_string()))?.to_string();
            if serde_json::from_str::<serde::de::IgnoredAny>(&text).is_err() {
                return Err(self.failed(&format!("its output is not JSON: {text}")));
            }
            if (outputs.len() + text.len()) as u64 > max_bytes {
                return Err(self.failed(&format!("it produces more than {max_bytes} bytes")));
            }
            if count > 0 {
                outputs.push(b',');
            }
            outputs.extend_from_slice(text.as_bytes());
        }
        outputs.push(b']');
        Ok(outputs)
    }

    fn failed(&self, reason: &str) -> SelectError {
        // The reason may quote the data.
        SelectError::Failed { expression: self.expression.clone(), reason: excerpt::line(reason, MAX_REASON_CHARS) }
    }
}

fn compile(expression: &str, names: &[&str]) -> Result<Filter<data::JustLut<Val>>, SelectError> {
    let syntax = |reason: String| SelectError::Syntax { expression: expression.to_owned(), reason };
    let definitions = jaq_core::defs().chain(jaq_std::defs()).chain(jaq_json::defs());
    let definitions = definitions.filter(|definition| !matches!(definition.name, "halt" | "halt_error"));
    let functions = jaq_core::funs().chain(jaq_std::funs()).chain(jaq_json::funs());
    let arena = Arena::default();
    let modules = Loader::new(definitions)
        .load(&arena, File { code: expression, path: () })
        .map_err(|_| syntax("syntax error".to_owned()))?;
    Compiler::default()
        .with_funs(functions.filter(|(name, ..)| !matches!(*name, "env" | "halt")))
        .with_global_vars(names.iter().copied())
        .compile(modules)
        .map_err(|errors| {
            let unknown: Vec<_> =
                errors.iter().flat_map(|(_, undefined)| undefined).map(|(name, _)| format!("`{name}`")).collect();
            syntax(format!("undefined: {}", unknown.join(", ")))
        })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn one_value_stays_itself_and_several_become_an_array() {
        let data = json!({"messages": [{"id": 9_007_199_254_740_993_i64}, {"id": 2}], "none": null});
        assert_eq!(select(".messages // []", &data).expect("data"), data["messages"]);
        assert_eq!(select(".messages[].id", &data).expect("data"), json!([9_007_199_254_740_993_i64, 2]));
        assert_eq!(select(".absent[]?", &data).expect("data"), json!(null));
        assert_eq!(select(".missing // []", &data).expect("data"), json!([]));
    }

    #[test]
    fn a_syntax_error_differs_from_a_failure_on_the_data() {
        assert!(matches!(check(".messages["), Err(SelectError::Syntax { .. })));
        assert!(matches!(select(".a.b", &json!({"a": 1})), Err(SelectError::Failed { .. })));
    }

    #[test]
    fn an_expression_sees_the_variables_that_it_is_given_and_no_others() {
        let (status, headers) = (json!(201), json!({"etag": "\"a\""}));
        let variables = [("$status", &status), ("$headers", &headers)];
        let expression = "{id, status: $status, etag: $headers.etag}";
        assert_eq!(
            select_with(expression, &json!({"id": 7, "x": 0}), &variables).expect("data"),
            json!({"id": 7, "status": 201, "etag": "\"a\""})
        );
        assert!(check_with(expression, &["$status", "$headers"]).is_ok());
        assert!(check(expression).is_err());
        assert!(check_with("$other", &["$status"]).is_err());
    }

    #[test]
    fn an_expression_sees_no_environment() {
        for expression in ["env", "$ENV", "halt", "input"] {
            assert!(check(expression).is_err(), "{expression}");
        }
    }

    #[test]
    fn an_expression_that_nests_deeply_is_checked_or_refused() {
        let nested = |open: &str, core: &str, close: &str, bytes: usize| {
            let times = (bytes - core.len()) / (open.len() + close.len());
            format!("{}{core}{}", open.repeat(times), close.repeat(times))
        };
        for (open, core, close) in [
            ("(", ".", ")"),
            ("[", ".", "]"),
            ("{a:", ".", "}"),
            ("-", "1", ""),
            (".|", ".", ""),
            (".,", ".", ""),
            ("1+", "1", ""),
            (".//", ".", ""),
            ("try ", ".", ""),
            (". as $x|", ".", ""),
            ("def f:.;", ".", ""),
            ("def f:", ".", ";f"),
            ("if ", ".", " then . end"),
            ("if . then ", ".", " end"),
            ("reduce ", ".", " as $x(.;.)"),
            ("f(", ".", ")"),
            ("\"\\(", ".", ")\""),
            (".[", ".", "]"),
            (".a=", ".", ""),
            ("label $x|", ".", ""),
            (". as [$x] ?// $x|", ".", ""),
            ("first(", ".", ")"),
            ("path(", ".", ")"),
        ] {
            for bytes in [MAX_ORDINARY_BYTES, MAX_EXPRESSION_BYTES] {
                // Some are not valid; none may overflow the stack.
                drop(check(&nested(open, core, close, bytes)));
            }
        }
        assert!(check(&nested("(", ".", ")", MAX_EXPRESSION_BYTES + 2)).is_err());
    }

    #[test]
    fn a_plain_path_is_answered_as_jq_answers_it() {
        let data = json!({"a": {"b": [1, 2.50], "none": null}, "_c": 9_007_199_254_740_993_i64});
        for expression in [".", " .a ", ".a.b", ".a.none.x", "._c", ".absent.x"] {
            assert_eq!(path(expression, &data), select(expression, &data).ok(), "{expression}");
        }
        for expression in [".a.b.c", ".a[]", "..", ".a b", ".a | .b", ".1", ".a.", "a", ""] {
            assert_eq!(path(expression, &data), None, "{expression}");
        }
    }
}
