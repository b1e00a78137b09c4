//! The `jq` command of `command_executor`.
//!
//! Runs in its own process, because the time and memory that an expression takes cannot be predicted.

use protocol::command_executor::JqCall;
use serde_json::Value;

use crate::select::{self, SelectError};

/// What an expression printed, and what it asked for in vain.
#[derive(Debug, Default)]
pub struct Filtered {
    pub stdout: String,
    pub missing: Vec<String>,
}

/// Runs `jq` with these arguments on `input`. Arguments cannot name files. An error has the exit status of `jq` and a message.
pub fn filter(arguments: &[String], input: &[u8]) -> Result<Filtered, (u8, String)> {
    let call = JqCall::parse(arguments).map_err(|message| (2, message))?;
    let mut inputs = Vec::new();
    for input in serde_json::Deserializer::from_slice(input).into_iter::<Value>() {
        inputs.push(input.map_err(|error| (2, format!("the input is not JSON: {error}")))?);
    }
    if call.null_input {
        inputs = vec![Value::Null];
    } else if call.slurp {
        inputs = vec![Value::Array(inputs)];
    }
    select::check(&call.expression).map_err(failed)?;
    let mut filtered = Filtered::default();
    for input in &inputs {
        let text = input.to_string();
        let checked = select::checked_outputs(&call.expression, text.as_bytes(), &[]).map_err(failed)?;
        // Of many inputs one may lack what another one has.
        if inputs.len() == 1 {
            filtered.missing = checked.missing;
        }
        for output in checked.values {
            let text = match output {
                Value::String(text) if call.raw => text,
                value if call.compact => value.to_string(),
                value => format!("{value:#}"),
            };
            filtered.stdout.extend([text.as_str(), "\n"]);
        }
    }
    Ok(filtered)
}

#[expect(clippy::needless_pass_by_value, reason = "`map_err` passes the error by value")]
fn failed(error: SelectError) -> (u8, String) {
    match error {
        SelectError::Syntax { .. } => (3, error.to_string()),
        SelectError::Failed { .. } | SelectError::Stopped => (5, error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn output_and_exit_status_match_jq() {
        let printed = |arguments: &[&str], input: &str| {
            let arguments: Vec<_> = arguments.iter().map(|word| (*word).to_owned()).collect();
            filter(&arguments, input.as_bytes())
        };
        let json = r#"{"a": [1, {"b": "x"}], "n": 9007199254740993}"#;
        for (arguments, expected) in [
            (&["-c", ".a"][..], "[1,{\"b\":\"x\"}]\n"),
            (&[".a"], "[\n  1,\n  {\n    \"b\": \"x\"\n  }\n]\n"),
            (&["-r", ".a[1].b, .n"], "x\n9007199254740993\n"),
            (&["-rc", ".a[]"], "1\n{\"b\":\"x\"}\n"),
            (&["-sc", "length"], "1\n"),
            (&["-n", "1 + 1"], "2\n"),
        ] {
            assert_eq!(printed(arguments, json).expect("valid").stdout, expected, "{arguments:?}");
        }
        let status = |arguments, input| printed(arguments, input).expect_err("invalid").0;
        assert_eq!(status(&[".a["], "1"), 3);
        assert_eq!(status(&[".a.b"], r#"{"a": 1}"#), 5);
        assert_eq!(status(&["."], "{a}"), 2);
        let missing = printed(&[".b"], r#"{"a": 1}"#).expect("valid").missing;
        assert_eq!(missing, ["there is no key `b` there; the keys are `a`"]);
    }
}
