//! A description as it was read, before its kind is known: a text, and the data in it if it is JSON or YAML.

use serde_json::Value;
use sha2::{Digest as _, Sha256};

use crate::ImportError;

/// The largest description; GitHub's is 13 MB.
pub const MAX_DOCUMENT_BYTES: usize = 64 << 20;

/// A description and where it came from.
#[derive(Debug, Clone)]
pub struct Document {
    /// The path, the URL or the words that the user gave.
    pub from: String,
    pub text: String,
    /// The text as JSON or YAML; `Null` if it is neither.
    pub data: Value,
}

impl Document {
    /// Reads `text`, which came from `from`.
    pub fn new(from: impl Into<String>, text: String) -> Result<Self, ImportError> {
        let data = data(&text)?;
        Ok(Self { from: from.into(), text, data })
    }

    /// The URL that the description came from.
    pub fn url(&self) -> Option<url::Url> {
        url::Url::parse(&self.from).ok().filter(|url| matches!(url.scheme(), "http" | "https"))
    }

    /// The SHA-256 of the text, in hexadecimal.
    pub fn sha256(&self) -> String {
        hex(&Sha256::digest(self.text.as_bytes()))
    }
}

/// Writes bytes in hexadecimal.
pub(crate) fn hex(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    bytes.iter().flat_map(|byte| [byte >> 4, byte & 15]).map(|half| char::from(DIGITS[usize::from(half)])).collect()
}

/// Reads JSON, or YAML if the text does not begin like JSON. A text that is neither is `Null`; one that begins like
/// either and is broken is an error.
fn data(text: &str) -> Result<Value, ImportError> {
    let text = text.trim_start_matches('\u{feff}');
    let start = text.trim_start();
    if start.starts_with(['{', '[']) {
        let read = serde_json::from_str(text);
        // YAML has braces too.
        return read.or_else(|json| {
            yaml(text).map_err(|_| ImportError::new(format!("it begins like JSON, but it is not valid: {json}")))
        });
    }
    // A description in YAML has keys at the start of lines; a text or the help of a program is not one.
    let has_key = |line: &str| {
        line.split_once(':').is_some_and(|(key, rest)| {
            let key = key.trim_matches(['"', '\'']);
            let is_word = |it: char| it.is_ascii_alphanumeric() || matches!(it, '_' | '-' | '$');
            !key.is_empty() && key.chars().all(is_word) && (rest.is_empty() || rest.starts_with([' ', '\r']))
        })
    };
    let first = start.lines().find(|line| !line.is_empty() && !line.starts_with(['#', '%']) && *line != "---");
    if !first.is_some_and(has_key) {
        return Ok(Value::Null);
    }
    yaml(text).map_err(|error| {
        let first_line = error.lines().next().unwrap_or_default().to_owned();
        ImportError::new(format!("it begins like YAML, but it is not valid: {first_line}"))
    })
}

fn yaml(text: &str) -> Result<Value, String> {
    // OpenAPI names YAML 1.2: `no` and `y` are texts. A number that only YAML 1.1 reads as one is kept as it is written.
    let options = serde_saphyr::options! {
        strict_booleans: true,
        leading_zero_numbers_as_strings: true,
        underscored_numbers_as_strings: true,
        non_finite_float_policy: serde_saphyr::options::NonFiniteFloatPolicy::AsString,
    };
    serde_saphyr::from_str_with_options(text, options).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read(text: &str) -> Value {
        Document::new("x", text.to_owned()).expect("readable").data
    }

    #[test]
    fn json_and_yaml_are_read_alike_and_other_texts_stay_texts() {
        assert_eq!(read(r#"{"openapi": "3.1.0"}"#), json!({"openapi": "3.1.0"}));
        let yaml =
            "# a comment\nopenapi: 3.0.0\npaths:\n  /a:\n    get:\n      responses:\n        200: {description: ok}\n";
        let responses = json!({"200": {"description": "ok"}});
        assert_eq!(read(yaml), json!({"openapi": "3.0.0", "paths": {"/a": {"get": {"responses": responses}}}}));
        for text in ["Usage: prog [OPTIONS]\n\nOptions: x: y", "curl https://a.example/", "", "plain words"] {
            let data = Document::new("x", text.to_owned()).map(|document| document.data);
            assert!(matches!(data, Ok(Value::Null) | Err(_)), "{text}: {data:?}");
        }
    }

    #[test]
    fn plain_values_are_those_of_the_core_schema_of_yaml_1_2() {
        let text = |text: &str| json!(text);
        for (written, expected) in [
            // YAML 1.1 takes these for booleans.
            ("y", text("y")),
            ("Y", text("Y")),
            ("n", text("n")),
            ("N", text("N")),
            ("yes", text("yes")),
            ("Yes", text("Yes")),
            ("YES", text("YES")),
            ("no", text("no")),
            ("No", text("No")),
            ("NO", text("NO")),
            ("on", text("on")),
            ("On", text("On")),
            ("ON", text("ON")),
            ("off", text("off")),
            ("Off", text("Off")),
            ("OFF", text("OFF")),
            ("true", json!(true)),
            ("True", json!(true)),
            ("TRUE", json!(true)),
            ("false", json!(false)),
            ("False", json!(false)),
            ("FALSE", json!(false)),
            ("tRUE", text("tRUE")),
            // Nothing.
            ("null", Value::Null),
            ("Null", Value::Null),
            ("NULL", Value::Null),
            ("~", Value::Null),
            ("", Value::Null),
            ("none", text("none")),
            ("nil", text("nil")),
            ("nULL", text("nULL")),
            // Numbers; what only YAML 1.1 takes for one stays as it is written.
            ("0", json!(0)),
            ("-12", json!(-12)),
            ("+12", json!(12)),
            ("0o14", json!(12)),
            ("0x1F", json!(31)),
            ("1.5", json!(1.5)),
            ("1e3", json!(1000.0)),
            (".5", json!(0.5)),
            ("-1.5E-1", json!(-0.15)),
            ("014", text("014")),
            ("007", text("007")),
            ("1_000", text("1_000")),
            ("0x_1F", text("0x_1F")),
            ("190:20:30", text("190:20:30")),
            ("12:30", text("12:30")),
            ("1.2.3", text("1.2.3")),
            (".inf", text(".inf")),
            ("-.inf", text("-.inf")),
            (".nan", text(".nan")),
            ("nan", text("nan")),
            // Times are texts.
            ("2001-12-14", text("2001-12-14")),
            ("2001-12-14t21:59:43.10-05:00", text("2001-12-14t21:59:43.10-05:00")),
            // Quotes and tags say what it is.
            ("'true'", text("true")),
            ("\"null\"", text("null")),
            ("'12'", text("12")),
            ("!!str 12", text("12")),
            ("!!str no", text("no")),
            ("|-\n  no", text("no")),
            ("=", text("=")),
        ] {
            assert_eq!(read(&format!("a: {written}\nb: 1\n"))["a"], expected, "`{written}` as a value");
            if !written.is_empty() && !written.contains(['\n', ':']) {
                assert_eq!(read(&format!("a: [{written}, x]\n"))["a"][0], expected, "`{written}` in a list");
            }
        }
        let keys = "y: 1\nno: 2\non: 3\nOFF: 4\n200: 5\n007: 6\n2001-12-14: 8\n";
        let names: Vec<_> = read(keys).as_object().expect("an object").keys().cloned().collect();
        assert_eq!(names[..6], ["y", "no", "on", "OFF", "200", "007"], "{names:?}");
        assert_eq!(names[6], "2001-12-14");
        assert_eq!(
            read("a: [DE, NO, SE]\nrequired: [x, y]\n"),
            json!({"a": ["DE", "NO", "SE"], "required": ["x", "y"]})
        );
        assert_eq!(read("a: &it {b: no}\nc: *it\nd: {<<: *it, e: on}\n")["d"], json!({"b": "no", "e": "on"}));
    }

    #[test]
    fn what_begins_like_json_and_is_broken_is_an_error() {
        assert!(Document::new("x", "{\"openapi\": ".to_owned()).is_err());
    }

    #[test]
    fn aliases_do_not_expand_without_bound() {
        let mut text = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n".to_owned();
        for number in 1..12 {
            let item = format!("*a{}", number - 1);
            let line = format!("a{number}: &a{number} [{}]\n", vec![item; 10].join(", "));
            text.push_str(&line);
        }
        assert!(Document::new("x", text).is_err(), "10^12 texts");
    }
}
