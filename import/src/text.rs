//! Words and sentences of a description.

/// Returns `text` in one line, without Markdown's line structure, of at most `max` characters: cut after a sentence if
/// one ends in the second half, else after a word.
pub(crate) fn one_line(text: &str, max: usize) -> String {
    let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    if line.chars().count() <= max {
        return line;
    }
    let cut: String = line.chars().take(max - 1).collect();
    match cut.rfind(". ") {
        Some(end) if end > cut.len() / 2 => cut[..=end].to_owned(),
        _ => format!("{}…", cut.rsplit_once(' ').map_or(cut.as_str(), |(words, _)| words)),
    }
}

/// Returns `text` as a sentence: with a capital letter and a full stop.
pub(crate) fn sentence(text: &str) -> String {
    let text = text.trim();
    let mut characters = text.chars();
    let Some(first) = characters.next() else { return String::new() };
    let stop = if text.ends_with(['.', '!', '?', '…', ':']) { "" } else { "." };
    format!("{}{}{stop}", first.to_uppercase(), characters.as_str())
}
