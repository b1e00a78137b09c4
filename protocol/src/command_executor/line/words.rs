//! Parses words: removes quotes and backslashes, and refuses whatever a shell would expand.

use super::Refusal;

const SINGLE_QUOTES: &str =
    "put it in single quotes to keep it as plain text; text that contains quotes goes in a here-document: <<'EOF'";
const CLOSE_IT: &str = "close it; text that contains quotes is best passed as a here-document: --input=- <<'EOF'";
const RUN_IT_FIRST: &str =
    "run that command on its own and use its output; long text goes in a here-document: --input=- <<'EOF'";

/// A word without its quotes.
#[derive(Debug, Default)]
pub(super) struct Word {
    pub(super) text: String,
    /// Whether any part of the word was quoted.
    pub(super) is_quoted: bool,
    /// The number of bytes before the first quoted part.
    unquoted_bytes: Option<usize>,
}

impl Word {
    /// The variable that the word would assign before a command.
    pub(super) fn assigned(&self) -> Option<&str> {
        let (name, _) = self.text.split_once('=')?;
        let is_plain = self.unquoted_bytes.is_none_or(|unquoted| name.len() < unquoted);
        let name = name.strip_suffix('+').unwrap_or(name);
        let is_name = !name.starts_with(|c: char| c.is_ascii_digit())
            && !name.is_empty()
            && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
        (is_plain && is_name).then_some(name)
    }

    pub(super) fn is_number(&self) -> bool {
        !self.is_quoted && self.text.bytes().all(|byte| byte.is_ascii_digit())
    }

    fn mark_quoted(&mut self) {
        self.is_quoted = true;
        self.unquoted_bytes.get_or_insert(self.text.len());
    }
}

/// The expansion that `$` followed by these characters would start, if any.
pub(super) fn expansion(mut after: impl Iterator<Item = char>) -> Option<String> {
    let first = after.next()?;
    match first {
        '(' | '{' | '[' => Some(format!("${first}")),
        '@' | '*' | '#' | '?' | '-' | '$' | '!' | '0'..='9' => Some(format!("${first}")),
        '_' | 'a'..='z' | 'A'..='Z' => {
            let more = after.take_while(|c| c.is_ascii_alphanumeric() || *c == '_');
            Some(['$', first].into_iter().chain(more).collect())
        }
        _ => None,
    }
}

/// A cursor over the characters of a line.
#[derive(Debug, Default)]
pub(super) struct WordReader {
    characters: Vec<char>,
    position: usize,
}

impl WordReader {
    pub(super) fn new(text: &str) -> Self {
        Self { characters: text.chars().collect(), position: 0 }
    }

    fn rest(&self) -> &[char] {
        &self.characters[self.position..]
    }

    pub(super) fn peek(&self) -> Option<char> {
        self.rest().first().copied()
    }

    pub(super) fn next(&mut self) -> Option<char> {
        let next = self.peek()?;
        self.position += 1;
        Some(next)
    }

    pub(super) fn follows(&self, text: &str) -> bool {
        let mut rest = self.rest().iter();
        text.chars().all(|c| rest.next() == Some(&c))
    }

    pub(super) fn take(&mut self, text: &str) -> bool {
        let follows = self.follows(text);
        self.position += if follows { text.chars().count() } else { 0 };
        follows
    }

    pub(super) fn skip_blanks(&mut self) {
        while self.take(" ") || self.take("\t") || self.take("\\\n") {}
    }

    pub(super) fn skip_comment(&mut self) {
        while self.peek().is_some_and(|c| c != '\n') {
            self.position += 1;
        }
    }

    pub(super) fn digits(&mut self) -> String {
        let mut digits = String::new();
        while let Some(digit) = self.peek().filter(char::is_ascii_digit) {
            digits.push(digit);
            self.position += 1;
        }
        digits
    }

    /// Reads the rest of this line, without its line break; `None` at the end of the text.
    pub(super) fn line(&mut self) -> Option<String> {
        self.peek()?;
        let mut line = String::new();
        while let Some(c) = self.next().filter(|c| *c != '\n') {
            line.push(c);
        }
        Some(line)
    }

    pub(super) fn is_at_word_end(&self) -> bool {
        self.peek().is_none_or(|c| matches!(c, ' ' | '\t' | '\n' | '|' | '&' | ';' | '(' | ')' | '<' | '>'))
    }

    /// Reads the word that starts here.
    pub(super) fn word(&mut self) -> Result<Word, Refusal> {
        let mut word = Word::default();
        // Whether an unquoted `~` here would be expanded.
        let mut expands_tilde = true;
        while !self.is_at_word_end() {
            let Some(c) = self.next() else { break };
            let is_tilde_expanded = std::mem::take(&mut expands_tilde);
            match c {
                '\'' => self.single_quoted(&mut word)?,
                '"' => self.double_quoted(&mut word)?,
                '\\' if self.take("\n") => expands_tilde = is_tilde_expanded,
                '\\' => self.escaped(&mut word)?,
                '$' => self.dollar(&mut word)?,
                '`' => return Err(Refusal::shell("`", RUN_IT_FIRST)),
                '[' if word.text.ends_with('=') => {
                    return Err(Refusal::shell(
                        c,
                        "a list is JSON in quotes after `:=`: KEY:='[\"a\", \"b\"]'; one element alone: KEY=a",
                    ));
                }
                '*' | '?' | '[' => {
                    return Err(Refusal::shell(c, "file names are not expanded: quote it, or write the name out"));
                }
                '~' if is_tilde_expanded => return Err(Refusal::shell("~", "write the full path, or quote it")),
                '{' if self.take("}") => word.text.push_str("{}"),
                '{' if word.text.ends_with('=') => {
                    return Err(Refusal::shell("{", "an object is JSON in quotes after `:=`: KEY:='{\"a\": 1}'"));
                }
                '{' => return Err(Refusal::shell("{", SINGLE_QUOTES)),
                _ => {
                    word.text.push(c);
                    expands_tilde = matches!(c, '=' | ':');
                }
            }
        }
        Ok(word)
    }

    fn single_quoted(&mut self, word: &mut Word) -> Result<(), Refusal> {
        word.mark_quoted();
        loop {
            match self.next() {
                Some('\'') => return Ok(()),
                Some(c) => word.text.push(c),
                None => return Err(Refusal::malformed("a `'` is not closed", CLOSE_IT)),
            }
        }
    }

    fn double_quoted(&mut self, word: &mut Word) -> Result<(), Refusal> {
        word.mark_quoted();
        loop {
            match self.next() {
                Some('"') => return Ok(()),
                Some('\\') => match self.peek() {
                    Some('\n') => self.position += 1,
                    Some(c @ ('$' | '`' | '"' | '\\')) => {
                        self.position += 1;
                        word.text.push(c);
                    }
                    _ => word.text.push('\\'),
                },
                Some('`') => return Err(Refusal::shell("`", RUN_IT_FIRST)),
                Some('$') => {
                    self.refuse_expansion()?;
                    word.text.push('$');
                }
                Some(c) => word.text.push(c),
                None => return Err(Refusal::malformed("a `\"` is not closed", CLOSE_IT)),
            }
        }
    }

    fn escaped(&mut self, word: &mut Word) -> Result<(), Refusal> {
        match self.next() {
            Some(c) => {
                word.mark_quoted();
                word.text.push(c);
                Ok(())
            }
            None => Err(Refusal::malformed("the line ends with a `\\`", SINGLE_QUOTES)),
        }
    }

    fn dollar(&mut self, word: &mut Word) -> Result<(), Refusal> {
        if self.take("'") {
            word.mark_quoted();
            return self.ansi_quoted(word);
        }
        if self.follows("\"") {
            return Err(Refusal::shell("$\"", SINGLE_QUOTES));
        }
        self.refuse_expansion()?;
        word.text.push('$');
        Ok(())
    }

    fn refuse_expansion(&self) -> Result<(), Refusal> {
        if self.follows("\\\n") {
            // A shell would join the lines and expand `$` with the start of the next one.
            return Err(Refusal::shell("$", SINGLE_QUOTES));
        }
        let Some(construct) = expansion(self.rest().iter().copied()) else { return Ok(()) };
        let hint = if construct == "$(" { RUN_IT_FIRST } else { SINGLE_QUOTES };
        Err(Refusal::shell(construct, hint))
    }

    /// Reads the rest of bash's `$'..'`, whose escapes may also name single bytes of a character.
    fn ansi_quoted(&mut self, word: &mut Word) -> Result<(), Refusal> {
        let mut bytes = Vec::new();
        loop {
            match self.next() {
                Some('\'') => break,
                Some('\\') => self.ansi_escape(&mut bytes)?,
                Some(c) => bytes.extend(c.encode_utf8(&mut [0; 4]).bytes()),
                None => return Err(Refusal::malformed("a `$'` is not closed", CLOSE_IT)),
            }
        }
        match String::from_utf8(bytes) {
            Ok(text) if !text.contains('\0') => word.text.push_str(&text),
            _ => return Err(Refusal::malformed("a `$'..'` does not produce valid text", SINGLE_QUOTES)),
        }
        Ok(())
    }

    fn ansi_escape(&mut self, bytes: &mut Vec<u8>) -> Result<(), Refusal> {
        let unsupported = |escape: char| Refusal::shell(format!("\\{escape}"), SINGLE_QUOTES);
        let Some(c) = self.next() else { return Err(Refusal::malformed("a `$'` is not closed", CLOSE_IT)) };
        let byte = match c {
            'a' => 0x07,
            'b' => 0x08,
            'e' | 'E' => 0x1b,
            'f' => 0x0c,
            'n' => b'\n',
            'r' => b'\r',
            't' => b'\t',
            'v' => 0x0b,
            '\\' | '\'' | '"' | '?' => c as u8,
            '0'..='7' => {
                self.position -= 1;
                u8::try_from(self.number(8, 3)).map_err(|_| unsupported(c))?
            }
            'x' | 'u' | 'U' if !self.peek().is_some_and(|digit| digit.is_ascii_hexdigit()) => {
                return Err(unsupported(c));
            }
            'x' => u8::try_from(self.number(16, 2)).map_err(|_| unsupported(c))?,
            'u' | 'U' => {
                let code = self.number(16, if c == 'u' { 4 } else { 8 });
                let character = char::from_u32(code).ok_or_else(|| unsupported(c))?;
                bytes.extend(character.encode_utf8(&mut [0; 4]).bytes());
                return Ok(());
            }
            'c' => return Err(unsupported(c)),
            _ if c.is_ascii_control() => return Err(unsupported(c)),
            _ => {
                bytes.push(b'\\');
                bytes.extend(c.encode_utf8(&mut [0; 4]).bytes());
                return Ok(());
            }
        };
        bytes.push(byte);
        Ok(())
    }

    /// Reads a number of at most `max_digits` digits.
    fn number(&mut self, radix: u32, max_digits: usize) -> u32 {
        let mut number = 0;
        for _ in 0..max_digits {
            let Some(digit) = self.peek().and_then(|c| c.to_digit(radix)) else { break };
            number = number * radix + digit;
            self.position += 1;
        }
        number
    }
}
