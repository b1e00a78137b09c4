//! A long text as several messages, each of which can stand alone.
//!
//! A code block that is cut is closed and opened again. Text is cut between paragraphs, lines or words, in this order
//! of preference, and inside of a word only if there is no other way; never inside of a reference or an entity.

use super::markup::{MarkupLine, mrkdwn_lines};

/// What a fence and its line break add to a message, at both ends of a code block.
const FENCE_SIZE: usize = 4;

/// The messages for a text in Markdown, each at most `limit` UTF-16 units long in Slack's markup.
///
/// While a text grows, what was cut off at its beginning stays as it is.
pub(crate) fn messages(markdown: &str, limit: usize) -> Vec<String> {
    let mut done = Vec::new();
    let mut current: Vec<MarkupLine> = Vec::new();
    let lines = mrkdwn_lines(markdown);
    for piece in lines.into_iter().flat_map(|line| pieces(&line, limit - 2 * FENCE_SIZE)) {
        current.push(piece);
        while current.len() > 1 && size(&current) > limit {
            let rest = current.split_off(cut(&current, limit));
            done.push(message(&current));
            current = rest;
        }
    }
    done.push(message(&current));
    done.retain(|message| !message.is_empty());
    done
}

/// Where the lines are cut: they are too long, but were not without the last one.
fn cut(lines: &[MarkupLine], limit: usize) -> usize {
    let last = lines.len() - 1;
    let is_blank = |at: &usize| lines[*at].code.is_none() && lines[*at].text.trim().is_empty();
    let paragraph = (1..last).rev().find(is_blank);
    paragraph.filter(|at| size(&lines[..*at]) >= limit / 2).unwrap_or(last)
}

fn size(lines: &[MarkupLine]) -> usize {
    let mut size = 0;
    let mut block = None;
    for line in lines {
        if line.code != block {
            size += usize::from(block.is_some()) * FENCE_SIZE + usize::from(line.code.is_some()) * FENCE_SIZE;
            block = line.code;
        }
        size += line.text.encode_utf16().count() + 1;
    }
    size + usize::from(block.is_some()) * FENCE_SIZE
}

fn message(lines: &[MarkupLine]) -> String {
    let mut out = String::new();
    let mut block = None;
    for line in lines {
        if line.code != block {
            if block.is_some() {
                out.push_str("```\n");
            }
            if line.code.is_some() {
                out.push_str("```\n");
            }
            block = line.code;
        }
        out.push_str(&line.text);
        out.push('\n');
    }
    if block.is_some() {
        out.push_str("```");
    }
    let is_blank = |line: &&str| line.trim().is_empty();
    let skipped = out.lines().take_while(is_blank).map(|line| line.len() + 1).sum::<usize>();
    out.get(skipped..).unwrap_or_default().trim_end().to_owned()
}

/// The line in pieces of at most `max` units.
fn pieces(line: &MarkupLine, max: usize) -> Vec<MarkupLine> {
    let mut rest = line.text.as_str();
    let mut pieces = Vec::new();
    while rest.encode_utf16().count() > max {
        let end = boundary(rest, max);
        let (piece, after) = rest.split_at(end);
        let (piece, after) = match line.code {
            Some(_) => (piece, after),
            None => (piece.trim_end(), after.trim_start()),
        };
        pieces.push(MarkupLine { text: piece.to_owned(), code: line.code });
        rest = after;
    }
    if !rest.is_empty() || pieces.is_empty() {
        pieces.push(MarkupLine { text: rest.to_owned(), code: line.code });
    }
    pieces
}

/// The byte before which `text` is cut: behind the last space that fits, or else the last letter.
fn boundary(text: &str, max: usize) -> usize {
    let (mut units, mut space, mut letter) = (0, 0, 0);
    let mut inside: Option<char> = None;
    let mut last_fit = 0;
    for (at, sign) in text.char_indices() {
        if inside.is_none() && at > 0 {
            letter = at;
        }
        units += sign.len_utf16();
        if units > max {
            break;
        }
        last_fit = at + sign.len_utf8();
        match (inside, sign) {
            (None, '<') => inside = Some('>'),
            (None, '&') => inside = Some(';'),
            (Some(end), sign) if sign == end => inside = None,
            (None, sign) if sign.is_whitespace() => space = last_fit,
            _ => {}
        }
    }
    // A reference that is longer than a message is cut like a word.
    [space, letter, last_fit].into_iter().find(|end| *end > 0).unwrap_or(text.len())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// What a reader sees: without fences, and with all white space alike.
    fn words(messages: &[String]) -> String {
        let lines = messages.iter().flat_map(|message| message.lines()).filter(|line| *line != "```");
        lines.flat_map(str::split_whitespace).collect::<Vec<_>>().join(" ")
    }

    #[track_caller]
    fn assert_valid(messages: &[String], limit: usize) {
        for message in messages {
            assert!(message.encode_utf16().count() <= limit, "{} units: {message}", message.encode_utf16().count());
            assert!(!message.trim().is_empty());
            let fences = message.lines().filter(|line| *line == "```").count();
            assert_eq!(fences % 2, 0, "{message}");
        }
    }

    #[test]
    fn forty_thousand_characters_arrive_whole_and_in_order() {
        let mut text = String::new();
        for section in 0..80 {
            text.extend([format!("## Section {section}\n\n")]);
            for line in 0..4 {
                text.extend([format!("Paragraph {section}.{line} with **bold** & <signs>, 年度 🎈. ")]);
            }
            text.push_str("\n\n```rust\n");
            for line in 0..12 {
                text.extend([format!("let value_{section}_{line} = &\"<{line}>\";\n")]);
            }
            text.push_str("```\n\n");
        }
        assert!(text.len() > 40_000, "{}", text.len());
        let messages = messages(&text, 3900);
        assert_valid(&messages, 3900);
        assert!(messages.len() >= 10);
        let whole = message(&mrkdwn_lines(&text));
        assert_eq!(words(&messages), words(&[whole]));
    }

    #[test]
    fn a_code_block_that_is_cut_is_closed_and_opened_again() {
        let text = format!("before\n```py\n{}```\nafter", "0123456789\n".repeat(20));
        let messages = messages(&text, 100);
        assert_valid(&messages, 100);
        assert!(messages[0].starts_with("before\n```\n0123456789\n") && messages[0].ends_with("\n```"));
        assert!(messages[1].starts_with("```\n0123456789\n") && messages[1].ends_with("\n```"));
        assert!(messages.last().expect("several").ends_with("```\nafter"));
    }

    #[test]
    fn text_is_cut_between_paragraphs_and_words() {
        let text = format!("{}\n\n{}\n\n{}", "one ".repeat(15), "two ".repeat(15), "three ".repeat(40));
        let messages = messages(&text, 100);
        assert_valid(&messages, 100);
        assert_eq!(messages[0], "one ".repeat(15).trim_end());
        assert!(
            messages[1..].iter().all(|message| message.split_whitespace().all(|word| ["two", "three"].contains(&word)))
        );
    }

    #[test]
    fn nothing_is_cut_inside_of_a_reference_an_entity_or_a_letter() {
        let text =
            format!("{} {}", "[label with words](https://x.example/a) ".repeat(30), "&".repeat(90) + &"🎈".repeat(90));
        let messages = messages(&text, 100);
        assert_valid(&messages, 100);
        for message in &messages {
            assert_eq!(message.matches('<').count(), message.matches('>').count(), "{message}");
            assert_eq!(message.matches('&').count(), message.matches("&amp;").count(), "{message}");
        }
    }

    proptest! {
        #[test]
        fn every_text_arrives_whole(text in "([a-z&<*`_ ]{0,30}\n|```[a-z]{0,3}\n|\n|[🎈年 ]{0,80}\n){0,30}", limit in 40_usize..200) {
            let messages = messages(&text, limit);
            assert_valid(&messages, limit);
            let letters = |messages: &[String]| words(messages).replace(' ', "");
            prop_assert_eq!(letters(&messages), letters(&[message(&mrkdwn_lines(&text))]));
        }

        #[test]
        fn what_was_cut_off_stays_while_the_text_grows(
            lines in proptest::collection::vec("[a-z ]{0,40}", 1..60), keep in 1_usize..60,
        ) {
            let whole = messages(&lines.join("\n"), 100);
            let begun = messages(&lines[..keep.min(lines.len())].join("\n"), 100);
            if let Some((_, settled)) = begun.split_last().filter(|(_, settled)| !settled.is_empty()) {
                prop_assert_eq!(&whole[..settled.len() - 1], &settled[..settled.len() - 1]);
            }
        }
    }
}
