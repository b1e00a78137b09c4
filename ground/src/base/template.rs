//! Templates: how a value of the input is *placed* into a request.
//!
//! A value is never spliced into a language: it becomes one argument, one percent-encoded part of a path or
//! one JSON value. The engine is minijinja in its semi-strict mode: testing an absent optional value is
//! fine, printing one is an error. Templates know nothing of secrets: runners resolve `secret:NAME` from the
//! definition itself, so a value of the input can never become a secret reference.
//!
//! Templates are evaluated where they are needed, on the executor's own threads. So everything that one can do is
//! bounded: its growth before it is evaluated ([`growth`]), its steps by fuel, and what it writes by a budget.

use std::borrow::Cow;
use std::io;

use minijinja::syntax::SyntaxConfig;
use minijinja::value::{Serde, Value as Scoped, ValueKind};
use minijinja::{AutoEscape, Environment, ErrorKind, UndefinedBehavior};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use protocol::excerpt;
use serde_json::{Map, Value};

use functions::WriteBudget;
use growth::Bounds;

mod computed;
pub mod condition;
pub mod field_uses;
mod functions;
mod growth;
mod mail;
pub mod names;

/// Everything but the unreserved characters of RFC 3986.
const PLACED_IN_URL: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// How many instructions one template may execute; a shipped template needs about twenty.
const MAX_FUEL: u64 = 500_000;
/// How many it may execute if a loop reads more than its own item in each repetition.
const MAX_FUEL_TO_READ_AGAIN: u64 = 50_000;
/// How many it may execute at least, however large the values are.
const MIN_FUEL: u64 = 256;
/// The most bytes that all instructions of one template may read together. One may read every value that there is.
const MAX_READ_BYTES: u64 = 256 << 20;

/// The longest template whose own lists and texts do not count as values that a loop reads again.
const MAX_LINEAR_BYTES: usize = 4 << 10;
/// The most characters of a template that an error shows.
const MAX_SHOWN_CHARS: usize = 500;

/// The autoescape mode in which every placed value is percent-encoded.
const URL_PART: AutoEscape = AutoEscape::Custom(Cow::Borrowed("url-part"));

#[derive(Debug, thiserror::Error)]
#[error("template `{template}`: {reason}")]
pub struct TemplateError {
    template: String,
    reason: String,
}

impl TemplateError {
    fn new(template: &str, error: &minijinja::Error) -> Self {
        Self { template: excerpt::line(template, MAX_SHOWN_CHARS), reason: reason(error) }
    }
}

fn reason(error: &minijinja::Error) -> String {
    match (error.kind(), error.detail()) {
        (ErrorKind::OutOfFuel, _) => {
            "it takes too many steps for values of this size; loop over fewer items, or use a filter like `join`"
                .to_owned()
        }
        (kind, Some(detail)) => format!("{kind}: {detail}"),
        (kind, None) => kind.to_string(),
    }
}

/// The values that templates can use, and how much more the templates of one request may write.
#[derive(Debug, Clone)]
pub struct TemplateValues {
    values: Scoped,
    /// How large the values are.
    bytes: u64,
    budget: WriteBudget,
}

impl TemplateValues {
    /// The fields of the input by name, and the whole input as `input`.
    pub fn of_input(input: &Map<String, Value>) -> Self {
        Self::of_names(input, [("input", Value::Object(input.clone()))])
    }

    /// The fields of the input by name, and `shared` names, which no field can replace.
    pub fn of_names<'a>(input: &Map<String, Value>, shared: impl IntoIterator<Item = (&'a str, Value)>) -> Self {
        let mut names = input.clone();
        names.extend(shared.into_iter().map(|(name, value)| (name.to_owned(), value)));
        Self::new(Scoped::from(Serde(names)), input)
    }

    /// The values for conditions (`confirm.when`): `input` and `caller`.
    pub fn of_condition(input: &Map<String, Value>, caller: &Value) -> Self {
        let values = minijinja::context! { input => Scoped::from(Serde(input)), caller => Scoped::from(Serde(caller)) };
        Self::new(values, input)
    }

    fn new(values: Scoped, input: &Map<String, Value>) -> Self {
        Self { values, bytes: input.values().map(bytes).sum(), budget: WriteBudget::new() }
    }

    /// Renders `template` without any escaping: for headers, arguments and texts.
    pub fn text(&self, template: &str) -> Result<String, TemplateError> {
        self.render(template, AutoEscape::None)
    }

    /// Renders `template` with every placed value percent-encoded, including `/`.
    pub fn url_part(&self, template: &str) -> Result<String, TemplateError> {
        self.render(template, URL_PART)
    }

    fn render(&self, template: &str, escape: AutoEscape) -> Result<String, TemplateError> {
        let bounds = growth::of_template(template, &|name| self.is_number(name))?;
        let engine = self.engine(template, bounds, escape);
        let mut written = Written { content: Vec::new(), budget: &self.budget };
        engine
            .template_from_str(template)
            .and_then(|compiled| compiled.render_captured_to(&self.values, &mut written).map(|_| ()))
            .map_err(|error| TemplateError::new(template, &error))?;
        Ok(String::from_utf8(written.content).expect("a template writes text"))
    }

    /// An engine for `template`. Unless each of its loops reads only its own items, one instruction may read all values.
    fn engine(&self, template: &str, bounds: Bounds, escape: AutoEscape) -> Environment<'static> {
        let mut engine = engine(&self.budget, escape);
        engine.set_fuel(Some(if bounds.reads_again || template.len() > MAX_LINEAR_BYTES {
            let read = (self.bytes + template.len() as u64).saturating_mul(bounds.copies.into()).max(1);
            (MAX_READ_BYTES / read).clamp(MIN_FUEL, MAX_FUEL_TO_READ_AGAIN)
        } else {
            MAX_FUEL
        }));
        engine
    }

    /// Whether a field of the input is a number, or absent: then it is not a text that an operator could repeat.
    fn is_number(&self, field: &str) -> bool {
        let value = self.values.get_attr(field).ok().filter(|value| !value.is_undefined());
        let value = value.or_else(|| self.values.get_attr("input").ok()?.get_attr(field).ok());
        value.is_some_and(|value| matches!(value.kind(), ValueKind::Number | ValueKind::Undefined))
    }

    fn evaluate(&self, expression: &str, engine: &Environment<'static>) -> Result<Scoped, TemplateError> {
        let value = engine.compile_expression(expression).and_then(|compiled| compiled.eval(&self.values));
        value.map_err(|error| TemplateError::new(expression, &error))
    }

    /// Renders every string inside `template`.
    ///
    /// A string that is exactly one reference (`"{{ limit }}"`), or exactly one expression that ends with the filter
    /// `json` (`"{{ (limit or 25) | json }}"`), keeps the JSON type of the value. If the value is absent, the object key
    /// or array item that holds the string is dropped; if `template` itself is that string, the result is `None`.
    pub fn value(&self, template: &Value) -> Result<Option<Value>, TemplateError> {
        Ok(Some(match template {
            Value::String(text) => {
                if let Some(expression) = reference(text) {
                    return self.lookup(text, expression, &engine(&self.budget, AutoEscape::None));
                }
                if let Some(expression) = growth::operand_of_json(text) {
                    let bounds = growth::of_template(text, &|name| self.is_number(name))?;
                    return self.lookup(text, expression, &self.engine(text, bounds, AutoEscape::None));
                }
                Value::String(self.text(text)?)
            }
            Value::Array(items) => {
                let mut filled = Vec::with_capacity(items.len());
                for item in items {
                    filled.extend(self.value(item)?);
                }
                Value::Array(filled)
            }
            Value::Object(fields) => Value::Object(self.fields(fields)?),
            Value::Null | Value::Bool(_) | Value::Number(_) => template.clone(),
        }))
    }

    /// Calls [`TemplateValues::value`] for each field of an object.
    pub fn fields(&self, template: &Map<String, Value>) -> Result<Map<String, Value>, TemplateError> {
        let mut filled = Map::with_capacity(template.len());
        for (key, value) in template {
            if let Some(value) = self.value(value)? {
                filled.insert(key.clone(), value);
            }
        }
        Ok(filled)
    }

    /// Evaluates the expression `condition`.
    pub fn holds(&self, condition: &str) -> Result<bool, TemplateError> {
        let bounds = growth::of_expression(condition, &|name| self.is_number(name))?;
        let engine = self.engine(condition, bounds, AutoEscape::None);
        self.evaluate(condition, &engine).map(|value| value.is_true())
    }

    fn lookup(
        &self,
        template: &str,
        expression: &str,
        engine: &Environment<'static>,
    ) -> Result<Option<Value>, TemplateError> {
        let value = self.evaluate(expression, engine)?;
        if value.is_undefined() {
            return Ok(None);
        }
        let found: Value = serde_json::to_value(&value)
            .map_err(|error| TemplateError { template: template.to_owned(), reason: error.to_string() })?;
        let bytes = usize::try_from(bytes(&found)).unwrap_or(usize::MAX);
        self.budget.take(bytes).map_err(|error| TemplateError::new(template, &error))?;
        Ok(Some(found))
    }
}

/// What a template has written.
struct Written<'a> {
    content: Vec<u8>,
    budget: &'a WriteBudget,
}

impl io::Write for Written<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.budget.take(bytes.len()).map_err(io::Error::other)?;
        self.content.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// How many bytes `value` takes, roughly as many as its JSON text.
fn bytes(value: &Value) -> u64 {
    1 + match value {
        Value::Null | Value::Bool(_) | Value::Number(_) => 8,
        Value::String(text) => text.len() as u64,
        Value::Array(items) => items.iter().map(bytes).sum(),
        Value::Object(fields) => fields.iter().map(|(name, value)| name.len() as u64 + bytes(value)).sum(),
    }
}

/// Whether `template` always renders to the same text, whatever the input is.
pub fn is_constant(template: &str) -> bool {
    !template.contains("{{") && !template.contains("{%")
}

/// Whether `template` is exactly one reference, like `{{ limit }}`.
pub fn is_reference(template: &str) -> bool {
    reference(template).is_some()
}

/// Returns the `a.b` of a template that is exactly `{{ a.b }}`; `a.b[0]` is such a reference too.
fn reference(template: &str) -> Option<&str> {
    let inner = template.strip_prefix("{{")?.strip_suffix("}}")?.trim();
    let is_path = !inner.is_empty()
        && inner.split('.').all(|part| {
            let part = without_index(part);
            part.starts_with(|first: char| first.is_alphabetic() || first == '_')
                && part.chars().all(|character| character.is_alphanumeric() || character == '_')
        });
    is_path.then_some(inner)
}

/// Returns `part` without an index like `[0]` at its end.
fn without_index(part: &str) -> &str {
    let Some((name, index)) = part.strip_suffix(']').and_then(|part| part.split_once('[')) else { return part };
    let is_index = !index.is_empty() && index.bytes().all(|byte| byte.is_ascii_digit());
    if is_index { name } else { part }
}

/// The engine's own syntax drops a newline at the end, which the definition may need.
fn syntax() -> SyntaxConfig {
    SyntaxConfig::builder().keep_trailing_newline(true).build().expect("the delimiters are the usual ones")
}

fn engine(budget: &WriteBudget, escape: AutoEscape) -> Environment<'static> {
    let mut engine = functions::engine(budget);
    engine.set_undefined_behavior(UndefinedBehavior::SemiStrict);
    engine.set_fuel(Some(MAX_FUEL));
    engine.set_auto_escape_callback(move |_| escape.clone());
    engine.set_formatter(|out, state, value| {
        if *state.auto_escape() != URL_PART || value.is_undefined() {
            return minijinja::escape_formatter(out, state, value);
        }
        let text = value.to_string();
        write!(out, "{}", utf8_percent_encode(&text, PLACED_IN_URL)).map_err(minijinja::Error::from)
    });
    engine
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn values(input: Value) -> TemplateValues {
        let Value::Object(input) = input else { panic!("an input must be an object") };
        TemplateValues::of_input(&input)
    }

    #[test]
    fn a_newline_at_the_end_is_kept() {
        let values = values(json!({"text": "x"}));
        for (template, expected) in [("{{ text }}\n", "x\n"), ("{{ text }}\n\n", "x\n\n"), ("plain\r\n", "plain\r\n")] {
            assert_eq!(values.text(template).expect("it renders"), expected);
        }
        for (template, expected) in [("{{ text }}\n", "x\n"), ("{{ text | json }}\n", "\"x\"\n")] {
            assert_eq!(values.value(&json!(template)).expect("it renders"), Some(json!(expected)));
        }
    }

    #[test]
    fn a_single_reference_keeps_its_type_and_an_absent_one_drops_its_key() {
        let template =
            json!({"maxResults": "{{ limit }}", "labelIds": ["{{ label }}", "INBOX"], "deep": {"a": "{{ deep.a }}"}});
        let filled = values(json!({"limit": 9_007_199_254_740_993_i64, "deep": {"a": [1, null]}})).value(&template);
        assert_eq!(
            filled.expect("it renders"),
            Some(json!({"maxResults": 9_007_199_254_740_993_i64, "labelIds": ["INBOX"], "deep": {"a": [1, null]}}))
        );
    }

    #[test]
    fn an_expression_with_the_filter_json_keeps_its_type_and_is_json_text_beside_other_text() {
        let template = json!({
            "limit": "{{ ((criteria or {}).limit or limit or 25) | json }}", "filter": "{{ (criteria or {}).filter | json }}",
            "page": ["{{ (criteria or {}).page | json }}"], "both": {"a": "{{ [limit, 'x\"y'] | json }}"},
            "text": "limit: {{ [limit] | json }}", "of": "{{ {'a': {'b': limit}}['a'] | json }}"
        });
        let filled = |input| values(input).value(&template).expect("it renders");
        assert_eq!(
            filled(json!({"limit": 7})),
            Some(json!({"limit": 7, "page": [], "both": {"a": [7, "x\"y"]}, "text": "limit: [7]", "of": {"b": 7}}))
        );
        assert_eq!(
            filled(json!({"limit": 7, "criteria": {"limit": 3, "filter": [], "page": 2}})),
            Some(json!({
                "limit": 3, "filter": [], "page": [2], "both": {"a": [7, "x\"y"]}, "text": "limit: [7]", "of": {"b": 7}
            }))
        );
        assert!(values(json!({})).text("x{{ a | json }}").is_err(), "an absent value beside other text");
    }

    #[test]
    fn testing_an_absent_value_is_fine_and_printing_one_is_an_error() {
        let values = values(json!({"q": "年度报告"}));
        assert_eq!(values.text("{{ q }}{% if label %} label:{{ label }}{% endif %}").expect("it renders"), "年度报告");
        assert!(values.text("label:{{ label }}").is_err());
    }

    #[test]
    fn a_value_placed_in_a_path_cannot_leave_its_segment() {
        let values = values(json!({"id": "../a b?c#d/%2e"}));
        assert_eq!(values.url_part("/m/{{ id }}/x").expect("it renders"), "/m/..%2Fa%20b%3Fc%23d%2F%252e/x");
        assert!(values.url_part("/m/{{ absent }}").is_err());
    }

    #[test]
    fn a_value_of_the_input_is_never_rendered_as_a_template() {
        let values = values(json!({"q": "{{ 1 + 1 }}"}));
        assert_eq!(values.value(&json!("{{ q }}!")).expect("it renders"), Some(json!("{{ 1 + 1 }}!")));
    }

    #[test]
    fn a_template_writes_a_bounded_text_in_a_bounded_time() {
        let large = json!({"a": "x".repeat(1 << 20), "items": vec![1; 300_000]});
        let values = values(large);
        for template in [
            "{% for i in range(200) %}{{ a }}{% endfor %}",
            "{{ items|join(a) }}",
            "{{ a|replace('x', 'a long text') |replace('a', 'a long text') }}",
            "{{ items|map('replace', '1', a)|join }}",
            "{% for i in range(10000) %}{% if 2 in items %}{% endif %}{% endfor %}",
            "{{ a * 3 }}",
            "{{ items|select('in', items)|list }}",
            "{{ range(99999)|list }}",
        ] {
            assert!(values.text(template).is_err(), "{template}");
        }
        let many = Value::Array(vec![json!("{{ a }}"); 100]);
        assert!(values.value(&many).is_err(), "together they are too large");
    }

    #[test]
    fn a_loop_over_many_items_may_take_many_steps() {
        let items: Vec<_> = (0..2000).map(|number| format!("item {number}")).collect();
        let values = values(json!({"items": items, "body": "x".repeat(200_000), "n": 7, "price": 1.5}));
        let template =
            "{{ body|trim }}{% for i in items %}- {{ i|trim|upper }}{% if not loop.last %},{% endif %}{% endfor %}";
        assert!(values.text(template).expect("it renders").ends_with("- ITEM 1999"));
        assert_eq!(values.text("{{ n * price * 2 + input.n * 3 }}").expect("numbers"), "42.0");
    }

    #[test]
    fn texts_are_joined_and_replaced() {
        let values = values(json!({"to": [{"name": "Ann"}, {"name": "Bo"}], "tags": ["a", 2, null], "path": "a/b"}));
        for (template, expected) in [
            ("{{ tags|join(', ') }}", "a, 2, None"),
            ("{{ tags|join }}", "a2None"),
            ("{{ to|join('; ', attribute='name') }}", "Ann; Bo"),
            ("{{ to|map(attribute='name')|join(d='+') }}", "Ann+Bo"),
            ("{{ path|replace('/', '::') }}", "a::b"),
            ("{{ range(2, 9, 3)|join(' ') }} {{ range(3)|last }} {{ range(3, 0, -1)|list }}", "2 5 8 2 [3, 2, 1]"),
        ] {
            assert_eq!(values.text(template).expect("it renders"), expected, "{template}");
        }
    }

    #[test]
    fn an_endless_template_stops() {
        let template = "{% for a in range(9999) %}{% for b in range(9999) %}x{% endfor %}{% endfor %}";
        assert!(values(json!({})).text(template).is_err());
    }
}
