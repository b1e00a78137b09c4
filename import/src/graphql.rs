//! GraphQL: one subtool for each field of the query and the mutation type.
//!
//! The query of a subtool is a plain text that a developer can edit; values reach it only as variables. Asks no server:
//! the command fetches the introspection result.

use protocol::sentences::first_sentences;
use serde_json::{Map, Value, json};

use crate::document::Document;
use crate::names::{self, Names};
use crate::text::sentence;
use crate::{ImportError, ImportOptions, Imported, ImportedSubtool, LeftOut, describe};
use arguments::ArgumentSchemas;
use schema::{GraphqlArgument, GraphqlField, GraphqlSchema, TypeReference};
use selection::{Selector, is_usable, most_telling};

mod arguments;
mod schema;
mod sdl;
mod selection;

pub use schema::INTROSPECTION_QUERY;

/// The depth of a query unless the human asks for another.
pub const DEFAULT_DEPTH: usize = 2;
/// The greatest depth: the number of fields grows with it exponentially.
pub const MAX_DEPTH: usize = 5;

/// How many items of a page a query asks for if its caller does not say.
const PAGE_SIZE: u32 = 10;
/// How many fields of the answer a description names.
const MAX_NAMED_FIELDS: usize = 8;

/// First words of mutations that destroy something.
const DESTROYING: [&str; 16] = [
    "archive", "cancel", "clear", "close", "delete", "destroy", "disable", "discard", "drop", "erase", "purge",
    "remove", "reset", "revoke", "truncate", "unlink",
];
/// First words of queries that say already what is done.
const READING: [&str; 18] = [
    "all", "can", "check", "count", "fetch", "filter", "find", "get", "has", "is", "list", "load", "lookup", "query",
    "read", "resolve", "search", "validate",
];

/// The option for the depth of the answers, in [`ImportOptions::others`].
pub const ANSWER_DEPTH: &str = "answer-depth";

/// Whether `document` is an introspection result, or GraphQL's schema definition language.
pub(crate) fn recognizes(document: &Document) -> bool {
    is_introspection(&document.data) || document.data.is_null() && is_sdl(&document.text)
}

fn is_introspection(document: &Value) -> bool {
    document.pointer("/data/__schema").or_else(|| document.pointer("/__schema")).is_some_and(Value::is_object)
}

fn is_sdl(text: &str) -> bool {
    const BLOCKS: [&str; 8] = ["schema", "type", "interface", "input", "enum", "union", "scalar", "extend"];
    let starts_block = |line: &str| {
        let mut words = line.split_whitespace();
        let first = words.next().is_some_and(|word| BLOCKS.contains(&word.trim_end_matches('{')));
        // The next word is a name, and not a colon or a value as in YAML.
        first && words.next().is_none_or(|word| word.starts_with(|it: char| it.is_alphabetic() || "{_@".contains(it)))
    };
    text.contains('{') && text.lines().any(starts_block)
}

/// Imports an introspection result, or a schema in GraphQL's own language.
pub(crate) fn import(document: &Document, options: &ImportOptions) -> Result<Imported, ImportError> {
    if is_introspection(&document.data) {
        return of_introspection(&document.data, document, options);
    }
    if let Some(message) = document.data.pointer("/errors/0/message").and_then(Value::as_str) {
        return Err(ImportError::new(format!("the server does not tell its schema: {message}"))
            .hint("import the schema from a file, with --server URL"));
    }
    let (introspection, mistakes) = sdl::introspection(&document.text);
    let mut imported = of_introspection(&introspection, document, options)?;
    if let (true, Some(mistake)) = (imported.subtools.is_empty(), mistakes.first()) {
        return Err(ImportError::new(format!("it is no whole schema: {mistake}"))
            .hint("import the whole text of the schema, or the result of an introspection query"));
    }
    imported.found += mistakes.len();
    imported.left_out.extend(mistakes.into_iter().map(|reason| LeftOut::new("a part of the schema", reason)));
    Ok(imported)
}

fn of_introspection(data: &Value, document: &Document, options: &ImportOptions) -> Result<Imported, ImportError> {
    let schema = GraphqlSchema::of_introspection(data)
        .filter(|schema| schema.query.is_some() || schema.mutation.is_some())
        .ok_or_else(|| ImportError::new("the schema has neither a query nor a mutation type"))?;
    let url = document.url().map(|url| url.to_string());
    let server = options.server.clone().or(url).ok_or_else(|| {
        ImportError::new("the schema does not say where its server is").hint("name it with --server URL")
    })?;
    let host = url::Url::parse(&server).ok().and_then(|url| url.host_str().map(str::to_owned)).unwrap_or_default();
    let word = names::of_host(&host).unwrap_or_else(|| "graphql".to_owned());
    let pack = options.pack.clone().unwrap_or_else(|| word.clone());
    let mut imported = Imported { id: host, word, ..Imported::default() };
    imported.defaults.insert(
        "run".to_owned(),
        json!({"http": {"method": "POST", "base_url": server, "headers": {"Accept": "application/json"}}}),
    );
    imported.notes.push(format!(
        "a GraphQL schema does not say how to sign in; if the server needs a key, add \"auth\": {{\"bearer\": \
         \"secret:{pack}\"}} to run.http in $defaults, and store it: agent-magic-tool secret set {pack}"
    ));
    let depth = options.others.get(ANSWER_DEPTH).and_then(|depth| depth.parse().ok()).unwrap_or(DEFAULT_DEPTH);
    let mut made = Names::new(options.max_name_chars);
    for (fields, operation) in [
        (schema.root(schema.query.as_ref()), GraphqlOperation::Query),
        (schema.root(schema.mutation.as_ref()), GraphqlOperation::Mutation),
    ] {
        for field in fields {
            imported.found += 1;
            let what = format!("{} {}", operation.word(), field.name);
            if field.is_deprecated && !options.full {
                imported.left_out.push(LeftOut::new(what, "deprecated"));
            } else if field.name.starts_with("__") || matches!(field.name.as_str(), "_service" | "_entities") {
                imported.left_out.push(LeftOut::new(what, "answers questions about the schema itself"));
            } else {
                imported.subtools.push(ImportedSubtool {
                    name: made.make(&pack, &name(field, operation)),
                    what,
                    group: operation.word().to_owned(),
                    definition: definition(&schema, field, operation, depth, options.depth),
                });
            }
        }
    }
    Ok(imported)
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum GraphqlOperation {
    Query,
    Mutation,
}

impl GraphqlOperation {
    fn word(self) -> &'static str {
        match self {
            Self::Query => "query",
            Self::Mutation => "mutation",
        }
    }
}

fn definition(
    schema: &GraphqlSchema,
    field: &GraphqlField,
    operation: GraphqlOperation,
    depth: usize,
    input_depth: Option<usize>,
) -> Map<String, Value> {
    let field = &without_noise(field);
    let input = flat_input(schema, field);
    let parameters = input.clone().unwrap_or_else(|| field.arguments.clone());
    let variables: Map<_, _> = field
        .arguments
        .iter()
        .map(|argument| {
            let name = argument.name.as_str();
            let reference = if input.is_none() && is_taken(name) { format!("input.{name}") } else { name.to_owned() };
            (name.to_owned(), format!("{{{{ {reference} }}}}").into())
        })
        .collect();
    let answer = format!(".data.{}", field.name);
    let select = format!("if (.errors // []) != [] then error([.errors[].message] | join(\"; \")) else {answer} end");
    let mut body = Map::new();
    body.insert("query".to_owned(), document(schema, field, operation, depth).into());
    if !variables.is_empty() {
        body.insert("variables".to_owned(), variables.into());
    }
    let mut definition = Map::new();
    definition.insert("description".to_owned(), description(schema, field, operation).into());
    definition.insert("input".to_owned(), ArgumentSchemas::new(schema, input_depth).object(&parameters).into());
    match operation {
        GraphqlOperation::Query => drop(definition.insert("annotations".to_owned(), json!({"readOnlyHint": true}))),
        GraphqlOperation::Mutation if destroys(&field.name) => {
            definition.insert("annotations".to_owned(), json!({"destructiveHint": true}));
        }
        GraphqlOperation::Mutation => {}
    }
    definition.insert("run".to_owned(), json!({"http": {"body": {"json": body}}}));
    definition.insert("result".to_owned(), json!({"select": select}));
    definition
}

/// The fields of the only argument, if it is an object called `input` as Relay has it: they become the input itself.
fn flat_input(schema: &GraphqlSchema, field: &GraphqlField) -> Option<Vec<GraphqlArgument>> {
    let [only] = field.arguments.as_slice() else { return None };
    let is_object = only.name == "input" && !only.kind.is_list();
    let fields = &schema.types.get(only.kind.name()).filter(|_| is_object)?.inputs;
    (!fields.is_empty()).then(|| fields.iter().filter(|it| it.name != "clientMutationId").cloned().collect())
}

/// The field without the arguments that page backwards, and with a size for its pages: servers often demand one and
/// do not declare it.
fn without_noise(field: &GraphqlField) -> GraphqlField {
    let has = |name: &str| field.arguments.iter().any(|argument| argument.name == name);
    let mut field = field.clone();
    if has("first") && has("after") {
        let is_backward = |it: &GraphqlArgument| matches!(it.name.as_str(), "last" | "before") && !it.is_required();
        field.arguments.retain(|argument| !is_backward(argument));
        for argument in field.arguments.iter_mut().filter(|it| it.name == "first" && it.default.is_none()) {
            let has_plain_type = matches!(&argument.kind, TypeReference::Named(name) if name == "Int");
            argument.default = has_plain_type.then(|| PAGE_SIZE.to_string());
        }
    }
    field
}

/// Whether a template knows a field of this name only as `input.NAME`.
fn is_taken(name: &str) -> bool {
    const WORDS: [&str; 14] =
        ["input", "task", "caller", "vars", "and", "or", "not", "in", "is", "if", "else", "true", "false", "none"];
    WORDS.contains(&name)
}

/// The words of the name: the field's, and for a query whose name is only a noun what is done with it.
fn name(field: &GraphqlField, operation: GraphqlOperation) -> String {
    let words = names::words(&field.name);
    let first = words.first().map(String::as_str).unwrap_or_default();
    let name = words.join(" ");
    match operation {
        GraphqlOperation::Query if !READING.contains(&first) => {
            let is_many = field.kind.is_list() || field.kind.name().ends_with("Connection");
            format!("{} {name}", if is_many { "list" } else { "get" })
        }
        _ => name,
    }
}

fn destroys(name: &str) -> bool {
    names::words(name).iter().any(|word| DESTROYING.contains(&word.as_str()))
}

fn description(schema: &GraphqlSchema, field: &GraphqlField, operation: GraphqlOperation) -> String {
    let own = first_sentences(&describe::plain(&field.description), describe::MAX_DESCRIPTION_CHARS);
    let first = if own.is_empty() { name(field, operation) } else { own };
    let answer = schema.types.get(field.kind.name());
    let usable = answer.into_iter().flat_map(|known| known.fields.iter()).filter(|it| is_usable(it)).collect();
    let named = most_telling(usable).into_iter().map(|inner| inner.name.as_str());
    let named: Vec<_> = named.filter(|name| !matches!(*name, "edges" | "pageInfo")).take(MAX_NAMED_FIELDS).collect();
    let fields = named.join(", ");
    let name = field.kind.name();
    // `CreateIssuePayload` says no more than what it has.
    let is_wrapper = ["Payload", "Response", "Result", "Output"].iter().any(|end| name.ends_with(end));
    let returns = match (name, name.strip_suffix("Connection")) {
        ("Boolean", _) => "Returns true or false.".to_owned(),
        (_, Some(item)) => format!("Returns a page of `{item}`."),
        _ if is_wrapper && !fields.is_empty() => format!("Returns {fields}."),
        _ if is_wrapper => format!("Runs the {} `{}`.", operation.word(), field.name),
        _ => {
            let list = if field.kind.is_list() { "a list of " } else { "" };
            let fields = if fields.is_empty() { fields } else { format!(": {fields}") };
            format!("Returns {list}`{name}`{fields}.")
        }
    };
    format!("{} {returns}", sentence(&first)).trim_end().to_owned()
}

/// The query, in one line that a human can edit.
fn document(schema: &GraphqlSchema, field: &GraphqlField, operation: GraphqlOperation, depth: usize) -> String {
    let declared: Vec<_> = field.arguments.iter().map(|it| format!("${}: {}", it.name, it.kind.text())).collect();
    let passed: Vec<_> = field.arguments.iter().map(|it| format!("{0}: ${0}", it.name)).collect();
    let list = |items: &[String]| if items.is_empty() { String::new() } else { format!("({})", items.join(", ")) };
    let selected = Selector::new(schema).of_field(field, depth.clamp(1, MAX_DEPTH));
    let selected = selected.map(|fields| format!(" {{ {fields} }}")).unwrap_or_default();
    format!("{} {name}{} {{ {name}{}{selected} }}", operation.word(), list(&declared), list(&passed), name = field.name)
}

#[cfg(test)]
mod tests;
