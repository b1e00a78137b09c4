//! The `script` runner's settings: a program that calls other subtools.

use ground::base::template;
use protocol::tool_scope::ToolScope;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_with_macros::skip_serializing_none;

use super::{DefinitionMistake, DefinitionMistakes, Settings, TextKind};

/// The subtool that runs programs of callers.
pub const OF_CALLERS: &str = "run_script";
/// The largest file with a program, in bytes.
pub const MAX_FILE_BYTES: u64 = 1 << 20;

/// A program in JavaScript. Each subtool is a function of it, and what it returns is the result.
#[skip_serializing_none]
#[derive(Debug, Clone, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Script {
    /// The program, as the body of an async function: a template.
    #[schemars(example = "{{ source }}")]
    pub source: Option<String>,
    /// Instead of `source`: the name of a file beside that of the definition, which has the program as it is written.
    #[schemars(example = "late_orders.js", regex(pattern = r"^[^./][^/]*\.js$"))]
    pub file: Option<String>,
    /// What is in `file`, since the definition was loaded.
    #[serde(skip)]
    pub content: Option<String>,
    /// The subtools that it may call: names and globs. Absent: all that its caller may use.
    #[schemars(example = ["shop_*", "ask_user"])]
    pub calls: Option<Vec<String>>,
    /// What the program knows as `input`: a template. Absent: the input of the subtool.
    pub input: Option<Value>,
}

/// Where the program stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ScriptText<'a> {
    Template(&'a str),
    Constant(&'a str),
}

impl Script {
    /// The program. One without a program is not loaded.
    pub fn text(&self) -> ScriptText<'_> {
        match (&self.content, &self.source) {
            (Some(content), _) => ScriptText::Constant(content),
            (None, source) => ScriptText::Template(source.as_deref().unwrap_or_default()),
        }
    }

    /// Whether its program is up to its caller.
    pub fn runs_any_program(&self) -> bool {
        matches!(self.text(), ScriptText::Template(source) if !template::is_constant(source))
    }

    /// Whether a file of a definition may have this name: it lies beside that, and is found as a program.
    pub fn is_file_name(name: &str) -> bool {
        name.strip_suffix(".js").is_some_and(|stem| !stem.is_empty()) && !name.contains('/') && !name.starts_with('.')
    }
}

impl Settings for Script {
    fn check(&self) -> Vec<DefinitionMistake> {
        let Self { source, file, content, calls, .. } = self;
        let mut mistakes = DefinitionMistakes::default();
        let is_blank = |text: &Option<String>| text.as_ref().is_some_and(|text| text.trim().is_empty());
        let program = match (source, file) {
            (Some(_), Some(_)) => {
                Err(DefinitionMistake::new("file", &"there is a `source` too; leave one of them out"))
            }
            (None, None) => {
                Err(DefinitionMistake::new("source", &"there is no program; write one, or name its `file`"))
            }
            (_, Some(name)) if !Self::is_file_name(name) => Err(DefinitionMistake::new(
                "file",
                &"it is the name of a file beside this one that ends with `.js`, without a folder",
            )),
            _ if is_blank(source) => Err(DefinitionMistake::new("source", &"there is no program")),
            _ if is_blank(content) => Err(DefinitionMistake::new("file", &"the file is empty")),
            _ => Ok(()),
        };
        mistakes.note(program);
        let scope = ToolScope::default().narrowed(calls.clone().unwrap_or_default());
        mistakes.note(scope.map(drop).map_err(|error| DefinitionMistake::new("calls", &error)));
        mistakes.into_vec()
    }

    fn text_kind(&self, place: &str) -> TextKind {
        if place == "file" || place.starts_with("calls") { TextKind::Constant } else { TextKind::Template }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn mistakes(script: Value, content: Option<&str>) -> Vec<String> {
        let script: Script = serde_json::from_value(script).expect("settings");
        let script = Script { content: content.map(str::to_owned), ..script };
        script.check().into_iter().map(|mistake| mistake.place).collect()
    }

    #[test]
    fn a_script_has_one_program_and_its_file_lies_beside_the_definition() {
        assert!(mistakes(json!({"source": "return 1"}), None).is_empty());
        let filed = json!({"file": "late.js", "calls": ["shop_*", "ask_user"]});
        assert!(mistakes(filed.clone(), Some("return 1")).is_empty());
        assert_eq!(mistakes(filed, Some(" \n")), ["file"]);
        for (wrong, place) in [
            (json!({}), "source"),
            (json!({"source": " \n"}), "source"),
            (json!({"source": "return 1", "file": "late.js"}), "file"),
            (json!({"file": "../late.js"}), "file"),
            (json!({"file": "/etc/late.js"}), "file"),
            (json!({"file": ".js"}), "file"),
            (json!({"file": ".late.js"}), "file"),
            (json!({"file": "late.json"}), "file"),
            (json!({"source": "return 1", "calls": ["ok", "a[b"]}), "calls"),
        ] {
            assert_eq!(mistakes(wrong.clone(), None), [place], "{wrong}");
        }
    }
}
