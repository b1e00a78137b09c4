//! jq expressions over JSON, evaluated by jaq: `result.select` of a definition and `read --jq`.
//!
//! `env` and `halt` are removed: an expression sees only the data it is given.

use jaq_core::load::{Arena, File, Loader};
use jaq_core::{Compiler, Ctx, Filter, Vars, data, unwrap_valr};
use jaq_json::{Val, read};
use protocol::excerpt;
use serde_json::Value;

/// The longest reason in an error.
const MAX_REASON_CHARS: usize = 300;
/// The most values that one expression may produce.
const MAX_OUTPUTS: usize = 100_000;

#[derive(Debug, thiserror::Error)]
pub enum SelectError {
    #[error("`{expression}` is not a valid jq expression: {reason}")]
    Syntax { expression: String, reason: String },
    #[error("`{expression}` failed on the data: {reason}")]
    Failed { expression: String, reason: String },
}

/// Checks that `expression` compiles.
pub fn check(expression: &str) -> Result<(), SelectError> {
    compile(expression).map(|_| ())
}

/// Evaluates `expression` on `data`: returns its value, `null` if it produces none, an array if it produces several.
pub fn select(expression: &str, data: &Value) -> Result<Value, SelectError> {
    let mut outputs = outputs(expression, data)?;
    Ok(match outputs.len() {
        0 => Value::Null,
        1 => outputs.remove(0),
        _ => Value::Array(outputs),
    })
}

/// Returns every value that `expression` produces.
pub fn outputs(expression: &str, data: &Value) -> Result<Vec<Value>, SelectError> {
    outputs_of(expression, data.to_string().as_bytes())
}

/// Like [`outputs`], for JSON text: saves the memory of a second parsed copy.
pub fn outputs_of(expression: &str, text: &[u8]) -> Result<Vec<Value>, SelectError> {
    let failed = |reason: String| SelectError::Failed {
        expression: expression.to_owned(),
        // The reason may quote the data.
        reason: excerpt::line(&reason, MAX_REASON_CHARS),
    };
    let filter = compile(expression)?;
    let input = read::parse_single(text).map_err(|error| failed(error.to_string()))?;
    let context = Ctx::<data::JustLut<Val>>::new(&filter.lut, Vars::new([]));
    let mut values = Vec::new();
    for output in filter.id.run((context, input)).map(unwrap_valr) {
        if values.len() == MAX_OUTPUTS {
            return Err(failed(format!("it produces more than {MAX_OUTPUTS} values")));
        }
        let text = output.map_err(|error| failed(error.to_string()))?.to_string();
        values.push(serde_json::from_str(&text).map_err(|_| failed(format!("its output is not JSON: {text}")))?);
    }
    Ok(values)
}

fn compile(expression: &str) -> Result<Filter<data::JustLut<Val>>, SelectError> {
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
    fn an_expression_sees_no_environment() {
        for expression in ["env", "$ENV", "halt", "input"] {
            assert!(check(expression).is_err(), "{expression}");
        }
    }
}
