//! A table of words as sorted lines of text, which is searched where it lies: it costs nothing until it is asked.

/// Lines of `word<TAB>meaning`, sorted by their bytes.
#[derive(Clone, Copy)]
pub(super) struct SortedLines(pub(super) &'static str);

impl SortedLines {
    /// What stands behind `word`: empty for a table of words alone.
    pub(super) fn find(self, word: &str) -> Option<&'static str> {
        let line = self.from(word).next()?;
        let (known, meaning) = line.split_once('\t').unwrap_or((line, ""));
        (known == word).then_some(meaning)
    }

    pub(super) fn contains(self, word: &str) -> bool {
        self.find(word).is_some()
    }

    /// The lines from the first one on that is not below `word`.
    pub(super) fn from(self, word: &str) -> std::str::Lines<'static> {
        let text = self.0.as_bytes();
        // The place of every line that begins before `low` is known to be below `word`, and of those from `high` on not.
        let (mut low, mut high) = (0, text.len());
        while low < high {
            let middle = low + (high - low) / 2;
            let begin = text[low..middle].iter().rposition(|byte| *byte == b'\n').map_or(low, |at| low + at + 1);
            let end = text[middle..].iter().position(|byte| *byte == b'\n').map_or(text.len(), |at| middle + at);
            let line = &text[begin..end];
            let known = line.iter().position(|byte| *byte == b'\t').map_or(line, |at| &line[..at]);
            if known < word.as_bytes() {
                low = (end + 1).min(text.len());
            } else {
                high = begin;
            }
        }
        self.0[low..].lines()
    }

    /// Whether the lines are in order, so that they can be searched.
    #[cfg(test)]
    pub(super) fn is_sorted(self) -> bool {
        self.0.lines().map(|line| line.split('\t').next().unwrap_or_default()).is_sorted_by(|a, b| a < b)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_is_found_wherever_it_stands() {
        let lines = SortedLines("a\t1\nab\t2\nb\nca\t3\n查\t4\n");
        assert_eq!(
            ["a", "ab", "b", "ca", "查"].map(|word| lines.find(word)),
            [Some("1"), Some("2"), Some(""), Some("3"), Some("4")]
        );
        assert_eq!(["", "aa", "c", "d", "查找"].map(|word| lines.find(word)), [None; 5]);
        assert_eq!(lines.from("aa").next(), Some("ab\t2"));
        assert_eq!(SortedLines("").find("a"), None);
    }
}
