//! Filters for templates: words of others, shown so that a human sees all of them.
//!
//! A template gets the names, descriptions and labels of definitions, servers and agents as they are. It writes each of
//! them through one of these.

use minijinja::value::Serde;
use minijinja::{Environment, Value};
use protocol::invisible;

use super::{VisibleLine, VisibleText, line, notes};

pub(in crate::page) fn add_filters(templates: &mut Environment<'_>) {
    templates.add_filter("line", |text: Value| Serde(line(&plain(&text))));
    templates.add_filter("words", |text: Value| Serde(words(&plain(&text))));
    templates.add_filter("json", |text: Value| Serde(json(&plain(&text))));
    // For what can hold text alone, such as an attribute.
    templates.add_filter("escaped", |text: Value| invisible::escaped(&plain(&text)));
    templates.add_filter("notes", |text: Value| notes(&plain(&text)));
    templates.add_filter("oddities", |text: Value| oddities(&plain(&text)));
}

fn plain(text: &Value) -> String {
    if text.is_none() || text.is_undefined() { String::new() } else { text.to_string() }
}

/// The words of a description: line breaks and tabs separate them as spaces do.
fn words(text: &str) -> VisibleLine {
    let words: Vec<_> = text.split([' ', '\n', '\r', '\t']).filter(|word| !word.is_empty()).collect();
    line(&words.join(" "))
}

/// A JSON text as a value is shown.
fn json(text: &str) -> VisibleText {
    serde_json::from_str(text).map_or_else(|_| VisibleText::text(text), |value| VisibleText::of(&value))
}

/// What a reader would miss in a text that stands in a field, where nothing can be marked.
fn oddities(text: &str) -> Vec<String> {
    let plain = VisibleText::text(text).plain();
    let is_layout = |name: &String| name.ends_with("U+0009 tab");
    plain.hidden.into_iter().filter(|name| !is_layout(name)).chain(plain.notes).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::page::visible::TextSpan;

    #[test]
    fn what_is_not_visible_in_the_words_of_others_is_marked_or_named() {
        let mut templates = Environment::new();
        add_filters(&mut templates);
        let given = json!({"text": "Pass\u{200b}word\n\n of  p\u{430}ypal", "nothing": null});
        let shown = |template: &str| templates.render_str(template, Serde(&given)).expect("it renders");
        assert_eq!(shown("{{ text|escaped }}"), "Pass\\u{200b}word\\u{a}\\u{a} of  p\u{430}ypal");
        assert_eq!(shown("{{ text|notes|join }}"), "mixes letters of several scripts: p\u{430}ypal");
        let oddities = "U+200B zero width space; mixes letters of several scripts: p\u{430}ypal";
        assert_eq!(shown("{{ text|oddities|join('; ') }}"), oddities);
        assert_eq!(
            shown("{% for span in text|words %}[{{ span.t or span.c }}]{% endfor %}"),
            "[Pass][U+200B][word of p\u{430}ypal]"
        );
        assert_eq!(shown("{{ nothing|words|length }}{{ nothing|oddities|length }}{{ missing|line|length }}"), "000");
        assert_eq!(words("a\n\tb  c "), [TextSpan::Text("a b c".to_owned())]);
    }
}
