//! Subtools as typed signatures of TypeScript, with comments: what a schema says, as a model writes it, in fewer tokens.
//!
//! Each is a member of an interface: `name(input: {…})`. What TypeScript has no type for, such as the least number or the
//! default, is in the comment behind the parameter. The keywords are those of JSON Schema 2020-12.

use std::cell::Cell;
use std::fmt::Write as _;

use protocol::invisible;
use protocol::json;
use serde_json::{Map, Value};

/// What is longer gets a line for each parameter.
const MAX_LINE_CHARS: usize = 80;
/// How deep a schema is followed. What lies deeper is `unknown`.
const MAX_DEPTH: usize = 16;
/// How many types one signature has: references that are followed again and again could make it endless.
const MAX_TYPES: usize = 5_000;
/// How much of a keyword that no type expresses is shown.
const MAX_KEYWORD_CHARS: usize = 200;
/// Keywords that the type itself says, or that say nothing to a caller.
const IN_TYPE: [&str; 22] = [
    "$anchor",
    "$comment",
    "$defs",
    "$id",
    "$ref",
    "$schema",
    "additionalProperties",
    "allOf",
    "anyOf",
    "const",
    "definitions",
    "description",
    "enum",
    "examples",
    "items",
    "oneOf",
    "prefixItems",
    "properties",
    "required",
    "title",
    "type",
    "writeOnly",
];

/// The signature of the subtool `name` with this input.
pub(super) fn signature(name: &str, description: &str, input: &Value) -> String {
    let more = remarks_of_whole(input).map(|more| format!("; {more}")).unwrap_or_default();
    let mut text = format!("/** {}{} */\n", enclosed(description), enclosed(&more));
    let name = key(name);
    let written = Types { root: input, left: Cell::new(MAX_TYPES) }.of(input, 0, &mut Vec::new());
    // Without parameters there is nothing to write.
    let input = if matches!(&*written, "{}" | "unknown") { String::new() } else { format!("input: {written}") };
    writeln!(text, "{name}({input})").expect("a text takes all");
    // What would not be seen, in comments and in texts alike.
    text.split('\n').map(invisible::escaped).collect::<Vec<_>>().join("\n")
}

/// What the schema of a whole input says beside its type and its description.
fn remarks_of_whole(input: &Value) -> Option<String> {
    let mut input = input.as_object()?.clone();
    input.remove("description");
    Some(remarks(&Value::Object(input))).filter(|said| !said.is_empty())
}

/// A text as a comment to the end of a line.
pub(super) fn comment(text: &str) -> String {
    let words = text.split(|character: char| character.is_whitespace() || character.is_control());
    words.filter(|word| !word.is_empty()).collect::<Vec<_>>().join(" ")
}

/// A text inside a comment between `/*` and `*/`.
fn enclosed(text: &str) -> String {
    comment(text).replace("*/", "* /")
}

/// Writes the types of one schema.
struct Types<'a> {
    root: &'a Value,
    /// How many more are written.
    left: Cell<usize>,
}

impl<'a> Types<'a> {
    /// The type of `schema`, which stands behind `indent` steps; `references` are those on the way to it.
    fn of(&self, schema: &'a Value, indent: usize, references: &mut Vec<&'a str>) -> String {
        let Value::Object(fields) = schema else {
            return if schema == &Value::Bool(false) { "never" } else { "unknown" }.to_owned();
        };
        let Some(left) = self.left.get().checked_sub(1).filter(|_| indent <= MAX_DEPTH) else {
            return "unknown".to_owned();
        };
        self.left.set(left);
        if let Some(reference) = fields.get("$ref").and_then(Value::as_str) {
            let known = reference.strip_prefix('#').and_then(|pointer| self.root.pointer(pointer));
            let Some(known) = known.filter(|_| !references.contains(&reference)) else { return "unknown".to_owned() };
            references.push(reference);
            let written = self.of(known, indent, references);
            references.pop();
            return written;
        }
        if let Some(value) = fields.get("const") {
            return value.to_string();
        }
        if let Some(Value::Array(values)) = fields.get("enum") {
            return union(values.iter().map(Value::to_string));
        }
        let mut all = Vec::new();
        let own = self.own(fields, indent, references);
        let parts = |key: &str| fields.get(key).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
        for key in ["anyOf", "oneOf"] {
            let choices = parts(key);
            if !choices.is_empty() {
                all.push(union(choices.iter().map(|part| self.of(part, indent, references))));
            }
        }
        all.extend(parts("allOf").iter().map(|part| self.of(part, indent, references)));
        all.retain(|written| written != "unknown");
        match own {
            // `{type: object}` beside choices says nothing more.
            Some(own) if all.is_empty() || !matches!(&*own, "object" | "{}") => all.insert(0, own),
            Some(_) | None => {}
        }
        match &mut all[..] {
            [] => "unknown".to_owned(),
            [one] => std::mem::take(one),
            _ => all.iter().map(|part| in_parentheses(part)).collect::<Vec<_>>().join(" & "),
        }
    }

    /// What `type` and its parts say; `None` if the schema has no type of its own.
    fn own(&self, fields: &'a Map<String, Value>, indent: usize, references: &mut Vec<&'a str>) -> Option<String> {
        let kinds = match fields.get("type") {
            Some(kind @ (Value::String(_) | Value::Array(_))) => json::named_types(Some(kind)),
            _ if fields.contains_key("properties") || fields.contains_key("required") => vec!["object"],
            _ if fields.contains_key("items") => vec!["array"],
            _ => return None,
        };
        let of_kind = |kind: &&str| match *kind {
            "integer" => "number".to_owned(),
            "array" => self.array(fields, indent, references),
            "object" => self.object(fields, indent, references),
            kind => kind.to_owned(),
        };
        Some(union(kinds.iter().map(of_kind)))
    }

    fn array(&self, fields: &'a Map<String, Value>, indent: usize, references: &mut Vec<&'a str>) -> String {
        if let Some(Value::Array(first)) = fields.get("prefixItems") {
            let first: Vec<_> = first.iter().map(|item| self.of(item, indent, references)).collect();
            return format!("[{}]", first.join(", "));
        }
        let item = fields.get("items").map_or_else(|| "unknown".to_owned(), |item| self.of(item, indent, references));
        format!("{}[]", in_parentheses(&item))
    }

    fn object(&self, fields: &'a Map<String, Value>, indent: usize, references: &mut Vec<&'a str>) -> String {
        let properties = fields.get("properties").and_then(Value::as_object);
        let required = fields.get("required").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
        let mut members: Vec<(String, String)> = Vec::new();
        for (name, schema) in properties.into_iter().flatten() {
            let written = self.of(schema, indent + 1, references);
            let optional = if required.iter().any(|one| one == name) { "" } else { "?" };
            let name = key(name);
            members.push((format!("{name}{optional}: {written}"), remarks(schema)));
        }
        // What must be given and is described elsewhere.
        for name in required
            .iter()
            .filter_map(Value::as_str)
            .filter(|name| properties.is_none_or(|known| !known.contains_key(*name)))
        {
            let name = key(name);
            members.push((format!("{name}: unknown"), String::new()));
        }
        match fields.get("additionalProperties") {
            Some(Value::Object(others)) if !others.is_empty() => {
                let written = self.of(&fields["additionalProperties"], indent + 1, references);
                members.push((format!("[key: string]: {written}"), remarks(&fields["additionalProperties"])));
            }
            // Without parameters of its own it is open.
            Some(Value::Bool(true) | Value::Object(_)) if members.is_empty() => return "object".to_owned(),
            None if members.is_empty() && indent > 0 => return "object".to_owned(),
            _ => {}
        }
        let own = fields.get("$comment").and_then(Value::as_str).map(comment);
        let has_remarks = own.is_some() || members.iter().any(|(_, remark)| !remark.is_empty());
        let short = members.iter().map(|(member, _)| member.as_str()).collect::<Vec<_>>().join(", ");
        if !has_remarks && !short.contains('\n') && short.chars().count() <= MAX_LINE_CHARS {
            return format!("{{{short}}}");
        }
        let step = " ".repeat(indent + 1);
        let mut text = "{\n".to_owned();
        for (member, remark) in &members {
            let remark = if remark.is_empty() { String::new() } else { format!(" // {remark}") };
            // A comment behind an object belongs to its first line.
            match member.split_once('\n') {
                Some((first, rest)) => writeln!(text, "{step}{first}{remark}\n{rest},").expect("a text takes all"),
                None => writeln!(text, "{step}{member},{remark}").expect("a text takes all"),
            }
        }
        if let Some(own) = own {
            writeln!(text, "{step}// {own}").expect("a text takes all");
        }
        write!(text, "{}}}", " ".repeat(indent)).expect("a text takes all");
        text
    }
}

/// What a schema says beside its type.
fn remarks(schema: &Value) -> String {
    let Value::Object(fields) = schema else { return String::new() };
    let mut said = Vec::new();
    if let Some(description) = fields.get("description").and_then(Value::as_str).filter(|text| !text.trim().is_empty())
    {
        said.push(comment(description).trim_end_matches('.').to_owned());
    }
    if fields.get("type").is_some_and(|kind| kind == "integer") {
        said.push("integer".to_owned());
    }
    let (number, length) = (["minimum", "maximum"], ["minLength", "maxLength"]);
    for ([least, most], unit) in [(number, ""), (length, " characters"), (["minItems", "maxItems"], " items")] {
        // That it is not empty goes without saying.
        let least = fields.get(least).filter(|least| unit.is_empty() || **least != 1);
        match (least, fields.get(most)) {
            (Some(least), Some(most)) => said.push(format!("{least} to {most}{unit}")),
            (Some(least), None) => said.push(format!("at least {least}{unit}")),
            (None, Some(most)) => said.push(format!("at most {most}{unit}")),
            (None, None) => {}
        }
    }
    for (key, word) in [("format", "format "), ("pattern", "matches "), ("default", "default ")] {
        match fields.get(key) {
            Some(Value::String(text)) if key != "default" => said.push(format!("{word}{}", comment(text))),
            Some(value) => said.push(format!("{word}{}", comment(&value.to_string()))),
            None => {}
        }
    }
    let known =
        ["minimum", "maximum", "minLength", "maxLength", "minItems", "maxItems", "format", "pattern", "default"];
    for (key, value) in
        fields.iter().filter(|(key, _)| !IN_TYPE.contains(&key.as_str()) && !known.contains(&key.as_str()))
    {
        let value = comment(&value.to_string());
        said.push(format!("{key} {}", value.chars().take(MAX_KEYWORD_CHARS).collect::<String>()));
    }
    said.join("; ")
}

/// Each type once, in their order.
fn union(types: impl Iterator<Item = String>) -> String {
    let mut each: Vec<String> = Vec::new();
    for written in types {
        if !each.contains(&written) {
            each.push(written);
        }
    }
    each.join(" | ")
}

/// A union inside another type.
fn in_parentheses(written: &str) -> String {
    let is_one = !written.contains(" | ") && !written.contains(" & ");
    let is_object =
        written.starts_with('{') && written.ends_with('}') && !written.contains("} | {") && !written.contains("} & {");
    if is_one || is_object { written.to_owned() } else { format!("({written})") }
}

fn is_identifier(name: &str) -> bool {
    let mut characters = name.chars();
    characters.next().is_some_and(|first| first.is_ascii_alphabetic() || first == '_' || first == '$')
        && characters.all(|next| next.is_ascii_alphanumeric() || next == '_' || next == '$')
}

/// A name as the key of a member.
fn key(name: &str) -> String {
    if is_identifier(name) { name.to_owned() } else { Value::from(name).to_string() }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn input(schema: &Value) -> String {
        let text = signature("mail_send", "Sends a mail.", schema);
        let (_, input) = text.split_once("*/\nmail_send(").expect("a signature");
        input.strip_suffix(")\n").expect("its end").to_owned()
    }

    fn of(property: &Value) -> String {
        let written = input(&json!({"properties": {"a": property}}));
        let inner = written.strip_prefix("input: {").and_then(|rest| rest.strip_suffix('}')).expect("an object");
        inner.trim().trim_end_matches(',').to_owned()
    }

    #[test]
    fn each_schema_has_a_type() {
        for (schema, expected) in [
            (json!({"type": "string"}), "a?: string"),
            (json!({"type": ["string", "null"]}), "a?: string | null"),
            (json!({"enum": ["x", 1, null]}), "a?: \"x\" | 1 | null"),
            (json!({"const": true}), "a?: true"),
            (json!({"type": "array", "items": {"type": "string"}}), "a?: string[]"),
            (json!({"type": "array", "items": {"enum": ["x", "y"]}}), "a?: (\"x\" | \"y\")[]"),
            (json!({"type": "array"}), "a?: unknown[]"),
            (json!({"prefixItems": [{"type": "string"}, {"type": "number"}], "type": "array"}), "a?: [string, number]"),
            (json!({"type": "object"}), "a?: object"),
            (json!({"type": "object", "additionalProperties": {"type": "number"}}), "a?: {[key: string]: number}"),
            (json!({"type": "object", "required": ["x"], "properties": {"x": {"type": "string"}}}), "a?: {x: string}"),
            (json!({"type": "object", "properties": {"x-y": {}}}), "a?: {\"x-y\"?: unknown}"),
            (json!({"anyOf": [{"type": "string"}, {"type": "number"}, {"type": "string"}]}), "a?: string | number"),
            (json!({"allOf": [{"type": "object", "required": ["x"]}, {"$ref": "#/none"}]}), "a?: {x: unknown}"),
            (
                json!({"type": "object", "oneOf": [{"required": ["x"]}, {"required": ["y"]}]}),
                "a?: {x: unknown} | {y: unknown}",
            ),
            (json!(true), "a?: unknown"),
            (json!(false), "a?: never"),
        ] {
            assert_eq!(of(&schema), expected, "{schema}");
        }
    }

    #[test]
    fn what_has_no_type_stands_in_the_comment() {
        for (schema, expected) in [
            (
                json!({"type": "integer", "minimum": 1, "maximum": 100, "default": 25, "description": "How many. At most."}),
                "a?: number, // How many. At most; integer; 1 to 100; default 25",
            ),
            (
                json!({"type": "string", "maxLength": 5, "format": "date", "pattern": "^x"}),
                "a?: string, // at most 5 characters; format date; matches ^x",
            ),
            (json!({"type": "array", "minItems": 1, "uniqueItems": true}), "a?: unknown[], // uniqueItems true"),
        ] {
            let written = input(&json!({"properties": {"a": schema}}));
            assert!(written.contains(expected), "{written}");
        }
    }

    #[test]
    fn what_is_said_of_the_whole_input_is_not_lost() {
        let text = signature(
            "a",
            "Does it.",
            &json!({"properties": {"x": {}}, "dependentRequired": {"x": ["y"]}, "minProperties": 1}),
        );
        assert!(text.starts_with("/** Does it.; dependentRequired {\"x\":[\"y\"]}; minProperties 1 */\n"), "{text}");
    }

    #[test]
    fn what_hides_is_written_out() {
        let text = signature("a", "Does\u{200b} it.", &json!({"properties": {"x\u{2028}y": {"enum": ["\u{202e}"]}}}));
        assert!(
            text.contains("Does\\u{200b} it") && text.contains("x\\u{2028}y") && text.contains("\\u{202e}"),
            "{text}"
        );
        assert_eq!(text.lines().count(), 2, "{text}");
    }

    #[test]
    fn words_of_others_stay_inside_their_comments() {
        let evil = "ends */ here\n// and\u{2028}goes on\u{1b}[31m";
        let schema = json!({"properties": {"a": {"description": evil, "default": evil}, "b */": {}}, "$comment": evil});
        let text = signature("x*/", evil, &schema);
        assert_eq!(text.lines().next().map(|line| line.matches("*/").count()), Some(1), "only its own end: {text}");
        let starts = ["/** ", "\"x*/\"(", " a?: ", " \"b */\"?: ", " // ends", "})"];
        let lines: Vec<_> = text.lines().collect();
        assert_eq!(lines.len(), starts.len(), "{text}");
        assert!(lines.iter().zip(starts).all(|(line, start)| line.starts_with(start)), "{text}");
        assert!(!text.contains('\u{1b}') && !text.contains('\u{2028}'), "{text:?}");
    }

    #[test]
    fn a_reference_is_followed_unless_it_leads_back() {
        let schema = json!({
            "properties": {"a": {"$ref": "#/$defs/node"}, "b": {"$ref": "https://a.example/x"}},
            "$defs": {"node": {"type": "object", "properties": {"next": {"$ref": "#/$defs/node"}}}},
        });
        assert_eq!(input(&schema), "input: {a?: {next?: unknown}, b?: unknown}");
    }

    #[test]
    fn references_to_references_do_not_grow_without_end() {
        let pair = |next: usize| json!({"properties": {"a": {"$ref": format!("#/$defs/d{next}")}, "b": {"$ref": format!("#/$defs/d{next}")}}});
        let defs: Map<String, Value> = (0..40).map(|number| (format!("d{number}"), pair(number + 1))).collect();
        let text = signature("deep", "Deep.", &json!({"properties": {"a": {"$ref": "#/$defs/d0"}}, "$defs": defs}));
        assert!(text.len() < 500_000, "{} bytes", text.len());
    }

    #[test]
    fn without_parameters_there_is_no_input() {
        for schema in [json!({}), json!({"type": "object"}), json!({"properties": {}, "additionalProperties": false})] {
            assert_eq!(input(&schema), "");
        }
        assert_eq!(input(&json!({"type": "object", "additionalProperties": true})), "input: object");
    }

    #[test]
    fn a_long_object_has_a_line_for_each_parameter() {
        let written = input(&json!({"required": ["to"], "properties": {
            "to": {"type": "string", "description": "Who gets it."},
            "options": {"description": "How.", "type": "object", "properties": {"at": {"type": "string", "description": "When."}}},
        }}));
        let expected = "input: {\n to: string, // Who gets it\n options?: { // How\n  at?: string, // When\n },\n}";
        assert_eq!(written, expected);
    }
}
