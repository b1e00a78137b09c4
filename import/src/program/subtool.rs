//! A command of a program as a subtool: its options and positional arguments as input, its argument list.
//!
//! A value never becomes an option. A long option gets its value as `--name=value`. Before positional arguments stands
//! `--`, where the usage shows it or where the help is of a kind of program that accepts it; elsewhere the runner
//! refuses values that begin with `-`.

use serde_json::{Map, Value, json};

use super::help::Help;
use super::known;
use super::option::{OptionValue, Placeholder, ProgramOption};
use super::usage::{Positional, UsageForm};
use crate::identifiers::Identifiers;
use crate::text::{one_line, sentence};

/// The most options of one subtool: what is beyond in a long help are special cases.
const MAX_OPTIONS: usize = 100;
const MAX_DESCRIPTION_CHARS: usize = 300;
const MAX_USAGE_CHARS: usize = 120;
const MAX_OPTION_CHARS: usize = 200;

/// A command whose help was read.
pub(super) struct Command<'a> {
    pub(super) path: &'a [String],
    /// What the list of commands says about it.
    pub(super) listed: &'a str,
    pub(super) help: &'a Help,
    /// Whether all options are kept.
    pub(super) full: bool,
}

/// What becomes of a command.
pub(super) struct CommandDefinition {
    pub(super) definition: Map<String, Value>,
    /// Flags that are left out, with the reason.
    pub(super) left_out: Vec<(String, &'static str)>,
}

#[derive(Default)]
struct Parts {
    names: Identifiers,
    properties: Map<String, Value>,
    required: Vec<Value>,
    argv: Vec<Value>,
    left_out: Vec<(String, &'static str)>,
}

impl Command<'_> {
    pub(super) fn definition(&self) -> CommandDefinition {
        let mut parts = Parts { argv: self.path.iter().map(|it| it.as_str().into()).collect(), ..Parts::default() };
        let mut count = 0;
        let mut options = self.options();
        if options.len() > MAX_OPTIONS {
            // What is used every day has a short form.
            options.sort_by_key(|option| option.short.is_none());
        }
        for option in options {
            if known::is_unused(option.flag()) || matches!(option.flag(), "-h" | "-V" | "-?") {
                continue;
            }
            if option.value == OptionValue::Several {
                parts.left_out.push((option.flag().to_owned(), "takes several values"));
            } else if count == MAX_OPTIONS && !self.full {
                parts.left_out.push((option.flag().to_owned(), "is one of too many options"));
            } else {
                count += 1;
                parts.option(option);
            }
        }
        self.positionals(&mut parts);
        let mut input = Map::new();
        input.insert("type".to_owned(), "object".into());
        input.insert("properties".to_owned(), parts.properties.into());
        if !parts.required.is_empty() {
            input.insert("required".to_owned(), parts.required.into());
        }
        input.insert("additionalProperties".to_owned(), false.into());
        let mut definition = Map::new();
        definition.insert("description".to_owned(), self.description().into());
        definition.insert("input".to_owned(), input.into());
        definition.insert("run".to_owned(), json!({"process": {"argv": parts.argv}}));
        CommandDefinition { definition, left_out: parts.left_out }
    }

    /// The options of the help, then those that only the usage names.
    fn options(&self) -> Vec<&ProgramOption> {
        let mut options: Vec<_> = self.help.options.iter().collect();
        for option in self.help.forms.iter().flat_map(|form| &form.options) {
            let is_known = |known: &&ProgramOption| {
                known.flag() == option.flag()
                    || option.short.is_some() && known.short == option.short
                    || option.long.is_some() && known.negation == option.long
            };
            if !options.iter().any(is_known) {
                options.push(option);
            }
        }
        options
    }

    fn description(&self) -> String {
        let is_heading = self.help.about.ends_with(':') && !self.listed.is_empty();
        let about = if self.help.about.is_empty() || is_heading { self.listed } else { &self.help.about };
        let about = about.trim_end_matches(':');
        let command = self.path.join(" ");
        let about = sentence(&one_line(about, MAX_DESCRIPTION_CHARS));
        let runs = format!("Runs `{command}`.");
        if about.is_empty() { format!("{runs} Its help says no more.") } else { format!("{about} {runs}") }
    }

    fn positionals(&self, parts: &mut Parts) {
        let forms: Vec<_> = self.help.forms.iter().collect();
        let Some(first) = forms.first() else {
            parts.arguments("Further arguments of the command, one each.", None);
            return;
        };
        let signature =
            |form: &UsageForm| form.positionals.iter().map(|it| it.placeholder.name.clone()).collect::<Vec<_>>();
        let longest = forms.iter().max_by_key(|form| form.positionals.len()).unwrap_or(first);
        let is_one = forms.iter().all(|form| form.positionals.is_empty() || signature(form) == signature(longest));
        if !is_one {
            let usage: Vec<_> = forms.iter().map(|form| format!("`{}`", form.text)).collect();
            let usage = format!("Positional arguments, in the order of the usage: {}.", usage.join(" or "));
            parts.arguments(&one_line(&usage, 2 * MAX_DESCRIPTION_CHARS), self.dashes_at(longest));
            return;
        }
        let is_optional = forms.iter().any(|form| form.positionals.is_empty());
        let mut merged: Vec<Positional> = Vec::new();
        for positional in &longest.positionals {
            // argparse: `FILE [FILE ...]`.
            match merged.last_mut() {
                Some(last) if last.placeholder.name == positional.placeholder.name => {
                    last.placeholder.is_repeated = true;
                }
                _ => merged.push(positional.clone()),
            }
        }
        let dashes = self.dashes_at(longest);
        for (index, positional) in merged.iter().enumerate() {
            if dashes == Some(index) {
                parts.argv.push("--".into());
            }
            let name = positional.placeholder.name.to_lowercase();
            let said = self.help.arguments.iter().find(|(known, _)| *known == name || *known == name.replace(' ', "_"));
            let description = said.map(|(_, text)| text.as_str()).unwrap_or_default();
            let description = match description {
                "" => {
                    format!("{}, as in `{}`", shown(&positional.placeholder), one_line(&longest.text, MAX_USAGE_CHARS))
                }
                text => text.to_owned(),
            };
            parts.positional(positional, &description, positional.is_required && !is_optional);
        }
    }

    /// Before which positional argument `--` stands.
    fn dashes_at(&self, form: &UsageForm) -> Option<usize> {
        let in_usage = self.help.forms.iter().find_map(|form| form.dashes_before);
        let is_git = self.path.first().is_some_and(|program| program == "git");
        // git takes what follows `--` for paths.
        let is_gnu = self.help.options.iter().any(ProgramOption::is_gnu) && !is_git;
        let is_nested_command =
            form.positionals.iter().any(|it| matches!(it.placeholder.name.to_lowercase().as_str(), "command" | "cmd"));
        in_usage.or((is_gnu && !is_nested_command).then_some(0)).filter(|at| *at < form.positionals.len())
    }
}

impl Parts {
    /// Adds a property, and returns the reference to it.
    fn property(&mut self, wire: &str, role: &str, schema: Value) -> String {
        let name = self.names.make(&wire.replace('-', "_"), role);
        self.properties.insert(name.clone(), schema);
        name
    }

    fn option(&mut self, option: &ProgramOption) {
        let flag = option.flag();
        let wire = flag.trim_start_matches('-');
        let description = describe(&option.description, flag);
        let with_value = |name: &str| {
            let reference = format!("{{{{ {name} }}}}");
            if option.is_gnu() { vec![format!("{flag}={reference}")] } else { vec![flag.to_owned(), reference] }
        };
        match &option.value {
            OptionValue::None => {
                let name = self.property(wire, "option", json!({"type": "boolean", "description": description}));
                self.argv.push(json!({"if": name, "args": [flag]}));
                if let Some(negation) = &option.negation {
                    self.argv.push(json!({"if": format!("{name} is defined and not {name}"), "args": [negation]}));
                }
            }
            OptionValue::Optional(placeholder) => {
                let mut schema = schema_of(placeholder, &option.description);
                schema.insert("type".to_owned(), json!(["boolean", "string"]));
                if let Some(choices) = schema.get_mut("enum").and_then(Value::as_array_mut) {
                    choices.push(true.into());
                }
                let text = format!("{description} True without a value.");
                schema.insert("description".to_owned(), text.into());
                let name = self.property(wire, "option", schema.into());
                self.argv.push(json!({"if": format!("{name} is defined and {name} == true"), "args": [flag]}));
                self.argv.push(json!({"if": format!("{name} is string"), "args": with_value(&name)}));
            }
            OptionValue::Required(placeholder) => {
                let mut schema = schema_of(placeholder, &option.description);
                let is_list = (placeholder.is_repeated || is_repeatable(&option.description)) && option.is_gnu();
                if is_list {
                    schema = Map::from_iter([("type".to_owned(), "array".into()), ("items".to_owned(), schema.into())]);
                }
                schema.insert("description".to_owned(), description.into());
                let name = self.property(wire, "option", schema.into());
                if is_list {
                    self.argv.push(json!({"each": format!("{{{{ {name} }}}}"), "prefix": format!("{flag}=")}));
                } else {
                    self.argv.push(json!({"if": format!("{name} is defined"), "args": with_value(&name)}));
                }
            }
            OptionValue::Several => {}
        }
    }

    fn positional(&mut self, positional: &Positional, description: &str, is_required: bool) {
        let placeholder = &positional.placeholder;
        let mut schema = schema_of(placeholder, description);
        schema.entry("type").or_insert("string".into());
        if schema["type"] != "string" {
            schema = Map::from_iter([("type".to_owned(), "string".into())]);
        }
        if placeholder.is_repeated {
            schema = Map::from_iter([("type".to_owned(), "array".into()), ("items".to_owned(), schema.into())]);
        }
        schema.insert("description".to_owned(), describe(description, &shown(placeholder)).into());
        let wire = placeholder.name.to_lowercase().replace('|', "_or_").replace(' ', "_");
        let name = self.property(&wire, "argument", schema.into());
        if is_required {
            self.required.push(name.as_str().into());
        }
        self.argv.push(format!("{{{{ {name} }}}}").into());
    }

    /// Adds a list of all positional arguments.
    fn arguments(&mut self, description: &str, dashes: Option<usize>) {
        let schema = json!({"type": "array", "items": {"type": "string"}, "description": description});
        let name = self.property("arguments", "positional", schema);
        if dashes == Some(0) {
            self.argv.push("--".into());
        }
        self.argv.push(format!("{{{{ {name} }}}}").into());
    }
}

/// A placeholder in words.
fn shown(placeholder: &Placeholder) -> String {
    placeholder.name.to_lowercase().replace('|', " or ").replace(['_', '-'], " ")
}

/// A description for a model: the help's, without what a schema says better, or the name.
fn describe(text: &str, name: &str) -> String {
    let text = one_line(&without_notes(text), MAX_OPTION_CHARS);
    if text.is_empty() {
        return sentence(&name.trim_start_matches('-').replace(['-', '_'], " "));
    }
    // npm cuts its descriptions after a line.
    let last = text.rsplit(' ').next().unwrap_or_default();
    let is_cut = text.ends_with(',') || ["a", "an", "and", "any", "that", "the", "than", "with", "be"].contains(&last);
    sentence(&if is_cut { format!("{}…", text.trim_end_matches(',')) } else { text })
}

/// Removes `[possible values: …]` and the like, which stand in `enum`.
fn without_notes(text: &str) -> String {
    let mut text = text.to_owned();
    for start in ["[possible values:", "[env:", "[aliases:", "[short aliases:"] {
        while let Some(at) = text.find(start) {
            let end = text[at..].find(']').map_or(text.len(), |end| at + end + 1);
            text.replace_range(at..end, "");
        }
    }
    match text.find("Possible values:") {
        Some(at) => text[..at].to_owned(),
        None => text,
    }
}

fn schema_of(placeholder: &Placeholder, description: &str) -> Map<String, Value> {
    let choices =
        if placeholder.choices.is_empty() { described_choices(description) } else { placeholder.choices.clone() };
    let mut schema = Map::new();
    let kind = match placeholder.name.to_lowercase().as_str() {
        _ if !choices.is_empty() => "string",
        "n" | "num" | "number" | "int" | "uint" | "integer" | "count" | "uint16" | "uint32" | "uint64" | "int64" => {
            "integer"
        }
        "float" | "float64" | "double" | "decimal" => "number",
        _ => "string",
    };
    schema.insert("type".to_owned(), kind.into());
    if !choices.is_empty() {
        schema.insert("enum".to_owned(), choices.into());
    }
    schema
}

/// The values that a description lists: `[possible values: a, b]`, `(choices: a, b)`, gh's `{open|closed|all}`.
fn described_choices(description: &str) -> Vec<String> {
    let braced = description.find(": {").and_then(|at| description[at + 3..].split('}').next());
    let listed = ["[possible values: ", "(choices: ", "choices: {"].iter().find_map(|start| {
        let at = description.find(start)? + start.len();
        description[at..].split([']', ')', '}']).next()
    });
    let text = listed.or(braced.filter(|text| text.contains('|'))).unwrap_or_default();
    let choices: Vec<_> = text.split([',', '|']).map(|it| it.trim().to_owned()).filter(|it| !it.is_empty()).collect();
    let are_words = choices.len() > 1 && choices.iter().all(|it| !it.contains(' ') && !it.contains("..."));
    if are_words { choices } else { Vec::new() }
}

fn is_repeatable(description: &str) -> bool {
    let lower = description.to_lowercase();
    ["multiple times", "more than once", "several times", "can be repeated", "may be repeated", "repeatable"]
        .iter()
        .any(|words| lower.contains(words))
}
