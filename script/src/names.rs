//! Reads a script without running it: which names it calls, and what it looks like.
//!
//! Scans letters instead of parsing: what it finds may be too much, and a call through a variable escapes it.

use std::collections::BTreeSet;

/// Words of the language, which are no names.
const KEYWORDS: [&str; 40] = [
    "async",
    "await",
    "break",
    "case",
    "catch",
    "class",
    "const",
    "continue",
    "debugger",
    "default",
    "delete",
    "do",
    "else",
    "export",
    "extends",
    "false",
    "finally",
    "for",
    "function",
    "if",
    "import",
    "in",
    "instanceof",
    "let",
    "new",
    "null",
    "of",
    "return",
    "static",
    "super",
    "switch",
    "this",
    "throw",
    "true",
    "try",
    "typeof",
    "var",
    "void",
    "while",
    "yield",
];
/// What ends a comment: JavaScript has more ends of lines than an editor shows.
const ENDS_OF_LINES: [char; 4] = ['\n', '\r', '\u{2028}', '\u{2029}'];
/// What JavaScript has under these names stays there: a subtool named so is a key of `tools`.
const GLOBALS: [&str; 64] = [
    "AggregateError",
    "Array",
    "ArrayBuffer",
    "BigInt",
    "Boolean",
    "DataView",
    "Date",
    "Denied",
    "Error",
    "EvalError",
    "Float64Array",
    "Function",
    "Infinity",
    "Int32Array",
    "Intl",
    "Iterator",
    "JSON",
    "Map",
    "Math",
    "NaN",
    "Number",
    "Object",
    "OutcomeUnknown",
    "Promise",
    "Proxy",
    "RangeError",
    "ReferenceError",
    "Reflect",
    "RegExp",
    "Set",
    "String",
    "SubtoolError",
    "Symbol",
    "SyntaxError",
    "TextDecoder",
    "TextEncoder",
    "TypeError",
    "URIError",
    "URL",
    "URLSearchParams",
    "Uint8Array",
    "WeakMap",
    "WeakSet",
    "__proto__",
    "arguments",
    "atob",
    "btoa",
    "console",
    "constructor",
    "crypto",
    "enum",
    "eval",
    "globalThis",
    "input",
    "list_tools",
    "queueMicrotask",
    "read",
    "setInterval",
    "setTimeout",
    "sleep",
    "structuredClone",
    "then",
    "tools",
    "undefined",
];
/// Keywords that are values: a slash after them divides.
const VALUES: [&str; 5] = ["this", "super", "null", "true", "false"];
/// A longer text is no name.
const MAX_NAME_BYTES: usize = 200;
/// How alike two names are, from 0 to 1, if one may be a slip for the other.
const MIN_LIKENESS: f64 = 0.85;
/// What a script's only function is called if a model writes a program.
const MAINS: [&str; 4] = ["main", "run", "script", "execute"];

/// Returns the names that `source` may call: each identifier that is not the name of a property, and each key of
/// `tools`. If a key of `tools` is computed, each text may be one.
pub fn called_names(source: &str) -> BTreeSet<String> {
    let mut scanner = Scanner::new(source);
    scanner.scan();
    if scanner.has_computed_key {
        scanner.names.append(&mut scanner.texts);
    }
    scanner.names
}

/// Whether JavaScript, or a script, has something of its own under this name.
pub fn is_global(name: &str) -> bool {
    GLOBALS.contains(&name) || KEYWORDS.contains(&name)
}

/// The source with blanks for comments and for what texts and regular expressions contain.
pub(crate) fn code_of(source: &str) -> String {
    let mut scanner = Scanner::new(source);
    scanner.scan();
    scanner.code
}

/// Whether code that does not parse looks like TypeScript.
pub(crate) fn looks_typed(code: &str) -> bool {
    const TYPES: [&str; 11] =
        ["string", "number", "boolean", "any", "unknown", "void", "never", "Record", "Promise", "Array", "Map"];
    const STARTS: [&str; 6] = ["interface ", "type ", "enum ", "declare ", "namespace ", "abstract class "];
    let is_declared = |line: &str| STARTS.iter().any(|start| line.trim_start().starts_with(start));
    // `name: string`, `<string`, `value as string`
    let is_type = |(at, kind): (usize, &str)| {
        let (before, after) = (code[..at].trim_end(), &code[at + kind.len()..]);
        !after.starts_with(is_word) && (before.ends_with([':', '<']) || code[..at].ends_with(" as "))
    };
    // `const name: Order`, `(name: Order)`
    let is_annotated = |before: &str| {
        code.match_indices(before).any(|(at, _)| {
            let rest = code[at + before.len()..].trim_start();
            let after = rest.trim_start_matches(is_word);
            after.len() < rest.len() && after.trim_start_matches(['?', '!']).starts_with(':')
        })
    };
    code.lines().any(is_declared)
        || ["const ", "let ", "var ", "("].into_iter().any(is_annotated)
        || TYPES.iter().any(|kind| code.match_indices(kind).any(is_type))
        || code.contains(" as const")
        || code.match_indices(" as ").any(|(at, _)| code[at + 4..].starts_with(|letter: char| letter.is_uppercase()))
}

/// The one of `names` that is most like `name`, if one is like it.
pub(crate) fn closest<'a>(name: &str, names: &'a [String]) -> Option<&'a str> {
    let likeness = |known: &String| strsim::jaro_winkler(&name.to_lowercase(), &known.to_lowercase());
    let closest = names.iter().max_by(|left, right| likeness(left).total_cmp(&likeness(right)))?;
    (likeness(closest) >= MIN_LIKENESS).then_some(closest)
}

/// The function that a source declares as its main one and never calls.
pub(crate) fn uncalled_main(source: &str) -> Option<&'static str> {
    let code = code_of(source);
    MAINS.into_iter().find(|name| {
        let declarations = [format!("function {name}("), format!("const {name} ="), format!("let {name} =")];
        let declared = declarations.iter().any(|declaration| code.contains(declaration));
        let uses = code.match_indices(name).filter(|(at, _)| {
            let is_word = |letter: char| letter.is_alphanumeric() || letter == '_' || letter == '$' || letter == '.';
            !code[..*at].ends_with(is_word) && !code[at + name.len()..].starts_with(is_word)
        });
        declared && uses.count() == 1
    })
}

/// Reads a source from its beginning to its end.
struct Scanner<'a> {
    rest: &'a str,
    code: String,
    names: BTreeSet<String>,
    /// What texts contain that can be names.
    texts: BTreeSet<String>,
    has_computed_key: bool,
    last: Token,
    /// What came before `last`.
    before: Token,
    /// For each `${` that is open, how many braces are open inside of it.
    templates: Vec<usize>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Token {
    Start,
    Word(String),
    /// A number, a text or a regular expression.
    Literal,
    Sign(char),
}

impl<'a> Scanner<'a> {
    fn new(source: &'a str) -> Self {
        Self {
            rest: source,
            code: String::with_capacity(source.len()),
            names: BTreeSet::new(),
            texts: BTreeSet::new(),
            has_computed_key: false,
            last: Token::Start,
            before: Token::Start,
            templates: Vec::new(),
        }
    }

    fn scan(&mut self) {
        while let Some(letter) = self.rest.chars().next() {
            let is_tools_key = self.last == Token::Sign('[') && self.before == Token::Word("tools".to_owned());
            if is_tools_key && !letter.is_whitespace() && !matches!(letter, '"' | '\'' | '`') {
                self.has_computed_key = true;
            }
            if letter.is_whitespace() {
                self.copy(letter.len_utf8());
            } else if self.rest.starts_with("//") {
                self.blank(self.rest.find(ENDS_OF_LINES).unwrap_or(self.rest.len()));
            } else if self.rest.starts_with("/*") {
                self.blank(self.rest[2..].find("*/").map_or(self.rest.len(), |end| end + 4));
            } else if letter == '"' || letter == '\'' {
                self.text(letter);
            } else if letter == '`' {
                self.copy(1);
                self.template();
            } else if letter == '/' && self.regex_follows() && self.regex_length().is_some() {
                self.blank(self.regex_length().unwrap_or(1));
                self.token(Token::Literal);
            } else if is_word(letter) {
                self.word();
            } else {
                self.sign(letter);
            }
        }
    }

    fn token(&mut self, token: Token) {
        self.before = std::mem::replace(&mut self.last, token);
    }

    fn copy(&mut self, bytes: usize) {
        let (copied, rest) = self.rest.split_at(bytes);
        self.code.push_str(copied);
        self.rest = rest;
    }

    /// Replaces this much by blanks, and keeps the ends of lines.
    fn blank(&mut self, bytes: usize) {
        let (blanked, rest) = self.rest.split_at(bytes);
        self.code.extend(blanked.chars().map(|letter| if letter == '\n' { '\n' } else { ' ' }));
        self.rest = rest;
    }

    fn text(&mut self, quote: char) {
        let end = self.end_of_text(1, |letter| letter == quote || matches!(letter, '\n' | '\r'));
        let content = &self.rest[1..end];
        if is_tools(&self.before) && self.last == Token::Sign('[') {
            self.names.insert(content.to_owned());
        } else if content.len() <= MAX_NAME_BYTES {
            self.texts.insert(content.to_owned());
        }
        self.copy(1);
        self.blank(end - 1);
        let closing = self.rest.chars().next().filter(|letter| *letter == quote);
        self.copy(closing.map_or(0, char::len_utf8));
        self.token(Token::Literal);
    }

    /// Where a text ends that continues at `from`: the first letter that ends it and is not escaped.
    fn end_of_text(&self, from: usize, ends: impl Fn(char) -> bool) -> usize {
        let mut is_escaped = false;
        let mut letters = self.rest[from..].char_indices();
        let end = letters.find(|(_, letter)| {
            let is_end = !is_escaped && ends(*letter);
            is_escaped = !is_escaped && *letter == '\\';
            is_end
        });
        end.map_or(self.rest.len(), |(at, _)| from + at)
    }

    /// Goes to the end of a template, or into its next `${`.
    fn template(&mut self) {
        loop {
            let end = self.end_of_text(0, |letter| letter == '`' || letter == '$');
            let content = self.rest[..end].to_owned();
            if is_tools(&self.before) && self.last == Token::Sign('[') {
                self.names.insert(content);
            }
            self.blank(end);
            if self.rest.starts_with("${") {
                self.copy(2);
                self.templates.push(0);
                self.token(Token::Sign('{'));
                return;
            }
            if !self.rest.starts_with('$') {
                self.copy(self.rest.len().min(1));
                self.token(Token::Literal);
                return;
            }
            self.blank(1);
        }
    }

    fn word(&mut self) {
        let length = self.rest.find(|letter| !is_word(letter)).unwrap_or(self.rest.len());
        let word = self.rest[..length].to_owned();
        self.copy(length);
        if word.starts_with(|letter: char| letter.is_ascii_digit()) {
            self.token(Token::Literal);
            return;
        }
        let is_property = self.last == Token::Sign('.');
        let is_key = is_property && is_tools(&self.before);
        if is_key || (!is_property && !is_global(&word)) {
            self.names.insert(word.clone());
        }
        self.token(Token::Word(word));
    }

    fn sign(&mut self, letter: char) {
        match (letter, self.templates.last_mut()) {
            ('{', Some(braces)) => *braces += 1,
            ('}', Some(0)) => {
                self.templates.pop();
                self.copy(1);
                self.template();
                return;
            }
            ('}', Some(braces)) => *braces -= 1,
            _ => {}
        }
        // `...name` spreads a variable, and `name?.[key]` is like `name[key]`.
        if self.rest.starts_with("...") {
            self.copy(3);
            self.token(Token::Sign(','));
        } else if self.rest.starts_with("?.") {
            self.copy(2);
            if !self.rest.starts_with(['[', '(']) {
                self.token(Token::Sign('.'));
            }
        } else {
            self.copy(letter.len_utf8());
            self.token(Token::Sign(letter));
        }
    }

    /// Whether a slash begins a regular expression here, and does not divide.
    fn regex_follows(&self) -> bool {
        match &self.last {
            Token::Start => true,
            Token::Word(word) => KEYWORDS.contains(&word.as_str()) && !VALUES.contains(&word.as_str()),
            Token::Literal => false,
            Token::Sign(sign) => !matches!(sign, ')' | ']'),
        }
    }

    /// How long the regular expression is that begins here, if it ends in its line.
    fn regex_length(&self) -> Option<usize> {
        let (mut is_escaped, mut is_class) = (false, false);
        for (at, letter) in self.rest.char_indices().skip(1) {
            match letter {
                letter if ENDS_OF_LINES.contains(&letter) => return None,
                _ if is_escaped => is_escaped = false,
                '\\' => is_escaped = true,
                '[' => is_class = true,
                ']' => is_class = false,
                '/' if !is_class => {
                    let flags = self.rest[at + 1..].find(|letter: char| !letter.is_ascii_lowercase());
                    return Some(flags.map_or(self.rest.len(), |length| at + 1 + length));
                }
                _ => {}
            }
        }
        None
    }
}

/// Whether the properties of this are subtools.
fn is_tools(token: &Token) -> bool {
    matches!(token, Token::Word(word) if word == "tools" || word == "globalThis")
}

fn is_word(letter: char) -> bool {
    letter.is_alphanumeric() || letter == '_' || letter == '$'
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(source: &str) -> Vec<String> {
        called_names(source).into_iter().collect()
    }

    #[test]
    fn identifiers_are_names_and_properties_are_not() {
        assert_eq!(
            names("const x = await shop_search({ limit: 3 }); x.rows.map(f)"),
            ["f", "limit", "shop_search", "x"]
        );
        assert_eq!(names("a?.b?.(c)?.[d]; [...e]"), ["a", "c", "d", "e"]);
    }

    #[test]
    fn keys_of_tools_are_names() {
        assert_eq!(
            names(r#"tools.one({}); tools["a-b"](); tools?.two(); tools[`c-d`]()"#),
            ["a-b", "c-d", "one", "two"]
        );
        assert_eq!(names(r#"for (const n of ["x-y", "z"]) await tools[n]()"#), ["n", "x-y", "z"]);
    }

    #[test]
    fn texts_comments_and_regular_expressions_are_skipped() {
        assert_eq!(names("a('b(c)', \"d(\\\"e\") // f()\n /* g() */ h"), ["a", "h"]);
        assert_eq!(names("x = y.replace(/k('/g, ''); z(1 / w / v)"), ["v", "w", "x", "y", "z"]);
        assert_eq!(names("return /[/]q(/.test(s)"), ["s"]);
    }

    #[test]
    fn what_javascript_has_is_no_name_but_may_be_a_key() {
        assert_eq!(names("await Promise.all([f(JSON.parse(x))]); tools.Promise({})"), ["Promise", "f", "x"]);
    }

    #[test]
    fn every_end_of_a_line_ends_a_comment() {
        for end in ["\n", "\r", "\r\n", "\u{2028}", "\u{2029}"] {
            assert_eq!(names(&format!("// a(){end}b()")), ["b"], "{end:?}");
        }
    }

    #[test]
    fn code_inside_of_templates_is_read() {
        assert_eq!(names("`p() ${q({ r: `${s()} t()` })} u()` + v"), ["q", "r", "s", "v"]);
        assert_eq!(names("`$ $x \\${y()}` + z"), ["z"]);
    }

    #[test]
    fn an_unfinished_source_is_read_to_its_end() {
        for source in ["'abc", "`abc ${", "/* abc", "`${`${`", "a /b", "/[", "\\", "}", "'\\"] {
            called_names(source);
        }
    }

    #[test]
    fn types_are_recognized() {
        for typed in [
            "const a: string = 1",
            "let x = y as Order",
            "interface A {",
            "f(x: number[])",
            "const order: Order[] = []",
            "let a!: B;",
            "(orders?: Order) => 1",
            "new Map<string, X>()",
        ] {
            assert!(looks_typed(&code_of(typed)), "{typed}");
        }
        assert!(!looks_typed(&code_of(
            "const a = { string, b: 'number' }; let c = any ? d : e; f(a ? b : c); for (const x of y) z = { x: 1 }"
        )));
    }

    #[test]
    fn a_main_function_that_is_not_called_is_found() {
        assert_eq!(uncalled_main("async function main() { await f() }"), Some("main"));
        assert_eq!(uncalled_main("const run = async () => {}"), Some("run"));
        assert_eq!(uncalled_main("async function main() {}\nmain()"), None);
        assert_eq!(uncalled_main("return 1"), None);
    }
}
