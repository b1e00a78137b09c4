//! What a template or an expression uses, found without any values: names, filters, tests and functions.
//!
//! A template that uses something unknown would fail in the middle of a task, or silently drop a field. So the catalog
//! asks here for every template when it loads a definition.

use std::collections::BTreeSet;
use std::sync::LazyLock;

use minijinja::{AutoEscape, Environment, ErrorKind};
use protocol::nearest::nearest;
use protocol::wording::quoted;
use regex::Regex;

use super::field_uses::FieldUses;
use super::functions::WriteBudget;
use super::{TemplateError, engine, growth};

/// The names beside the fields of the input that every template and jq expression can use.
pub const SHARED_NAMES: [&str; 3] = ["input", "task", "caller"];

/// What templates of steps call the data of the other steps, and the item for which a step runs.
pub const STEPS: &str = "steps";
pub const ITEM: &str = "item";

/// What is known about a caller.
const CALLER_FIELDS: [&str; 8] =
    ["uid", "session", "folder", "depth", "wakes", "read_only", "unattended", "tool_scope"];

/// Filters whose names a message suggests. Those of Jinja that are missing here are in `docs/subtools.md`.
const SUGGESTED_FILTERS: [&str; 27] = [
    "abs", "b64url", "bool", "default", "first", "float", "int", "items", "join", "json", "last", "length", "lines",
    "list", "lower", "map", "max", "min", "reject", "replace", "round", "select", "sort", "split", "trim", "unique",
    "upper",
];

static SET_NAMES: LazyLock<Regex> =
    LazyLock::new(|| Regex::new(r"\{%-?\s*set\s+([\w,\s]+?)\s*(?:=|%|\|)").expect("a valid pattern"));
static CODE: LazyLock<Regex> = LazyLock::new(|| Regex::new(r"(?s)\{\{(.*?)\}\}|\{%(.*?)%\}").expect("a valid pattern"));
static TEXT: LazyLock<Regex> =
    LazyLock::new(|| Regex::new(r#""(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*'"#).expect("a valid pattern"));
static FILTER: LazyLock<Regex> = LazyLock::new(|| Regex::new(r"\|\s*([A-Za-z_]\w*)").expect("a valid pattern"));
static TEST: LazyLock<Regex> =
    LazyLock::new(|| Regex::new(r"\bis\s+(?:not\s+)?([A-Za-z_]\w*)").expect("a valid pattern"));
static JQ_PATH: LazyLock<Regex> =
    LazyLock::new(|| Regex::new(r"\$(input|task|caller)\.([A-Za-z_]\w*)").expect("a valid pattern"));

/// The names that the templates and expressions of one definition may use.
#[derive(Debug, Clone, Default)]
pub struct DeclaredNames {
    /// The fields of the input; `None` if it may have any.
    pub fields: Option<BTreeSet<String>>,
    /// Those that are numbers.
    pub numbers: BTreeSet<String>,
    /// The names of the steps, if it is made of steps: their data is `steps.NAME`.
    pub steps: Option<BTreeSet<String>>,
    /// Whether `caller` also says when it asked: the `hour` and the `weekday`.
    pub knows_time: bool,
}

/// What `caller` has in addition where the time is known.
const TIME_FIELDS: [&str; 2] = ["hour", "weekday"];

impl DeclaredNames {
    /// Whether nothing says that the field is not a number.
    fn may_be_number(&self, field: &str) -> bool {
        self.fields.is_none() || self.numbers.contains(field)
    }

    /// Returns what is wrong with the names, filters, tests and functions of `template`.
    pub fn mistakes_in_template(&self, template: &str) -> Result<Vec<String>, TemplateError> {
        growth::of_template(template, &|name| self.may_be_number(name))?;
        let engine = plain_engine();
        let compiled = engine.template_from_str(template).map_err(|error| TemplateError::new(template, &error))?;
        let used = compiled.undeclared_variables(true);
        let assigned: BTreeSet<_> = SET_NAMES
            .captures_iter(template)
            .flat_map(|found| found[1].split(',').map(|name| name.trim().to_owned()).collect::<Vec<_>>())
            .collect();
        let code: Vec<_> = CODE
            .captures_iter(template)
            .filter_map(|found| found.get(1).or(found.get(2)))
            .map(|it| it.as_str())
            .collect();
        Ok(self.mistakes(used.into_iter().filter(|name| !assigned.contains(first(name))), &code))
    }

    /// Like [`DeclaredNames::mistakes_in_template`], for an expression like that of `if`.
    pub fn mistakes_in_expression(&self, expression: &str) -> Result<Vec<String>, TemplateError> {
        growth::of_expression(expression, &|name| self.may_be_number(name))?;
        let engine = plain_engine();
        let compiled = engine.compile_expression(expression).map_err(|error| TemplateError::new(expression, &error))?;
        Ok(self.mistakes(compiled.undeclared_variables(true).into_iter(), &[expression]))
    }

    /// Like [`DeclaredNames::mistakes_in_expression`], for the condition of a confirmation, which knows the fields only
    /// as `input.NAME`, so that no field can be mistaken for the caller.
    pub fn mistakes_in_condition(&self, condition: &str) -> Result<Vec<String>, TemplateError> {
        let bare = Self { fields: Some(BTreeSet::new()), knows_time: self.knows_time, ..Self::default() };
        growth::of_expression(condition, &|name| self.may_be_number(name))?;
        let engine = plain_engine();
        let compiled = engine.compile_expression(condition).map_err(|error| TemplateError::new(condition, &error))?;
        let used: BTreeSet<_> = compiled.undeclared_variables(true).into_iter().collect();
        let is_field = |name: &str| self.fields.as_ref().is_none_or(|fields| fields.contains(name));
        let (fields, others): (Vec<_>, Vec<_>) = used.into_iter().partition(|name| {
            !SHARED_NAMES.contains(&first(name)) && !is_function(first(name), &[condition]) && is_field(first(name))
        });
        let mut mistakes: Vec<_> =
            fields.iter().map(|name| format!("a condition knows the field `{name}` as `input.{name}`")).collect();
        let (shared, rest): (Vec<_>, Vec<_>) = others.into_iter().partition(|name| first(name) == "input");
        mistakes.extend(self.mistakes(shared.into_iter().filter(|name| name == "input"), &[]));
        let reads = FieldUses::of(condition);
        let unknown = reads.fields.iter().filter(|field| !is_field(field));
        mistakes.extend(unknown.map(|field| self.unknown_field(&format!("input.{field}"), field)));
        if reads.computes_name {
            mistakes.push("a condition names each field that it reads, as `input.NAME`".to_owned());
        }
        mistakes.extend(bare.mistakes(rest.into_iter(), &[condition]));
        Ok(mistakes)
    }

    /// Returns what is wrong with the names that the jq expression `expression` uses by `$input`, `$task` and
    /// `$caller`.
    pub fn mistakes_in_jq(&self, expression: &str) -> Vec<String> {
        let used: BTreeSet<_> =
            JQ_PATH.captures_iter(expression).map(|found| format!("{}.{}", &found[1], &found[2])).collect();
        self.mistakes(used.into_iter(), &[])
    }

    fn mistakes(&self, used: impl Iterator<Item = String>, code: &[&str]) -> Vec<String> {
        let code: Vec<_> = code.iter().map(|code| TEXT.replace_all(code, "''")).collect();
        let code: Vec<_> = code.iter().map(AsRef::as_ref).collect();
        let used: BTreeSet<_> = used.collect();
        let mut mistakes: Vec<_> = used.iter().filter_map(|name| self.mistake(name, &code)).collect();
        mistakes.extend(unknown(&FILTER, &code, "filter", &SUGGESTED_FILTERS, |name| {
            render_fails_with(&format!("{{{{ ''|{name} }}}}"), ErrorKind::UnknownFilter)
        }));
        mistakes.extend(unknown(&TEST, &code, "test", &["defined", "undefined", "none", "string", "number"], |name| {
            render_fails_with(&format!("{{{{ '' is {name} }}}}"), ErrorKind::UnknownTest)
        }));
        mistakes.dedup();
        mistakes
    }

    /// Returns what is wrong with `name`, which may be a path like `input.title`.
    fn mistake(&self, name: &str, code: &[&str]) -> Option<String> {
        let mut parts = name.split('.');
        let (first, second) = (parts.next().unwrap_or_default(), parts.next());
        let is_field = |name: &str| self.fields.as_ref().is_none_or(|fields| fields.contains(name));
        let declares = |name: &str| self.fields.as_ref().is_some_and(|fields| fields.contains(name));
        match (first, second) {
            ("input" | "task" | "caller", None) if declares(first) => {
                Some(format!("`{first}` is not the field of that name; write `input.{first}`"))
            }
            ("input", Some(field)) if !is_field(field) => Some(self.unknown_field(&format!("input.{field}"), field)),
            ("task", Some(field)) if field != "id" => {
                Some(format!("`task.{field}` is unknown; a task has only `task.id`"))
            }
            ("caller", Some(field)) if self.knows_time && TIME_FIELDS.contains(&field) => None,
            ("caller", Some(field)) if !CALLER_FIELDS.contains(&field) => {
                Some(format!("`caller.{field}` is unknown{}", suggestion(field, CALLER_FIELDS.into_iter())))
            }
            (STEPS | ITEM, _) if self.steps.is_some() => self.mistake_in_step(first, second, declares(first)),
            ("vars", _) if !declares(first) => {
                Some("a variable of the configuration stands alone in its braces: `{{ vars.name }}`".to_owned())
            }
            (first, _) if SHARED_NAMES.contains(&first) || is_field(first) => None,
            (first, _) if is_function(first, code) => is_unknown_global(first)
                .then(|| format!("no function named `{first}`; a template has `range`, `dict` and `mime_message`")),
            (first, _) => is_unknown_global(first).then(|| self.unknown_field(first, first)),
        }
    }

    /// Returns what is wrong with `steps.NAME` or `item`.
    fn mistake_in_step(&self, first: &str, step: Option<&str>, is_field: bool) -> Option<String> {
        let steps = self.steps.as_ref()?;
        match step {
            _ if is_field => Some(format!("`{first}` is not the field of that name; write `input.{first}`")),
            _ if first == ITEM => None,
            None => Some("name the step whose data it is: `steps.NAME`".to_owned()),
            Some(step) if steps.contains(step) => None,
            Some(step) => {
                let names = steps.iter().map(String::as_str);
                Some(format!("there is no step named `{step}`{}", suggestion(step, names)))
            }
        }
    }

    fn unknown_field(&self, shown: &str, field: &str) -> String {
        let fields = self.fields.iter().flatten().map(String::as_str);
        format!("`{shown}` is not declared in `input.properties`{}", suggestion(field, fields))
    }
}

/// Returns the names of the steps whose data `template` uses; of an invalid one, none.
pub fn steps_in_template(template: &str) -> BTreeSet<String> {
    let engine = plain_engine();
    let used = engine.template_from_str(template).map(|compiled| compiled.undeclared_variables(true));
    steps_among(used.unwrap_or_default())
}

/// Like [`steps_in_template`], for an expression.
pub fn steps_in_expression(expression: &str) -> BTreeSet<String> {
    let engine = plain_engine();
    let used = engine.compile_expression(expression).map(|compiled| compiled.undeclared_variables(true));
    steps_among(used.unwrap_or_default())
}

/// Whether `template` uses what is called `name`; an invalid one does not.
pub fn uses_in_template(template: &str, name: &str) -> bool {
    let used = plain_engine().template_from_str(template).map(|compiled| compiled.undeclared_variables(false));
    used.is_ok_and(|used| used.contains(name))
}

/// Like [`uses_in_template`], for an expression.
pub fn uses_in_expression(expression: &str, name: &str) -> bool {
    let used = plain_engine().compile_expression(expression).map(|compiled| compiled.undeclared_variables(false));
    used.is_ok_and(|used| used.contains(name))
}

fn steps_among(used: impl IntoIterator<Item = String>) -> BTreeSet<String> {
    let step = |name: String| Some(name.strip_prefix("steps.")?.split('.').next()?.to_owned());
    used.into_iter().filter_map(step).collect()
}

fn plain_engine() -> Environment<'static> {
    engine(&WriteBudget::new(), AutoEscape::None)
}

fn first(name: &str) -> &str {
    name.split('.').next().unwrap_or_default()
}

/// Suggests the nearest of `names`, or lists them if there are few.
fn suggestion<'a>(wanted: &str, names: impl Iterator<Item = &'a str> + Clone) -> String {
    const MAX_LISTED: usize = 10;
    let nearest = did_you_mean(wanted, names.clone());
    if !nearest.is_empty() {
        return nearest;
    }
    match names.clone().count() {
        0 => "; declare it there".to_owned(),
        1..=MAX_LISTED => format!("; there is {}", quoted(names)),
        _ => String::new(),
    }
}

fn did_you_mean<'a>(wanted: &str, names: impl Iterator<Item = &'a str>) -> String {
    protocol::nearest::did_you_mean(nearest(wanted, names, 1)).map(|hint| format!("; {hint}")).unwrap_or_default()
}

/// Whether the code calls `name`.
fn is_function(name: &str, code: &[&str]) -> bool {
    code.iter().any(|code| {
        code.match_indices(name).any(|(at, _)| {
            let before = code[..at].chars().next_back();
            !before.is_some_and(|it| it.is_alphanumeric() || it == '_' || it == '.')
                && code[at + name.len()..].trim_start().starts_with('(')
        })
    })
}

fn is_unknown_global(name: &str) -> bool {
    let probe = format!("{{% if {name} is undefined %}}x{{% endif %}}");
    plain_engine().render_str(&probe, ()).is_ok_and(|rendered| !rendered.is_empty())
}

/// Returns a message for each name that `pattern` finds in the code and that is unknown.
fn unknown(
    pattern: &Regex,
    code: &[&str],
    what: &str,
    suggested: &[&str],
    is_unknown: impl Fn(&str) -> bool,
) -> Vec<String> {
    let used: BTreeSet<_> =
        code.iter().flat_map(|code| pattern.captures_iter(code).map(|found| found[1].to_owned())).collect();
    used.iter()
        .filter(|name| is_unknown(name))
        .map(|name| match (what, name.as_str()) {
            ("filter", "tojson") => {
                "no filter named `tojson`; a string that is only `{{ name }}` keeps its JSON type".to_owned()
            }
            ("filter", "urlencode" | "quote") => {
                format!("no filter named `{name}`; values are encoded where they are placed, so leave it out")
            }
            _ => format!("no {what} named `{name}`{}", did_you_mean(name, suggested.iter().copied())),
        })
        .collect()
}

fn render_fails_with(template: &str, kind: ErrorKind) -> bool {
    plain_engine().render_str(template, ()).is_err_and(|error| error.kind() == kind)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names() -> DeclaredNames {
        let fields = ["filter", "label", "query", "task"].map(str::to_owned);
        DeclaredNames { fields: Some(fields.into()), ..DeclaredNames::default() }
    }

    fn mistakes(template: &str) -> String {
        names().mistakes_in_template(template).expect("valid syntax").join(" | ")
    }

    #[test]
    fn a_template_uses_declared_fields_the_shared_names_and_its_own_variables() {
        for template in [
            "{{ label }}{% if query %}{{ query|upper|default('x') }}{% endif %}",
            "{{ input.label }} {{ input.task }} {{ task.id }} {{ caller.session }} {{ input }}",
            "{% for word in query|split(' ') %}{{ loop.index }}{{ word }}{% endfor %}",
            "{% if label %}{% set found = label %}{% endif %}{{ found }}",
            "{{ range(3)|join(',') }} {{ mime_message(to=label) }} {{ 'a|nofilter is notest' }}",
            "{% if label is string and label is not undefined %}x{% endif %}",
            "{% if filter is defined %}{{ filter if filter else label }}{% endif %}",
        ] {
            assert_eq!(mistakes(template), "", "{template}");
        }
        let any = DeclaredNames::default();
        assert_eq!(any.mistakes_in_template("{{ anything }}{{ input.at_all }}").expect("valid"), [""; 0]);
    }

    #[test]
    fn each_unknown_name_filter_test_and_function_is_said_with_its_mending() {
        for (template, message) in [
            ("{{ lable }}", "`lable` is not declared in `input.properties`; did you mean `label`?"),
            ("{{ input.lable }}", "`input.lable` is not declared in `input.properties`; did you mean `label`?"),
            ("{{ zzz }}", "`zzz` is not declared in `input.properties`; there is `filter`, `label`, `query`, `task`"),
            ("{{ task }}", "`task` is not the field of that name; write `input.task`"),
            ("{{ task.name }}", "`task.name` is unknown; a task has only `task.id`"),
            ("{{ caller.sesion }}", "`caller.sesion` is unknown; did you mean `session`?"),
            ("{{ vars.team|upper }}", "a variable of the configuration stands alone in its braces: `{{ vars.name }}`"),
            ("{{ label|uper }}", "no filter named `uper`; did you mean `upper`?"),
            ("{{ label|tojson }}", "no filter named `tojson`; a string that is only `{{ name }}` keeps its JSON type"),
            ("{{ label is defind }}", "no test named `defind`; did you mean `defined`?"),
            ("{{ now() }}", "no function named `now`; a template has `range`, `dict` and `mime_message`"),
        ] {
            assert_eq!(mistakes(template), message, "{template}");
        }
    }

    #[test]
    fn a_condition_knows_the_input_only_by_its_name() {
        let mistakes = |condition: &str| names().mistakes_in_condition(condition).expect("valid syntax").join(" | ");
        assert_eq!(mistakes("input.label == 'x' and caller.session"), "");
        assert_eq!(mistakes("label == 'x'"), "a condition knows the field `label` as `input.label`");
        assert_eq!(
            mistakes("input.lable"),
            "`input.lable` is not declared in `input.properties`; did you mean `label`?"
        );
        assert!(mistakes("nonsense|length > 3").starts_with("`nonsense` is not declared"), "{}", mistakes("nonsense"));
    }

    #[test]
    fn a_jq_expression_names_declared_fields() {
        assert_eq!(names().mistakes_in_jq(".[] | select(.label == $input.label)"), [""; 0]);
        assert_eq!(
            names().mistakes_in_jq("$input.lable, $task.id"),
            ["`input.lable` is not declared in `input.properties`; did you mean `label`?"]
        );
    }

    #[test]
    fn the_suggested_filters_exist() {
        for name in SUGGESTED_FILTERS {
            assert!(!render_fails_with(&format!("{{{{ ''|{name} }}}}"), ErrorKind::UnknownFilter), "{name}");
        }
    }
}
