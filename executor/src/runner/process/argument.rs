//! One element of `argv`: a template, several templates under a condition, or an option for each item of a list.
//!
//! Each rendered value is one argument, whatever it contains; only a list becomes several. A value never becomes
//! an option: an argument whose template *begins* with a reference must not begin with `-`, unless the constant
//! `--` precedes it. For an option with a value, the definition writes both as one argument,
//! `--author={{ author }}`. (`--end-of-options` is not enough: some git commands accept it but ignore it.)

use std::borrow::Cow;
use std::ffi::OsString;
use std::fmt;
use std::path::Path;

use ground::base::template::{self, TemplateValues};
use ground::task::failure::Failure;
use protocol::code::Code;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::value::MapAccessDeserializer;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use serde_json::{Map, Value};

/// An element of `argv`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Argument {
    /// One argument. If the template is exactly one reference, a list becomes several arguments, and an absent or
    /// null value becomes none.
    Template(String),
    /// Arguments under a condition, like a flag or an option with its value.
    When(ConditionalArguments),
    /// One argument for each item of a list.
    Each(EachItem),
    /// The path of a file that the program writes.
    OutputFile(OutputFile),
    /// A file that the program reads.
    InputFile(InputFile),
}

impl Argument {
    /// Its text, if that never changes.
    pub(super) fn constant(&self) -> Option<&str> {
        match self {
            Self::Template(text) if template::is_constant(text) => Some(text),
            Self::Template(_) | Self::When(_) | Self::Each(_) | Self::OutputFile(_) | Self::InputFile(_) => None,
        }
    }
}

/// An argument that is a file which the program reads. It must lie in the folders of `[files] roots`; the program gets
/// it opened, by a path like `/proc/self/fd/5`, and an approval is bound to its content.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct InputFile {
    /// The path of the file, as in `{{ path }}`: a template. A list becomes several arguments, an absent value none.
    pub input_file: String,
    /// What precedes the path in each argument, as in `--config=` or `@`. Absent: nothing.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub prefix: String,
}

/// An option that is given once for each item of a list.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct EachItem {
    /// The list, as in `{{ labels }}`. Absent or empty: no argument.
    pub each: String,
    /// What precedes each item in its argument, as in `--label=`.
    pub prefix: String,
}

/// An argument that is the path of a new file in an empty folder. The program writes it, and it becomes the data.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct OutputFile {
    /// The file's name, as in `report.pdf`: some programs choose the format by its extension.
    pub output_file: String,
    /// What precedes the path in the argument, as in `--output=`. Absent: nothing.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub prefix: String,
}

/// Arguments that are passed only if the condition holds.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ConditionalArguments {
    /// An expression over the input, like `author` or `limit > 0`; an absent field counts as false.
    #[serde(rename = "if")]
    pub condition: String,
    /// Templates, as in `argv`.
    pub args: Vec<String>,
}

/// An argument that is filled in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum FilledArgument {
    Text(String),
    OutputFile(OutputFile),
    InputFile {
        prefix: String,
        /// As the input names it.
        path: String,
    },
}

impl FilledArgument {
    /// The argument in a plan, where the folder of the output is not known yet.
    pub(super) fn shown(&self) -> String {
        match self {
            Self::Text(text) => text.clone(),
            Self::OutputFile(OutputFile { output_file, prefix }) => format!("{prefix}OUTPUT_FOLDER/{output_file}"),
            Self::InputFile { prefix, path } => format!("{prefix}{path}"),
        }
    }

    /// The argument of a program whose output is in `folder`, and which opens the file that it reads by `input`.
    pub(super) fn with_files(&self, folder: &Path, input: Option<&Path>) -> OsString {
        match self {
            Self::Text(text) => text.into(),
            Self::InputFile { prefix, path } => {
                let mut argument = OsString::from(prefix);
                argument.push(input.unwrap_or(Path::new(path)));
                argument
            }
            Self::OutputFile(OutputFile { output_file, prefix }) => {
                let mut argument = OsString::from(prefix);
                argument.push(folder.join(output_file));
                argument
            }
        }
    }
}

/// Renders the arguments of `argv`.
pub(super) fn render(
    argv: &[Argument],
    scope: &TemplateValues,
    options: ArgumentOptions,
) -> Result<Vec<FilledArgument>, Failure> {
    let mut arguments = Arguments { rendered: Vec::with_capacity(argv.len()), options };
    for argument in argv {
        match argument {
            Argument::Template(text) => arguments.add(text, scope)?,
            Argument::When(ConditionalArguments { condition, args }) => {
                if scope.holds(condition)? {
                    args.iter().try_for_each(|text| arguments.add(text, scope))?;
                }
            }
            Argument::Each(EachItem { each, prefix }) => arguments.add_each(each, prefix, scope)?,
            Argument::OutputFile(file) => arguments.rendered.push(FilledArgument::OutputFile(file.clone())),
            Argument::InputFile(file) => arguments.add_files(file, scope)?,
        }
    }
    Ok(arguments.rendered)
}

/// The texts of those arguments of `argv` that the input fills and that are not declared to be files.
pub(super) fn filled_by_input(argv: &[Argument], scope: &TemplateValues) -> Result<Vec<String>, Failure> {
    let is_filled = |text: &String| !template::is_constant(text);
    let filled = argv.iter().filter_map(|argument| match argument {
        Argument::Template(text) => is_filled(text).then(|| argument.clone()),
        Argument::When(ConditionalArguments { condition, args }) => {
            let filled = args.iter().filter(|text| is_filled(text)).cloned().collect();
            Some(Argument::When(ConditionalArguments { condition: condition.clone(), args: filled }))
        }
        Argument::Each(_) => Some(argument.clone()),
        Argument::OutputFile(_) | Argument::InputFile(_) => None,
    });
    let filled: Vec<_> = filled.collect();
    Ok(render(&filled, scope, ArgumentOptions::Allowed)?.iter().map(FilledArgument::shown).collect())
}

/// Whether a value may become an option of the program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ArgumentOptions {
    Refused,
    Allowed,
}

struct Arguments {
    rendered: Vec<FilledArgument>,
    options: ArgumentOptions,
}

impl Arguments {
    fn add(&mut self, template: &str, scope: &TemplateValues) -> Result<(), Failure> {
        let guarded =
            self.options == ArgumentOptions::Refused && (template.starts_with("{{") || template.starts_with("{%"));
        match scope.value(&Value::String(template.to_owned()))? {
            None => {}
            Some(Value::Array(items)) => {
                items.into_iter().filter_map(text).try_for_each(|argument| self.push(argument, guarded))?;
            }
            Some(value) => text(value).into_iter().try_for_each(|argument| self.push(argument, guarded))?,
        }
        if template == "--" {
            self.options = ArgumentOptions::Allowed;
        }
        Ok(())
    }

    /// Adds the files that the program reads.
    fn add_files(&mut self, file: &InputFile, scope: &TemplateValues) -> Result<(), Failure> {
        let paths = match scope.value(&Value::String(file.input_file.clone()))? {
            None | Some(Value::Null) => Vec::new(),
            Some(Value::Array(items)) => items,
            Some(item) => vec![item],
        };
        for path in paths.into_iter().filter_map(text) {
            if path.contains('\0') {
                return Err(Failure::new(Code::Rejected, "the path of a file contains a NUL byte"));
            }
            self.rendered.push(FilledArgument::InputFile { prefix: file.prefix.clone(), path });
        }
        Ok(())
    }

    /// Adds one argument for each item of a list: the prefix, which is a constant, keeps the item from becoming an option.
    fn add_each(&mut self, list: &str, prefix: &str, scope: &TemplateValues) -> Result<(), Failure> {
        let items = match scope.value(&Value::String(list.to_owned()))? {
            None | Some(Value::Null) => Vec::new(),
            Some(Value::Array(items)) => items,
            Some(item) => vec![item],
        };
        let guarded = prefix.is_empty() && self.options == ArgumentOptions::Refused;
        items.into_iter().filter_map(text).try_for_each(|item| self.push(format!("{prefix}{item}"), guarded))
    }

    fn push(&mut self, argument: String, guarded: bool) -> Result<(), Failure> {
        if argument.contains('\0') {
            let message = format!("argument {} contains a NUL byte", self.rendered.len());
            return Err(Failure::new(Code::Rejected, message).hint("remove it: arguments cannot contain NUL bytes"));
        }
        if guarded && argument.starts_with('-') {
            return Err(Failure::new(Code::Rejected, format!("`{argument}` would be an option of the program"))
                .hint("give a value that does not begin with `-`"));
        }
        self.rendered.push(FilledArgument::Text(argument));
        Ok(())
    }
}

/// A value as one argument: `None` for null; JSON for an object, or for a list within a list.
fn text(value: Value) -> Option<String> {
    match value {
        Value::Null => None,
        Value::String(text) => Some(text),
        other => Some(other.to_string()),
    }
}

impl<'de> Deserialize<'de> for Argument {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Element;

        impl<'de> de::Visitor<'de> for Element {
            type Value = Argument;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(
                    "a template, or an object with `if` and `args`, with `each` and `prefix`, with `output_file`, or \
                     with `input_file`",
                )
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<Argument, E> {
                Ok(Argument::Template(text.to_owned()))
            }

            fn visit_map<A: de::MapAccess<'de>>(self, map: A) -> Result<Argument, A::Error> {
                let fields = Map::deserialize(MapAccessDeserializer::new(map))?;
                let (is_file, is_list) = (fields.contains_key("output_file"), fields.contains_key("each"));
                let is_input = fields.contains_key("input_file");
                let fields = Value::Object(fields);
                let argument = if is_input {
                    InputFile::deserialize(fields).map(Argument::InputFile)
                } else if is_list {
                    EachItem::deserialize(fields).map(Argument::Each)
                } else if is_file {
                    OutputFile::deserialize(fields).map(Argument::OutputFile)
                } else {
                    ConditionalArguments::deserialize(fields).map(Argument::When)
                };
                argument.map_err(de::Error::custom)
            }
        }

        deserializer.deserialize_any(Element)
    }
}

impl Serialize for Argument {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Template(text) => text.serialize(serializer),
            Self::When(when) => when.serialize(serializer),
            Self::Each(list) => list.serialize(serializer),
            Self::OutputFile(file) => file.serialize(serializer),
            Self::InputFile(file) => file.serialize(serializer),
        }
    }
}

impl JsonSchema for Argument {
    fn schema_name() -> Cow<'static, str> {
        "Argument".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "description": "One argument: a template; arguments that are passed only under a condition; an option for each item of a list; the path of a file that the program writes; or a file that it reads.",
            "anyOf": [
                { "type": "string" },
                generator.subschema_for::<ConditionalArguments>(),
                generator.subschema_for::<EachItem>(),
                generator.subschema_for::<OutputFile>(),
                generator.subschema_for::<InputFile>()
            ]
        })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn rendered(argv: Value, input: Value) -> Vec<String> {
        let argv: Vec<Argument> = serde_json::from_value(argv).expect("arguments");
        let Value::Object(input) = input else { panic!("the input is not an object") };
        let filled = render(&argv, &TemplateValues::of_input(&input), ArgumentOptions::Refused);
        filled.expect("valid templates").iter().map(FilledArgument::shown).collect()
    }

    #[test]
    fn a_list_becomes_several_arguments_and_an_absent_value_none() {
        let argv = json!(["git", {"if": "limit", "args": ["-n", "{{ limit }}"]}, {"if": "stat", "args": ["--stat"]},
            "--since={{ since }}", "{{ absent }}", "--", "{{ paths }}"]);
        let input = json!({"limit": 5, "since": "a b", "paths": ["x y", "$(id)", 7, true, null, {"a": 1}]});
        assert_eq!(
            rendered(argv, input),
            ["git", "-n", "5", "--since=a b", "--", "x y", "$(id)", "7", "true", r#"{"a":1}"#]
        );
    }

    #[test]
    fn an_option_is_given_once_for_each_item() {
        let argv =
            json!(["gh", {"each": "{{ labels }}", "prefix": "--label="}, {"each": "{{ absent }}", "prefix": "-x"}]);
        assert_eq!(
            rendered(argv.clone(), json!({"labels": ["a b", "-x", 7]})),
            ["gh", "--label=a b", "--label=-x", "--label=7"]
        );
        assert_eq!(rendered(argv.clone(), json!({"labels": "one"})), ["gh", "--label=one"]);
        assert_eq!(rendered(argv, json!({"labels": []})), ["gh"]);
        assert!(serde_json::from_value::<Argument>(json!({"each": "{{ a }}"})).is_err());
    }

    fn refused(argv: &[&str], input: Value, options: ArgumentOptions) -> Option<Code> {
        let argv: Vec<_> = argv.iter().map(|text| Argument::Template((*text).to_owned())).collect();
        let Value::Object(input) = input else { panic!("the input is not an object") };
        render(&argv, &TemplateValues::of_input(&input), options).err().map(|failure| failure.error.code)
    }

    #[test]
    fn a_nul_byte_is_refused() {
        assert_eq!(refused(&["--", "{{ a }}"], json!({"a": "x\0y"}), ArgumentOptions::Allowed), Some(Code::Rejected));
    }

    #[test]
    fn a_value_never_becomes_an_option() {
        for input in [json!({"a": "--output=x"}), json!({"a": ["x", "-"]}), json!({"a": -5})] {
            assert_eq!(
                refused(&["p", "{{ a }}"], input.clone(), ArgumentOptions::Refused),
                Some(Code::Rejected),
                "{input}"
            );
            assert_eq!(refused(&["p", "{{ a }}", "--"], input.clone(), ArgumentOptions::Refused), Some(Code::Rejected));
            assert_eq!(refused(&["p", "--", "{{ a }}"], input.clone(), ArgumentOptions::Refused), None);
            assert_eq!(refused(&["p", "{{ a }}"], input, ArgumentOptions::Allowed), None);
        }
        assert_eq!(refused(&["p", "--n={{ a }}"], json!({"a": "-5"}), ArgumentOptions::Refused), None);
        assert_eq!(
            refused(&["p", "{{ b }}", "{{ a }}"], json!({"a": "-x", "b": "--"}), ArgumentOptions::Refused),
            Some(Code::Rejected)
        );
    }

    #[test]
    fn an_unknown_key_beside_if_is_an_error() {
        assert!(serde_json::from_value::<Argument>(json!({"if": "a", "args": [], "else": []})).is_err());
        assert!(serde_json::from_value::<Argument>(json!({"output_file": "a", "if": "b"})).is_err());
        assert!(serde_json::from_value::<Argument>(json!(5)).is_err());
    }
}
