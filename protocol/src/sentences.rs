//! The sentences of a text that people wrote: where they end, and the first ones that fit.

/// How the last sentence of a description begins that names the fields of an object, where its schema does not.
pub const FIELDS: &str = "Fields: ";

/// The first sentences of a plain text that fit into `max` characters; the first one is cut if it alone does not fit.
pub fn first_sentences(text: &str, max: usize) -> String {
    if text.chars().count() <= max {
        return text.to_owned();
    }
    let mut end = 0;
    for at in sentence_ends(text) {
        if text[..at].chars().count() > max {
            break;
        }
        end = at;
    }
    if end > 0 {
        return text[..end].trim_end().to_owned();
    }
    let cut: String = text.chars().take(max.saturating_sub(1)).collect();
    let cut = cut.rsplit_once(' ').map_or(cut.as_str(), |(before, _)| before);
    format!("{}…", cut.trim_end_matches([',', ';', ':', ' ', '(']))
}

/// The first sentence of a plain text.
pub fn first_sentence(text: &str) -> &str {
    sentence_ends(text).next().map_or(text, |end| text[..end].trim_end())
}

/// The byte positions after the sentences of `text`.
fn sentence_ends(text: &str) -> impl Iterator<Item = usize> {
    text.char_indices().filter_map(move |(at, character)| {
        let end = at + character.len_utf8();
        let is_end = match character {
            '。' | '！' | '？' => true,
            '.' | '!' | '?' => {
                let before = text[..at].rsplit(|it: char| it.is_whitespace() || it == '(').next().unwrap_or_default();
                let is_short = ["e.g", "i.e", "etc", "vs", "eg", "ie", "approx", "incl", "no", "cf"]
                    .contains(&before.to_lowercase().as_str());
                let after = text[end..].trim_start();
                let goes_on = !after.starts_with(|it: char| !it.is_lowercase());
                text[end..].starts_with(' ') && !is_short && !goes_on
            }
            _ => false,
        };
        is_end.then_some(end)
    })
}

/// The sentences of a plain text.
pub fn sentences(text: &str) -> Vec<&str> {
    let mut start = 0;
    let mut sentences: Vec<_> = sentence_ends(text)
        .map(|end| {
            let sentence = text[start..end].trim();
            start = end;
            sentence
        })
        .collect();
    sentences.push(text[start..].trim());
    sentences.retain(|sentence| !sentence.is_empty());
    sentences
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_text_ends_with_a_whole_sentence() {
        let text = "Gets one, e.g. A or B. Then the next. And the last one is much longer than that.";
        assert_eq!(first_sentences(text, 40), "Gets one, e.g. A or B. Then the next.");
        assert_eq!(first_sentence(text), "Gets one, e.g. A or B.");
        assert_eq!(first_sentences("one two three four", 10), "one two…");
        assert_eq!(first_sentences("version 1.2 of it", 100), "version 1.2 of it");
    }
}
