//! The inside of a line: emphasis, code, links and references.

use std::collections::HashSet;

/// How far the end of an emphasis or a link is looked for, so that no text takes long.
const MAX_SEARCH: usize = 2000;

/// Makes a sign next to a letter a boundary of a word, as Slack wants around emphasis.
const ZERO_WIDTH_SPACE: char = '\u{200b}';
/// Keeps `@here` from being read as a mention, and does not break the word.
const WORD_JOINER: char = '\u{2060}';

/// The words that mention a whole channel.
const GROUPS: [&str; 4] = ["here", "channel", "everyone", "group"];

/// The schemes of links that Slack is given; other targets are shown as text.
const SCHEMES: [&str; 4] = ["http://", "https://", "mailto:", "tel:"];

/// Writes `text` so that Slack shows it as it is.
pub(crate) fn escape(text: &str, out: &mut String) {
    text.chars().for_each(|letter| push_escaped(letter, out));
}

fn push_escaped(letter: char, out: &mut String) {
    match letter {
        '&' => out.push_str("&amp;"),
        '<' => out.push_str("&lt;"),
        '>' => out.push_str("&gt;"),
        other => out.push(other),
    }
}

/// Converts one stretch of text.
pub(crate) struct Inline<'a> {
    text: &'a [char],
    at: usize,
    out: String,
    style: Style,
    /// Signs of emphasis that were looked for in vain: they do not occur further on either.
    unclosed: HashSet<(char, usize)>,
}

/// What the text stands in.
#[derive(Clone, Copy, Default)]
#[expect(clippy::struct_excessive_bools, reason = "each one is a sign that must not be written twice")]
struct Style {
    bold: bool,
    italic: bool,
    strike: bool,
    link: bool,
}

impl<'a> Inline<'a> {
    pub(crate) fn of(text: &str) -> String {
        let text: Vec<char> = text.chars().collect();
        Inline::new(&text, Style::default()).convert()
    }

    /// Converts text that stands between signs of bold.
    pub(crate) fn bold(text: &str) -> String {
        let text: Vec<char> = text.chars().collect();
        Inline::new(&text, Style { bold: true, ..Style::default() }).convert()
    }

    fn new(text: &'a [char], style: Style) -> Self {
        Self { text, at: 0, out: String::with_capacity(text.len() + 16), style, unclosed: HashSet::new() }
    }

    fn convert(mut self) -> String {
        while let Some(letter) = self.letter(self.at) {
            let is_special = match letter {
                '\\' => self.backslash(),
                '`' => self.code(),
                '!' if self.letter(self.at + 1) == Some('[') => self.link(self.at + 1),
                '[' => self.link(self.at),
                '<' => self.bracketed_url(),
                'h' => self.bare_url(),
                '*' | '_' | '~' => self.emphasis(letter),
                '@' => self.group_mention(),
                _ => false,
            };
            if !is_special {
                push_escaped(letter, &mut self.out);
                self.at += 1;
            }
        }
        self.out
    }

    fn letter(&self, at: usize) -> Option<char> {
        self.text.get(at).copied()
    }

    /// How many times `sign` stands here in a row.
    fn run(&self, at: usize, sign: char) -> usize {
        self.text[at.min(self.text.len())..].iter().take_while(|found| **found == sign).count()
    }

    fn starts_with(&self, at: usize, word: &str) -> bool {
        word.chars().enumerate().all(|(offset, letter)| self.letter(at + offset) == Some(letter))
    }

    fn backslash(&mut self) -> bool {
        let Some(next) = self.letter(self.at + 1).filter(char::is_ascii_punctuation) else { return false };
        push_escaped(next, &mut self.out);
        self.at += 2;
        true
    }

    fn code(&mut self) -> bool {
        let ticks = self.run(self.at, '`');
        let Some(end) = self.end_of_code(self.at, ticks) else {
            for number in 0..ticks {
                self.out.push('`');
                // Three ticks would begin a code block.
                if ticks > 2 && number + 1 < ticks {
                    self.out.push(ZERO_WIDTH_SPACE);
                }
            }
            self.at += ticks;
            return true;
        };
        let inside: String = self.text[self.at + ticks..end].iter().collect();
        let inside = if ticks > 1 && inside.trim() != "" { inside.trim().replace('`', "ˋ") } else { inside };
        self.out.push('`');
        escape(&inside, &mut self.out);
        self.out.push('`');
        self.at = end + ticks;
        true
    }

    /// Where the ticks stand that close the code which begins at `start`.
    fn end_of_code(&self, start: usize, ticks: usize) -> Option<usize> {
        let mut at = start + ticks;
        while at < self.text.len() {
            let run = self.run(at, '`');
            if run == ticks && at > start + ticks {
                return Some(at);
            }
            at += run.max(1);
        }
        None
    }

    fn emphasis(&mut self, sign: char) -> bool {
        let run = self.run(self.at, sign);
        let (length, inner) = match (sign, run) {
            ('~', 2) => (2, Style { strike: true, ..self.style }),
            ('*' | '_', 1) => (1, Style { italic: true, ..self.style }),
            ('*' | '_', 2) => (2, Style { bold: true, ..self.style }),
            ('*' | '_', 3) => (3, Style { bold: true, italic: true, ..self.style }),
            _ => return self.literal(sign, run),
        };
        let before = self.at.checked_sub(1).and_then(|at| self.letter(at));
        let is_inside_word = sign == '_' && before.is_some_and(char::is_alphanumeric);
        let opens = self.letter(self.at + length).is_some_and(|next| !next.is_whitespace());
        if is_inside_word || !opens || self.unclosed.contains(&(sign, length)) {
            return self.literal(sign, run);
        }
        let Some(end) = self.end_of_emphasis(sign, length) else { return self.literal(sign, run) };
        let mut marks = String::new();
        for (mark, was, is) in [
            ('*', self.style.bold, inner.bold),
            ('_', self.style.italic, inner.italic),
            ('~', self.style.strike, inner.strike),
        ] {
            if is && !was {
                marks.push(mark);
            }
        }
        let inside = Inline::new(&self.text[self.at + length..end], inner).convert();
        if !marks.is_empty() && self.out.ends_with(char::is_alphanumeric) {
            self.out.push(ZERO_WIDTH_SPACE);
        }
        self.out.push_str(&marks);
        self.out.push_str(&inside);
        self.out.extend(marks.chars().rev());
        self.at = end + length;
        if !marks.is_empty() && self.letter(self.at).is_some_and(char::is_alphanumeric) {
            self.out.push(ZERO_WIDTH_SPACE);
        }
        true
    }

    fn literal(&mut self, sign: char, run: usize) -> bool {
        self.out.extend(std::iter::repeat_n(sign, run));
        self.at += run;
        true
    }

    /// Where the signs stand that close the emphasis which begins here.
    fn end_of_emphasis(&mut self, sign: char, length: usize) -> Option<usize> {
        let start = self.at + length;
        let mut at = start;
        while let Some(letter) = self.letter(at) {
            if at - start > MAX_SEARCH {
                return None;
            }
            at += match letter {
                '\\' => 2,
                '`' => {
                    let ticks = self.run(at, '`');
                    self.end_of_code(at, ticks).map_or(ticks, |end| end + ticks - at)
                }
                _ if letter == sign => {
                    let run = self.run(at, sign);
                    let follows_text = at > start && self.letter(at - 1).is_some_and(|last| !last.is_whitespace());
                    let ends_word = sign != '_' || !self.letter(at + run).is_some_and(char::is_alphanumeric);
                    if (run == length || run == 3) && follows_text && ends_word {
                        return Some(at + run - length);
                    }
                    run
                }
                _ => 1,
            };
        }
        self.unclosed.insert((sign, length));
        None
    }

    /// A link or image whose `[` stands at `start`.
    fn link(&mut self, start: usize) -> bool {
        let Some((label_end, url, end)) = self.link_parts(start) else { return false };
        let label = &self.text[start + 1..label_end];
        let shown = Inline::new(label, Style { link: true, ..self.style }).convert();
        if self.style.link || !SCHEMES.iter().any(|scheme| url.starts_with(scheme)) {
            self.out.push_str(&shown);
            if !self.style.link && !url.is_empty() {
                self.out.push_str(" (");
                escape(&url, &mut self.out);
                self.out.push(')');
            }
        } else {
            self.push_link(&url, shown.trim());
        }
        self.at = end;
        true
    }

    /// Where the label ends, the target, and where the link ends.
    fn link_parts(&self, start: usize) -> Option<(usize, String, usize)> {
        let label_end = self.closing(start, '[', ']')?;
        if self.letter(label_end + 1) != Some('(') {
            return None;
        }
        let end = self.closing(label_end + 1, '(', ')')?;
        let target: String = self.text[label_end + 2..end].iter().collect();
        // What follows the first space is a title.
        let target = target.trim().split(char::is_whitespace).next().unwrap_or_default();
        Some((label_end, target.trim_matches(['<', '>']).to_owned(), end + 1))
    }

    /// Where the bracket stands that closes the one at `start`.
    fn closing(&self, start: usize, open: char, close: char) -> Option<usize> {
        let mut depth = 0;
        let mut at = start;
        while let Some(letter) = self.letter(at).filter(|_| at - start <= MAX_SEARCH) {
            if letter == '\\' {
                at += 1;
            } else if letter == open {
                depth += 1;
            } else if letter == close {
                depth -= 1;
                if depth == 0 {
                    return Some(at);
                }
            }
            at += 1;
        }
        None
    }

    fn bracketed_url(&mut self) -> bool {
        if !SCHEMES.iter().any(|scheme| self.starts_with(self.at + 1, scheme)) {
            return false;
        }
        let inside = self.text[self.at + 1..].iter().take(MAX_SEARCH).position(|letter| *letter == '>');
        let Some(length) = inside else { return false };
        let url: String = self.text[self.at + 1..self.at + 1 + length].iter().collect();
        if url.contains(char::is_whitespace) {
            return false;
        }
        self.push_link(&url, "");
        self.at += length + 2;
        true
    }

    fn bare_url(&mut self) -> bool {
        let follows_word = self.at.checked_sub(1).and_then(|at| self.letter(at)).is_some_and(char::is_alphanumeric);
        if follows_word || !(self.starts_with(self.at, "http://") || self.starts_with(self.at, "https://")) {
            return false;
        }
        let is_part = |letter: &&char| !letter.is_whitespace() && !matches!(letter, '<' | '>' | '"' | '`' | '|');
        let mut url: String = self.text[self.at..].iter().take_while(is_part).collect();
        while let Some(last) = url.chars().next_back() {
            let is_unbalanced = last == ')' && url.matches(')').count() > url.matches('(').count();
            if !(is_unbalanced || matches!(last, '.' | ',' | ';' | ':' | '!' | '?' | '\'' | '*' | '_' | '~' | ']')) {
                break;
            }
            url.pop();
        }
        self.at += url.chars().count();
        self.push_link(&url, "");
        true
    }

    fn push_link(&mut self, url: &str, label: &str) {
        if self.style.link {
            escape(url, &mut self.out);
            return;
        }
        self.out.push('<');
        escape(&url.replace('|', "%7C").replace('<', "%3C").replace('>', "%3E"), &mut self.out);
        if !label.is_empty() {
            self.out.push('|');
            self.out.push_str(label);
        }
        self.out.push('>');
    }

    fn group_mention(&mut self) -> bool {
        let is_group = |name: &str| {
            let next = self.letter(self.at + 1 + name.len());
            self.starts_with(self.at + 1, name) && !next.is_some_and(char::is_alphanumeric)
        };
        if !GROUPS.iter().any(|name| is_group(name)) {
            return false;
        }
        self.out.push('@');
        self.out.push(WORD_JOINER);
        self.at += 1;
        true
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn text_gets_slacks_signs() {
        for (markdown, expected) in [
            ("**bold** and __bold__", "*bold* and *bold*"),
            ("*it* and _it_", "_it_ and _it_"),
            ("***both***", "*_both_*"),
            ("**a *b* c**", "*a _b_ c*"),
            ("**a *b***", "*a _b_*"),
            ("~~gone~~ ~5", "~gone~ ~5"),
            ("snake_case_name and 2 * 3 * 4", "snake_case_name and 2 * 3 * 4"),
            ("这是**粗体**文字", "这是\u{200b}*粗体*\u{200b}文字"),
            ("\\*no\\* emphasis", "*no* emphasis"),
            ("`a < b` and ``a`b``", "`a &lt; b` and `aˋb`"),
            ("**`code`** `**no**`", "*`code`* `**no**`"),
            ("[docs](https://x.example/a?b=1&c=2)", "<https://x.example/a?b=1&amp;c=2|docs>"),
            ("[**b** & c](https://x.example \"title\")", "<https://x.example|*b* &amp; c>"),
            ("[wiki](https://x.example/a_(b))", "<https://x.example/a_(b)|wiki>"),
            ("![alt](https://x.example/i.png)", "<https://x.example/i.png|alt>"),
            ("[file](src/main.rs)", "file (src/main.rs)"),
            ("[x](javascript:alert(1))", "x (javascript:alert(1))"),
            ("<https://x.example/a_b_c>", "<https://x.example/a_b_c>"),
            ("(see https://x.example/a_b_c).", "(see <https://x.example/a_b_c>)."),
            ("https://x.example/a|b", "<https://x.example/a>|b"),
            ("**https://x.example**", "*<https://x.example>*"),
            ("array[0] and [not a link]", "array[0] and [not a link]"),
            ("**open", "**open"),
            ("a < b && c > d", "a &lt; b &amp;&amp; c &gt; d"),
        ] {
            assert_eq!(Inline::of(markdown), expected, "{markdown}");
        }
    }

    #[test]
    fn a_text_mentions_no_one() {
        for (markdown, expected) in [
            ("<!channel> <!here|x> <@U1> <#C1>", "&lt;!channel&gt; &lt;!here|x&gt; &lt;@U1&gt; &lt;#C1&gt;"),
            ("@here and @channel, @everyone!", "@\u{2060}here and @\u{2060}channel, @\u{2060}everyone!"),
            ("a@heretic", "a@heretic"),
            ("[<!channel>](https://x.example)", "<https://x.example|&lt;!channel&gt;>"),
            ("[a](https://x.example>|<!channel>)", "<https://x.example%3E%7C%3C!channel|a>"),
            ("<https://x.example|<!channel>>", "<https://x.example%7C%3C!channel>&gt;"),
            ("`<!channel>`", "`&lt;!channel&gt;`"),
        ] {
            assert_eq!(Inline::of(markdown), expected, "{markdown}");
        }
    }

    #[test]
    fn no_text_takes_long() {
        let before = processor_time();
        for piece in ["*a ", "**a ", "[", "[a](", "`a", "``` ", "<http://", "*a _b ~~c ", "((", "https://a)))"] {
            assert!(!Inline::of(&piece.repeat(40_000 / piece.len())).is_empty());
        }
        let took = processor_time().saturating_sub(before);
        assert!(took < Duration::from_secs(30), "{took:?} of processor time");
    }

    /// What this thread has used, whatever else the machine does.
    fn processor_time() -> Duration {
        let stat = std::fs::read_to_string("/proc/thread-self/schedstat").expect("the kernel counts it");
        let nanoseconds = stat.split(' ').next().and_then(|first| first.parse().ok());
        Duration::from_nanos(nanoseconds.expect("nanoseconds"))
    }
}
