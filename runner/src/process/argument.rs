//! Fills `argv`.
//!
//! Each rendered value is one argument, whatever it contains; only a list becomes several. A value never becomes
//! an option: an argument whose template *begins* with a reference must not begin with `-`, unless the constant
//! `--` precedes it. For an option with a value, the definition writes both as one argument,
//! `--author={{ author }}`. (`--end-of-options` is not enough: some git commands accept it but ignore it.)

use std::ffi::OsString;
use std::path::Path;

use definition::run::process::{Argument, ConditionalArguments, EachItem, InputFile, OutputFile};
use ground::base::template::{self, TemplateValues};
use ground::task::failure::Failure;
use protocol::code::Code;
use serde_json::Value;

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
}
