//! XML and NDJSON as JSON data.
//!
//! XML is read without document type declarations, so no entity can expand, and only to a bounded depth.

use protocol::json::parse_answer;
use roxmltree::{Document, Node, ParsingOptions};
use serde_json::{Map, Value};

/// The deepest nesting of elements.
const MAX_DEPTH: usize = 100;

/// The most nodes of a document; each takes about a hundred bytes.
const MAX_NODES: u32 = 2_000_000;

/// Returns the document as an object with its root element.
///
/// An element without attributes and children is its text. Any other is an object: `@name` holds an attribute, `#text`
/// its text, and each other key its children of that name, as an array if there are several. Namespaces are dropped.
pub(super) fn xml(text: &str) -> Result<Value, String> {
    let options = ParsingOptions { nodes_limit: MAX_NODES, ..ParsingOptions::default() };
    let document = Document::parse_with_options(text, options).map_err(|error| error.to_string())?;
    let root = document.root_element();
    Ok(Value::Object(Map::from_iter([(root.tag_name().name().to_owned(), element(root, 1)?)])))
}

fn element(node: Node<'_, '_>, depth: usize) -> Result<Value, String> {
    if depth > MAX_DEPTH {
        return Err(format!("its elements are nested more than {MAX_DEPTH} deep"));
    }
    let mut fields = Map::new();
    for attribute in node.attributes() {
        fields.insert(format!("@{}", attribute.name()), attribute.value().into());
    }
    let mut text = String::new();
    for child in node.children() {
        if let Some(part) = child.text().filter(|_| child.is_text()) {
            text.push_str(part);
        }
        if !child.is_element() {
            continue;
        }
        let value = element(child, depth + 1)?;
        match fields.get_mut(child.tag_name().name()) {
            None => drop(fields.insert(child.tag_name().name().to_owned(), value)),
            Some(Value::Array(several)) => several.push(value),
            Some(one) => *one = Value::Array(vec![one.take(), value]),
        }
    }
    if fields.is_empty() {
        return Ok(Value::String(text));
    }
    if !text.trim().is_empty() {
        fields.insert("#text".to_owned(), text.trim().into());
    }
    Ok(Value::Object(fields))
}

/// Returns the values of newline-delimited JSON; empty lines are skipped.
pub(super) fn ndjson(text: &str) -> Result<Value, String> {
    let lines = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
    lines
        .map(|(index, line)| parse_answer(line).map_err(|error| format!("line {}: {error}", index + 1)))
        .collect::<Result<Vec<Value>, _>>()
        .map(Value::Array)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn elements_become_objects_texts_and_arrays() {
        let feed = r#"<?xml version="1.0"?><!-- c --><a:feed xmlns:a="urn:a" a:lang="en"><a:title>T &amp; <![CDATA[<b>]]></a:title>
            <entry id="1">one</entry><entry/><empty></empty></a:feed>"#;
        assert_eq!(
            xml(feed).expect("XML"),
            json!({"feed": {"@lang": "en", "title": "T & <b>", "entry": [{"@id": "1", "#text": "one"}, ""], "empty": ""}})
        );
    }

    #[test]
    fn entities_and_deep_nesting_are_refused() {
        let bomb = r#"<!DOCTYPE a [<!ENTITY b "cccccccc"><!ENTITY d "&b;&b;&b;&b;">]><a>&d;</a>"#;
        assert!(xml(bomb).is_err());
        let file = r#"<!DOCTYPE a [<!ENTITY b SYSTEM "file:///etc/passwd">]><a>&b;</a>"#;
        assert!(xml(file).is_err());
        let deep = |depth: usize| format!("{}{}", "<a>".repeat(depth), "</a>".repeat(depth));
        assert!(xml(&deep(MAX_DEPTH)).is_ok());
        assert!(xml(&deep(MAX_DEPTH + 1)).is_err());
        assert!(xml(&deep(200_000)).is_err(), "however deep it is, the stack suffices");
        assert!(xml("<a><b></a>").is_err() && xml("").is_err());
    }

    #[test]
    fn each_line_is_a_value() {
        assert_eq!(ndjson("{\"a\": 1}\r\n\n[2]\n").expect("NDJSON"), json!([{"a": 1}, [2]]));
        assert!(ndjson("{\"a\": 1}\n{").is_err_and(|error| error.starts_with("line 2: ")));
    }
}
