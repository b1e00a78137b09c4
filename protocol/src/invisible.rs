//! Characters that a reader does not see, or that change the order in which others are seen.

use std::ops::Range;
use std::sync::LazyLock;

use regex::Regex;

/// Control, format, separator, private-use and unassigned characters, and other characters that are not visible.
static INVISIBLE: LazyLock<Regex> = LazyLock::new(|| {
    // The last ones are letters and symbols that are drawn as nothing: the blank Braille pattern, a note without a head,
    // a filler of the Khitan script, and two blanks among the hieroglyphs.
    Regex::new(
        r"[\p{Cc}\p{Cf}\p{Zl}\p{Zp}\p{Zs}\p{Co}\p{Cn}\p{Default_Ignorable_Code_Point}\u{2800}\u{1D159}\u{16FE4}\u{13441}\u{13442}&&[^ ]]",
    )
    .expect("a valid character class")
});

/// Returns where the next invisible character lies in `text`.
pub fn next(text: &str) -> Option<Range<usize>> {
    INVISIBLE.find(text).map(|found| found.range())
}

/// Whether `character` is one of them.
pub fn is_invisible(character: char) -> bool {
    INVISIBLE.is_match(character.encode_utf8(&mut [0; 4]))
}

/// Returns `text` with every invisible character as `\u{200b}`.
pub fn escaped(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(found) = next(rest) {
        shown.push_str(&rest[..found.start]);
        rest[found.clone()].chars().for_each(|character| shown.extend(character.escape_unicode()));
        rest = &rest[found.end..];
    }
    shown + rest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_invisible_character_is_written_out_and_everything_else_stays() {
        assert_eq!(escaped("a b: grün, 年, 👍 é"), "a b: grün, 年, 👍 é");
        assert_eq!(escaped("a\u{200b}b\u{e0041}\u{202e}\n"), "a\\u{200b}b\\u{e0041}\\u{202e}\\u{a}");
        for blank in
            ['\u{2800}', '\u{1d159}', '\u{16fe4}', '\u{13441}', '\u{13442}', '\u{3164}', '\u{115f}', '\u{ffa0}']
        {
            assert!(is_invisible(blank), "{}", blank.escape_unicode());
        }
        assert!(!is_invisible('\u{2801}') && !is_invisible('\u{1d158}'));
        assert!(is_invisible('\u{200d}') && !is_invisible('a') && !is_invisible(' '));
    }
}
