//! Finds what a jq expression asks for and its data does not have: a key that no value has, an index of an object, an
//! index beyond the end of a list.
//!
//! For jq all of these are `null`, so a mistyped name becomes an answer. This follows the paths of the expression through
//! the data, as far as that is possible without evaluating it, and reports only what is certain: after a computed value
//! it stops. What an expression says may be absent (`?`, `//`, `if`, `try`, assignments) is not reported. Decides nothing.

use std::collections::BTreeSet;

use jaq_core::load::lex::StrPart;
use jaq_core::load::parse::{BinaryOp, Term};
use jaq_core::path::{Opt, Part};
use jaq_json::Val;

use crate::misplaced::{named_key, named_keys};
use crate::record_paths;

/// The most findings.
const MAX_FINDINGS: usize = 3;
/// An expression that nests more deeply is followed no further.
const MAX_DEPTH: usize = 64;
/// An expression that is longer might nest too deeply to be parsed again on an ordinary stack.
const MAX_EXPRESSION_BYTES: usize = 1_000;

/// What is known about the values at one place of an expression.
#[derive(Clone)]
enum Values<'a> {
    /// The expression goes on with each of these, or with some of them.
    Each(Vec<&'a Val>),
    /// It goes on with a list of these, or of some of them.
    ListOf(Vec<&'a Val>),
    Unknown,
}

/// Returns a sentence for each thing that `expression` asks for and `data` does not have.
pub(crate) fn findings(expression: &str, data: &Val) -> Vec<String> {
    if expression.len() > MAX_EXPRESSION_BYTES {
        return Vec::new();
    }
    let Some(term) = jaq_core::load::parse(expression, |parser| parser.term()) else { return Vec::new() };
    let mut search = Search { findings: Vec::new(), is_quiet: false, depth: 0 };
    search.follow(&term, &Values::Each(vec![data]));
    search.findings
}

struct Search {
    findings: Vec<String>,
    /// Whether the expression says that what it asks for may be absent.
    is_quiet: bool,
    depth: usize,
}

impl Search {
    /// Follows `term`, whose input is each of `input`. Returns its outputs.
    fn follow<'a>(&mut self, term: &Term<&str>, input: &Values<'a>) -> Values<'a> {
        if self.depth == MAX_DEPTH || matches!(input, Values::Unknown) {
            return Values::Unknown;
        }
        self.depth += 1;
        let output = self.follow_known(term, input);
        self.depth -= 1;
        output
    }

    fn follow_known<'a>(&mut self, term: &Term<&str>, input: &Values<'a>) -> Values<'a> {
        match term {
            Term::Id => return input.clone(),
            Term::Path(head, path) => {
                let mut values = self.follow(head, input);
                for (place, (part, option)) in path.0.iter().enumerate() {
                    values = match part {
                        Part::Range(None, None) => elements(&values),
                        Part::Range(..) => Values::ListOf(into_vec(elements(&values))),
                        Part::Index(Term::Num(number)) => {
                            let next = path.0.get(place + 1).and_then(|(part, _)| key_of(part));
                            self.index(number, next, &values, *option)
                        }
                        Part::Index(index) => match text(index) {
                            Some(key) => self.key(key, &values, *option),
                            None => Values::Unknown,
                        },
                    };
                }
                return values;
            }
            Term::BinOp(left, BinaryOp::Pipe(pattern), right) => {
                let values = self.follow(left, input);
                return self.follow(right, if pattern.is_some() { input } else { &values });
            }
            Term::BinOp(left, BinaryOp::Comma, right) => {
                let (left, right) = (self.follow(left, input), self.follow(right, input));
                return match (left, right) {
                    (Values::Each(left), Values::Each(right)) => Values::Each([left, right].concat()),
                    _ => Values::Unknown,
                };
            }
            Term::BinOp(left, BinaryOp::Alt, right) => {
                // Whether the right side is needed depends on the values.
                let values = self.quietly(|search| search.follow(left, input));
                self.quietly(|search| search.follow(right, input));
                return values;
            }
            Term::BinOp(_, assignment, right) if is_assignment(assignment) => drop(self.follow(right, input)),
            Term::BinOp(left, _, right) => {
                self.follow(left, input);
                self.follow(right, input);
            }
            Term::Arr(Some(inner)) => {
                if let Values::Each(values) = self.follow(inner, input) {
                    return Values::ListOf(values);
                }
            }
            Term::Neg(inner) => drop(self.follow(inner, input)),
            Term::Str(_, parts) => {
                for part in parts {
                    if let StrPart::Term(inner) = part {
                        self.follow(inner, input);
                    }
                }
            }
            Term::Obj(fields) => {
                for (key, value) in fields {
                    match (text(key), value) {
                        (_, Some(value)) => drop(self.follow(value, input)),
                        (Some(key), None) => drop(self.key(key, input, Opt::Essential)),
                        (None, None) => {}
                    }
                }
            }
            Term::Fold(_, source, ..) => drop(self.follow(source, input)),
            Term::Call(name, arguments) => return self.call(name, arguments, input),
            _ => {}
        }
        Values::Unknown
    }

    fn call<'a>(&mut self, name: &str, arguments: &[Term<&str>], input: &Values<'a>) -> Values<'a> {
        match (name, arguments) {
            ("map", [inner]) => match self.follow(inner, &elements(input)) {
                Values::Each(values) => Values::ListOf(values),
                _ => Values::Unknown,
            },
            ("select", [condition]) => {
                self.follow(condition, input);
                input.clone()
            }
            ("sort_by" | "unique_by", [inner]) => {
                self.follow(inner, &elements(input));
                input.clone()
            }
            ("min_by" | "max_by", [inner]) => {
                self.follow(inner, &elements(input));
                elements(input)
            }
            ("group_by" | "map_values" | "any" | "all", [inner]) => {
                self.follow(inner, &elements(input));
                Values::Unknown
            }
            ("sort" | "reverse" | "unique", []) => input.clone(),
            ("first" | "last", []) => elements(input),
            ("first" | "last", [inner]) | ("limit", [_, inner]) => self.follow(inner, input),
            ("empty", []) => Values::Each(Vec::new()),
            _ => Values::Unknown,
        }
    }

    fn quietly<T>(&mut self, search: impl FnOnce(&mut Self) -> T) -> T {
        let was_quiet = std::mem::replace(&mut self.is_quiet, true);
        let found = search(self);
        self.is_quiet = was_quiet;
        found
    }

    fn key<'a>(&mut self, key: &str, values: &Values<'a>, option: Opt) -> Values<'a> {
        let Values::Each(values) = values else { return Values::Unknown };
        let name = Val::utf8_str(key.to_owned());
        let objects: Vec<_> = values.iter().filter_map(|value| as_object(value)).collect();
        let found: Vec<_> = objects.iter().filter_map(|fields| fields.get(&name)).collect();
        if found.is_empty() && !objects.is_empty() {
            let keys: BTreeSet<_> = objects.iter().flat_map(|fields| fields.keys()).map(shown).collect();
            let place = objects.iter().find_map(|fields| record_paths::of_key(fields, key));
            let place = place.map(|place| format!("it has `{place}`; ")).unwrap_or_default();
            self.report(option, format!("there is no key {} there; {place}{}", named_key(key), key_list(&keys)));
            return Values::Unknown;
        }
        Values::Each(found)
    }

    /// `next` is the key that is asked of the item.
    fn index<'a>(&mut self, number: &str, next: Option<&str>, values: &Values<'a>, option: Opt) -> Values<'a> {
        let values = match values {
            Values::Each(values) => values,
            // Which of them it is cannot be said.
            Values::ListOf(_) => return elements(values),
            Values::Unknown => return Values::Unknown,
        };
        let Ok(index) = number.parse::<usize>() else { return Values::Unknown };
        let lists: Vec<_> = values.iter().filter_map(|value| as_list(value)).collect();
        let found: Vec<_> = lists.iter().filter_map(|list| list.get(index)).collect();
        let longest = lists.iter().map(|list| list.len()).max();
        match (values.iter().find_map(|value| as_object(value)), longest) {
            (Some(fields), None) => {
                let keys = fields.keys().map(shown).collect();
                let place = record_paths::of_item(fields, index, next).map(|place| format!("write `{place}`; "));
                let place = place.unwrap_or_default();
                self.report(option, format!("`.[{index}]` is asked of an object; {place}{}", key_list(&keys)));
                Values::Unknown
            }
            (None, Some(longest)) if found.is_empty() => {
                let items = if longest == 1 { "item" } else { "items" };
                self.report(option, format!("there is no `.[{index}]`: the list has {longest} {items}"));
                Values::Unknown
            }
            _ => Values::Each(found),
        }
    }

    fn report(&mut self, option: Opt, finding: String) {
        let is_expected = self.is_quiet || matches!(option, Opt::Optional);
        if !is_expected && self.findings.len() < MAX_FINDINGS && !self.findings.contains(&finding) {
            self.findings.push(finding);
        }
    }
}

/// The items of lists and the values of objects.
fn elements<'a>(values: &Values<'a>) -> Values<'a> {
    match values {
        Values::Each(values) => {
            let mut found = Vec::new();
            for value in values {
                match value {
                    Val::Arr(items) => found.extend(items.iter()),
                    Val::Obj(fields) => found.extend(fields.values()),
                    _ => {}
                }
            }
            Values::Each(found)
        }
        Values::ListOf(items) => Values::Each(items.clone()),
        Values::Unknown => Values::Unknown,
    }
}

fn into_vec(values: Values<'_>) -> Vec<&Val> {
    match values {
        Values::Each(values) | Values::ListOf(values) => values,
        Values::Unknown => Vec::new(),
    }
}

/// The key that a part of a path is.
fn key_of<'s>(part: &Part<Term<&'s str>>) -> Option<&'s str> {
    if let Part::Index(index) = part { text(index) } else { None }
}

/// The text of a literal string.
fn text<'s>(term: &Term<&'s str>) -> Option<&'s str> {
    match term {
        Term::Str(None, parts) => match parts.as_slice() {
            [StrPart::Str(text)] => Some(text),
            _ => None,
        },
        _ => None,
    }
}

fn is_assignment(operator: &BinaryOp<&str>) -> bool {
    matches!(operator, BinaryOp::Assign | BinaryOp::Update | BinaryOp::UpdateMath(_) | BinaryOp::UpdateAlt)
}

fn as_object(value: &Val) -> Option<&jaq_json::Map<Val, Val>> {
    if let Val::Obj(fields) = value { Some(fields) } else { None }
}

fn as_list(value: &Val) -> Option<&[Val]> {
    if let Val::Arr(items) = value { Some(items) } else { None }
}

fn shown(key: &Val) -> String {
    match key {
        Val::TStr(text) => String::from_utf8_lossy(text).into_owned(),
        other => other.to_string(),
    }
}

fn key_list(keys: &BTreeSet<String>) -> String {
    if keys.is_empty() {
        return "the object is empty".to_owned();
    }
    format!("the keys are {}", named_keys(keys.iter().map(String::as_str)))
}

#[cfg(test)]
mod tests {
    use jaq_json::read;
    use serde_json::json;

    use super::*;

    const KEYS: &str = "there; the keys are `id`, `name`, `tags`";

    fn found(expression: &str) -> Vec<String> {
        let record = |id: u32| json!({"id": id, "name": null, "tags": ["x"]});
        let data = json!({"items": [record(1), record(2)], "total": 2, "none": {}, "empty": []});
        findings(expression, &read::parse_single(data.to_string().as_bytes()).expect("JSON"))
    }

    #[test]
    fn what_the_data_does_not_have_is_found_wherever_it_is_asked_for() {
        let missing_name = format!("there is no key `nme` {KEYS}");
        for expression in [
            ".items[0].nme",
            ".items[].nme",
            ".items | .[].nme",
            ".items[0][\"nme\"]",
            ".items | map(.nme)",
            "[.items[] | .nme] | length",
            ".items | map(.nme) | add",
            "[.items[] | select(.id == 1) | .nme]",
            "[.items[] | select(.nme == 1)]",
            ".items | map(select(.id > 5)) | .[0].nme",
            ".items | map({id, nme})",
            ".items[] | {id: .nme}",
            ".items | sort_by(.nme)",
            ".items | sort_by(.id) | first | .nme",
            ".items | max_by(.nme).id",
            ".items[0:1][0].nme",
            ".items[] | \"\\(.nme)\"",
            ".items[] | .id, .nme",
            ".total as $t | .items[].nme",
            ".items[] | .id + (.nme | length)",
            "reduce .items[].nme as $x (0; . + $x)",
            "(.items // .data)[].nme",
        ] {
            assert_eq!(found(expression), [missing_name.as_str()], "{expression}");
        }
        let cases = [
            (".itmes | length", "there is no key `itmes` there; the keys are `empty`, `items`, `none`, `total`"),
            (".[0]", "`.[0]` is asked of an object; write `.items[0]`; the keys are `empty`, `items`, `none`, `total`"),
            (
                ".[0].id",
                "`.[0]` is asked of an object; write `.items[0].id`; the keys are `empty`, `items`, `none`, `total`",
            ),
            (".id", "there is no key `id` there; it has `.items[].id`; the keys are `empty`, `items`, `none`, `total`"),
            (".items[5].id", "there is no `.[5]`: the list has 2 items"),
            (".items[0].tags[1]", "there is no `.[1]`: the list has 1 item"),
            (".empty[0]", "there is no `.[0]`: the list has 0 items"),
            (".none.x", "there is no key `x` there; the object is empty"),
        ];
        for (expression, expected) in cases {
            assert_eq!(found(expression), [expected], "{expression}");
        }
    }

    #[test]
    fn what_may_be_absent_and_what_cannot_be_known_is_not_reported() {
        for expression in [
            ".",
            ".items[0].id",
            ".items[0].name.first",
            ".nme?",
            ".nme // 1",
            "if .nme then 1 else 2 end",
            "try .nme catch 1",
            ".nme = 1",
            ".nme |= 1",
            ".nme += 1",
            "has(\"nme\")",
            "to_entries | .[0].key",
            "with_entries(.value)",
            "{a: 1} | .b",
            ".items | length | .x?",
            "[.items[] | {a: .id}] | .[0].b",
            "$_meta.more_pages",
            "def f: .nme; 1",
            ".. | .nme?",
            ".empty[] | .nme",
            "not valid jq (",
        ] {
            assert_eq!(found(expression), [""; 0], "{expression}");
        }
        let deep = format!("{}.nme{}", "[".repeat(200), "]".repeat(200));
        // The parser takes much of the stack in a debug build.
        let checking = std::thread::Builder::new().stack_size(64 << 20).spawn(move || found(&deep));
        assert_eq!(checking.expect("started").join().expect("no overflow"), [""; 0]);
    }
}
