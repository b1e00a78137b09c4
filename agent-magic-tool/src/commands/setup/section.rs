//! Edits our section of a text file. The section is between two marker lines; everything outside them stays
//! unchanged.

/// The comment syntax of the marker lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SectionMarks {
    Markdown,
    Hash,
}

impl SectionMarks {
    const fn lines(self) -> (&'static str, &'static str) {
        match self {
            Self::Markdown => ("<!-- agent-magic-tool: begin -->\n", "<!-- agent-magic-tool: end -->\n"),
            Self::Hash => ("# agent-magic-tool: begin\n", "# agent-magic-tool: end\n"),
        }
    }

    /// `text` between the marker lines.
    pub(super) fn section(self, text: &str) -> String {
        let (begin, end) = self.lines();
        format!("{begin}{text}{end}")
    }

    /// Returns `file` with `text` as our section: in its old place, or else at the end.
    pub(super) fn with(self, file: &str, text: &str) -> String {
        let section = self.section(text);
        if let Some((from, to)) = self.range(file) {
            return format!("{}{section}{}", &file[..from], &file[to..]);
        }
        let gap = if file.is_empty() || file.ends_with("\n\n") {
            ""
        } else if file.ends_with('\n') {
            "\n"
        } else {
            "\n\n"
        };
        format!("{file}{gap}{section}")
    }

    /// Returns `file` without our section and the blank line before it.
    pub(super) fn without(self, file: &str) -> String {
        let Some((from, to)) = self.range(file) else { return file.to_owned() };
        let before = &file[..from];
        let before = if before.ends_with("\n\n") { &before[..before.len() - 1] } else { before };
        format!("{before}{}", &file[to..])
    }

    /// The byte range of our section, including the marker lines.
    fn range(self, file: &str) -> Option<(usize, usize)> {
        let (begin, end) = self.lines();
        let from = file.find(begin)?;
        let to = from + file[from..].find(end)? + end.len();
        Some((from, to))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_section_is_added_replaced_and_removed_without_touching_other_text() {
        for file in ["", "# Mine\n", "# Mine", "# Mine\n\n"] {
            let once = SectionMarks::Markdown.with(file, "old\n");
            assert_eq!(SectionMarks::Markdown.with(&once, "old\n"), once);
            let later = format!("{once}\nmore of mine\n");
            let renewed = SectionMarks::Markdown.with(&later, "new\n");
            assert!(renewed.starts_with(file) && renewed.ends_with("\nmore of mine\n") && !renewed.contains("old"));
            assert!(!SectionMarks::Markdown.without(&renewed).contains("agent-magic-tool"));
        }
        assert_eq!(SectionMarks::Hash.without(&SectionMarks::Hash.with("a: 1\n", "b: 2\n")), "a: 1\n");
        assert_eq!(SectionMarks::Hash.without("a: 1\n"), "a: 1\n");
    }
}
