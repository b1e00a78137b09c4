//! Finds the constants of a script that may become inputs: `const days = 30;` at its top, outside of all blocks.
//!
//! Reads letters instead of parsing, like `names.rs`: what it does not understand for certain is no such constant.

use std::collections::BTreeSet;
use std::ops::Range;

use serde_json::Value;

use crate::names::code_of;

/// What follows a value that goes on: `30 * 24`, or a line that begins with `.`.
const GOES_ON: [char; 20] =
    ['+', '-', '*', '/', '%', '?', ':', '&', '|', '^', '<', '>', '=', '!', '.', '(', '[', '`', ',', '"'];

/// A constant whose value is written out.
#[derive(Debug, Clone, PartialEq)]
pub struct ScriptConstant {
    pub name: String,
    pub value: Value,
    /// Where the value stands in the source, in bytes.
    place: Range<usize>,
}

/// The constants at the top of `source`, in the order in which they stand.
pub fn constants(source: &str) -> Vec<ScriptConstant> {
    let letters: Vec<(usize, char)> = source.char_indices().collect();
    // Letter for letter as long as the source.
    let code: Vec<char> = code_of(source).chars().collect();
    let reader = Reader { source, letters: &letters, code: &code };
    let (mut found, mut depth, mut is_statement) = (Vec::new(), 0_usize, true);
    let mut at = 0;
    while let Some(letter) = code.get(at) {
        match letter {
            '{' | '(' | '[' => depth += 1,
            '}' | ')' | ']' => depth = depth.saturating_sub(1),
            _ => {}
        }
        let starts_here = depth == 0 && is_statement;
        if starts_here && let Some((constant, end)) = reader.constant(at) {
            found.push(constant);
            at = end;
            continue;
        }
        is_statement = matches!(letter, ';' | '\n' | '}') || (is_statement && letter.is_whitespace());
        at += 1;
    }
    // One that is declared twice in a program that runs is another one in each block.
    let mut seen = BTreeSet::new();
    found.retain(|constant| seen.insert(constant.name.clone()));
    found
}

/// Whether `source` declares a constant of this name, wherever and with whatever value.
pub fn declares(source: &str, name: &str) -> bool {
    let code = code_of(source);
    code.match_indices("const").any(|(at, word)| {
        let rest = &code[at + word.len()..];
        let after = rest.trim_start().strip_prefix(name);
        let ends = |after: &str| !after.starts_with(|letter: char| letter.is_alphanumeric() || letter == '_');
        rest.starts_with(char::is_whitespace) && after.is_some_and(ends)
    })
}

/// The source in which each of `constants`, which are its own, has the value of the input with its name.
pub fn with_inputs(source: &str, constants: &[ScriptConstant]) -> String {
    let mut changed = String::with_capacity(source.len());
    let mut end = 0;
    for ScriptConstant { name, place, .. } in constants {
        changed.push_str(&source[end..place.start]);
        changed.push_str("input.");
        changed.push_str(name);
        end = place.end;
    }
    changed.push_str(&source[end..]);
    changed
}

struct Reader<'a> {
    source: &'a str,
    /// Each letter of the source with its place.
    letters: &'a [(usize, char)],
    /// The same without comments, and without what texts contain.
    code: &'a [char],
}

impl Reader<'_> {
    /// The constant that is declared at `at`, and the index of the letter after its value.
    fn constant(&self, at: usize) -> Option<(ScriptConstant, usize)> {
        let at = self.keyword("const", at)?;
        let name_end = self.while_in(at, |letter| letter.is_ascii_alphanumeric() || letter == '_' || letter == '$');
        let name: String = self.code[at..name_end].iter().collect();
        let at = self.blanks(name_end);
        if name.is_empty() || name == "input" || self.code.get(at) != Some(&'=') {
            return None;
        }
        let start = self.blanks(at + 1);
        let end = self.value_end(start)?;
        let place = self.place(start)..self.place(end);
        let value = parse(&self.source[place.clone()])?;
        self.ends_at(end).then_some((ScriptConstant { name, value, place }, end))
    }

    /// The place after a keyword and the blanks behind it.
    fn keyword(&self, word: &str, at: usize) -> Option<usize> {
        let end = at + word.len();
        let is_word = self.code.get(at..end)?.iter().copied().eq(word.chars());
        let after = self.blanks(end);
        (is_word && after > end).then_some(after)
    }

    fn while_in(&self, from: usize, holds: impl Fn(char) -> bool) -> usize {
        self.code[from..].iter().position(|letter| !holds(*letter)).map_or(self.code.len(), |length| from + length)
    }

    fn blanks(&self, from: usize) -> usize {
        self.while_in(from.min(self.code.len()), char::is_whitespace)
    }

    fn place(&self, index: usize) -> usize {
        self.letters.get(index).map_or(self.source.len(), |(place, _)| *place)
    }

    /// Where the value ends that begins at `start`, if it may be one that is written out.
    fn value_end(&self, start: usize) -> Option<usize> {
        let first = *self.code.get(start)?;
        match first {
            // What a text contains is blank in the code.
            '"' | '\'' => Some(self.while_in(start + 1, |letter| letter != first) + 1),
            '[' | '{' => {
                let mut depth = 0_usize;
                let ends = |letter: &char| {
                    depth += usize::from(matches!(letter, '[' | '{'));
                    depth -= usize::from(matches!(letter, ']' | '}'));
                    depth == 0
                };
                Some(start + self.code[start..].iter().position(ends)? + 1)
            }
            _ => {
                Some(self.while_in(start, |letter| letter.is_ascii_alphanumeric() || matches!(letter, '-' | '.' | '_')))
            }
        }
    }

    /// Whether the statement ends at `end`.
    fn ends_at(&self, end: usize) -> bool {
        let on_line = self.while_in(end.min(self.code.len()), |letter| letter.is_whitespace() && letter != '\n');
        match self.code.get(on_line) {
            None | Some(';') => true,
            Some('\n') => self.code.get(self.blanks(on_line)).is_none_or(|next| !GOES_ON.contains(next)),
            Some(_) => false,
        }
    }
}

/// The value of a number, a text, a truth value, or a list or an object of such. An empty one is what a program fills.
fn parse(text: &str) -> Option<Value> {
    let is_empty = |value: &Value| match value {
        Value::Array(items) => items.is_empty(),
        Value::Object(fields) => fields.is_empty(),
        _ => value.is_null(),
    };
    let single = text.strip_prefix('\'').and_then(|text| text.strip_suffix('\''));
    match single {
        Some(content) if content.contains(['\\', '"']) => None,
        Some(content) => Some(Value::String(content.to_owned())),
        None => serde_json::from_str(text).ok().filter(|value| !is_empty(value)),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn found(source: &str) -> Vec<(String, Value)> {
        constants(source).into_iter().map(|constant| (constant.name, constant.value)).collect()
    }

    #[test]
    fn what_is_written_out_at_the_top_is_a_constant() {
        let source = "// const not = 1;\nconst days = 30;\nconst city = 'Köln'; const rate = -1.5\nconst on = true;\n\
            const names = [\"a\", \"b\"];\nconst shape = {\"a\": [1]};\nconst text = \"a; const b = 2\";\nreturn days";
        let expected = [
            ("days", json!(30)),
            ("city", json!("Köln")),
            ("rate", json!(-1.5)),
            ("on", json!(true)),
            ("names", json!(["a", "b"])),
            ("shape", json!({"a": [1]})),
            ("text", json!("a; const b = 2")),
        ];
        assert_eq!(found(source), expected.map(|(name, value)| (name.to_owned(), value)));
    }

    #[test]
    fn what_is_computed_changed_or_in_a_block_is_none() {
        for source in [
            "let days = 30;",
            "const days = 30 * 24;",
            "const days = 30\n  * 24;",
            "const all = [1, 2]\n.map(x => x);",
            "const text = 'it\\'s';",
            "const text = `a`;",
            "const a = 1, b = 2;",
            "const {a} = 1;",
            "const nothing = null;",
            "const all = [];",
            "const byCity = {};",
            "const input = 3;",
            "const found = await find({});",
            "const f = async () => { const days = 30; };",
            "if (true) { const days = 30; }",
            "for (const day = 1;;) {}",
            "const list = [days];",
            "const date = 2026-01-01;",
            "const hex = 0x10;",
            "const days",
            "const days =",
            "const text = \"abc",
            "const list = [1",
            "myconst days = 3;",
        ] {
            assert_eq!(found(source), [], "{source}");
        }
        assert_eq!(found("const a = 1;\n{ const a = 2; }\nconst a = 3;").len(), 1, "the first one counts");
    }

    #[test]
    fn a_constant_that_is_no_input_is_known_as_one() {
        let source = "const late = rows.filter(x => x);\n// const not = 1;\n{ const\n inner = 1 }\nconst later = 2;";
        let known = ["late", "inner", "later", "not", "rows", "lat"].map(|name| declares(source, name));
        assert_eq!(known, [true, true, true, false, false, false]);
    }

    #[test]
    fn the_constants_become_inputs_where_they_stand() {
        let source = "const city = 'Köln';\nconst days = 30;\nreturn `${city} ${days}`;";
        let all = constants(source);
        let changed = with_inputs(source, &all);
        assert_eq!(changed, "const city = input.city;\nconst days = input.days;\nreturn `${city} ${days}`;");
        assert_eq!(with_inputs(source, &all[1..]), source.replace("= 30", "= input.days"));
        assert_eq!(with_inputs(source, &[]), source);
    }
}
