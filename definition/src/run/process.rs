//! The process runner's settings: one program, and how it is started.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use encoding_rs::Encoding;
use ground::base::template;
use ground::config::programs::{self, ProgramSettings};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_with_macros::skip_serializing_none;

use super::{DefinitionMistake, DefinitionMistakes, Settings, TextKind};

mod argument;
mod shell_text;

pub use argument::{Argument, ConditionalArguments, EachItem, InputFile, OutputFile};

/// The default for `max_bytes`.
pub const MAX_BYTES: u64 = 1 << 20;

/// A program and how it is started.
#[skip_serializing_none]
#[derive(Debug, Clone, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Process {
    /// The program (a constant: an absolute path, or a name to look up in `PATH`), then its arguments.
    #[schemars(length(min = 1), example = ["git", "log", "--", "{{ path }}"])]
    pub argv: Vec<Argument>,
    /// Its standard input: a template; a value that is not text is written as JSON. Absent: no input.
    pub stdin: Option<Value>,
    /// Environment variables in addition to `PATH`, `HOME`, `LANG`, `TMPDIR` and `USER`: templates, or
    /// `secret:NAME`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub env: BTreeMap<String, String>,
    /// Other files and folders that an approval is bound to, such as what a script includes: absolute, or relative to
    /// the folder in which the program runs. They are compared directly before it starts.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub covers: Vec<String>,
    /// The working directory: a template, relative to the caller's folder. Absent: the caller's folder.
    pub folder: Option<String>,
    /// The allowed values of the first argument. Absent: any.
    #[schemars(length(min = 1))]
    pub allow: Option<Vec<String>>,
    /// Whether a value of the input may begin with `-` and so become an option of the program. Absent: false.
    #[serde(default)]
    pub allow_options: bool,
    /// How to read standard output. Absent: `text`.
    #[serde(default)]
    pub output: ProcessOutput,
    /// The content type of a file that it prints or writes. Absent: the type of its name's extension.
    #[schemars(example = "image/png")]
    pub content_type: Option<String>,
    /// The encoding of the text it prints. Absent: UTF-8.
    #[schemars(example = "windows-1252")]
    pub encoding: Option<String>,
    /// The most bytes it may print to each of stdout and stderr before it is killed. Absent: 1 MiB.
    #[serde(default = "max_bytes")]
    #[schemars(range(min = 1))]
    pub max_bytes: u64,
    /// The exit statuses that mean success. Absent: only 0.
    #[serde(default = "ok_statuses")]
    #[schemars(length(min = 1))]
    pub ok_statuses: Vec<u8>,
}

/// How to read standard output.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ProcessOutput {
    /// As one text, without trailing line breaks.
    #[default]
    Text,
    /// As a JSON document.
    Json,
    /// As an array of lines.
    Lines,
    /// Byte by byte as a file, as for an image or an archive.
    File,
}

fn max_bytes() -> u64 {
    MAX_BYTES
}

fn ok_statuses() -> Vec<u8> {
    vec![0]
}

impl Settings for Process {
    fn check(&self) -> Vec<DefinitionMistake> {
        let mut found = DefinitionMistakes::default();
        found.note(self.check_argv());
        found.note(shell_text::check(&self.argv));
        self.env.keys().for_each(|name| found.note(check_variable(name)));
        found.note(self.check_output_file());
        if self.encoding.as_ref().is_some_and(|label| Encoding::for_label(label.as_bytes()).is_none()) {
            found.note(Err(DefinitionMistake::new("encoding", &"no encoding of that name; one is `windows-1252`")));
        }
        if self.covers.iter().any(|file| file.is_empty() || file.contains('\0')) {
            found.note(Err(DefinitionMistake::new("covers", &"name files; one of the names is empty")));
        }
        if self.max_bytes == 0 {
            found.note(Err(DefinitionMistake::new("max_bytes", &"it must be at least 1")));
        }
        if self.ok_statuses.is_empty() {
            found.note(Err(DefinitionMistake::new("ok_statuses", &"name at least one exit status")));
        }
        found.into_vec()
    }

    fn text_kind(&self, place: &str) -> TextKind {
        match place.split(['.', '[']).next().unwrap_or_default() {
            "allow" | "covers" | "output" | "content_type" | "encoding" => TextKind::Constant,
            "argv" if place.ends_with("].output_file") || place.ends_with("].prefix") => TextKind::Constant,
            "env" => TextKind::TemplateOrSecret,
            "argv" if place.ends_with("].if") => TextKind::Condition,
            // That the program is a constant is checked with its own message.
            _ => TextKind::Template,
        }
    }
}

impl Process {
    /// Whether the input names files that the program reads.
    pub fn reads_files(&self) -> bool {
        self.argv.iter().any(|argument| matches!(argument, Argument::InputFile(_)))
    }

    /// Returns the program as the definition names it.
    pub fn program(&self) -> &str {
        match self.argv.first() {
            Some(Argument::Template(program)) => program,
            Some(Argument::When(_) | Argument::Each(_) | Argument::OutputFile(_) | Argument::InputFile(_)) | None => "",
        }
    }

    /// The program, if it is always the same one and found where all programs are.
    pub fn constant_program(&self) -> Option<&str> {
        Some(self.program()).filter(|program| template::is_constant(program) && !self.env.contains_key("PATH"))
    }

    /// Returns the file of the program, if it is one that can be started. A `PATH` that the definition sets counts if it
    /// is constant.
    pub fn find(&self, settings: &ProgramSettings) -> Option<PathBuf> {
        let own = self.env.get("PATH").filter(|path| template::is_constant(path));
        let folders = own.map_or_else(|| settings.path.clone(), |path| std::env::split_paths(path).collect());
        programs::find(Path::new(self.program()), folders).filter(|found| programs::is_program(found))
    }

    fn check_output_file(&self) -> Result<(), DefinitionMistake> {
        let mut files = self.argv.iter().enumerate().filter_map(|(index, argument)| match argument {
            Argument::OutputFile(file) => Some((index, file)),
            Argument::Template(_) | Argument::When(_) | Argument::Each(_) | Argument::InputFile(_) => None,
        });
        let Some((index, OutputFile { output_file: name, .. })) = files.next() else {
            let printed = self.output == ProcessOutput::File;
            return match &self.content_type {
                Some(_) if !printed => {
                    Err(DefinitionMistake::new("content_type", &"only a file has one: set `\"output\": \"file\"`"))
                }
                _ => Ok(()),
            };
        };
        let place = format!("argv[{index}].output_file");
        if name.is_empty() || name.contains(['/', '\0']) || name == "." || name == ".." {
            return Err(DefinitionMistake::new(place, &"it is the name of a file, without a folder"));
        }
        if let Some((index, _)) = files.next() {
            return Err(DefinitionMistake::new(format!("argv[{index}]"), &"a program can have one output file"));
        }
        if self.output != ProcessOutput::Text {
            return Err(DefinitionMistake::new("output", &"leave it out: the data is the output file"));
        }
        Ok(())
    }

    fn check_argv(&self) -> Result<(), DefinitionMistake> {
        match self.argv.first() {
            None => return Err(DefinitionMistake::new("argv", &"it is empty; the first element names the program")),
            Some(Argument::Template(program)) if template::is_constant(program) => {
                let relative = program.contains('/') && !program.starts_with('/');
                if program.is_empty() || relative {
                    return Err(DefinitionMistake::new(
                        "argv[0]",
                        &"the program must be an absolute path, or a name without `/`",
                    ));
                }
            }
            Some(_) => {
                return Err(DefinitionMistake::new("argv[0]", &"the program must be a constant, not a template"));
            }
        }
        let Some(allow) = &self.allow else { return Ok(()) };
        if allow.is_empty() {
            return Err(DefinitionMistake::new("allow", &"it is empty; leave it out to allow any first argument"));
        }
        match self.argv.get(1) {
            None => Err(DefinitionMistake::new("allow", &"there is no first argument to allow")),
            Some(Argument::Template(first)) if template::is_constant(first) && !allow.contains(first) => {
                Err(DefinitionMistake::new("argv[1]", &format!("`allow` does not contain `{first}`")))
            }
            Some(_) => Ok(()),
        }
    }
}

fn check_variable(name: &str) -> Result<(), DefinitionMistake> {
    if name.is_empty() || name.contains(['=', '\0']) {
        // The message does not quote the name: the text after the `=` may be a secret.
        let message = "the name of an environment variable must not be empty or contain `=`";
        return Err(DefinitionMistake::new("env", &message));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_mistake_in_a_definition_names_its_field() {
        let cases = [
            (json!({"argv": []}), "argv"),
            (json!({"argv": ["{{ program }}"]}), "argv[0]"),
            (json!({"argv": [{"if": "a", "args": ["x"]}]}), "argv[0]"),
            (json!({"argv": ["./tool"]}), "argv[0]"),
            (json!({"argv": ["a", "b"], "allow": []}), "allow"),
            (json!({"argv": ["a"], "allow": ["b"]}), "allow"),
            (json!({"argv": ["a", "c"], "allow": ["b"]}), "argv[1]"),
            (json!({"argv": ["a"], "env": {"A=B": "x"}}), "env"),
            (json!({"argv": ["sh", "-c", "grep {{ word }} notes"]}), "argv[2]"),
            (
                json!({"argv": ["env", "/bin/bash", "-ec", "--", {"if": "word", "args": ["echo {{ word }}"]}]}),
                "argv[4]",
            ),
            (json!({"argv": ["python3", "-c", "print('{{ word }}')"]}), "argv[2]"),
            (json!({"argv": ["a", {"output_file": "a/b"}]}), "argv[1].output_file"),
            (json!({"argv": ["a", {"output_file": "b"}, {"output_file": "c"}]}), "argv[2]"),
            (json!({"argv": ["a", {"output_file": "b"}], "output": "json"}), "output"),
            (json!({"argv": ["a"], "content_type": "image/png"}), "content_type"),
            (json!({"argv": ["a"], "encoding": "klingon"}), "encoding"),
            (json!({"argv": ["a"], "max_bytes": 0}), "max_bytes"),
            (json!({"argv": ["a"], "ok_statuses": []}), "ok_statuses"),
        ];
        for (definition, place) in cases {
            let process: Process = serde_json::from_value(definition.clone()).expect("a definition of the right types");
            let places: Vec<_> = process.check().into_iter().map(|mistake| mistake.place).collect();
            assert_eq!(places, [place], "{definition}");
        }
        for argv in [
            json!(["sh", "-c", "grep \"$1\" notes", "sh", "{{ word }}"]),
            // The whole line is the input on purpose, as in the shipped shell pack.
            json!(["sh", "-c", "--", "{{ command }}"]),
            json!(["grep", "-c", "{{ word }}x"]),
        ] {
            let process: Process = serde_json::from_value(json!({"argv": argv})).expect("a definition");
            assert_eq!(process.check(), [], "{argv}");
        }
        assert!(serde_json::from_value::<Process>(json!({"argv": ["a"], "shell": true})).is_err());
    }
}
