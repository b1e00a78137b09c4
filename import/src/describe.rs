//! Prose of descriptions, made fit for a model: plain text, the first sentences, a bounded length.

use std::cell::RefCell;
use std::collections::{HashMap, HashSet};

use protocol::sentences::{first_sentence, first_sentences, sentences};

/// The most characters of a subtool's description.
pub(crate) const MAX_DESCRIPTION_CHARS: usize = 300;
/// The most characters of a field's description.
pub(crate) const MAX_FIELD_CHARS: usize = 200;
/// A description with fewer words hardly says when to use a subtool.
const MIN_WORDS: usize = 4;

/// Removes HTML and Markdown from `text`, and joins its lines.
pub(crate) fn plain(text: &str) -> String {
    let text = without_links(&without_tags(text));
    let mut words = Vec::new();
    let mut is_code = false;
    for line in text.lines() {
        let line = line.trim();
        if line.starts_with("```") || line.starts_with("~~~") {
            is_code = !is_code;
            continue;
        }
        // Tables, rules and quoted notes (`> [!NOTE]`) say nothing in one line.
        let is_rule = !line.is_empty() && line.chars().all(|it| matches!(it, '-' | '=' | '*' | '_' | '|' | ':' | ' '));
        if is_code || is_rule || line.starts_with('|') || line.starts_with("> [!") || line.starts_with("[!") {
            continue;
        }
        let line = line.trim_start_matches(['#', '>']).trim_start();
        let line = line.strip_prefix("* ").or_else(|| line.strip_prefix("- ")).unwrap_or(line);
        words.extend(line.split_whitespace().map(|word| word.replace("**", "").replace("__", "")));
    }
    words.retain(|word| !word.is_empty());
    words.join(" ")
}

/// Removes HTML tags and resolves the commonest entities.
fn without_tags(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(start) = rest.find('<') {
        let (before, tag) = rest.split_at(start);
        plain.push_str(before);
        let inside = &tag[1..];
        let is_tag = inside.starts_with(|first: char| first.is_ascii_alphabetic() || first == '/' || first == '!');
        match inside.find('>') {
            Some(end) if is_tag && is_html(&inside[..end]) => {
                let name = inside[..end].trim_start_matches('/').to_ascii_lowercase();
                let breaks = ["br", "p", "li", "ul", "ol", "div", "h", "tr", "td", "table"];
                plain.push_str(if breaks.iter().any(|tag| name.starts_with(tag)) { "\n" } else { "" });
                rest = &inside[end + 1..];
            }
            _ => {
                plain.push('<');
                rest = inside;
            }
        }
    }
    plain.push_str(rest);
    for (entity, character) in
        [("&nbsp;", " "), ("&lt;", "<"), ("&gt;", ">"), ("&quot;", "\""), ("&#39;", "'"), ("&amp;", "&")]
    {
        plain = plain.replace(entity, character);
    }
    plain
}

/// Whether what stands between angle brackets is a tag of HTML, and not a placeholder like `<project-id>`.
fn is_html(inside: &str) -> bool {
    const TAGS: [&str; 38] = [
        "a",
        "abbr",
        "b",
        "blockquote",
        "br",
        "center",
        "code",
        "dd",
        "details",
        "div",
        "dl",
        "dt",
        "em",
        "font",
        "h1",
        "h2",
        "h3",
        "h4",
        "h5",
        "h6",
        "hr",
        "i",
        "img",
        "li",
        "ol",
        "p",
        "pre",
        "s",
        "small",
        "span",
        "strong",
        "sub",
        "summary",
        "sup",
        "table",
        "td",
        "tr",
        "ul",
    ];
    const OTHERS: [&str; 7] = ["aside", "body", "section", "tbody", "th", "thead", "var"];
    let inside = inside.trim_start_matches('/');
    let name: String = inside.chars().take_while(char::is_ascii_alphanumeric).collect::<String>().to_ascii_lowercase();
    inside.starts_with("!--") || TAGS.contains(&name.as_str()) || OTHERS.contains(&name.as_str())
}

/// Replaces `[text](url)` by its text, `![text](url)` by nothing, and `[text][reference]` by its text.
fn without_links(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(start) = rest.find('[') {
        let (before, link) = rest.split_at(start);
        let inner_end = link.find(']');
        let after = inner_end.map(|end| &link[end + 1..]);
        let target_end = after.and_then(|after| match after.chars().next() {
            Some('(') => after.find(')'),
            Some('[') => after.find(']'),
            _ => None,
        });
        match (inner_end, after, target_end) {
            (Some(end), Some(after), Some(target_end)) if !link[1..end].contains('\n') => {
                let is_image = before.ends_with('!');
                plain.push_str(before.strip_suffix('!').unwrap_or(before));
                if !is_image {
                    plain.push_str(&link[1..end]);
                }
                rest = &after[target_end + 1..];
            }
            _ => {
                plain.push_str(before);
                plain.push('[');
                rest = &link[1..];
            }
        }
    }
    plain + rest
}

/// How sentences begin that refer to a page, or that say what every operation needs.
const IDLE_SENTENCES: [&str; 13] = [
    "see http",
    "for more information",
    "for more details",
    "for details",
    "for an example",
    "see also",
    "see the ",
    "see [",
    "learn more",
    "read more",
    "oauth app tokens",
    "oauth tokens and personal",
    "this endpoint supports the following custom media types",
];

fn is_idle(sentence: &str) -> bool {
    let lower = sentence.to_lowercase();
    IDLE_SENTENCES.iter().any(|start| lower.starts_with(start))
}

/// Sentences that many operations of one API repeat: they tell none of them apart.
#[derive(Debug, Default)]
pub(crate) struct Boilerplate(HashSet<String>);

impl Boilerplate {
    /// Finds what the descriptions `texts` repeat.
    pub(crate) fn of<'a>(texts: impl Iterator<Item = &'a str>) -> Self {
        const MIN_REPEATS: usize = 6;
        let mut counts: HashMap<String, usize> = HashMap::new();
        for text in texts {
            let text = plain(text);
            for sentence in sentences(&text) {
                *counts.entry(sentence.to_owned()).or_default() += 1;
            }
        }
        Self(counts.into_iter().filter(|(_, count)| *count >= MIN_REPEATS).map(|(sentence, _)| sentence).collect())
    }

    /// A plain text without what says nothing about this operation.
    fn removed_from(&self, text: &str, has_summary: bool) -> String {
        let all = sentences(text);
        let telling = |sentence: &&&str| !is_idle(sentence) && !self.0.contains(**sentence);
        let kept: Vec<_> = all.iter().filter(telling).copied().collect();
        // Without a summary, a description of nothing else is better than none.
        if kept.is_empty() && !has_summary {
            all.first().copied().unwrap_or_default().to_owned()
        } else {
            kept.join(" ")
        }
    }
}

/// The description of a subtool: what it does in a few words, then what else the first sentences say.
///
/// `fallback` is what is known if the description says nothing: the method and the path.
pub(crate) fn subtool(summary: &str, description: &str, fallback: &str, boilerplate: &Boilerplate) -> String {
    let summary = sentence(&plain(summary));
    // A path or an id is not a sentence.
    let is_name =
        !summary.trim_end_matches('.').contains(' ') && (summary.contains('/') || !description.trim().is_empty());
    let summary = if is_name { String::new() } else { summary };
    let description = boilerplate.removed_from(&plain(description), !summary.is_empty());
    let whole = match (summary.is_empty(), description.is_empty()) {
        (true, _) => description,
        (false, true) => summary,
        (false, false) if says_the_same(&summary, first_sentence(&description)) => description,
        (false, false) => format!("{summary} {description}"),
    };
    let mut text = sentence(&first_sentences(&whole, MAX_DESCRIPTION_CHARS));
    if text.split_whitespace().count() < MIN_WORDS && text.is_ascii() {
        let known = text.trim_end_matches('.');
        text = if known.is_empty() { sentence(fallback) } else { format!("{known}: {fallback}.") };
    }
    text
}

/// Whether `sentence` has all words of `summary`, or the other way round, whatever their endings.
fn says_the_same(summary: &str, sentence: &str) -> bool {
    let stems = |text: &str| -> HashSet<String> {
        let words = text.split(|it: char| !it.is_alphanumeric()).map(str::to_lowercase);
        let telling =
            words.filter(|word| !["", "a", "an", "the", "of", "for", "in", "to", "s"].contains(&word.as_str()));
        telling.map(|word| word.trim_end_matches('s').trim_end_matches('e').to_owned()).collect()
    };
    let (summary, sentence) = (stems(summary), stems(sentence));
    summary.is_subset(&sentence)
}

/// The description of a field.
pub(crate) fn field(text: &str) -> String {
    let text = plain(text);
    let kept: Vec<_> = sentences(&text).into_iter().filter(|sentence| !is_idle(sentence)).collect();
    let mut text = kept.join(" ");
    for word in ["Required. ", "Optional. ", "Required.", "Optional."] {
        if let Some(rest) = text.strip_prefix(word) {
            text = rest.to_owned();
        }
    }
    first_sentences(&text, MAX_FIELD_CHARS)
}

/// Descriptions of fields that were made before: the same schema is expanded in many operations.
#[derive(Debug, Default)]
pub(crate) struct FieldTexts(RefCell<HashMap<String, String>>);

impl FieldTexts {
    /// [`field`], made once for each text.
    pub(crate) fn field(&self, text: &str) -> String {
        if let Some(known) = self.0.borrow().get(text) {
            return known.clone();
        }
        let made = field(text);
        self.0.borrow_mut().insert(text.to_owned(), made.clone());
        made
    }
}

/// Begins `text` with a capital and ends it with a full stop.
fn sentence(text: &str) -> String {
    let text = text.trim().trim_end_matches([':', ',', ';', '-']);
    let mut letters = text.chars();
    let Some(first) = letters.next() else { return String::new() };
    let second_is_capital = letters.clone().next().is_some_and(char::is_uppercase);
    let mut sentence: String = if second_is_capital { first.to_string() } else { first.to_uppercase().collect() };
    sentence.push_str(letters.as_str());
    let bare = sentence.trim_end_matches(['"', '\'', '`', '”', ')']);
    if !bare.ends_with(['.', '!', '?', '…', '。']) {
        sentence.push('.');
    }
    sentence
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn html_and_markdown_become_plain_text() {
        for (text, expected) in [
            ("Lists **all** the [repos](https://x.example) of\na user.", "Lists all the repos of a user."),
            ("<p>Gets a <b>pet</b>.</p><ul><li>one</li></ul>", "Gets a pet. one"),
            ("> [!NOTE]\n> Only admins.\n\n# Heading", "Only admins. Heading"),
            ("Use `projects/<id>` &amp; go", "Use `projects/<id>` & go"),
            ("a\n```json\n{}\n```\nb", "a b"),
            ("| a | b |\n|---|---|\nafter", "after"),
            ("![logo](x.png)text", "text"),
            ("an array[0] of 3 < 4", "an array[0] of 3 < 4"),
        ] {
            assert_eq!(plain(text), expected, "{text}");
        }
    }

    #[test]
    fn a_description_leads_with_the_summary_and_says_nothing_twice() {
        let subtool = |summary, description, fallback| subtool(summary, description, fallback, &Boilerplate::default());
        assert_eq!(subtool("Get a pet", "Gets the pet by its id. More.", "x"), "Gets the pet by its id. More.");
        assert_eq!(subtool("list pets", "Needs a token.", "x"), "List pets. Needs a token.");
        assert_eq!(subtool("Get pet", "", "GET /pet"), "Get pet: GET /pet.");
        assert_eq!(subtool("", "", "GET /pet/{id}"), "GET /pet/{id}.");
        assert_eq!(subtool("pets/{id}", "Deletes a pet for good.", "x"), "Deletes a pet for good.");
        assert_eq!(subtool("", "For more information, see \"Pets.\"", "x"), "For more information, see \"Pets.\"");
    }

    #[test]
    fn sentences_that_many_operations_repeat_are_dropped() {
        let texts: Vec<_> = (0..9).map(|number| format!("Does {number}. It needs a token. See the docs.")).collect();
        let boilerplate = Boilerplate::of(texts.iter().map(String::as_str));
        assert_eq!(
            subtool("", "Makes a big change. It needs a token. Or not.", "x", &boilerplate),
            "Makes a big change. Or not."
        );
        assert_eq!(field("Required. The id. For more information, see \"Ids.\""), "The id.");
    }
}
