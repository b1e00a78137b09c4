//! Markdown, as models write it, turned into Slack's own markup.
//!
//! Slack knows bold, italics, strike-through, code, quotes and links, each with other signs than Markdown. Everything
//! that Slack could read as a reference is escaped, so a text from a model mentions no one. The language of a code
//! block is left out: Slack would show it as the first line of the code.

use super::inline::{Inline, escape};

/// One line of Slack's markup.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct MarkupLine {
    pub(crate) text: String,
    /// The number of the code block that it is part of.
    pub(crate) code: Option<usize>,
}

/// The widest column of a table that is padded.
const MAX_COLUMN: usize = 40;

/// What separates the ticks of a fence inside of a code block.
const ZERO_WIDTH_SPACE: char = '\u{200b}';

struct Fence<'a> {
    sign: char,
    length: usize,
    indent: &'a str,
}

impl<'a> Fence<'a> {
    fn opening(line: &'a str) -> Option<Self> {
        let trimmed = line.trim_start();
        let sign = trimmed.chars().next().filter(|sign| matches!(sign, '`' | '~'))?;
        let length = trimmed.chars().take_while(|found| *found == sign).count();
        let info = &trimmed[length..];
        let is_fence = length >= 3 && !(sign == '`' && info.contains('`'));
        is_fence.then(|| Self { sign, length, indent: &line[..line.len() - trimmed.len()] })
    }

    fn is_closed_by(&self, line: &str) -> bool {
        let line = line.trim();
        line.chars().count() >= self.length && line.chars().all(|found| found == self.sign)
    }
}

/// Converts a whole text; a code block that is not closed ends with it.
pub(crate) fn mrkdwn_lines(markdown: &str) -> Vec<MarkupLine> {
    let lines: Vec<&str> = markdown.lines().collect();
    let mut out = Vec::with_capacity(lines.len());
    let mut blocks = 0;
    let mut at = 0;
    while let Some(line) = lines.get(at) {
        at += 1;
        if let Some(fence) = Fence::opening(line) {
            blocks += 1;
            while let Some(line) = lines.get(at) {
                at += 1;
                if fence.is_closed_by(line) {
                    break;
                }
                out.push(code_line(line.strip_prefix(fence.indent).unwrap_or(line), blocks));
            }
        } else if line.contains('|') && lines.get(at).is_some_and(|next| is_table_rule(next)) {
            blocks += 1;
            let rows = 2 + lines[at + 1..].iter().take_while(|row| row.contains('|')).count();
            out.extend(table(&lines[at - 1..at - 1 + rows]).iter().map(|row| code_line(row, blocks)));
            at = at - 1 + rows;
        } else {
            out.push(MarkupLine { text: prose(line), code: None });
        }
    }
    out
}

fn code_line(line: &str, block: usize) -> MarkupLine {
    let mut text = String::with_capacity(line.len());
    escape(&line.replace("```", &format!("`{ZERO_WIDTH_SPACE}`{ZERO_WIDTH_SPACE}`")), &mut text);
    MarkupLine { text, code: Some(block) }
}

/// A line outside of code blocks and tables.
fn prose(line: &str) -> String {
    let trimmed = line.trim_start();
    let indent = &line[..line.len() - trimmed.len()];
    let level = trimmed.bytes().take_while(|byte| *byte == b'#').count();
    if (1..=6).contains(&level) && trimmed[level..].starts_with([' ', '\u{a0}']) {
        let words = trimmed[level..].trim().trim_end_matches('#').trim_end();
        return if words.is_empty() { String::new() } else { format!("*{}*", Inline::bold(words)) };
    }
    if is_rule(trimmed) {
        return "──────────".to_owned();
    }
    if trimmed.starts_with('>') {
        return format!("> {}", prose(trimmed.trim_start_matches(['>', ' '])));
    }
    if let Some(item) = ["- ", "* ", "+ "].iter().find_map(|sign| trimmed.strip_prefix(sign)) {
        let item = item.trim_start();
        let (sign, item) = match item.get(..4) {
            Some("[ ] ") => ("☐", &item[4..]),
            Some("[x] " | "[X] ") => ("☑", &item[4..]),
            _ => ("•", item),
        };
        return format!("{indent}{sign} {}", Inline::of(item));
    }
    format!("{indent}{}", Inline::of(trimmed))
}

/// Whether the line is a horizontal rule.
fn is_rule(line: &str) -> bool {
    let signs: Vec<char> = line.chars().filter(|sign| !sign.is_whitespace()).collect();
    signs.len() >= 3 && matches!(signs[0], '-' | '*' | '_') && signs.iter().all(|sign| *sign == signs[0])
}

/// Whether the line is what separates the head of a table from its rows.
fn is_table_rule(line: &str) -> bool {
    line.contains('-') && line.contains('|') && line.chars().all(|sign| matches!(sign, '-' | ':' | '|' | ' '))
}

/// The rows with columns of equal width; the second one is the rule.
fn table(rows: &[&str]) -> Vec<String> {
    let cells = |row: &&str| -> Vec<String> {
        let row = row.trim().trim_start_matches('|');
        row.strip_suffix('|').unwrap_or(row).split('|').map(|cell| cell.trim().to_owned()).collect()
    };
    let mut rows: Vec<Vec<String>> = rows.iter().map(cells).collect();
    rows[1].clear();
    let columns = rows.iter().map(Vec::len).max().unwrap_or_default();
    let width = |column: usize| {
        let widths = rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count());
        widths.max().unwrap_or_default().min(MAX_COLUMN)
    };
    let widths: Vec<usize> = (0..columns).map(width).collect();
    let line = |(number, row): (usize, &Vec<String>)| {
        let cells = widths.iter().enumerate().map(|(column, width)| {
            let cell = row.get(column).map_or("", String::as_str);
            if number == 1 { "-".repeat((*width).max(1)) } else { format!("{cell:width$}") }
        });
        cells.collect::<Vec<_>>().join(" | ").trim_end().to_owned()
    };
    rows.iter().enumerate().map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn converted(markdown: &str) -> String {
        let lines = mrkdwn_lines(markdown);
        let lines = lines.iter().map(|line| match line.code {
            Some(block) => format!("{block}: {}", line.text),
            None => line.text.clone(),
        });
        lines.collect::<Vec<_>>().join("\n")
    }

    #[test]
    fn blocks_get_slacks_signs() {
        for (markdown, expected) in [
            ("# Title **bold**", "*Title bold*"),
            ("### Sub ###\ntext", "*Sub*\ntext"),
            ("#hashtag", "#hashtag"),
            ("- one\n  * two\n+ three", "• one\n  • two\n• three"),
            ("- [ ] open\n- [x] done", "☐ open\n☑ done"),
            ("1. one\n2. **two**", "1. one\n2. *two*"),
            ("> quoted **text**\n>> twice", "> quoted *text*\n> twice"),
            ("a\n\n---\n\nb", "a\n\n──────────\n\nb"),
            ("```rust\nlet a = \"<b>\" && **c**;\n```\nend", "1: let a = \"&lt;b&gt;\" &amp;&amp; **c**;\nend"),
            ("~~~\na\n~~~\n```\nb\n```", "1: a\n2: b"),
            ("````md\n```\nx\n```\n````", "1: `\u{200b}`\u{200b}`\n1: x\n1: `\u{200b}`\u{200b}`"),
            ("- item\n  ```\n  a\n    b\n  ```", "• item\n1: a\n1:   b"),
            ("```\nnot closed", "1: not closed"),
            ("| a | long |\n|---|:--|\n| 1 | x |\nend", "1: a | long\n1: - | ----\n1: 1 | x\nend"),
            ("a | b\nno table", "a | b\nno table"),
        ] {
            assert_eq!(converted(markdown), expected, "{markdown}");
        }
    }

    #[test]
    fn no_prose_opens_a_code_block() {
        for markdown in ["> ```", "a ``` b", "x ```` y ```` z", "a ```b``` c"] {
            assert!(!converted(markdown).contains("```"), "{markdown}: {}", converted(markdown));
        }
    }
}
