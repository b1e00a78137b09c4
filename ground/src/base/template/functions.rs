//! The filters, tests and functions that templates have: those of the engine whose result cannot be much larger than
//! their operands, and some of our own, which count what they write.

use std::borrow::Cow;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock};

use minijinja::value::{Kwargs, Value};
use minijinja::{Environment, Error, ErrorKind, filters, tests};

use super::mail;

/// The most bytes that the templates of one request may write together: an input has one megabyte at most.
const MAX_WRITTEN_BYTES: u64 = 32 << 20;
/// The longest `range`.
const MAX_RANGE: i64 = 10_000;

/// An engine with everything that needs no budget.
static ENGINE: LazyLock<Environment<'static>> = LazyLock::new(|| {
    let mut engine = Environment::empty();
    engine.set_syntax(super::syntax());
    add_filters(&mut engine);
    add_tests(&mut engine);
    engine.add_function("range", range);
    engine.add_function("dict", minijinja::functions::dict);
    engine
});

/// How many more bytes templates may write.
#[derive(Debug, Clone)]
pub(super) struct WriteBudget(Arc<AtomicU64>);

impl WriteBudget {
    pub(super) fn new() -> Self {
        Self(Arc::new(MAX_WRITTEN_BYTES.into()))
    }

    /// Takes `bytes` from the budget, or fails if there are fewer left.
    pub(super) fn take(&self, bytes: usize) -> Result<(), Error> {
        let taken = self.0.try_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(bytes as u64));
        taken.map(|_| ()).map_err(|_| {
            let most = MAX_WRITTEN_BYTES >> 20;
            Error::new(ErrorKind::InvalidOperation, format!("the texts of one request are over {most} MiB together"))
        })
    }
}

/// Returns an engine in which filters that write much take it from `budget`.
pub(super) fn engine(budget: &WriteBudget) -> Environment<'static> {
    let mut engine = ENGINE.clone();
    let left = budget.clone();
    engine.add_filter("join", move |value: &Value, separator: Option<&str>, rest: Kwargs| {
        join(&left, value, separator, &rest)
    });
    let left = budget.clone();
    engine.add_filter("replace", move |text: &str, from: &str, to: &str| replace(&left, text, from, to));
    let left = budget.clone();
    engine.add_filter("b64url", move |text: &str| {
        left.take(text.len() * 4 / 3)?;
        Ok::<_, Error>(mail::base64url(text))
    });
    let left = budget.clone();
    engine.add_filter("json", move |value: &Value| {
        if value.is_undefined() {
            return Err(ErrorKind::UndefinedError.into());
        }
        let text = serde_json::to_string(value)
            .map_err(|error| Error::new(ErrorKind::BadSerialization, "it is not JSON").with_source(error))?;
        left.take(text.len())?;
        Ok(text)
    });
    let left = budget.clone();
    engine.add_function("mime_message", move |fields: Kwargs| {
        let message = mail::message(fields)?;
        left.take(message.len())?;
        Ok::<_, Error>(message)
    });
    engine
}

fn add_filters(engine: &mut Environment<'_>) {
    engine.add_filter("abs", filters::abs);
    engine.add_filter("attr", filters::attr);
    engine.add_filter("bool", filters::bool);
    engine.add_filter("count", filters::length);
    engine.add_filter("d", filters::default);
    engine.add_filter("default", filters::default);
    engine.add_filter("dictsort", filters::dictsort);
    engine.add_filter("first", filters::first);
    engine.add_filter("float", filters::float);
    engine.add_filter("int", filters::int);
    engine.add_filter("items", filters::items);
    engine.add_filter("last", filters::last);
    engine.add_filter("length", filters::length);
    engine.add_filter("lines", filters::lines);
    engine.add_filter("list", filters::list);
    engine.add_filter("lower", filters::lower);
    engine.add_filter("map", filters::map);
    engine.add_filter("max", filters::max);
    engine.add_filter("min", filters::min);
    engine.add_filter("reject", filters::reject);
    engine.add_filter("rejectattr", filters::rejectattr);
    engine.add_filter("reverse", filters::reverse);
    engine.add_filter("round", filters::round);
    engine.add_filter("select", filters::select);
    engine.add_filter("selectattr", filters::selectattr);
    engine.add_filter("sort", filters::sort);
    engine.add_filter("split", filters::split);
    engine.add_filter("string", filters::string);
    engine.add_filter("title", filters::title);
    engine.add_filter("trim", filters::trim);
    engine.add_filter("unique", filters::unique);
    engine.add_filter("upper", filters::upper);
}

/// Adds all tests but `in`: with `select` it would search one list once for each item of another.
fn add_tests(engine: &mut Environment<'_>) {
    engine.add_test("boolean", tests::is_boolean);
    engine.add_test("defined", tests::is_defined);
    engine.add_test("divisibleby", tests::is_divisibleby);
    engine.add_test("endingwith", tests::is_endingwith);
    engine.add_test("even", tests::is_even);
    engine.add_test("false", tests::is_false);
    engine.add_test("float", tests::is_float);
    engine.add_test("integer", tests::is_integer);
    engine.add_test("iterable", tests::is_iterable);
    engine.add_test("lower", tests::is_lower);
    engine.add_test("mapping", tests::is_mapping);
    engine.add_test("none", tests::is_none);
    engine.add_test("number", tests::is_number);
    engine.add_test("odd", tests::is_odd);
    engine.add_test("sameas", tests::is_sameas);
    engine.add_test("sequence", tests::is_sequence);
    engine.add_test("startingwith", tests::is_startingwith);
    engine.add_test("string", tests::is_string);
    engine.add_test("true", tests::is_true);
    engine.add_test("undefined", tests::is_undefined);
    engine.add_test("upper", tests::is_upper);
    for name in ["eq", "equalto", "=="] {
        engine.add_test(name, tests::is_eq);
    }
    for name in ["ne", "!="] {
        engine.add_test(name, tests::is_ne);
    }
    for name in ["lt", "lessthan", "<"] {
        engine.add_test(name, tests::is_lt);
    }
    for name in ["le", "<="] {
        engine.add_test(name, tests::is_le);
    }
    for name in ["gt", "greaterthan", ">"] {
        engine.add_test(name, tests::is_gt);
    }
    for name in ["ge", ">="] {
        engine.add_test(name, tests::is_ge);
    }
}

/// The integers from `start` to before `end`; of `start` alone, those from 0 to before it.
fn range(start: i64, end: Option<i64>, step: Option<i64>) -> Result<Value, Error> {
    let invalid = |detail: String| Error::new(ErrorKind::InvalidOperation, detail);
    let (start, end) = end.map_or((0, start), |end| (start, end));
    let step = step.unwrap_or(1);
    if step == 0 {
        return Err(invalid("a range cannot have steps of 0".to_owned()));
    }
    let distance = if step > 0 { end.checked_sub(start) } else { start.checked_sub(end) };
    let length = distance.map(|distance| distance.max(0).unsigned_abs().div_ceil(step.unsigned_abs()));
    match length.and_then(|length| i64::try_from(length).ok()).filter(|length| *length <= MAX_RANGE) {
        Some(length) => Ok((0..length).map(|index| Value::from(start + index * step)).collect()),
        None => Err(invalid(format!("a range can have {MAX_RANGE} items"))),
    }
}

/// Joins the items of `value`, or an attribute of each, with a text between them.
fn join(budget: &WriteBudget, value: &Value, separator: Option<&str>, rest: &Kwargs) -> Result<String, Error> {
    let separator = match separator {
        Some(separator) => separator,
        None => rest.get::<Option<&str>>("d")?.unwrap_or_default(),
    };
    let attribute = rest.get::<Option<&str>>("attribute")?;
    rest.assert_all_used()?;
    let mut joined = String::new();
    for (index, mut item) in value.try_iter()?.enumerate() {
        for name in attribute.into_iter().flat_map(|path| path.split('.')) {
            item = item.get_attr(name)?;
        }
        let text = item.as_str().map_or_else(|| Cow::Owned(item.to_string()), Cow::Borrowed);
        let separator = if index == 0 { "" } else { separator };
        budget.take(separator.len() + text.len())?;
        joined.extend([separator, &text]);
    }
    Ok(joined)
}

fn replace(budget: &WriteBudget, text: &str, from: &str, to: &str) -> Result<String, Error> {
    let added = text.matches(from).count().saturating_mul(to.len());
    budget.take(text.len().saturating_add(added))?;
    Ok(text.replace(from, to))
}
