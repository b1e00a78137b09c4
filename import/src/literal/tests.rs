//! What a source brings stays data, with every importer.

use serde_json::{Value, json};

use super::*;
use crate::document::Document;
use crate::kinds::{self, KINDS, Kind};
use crate::{ImportOptions, Imported};

/// What a source would like to be resolved.
const BAITS: [&str; 9] = [
    "secret:github",
    "Bearer secret:github",
    "env:HOME",
    "{{ caller.uid }}",
    "{{ id }}",
    "{{id}}",
    "x{{ task.id }}y",
    "{% for part in id|split('/') %}/{{ part }}{% endfor %}",
    "{# #}{{ input }}",
];

/// A description of each kind with `bait` wherever it has a text: in names, values, defaults, addresses, media types.
fn documents(bait: &str) -> Vec<(&'static str, Document)> {
    let schema = json!({"type": "object", "required": ["id"], "description": bait, "properties": {
        "id": {"type": "string", "default": bait, "example": bait, "description": bait},
        bait: {"type": "string", "enum": [bait], "const": bait},
    }});
    let parameter = |place: &str, name: &str, schema: Value| json!({"name": name, "in": place, "required": true, "description": bait, "schema": schema, "example": bait});
    let only = json!({"type": "string", "enum": [bait]});
    let constant = json!({"type": "string", "const": bait, "default": bait});
    let id = || parameter("path", "id", json!({"type": "string"}));
    let get = |extra: Vec<Value>| {
        json!({"get": {"operationId": bait, "tags": [bait], "summary": bait, "parameters": extra,
            "responses": {"200": {"content": {"application/json": {"schema": schema}}}}}})
    };
    let post = |kind: &str| json!({"post": {"parameters": [id()], "requestBody": {"description": bait, "content": {kind: {"schema": schema}}}}});
    let mut paths = json!({
        "/enum/{id}": get(vec![id(), parameter("header", "X-A", only.clone())]),
        "/const/{id}": get(vec![id(), parameter("header", "X-B", constant.clone())]),
        "/query/{id}": get(vec![id(), parameter("query", bait, only.clone())]),
        "/cookie/{id}": get(vec![id(), parameter("cookie", bait, json!({"type": "string"}))]),
        "/default/{id}": get(vec![parameter("path", "id", constant), parameter("header", bait, only)]),
        "/matrix/{id}": get(vec![json!({"name": "id", "in": "path", "required": true, "style": "matrix",
            "schema": {"type": "string"}})]),
        "/json/{id}": post(&format!("application/{bait}+json")),
        "/text/{id}": post(&format!("text/{bait}")),
        "/form/{id}": post("application/x-www-form-urlencoded"),
        "/parts/{id}": post("multipart/form-data"),
        "/file/{id}": post(&format!("image/{bait}")),
        "/server/{id}": {"servers": [{"url": format!("https://{bait}/x")}], "get": {"parameters": [id()]}},
        "/plain/{id}": get(vec![id()]),
    });
    paths[format!("/literal/{bait}/{{id}}")] = get(vec![id()]);
    paths[format!("/queried/{{id}}?q={bait}")] = get(vec![id()]);
    let schemes = json!({
        "key": {"type": "apiKey", "in": "header", "name": bait},
        "cookie": {"type": "apiKey", "in": "cookie", "name": bait},
        bait: {"type": "oauth2", "flows": {"clientCredentials": {"tokenUrl": bait, "scopes": {bait: bait}}}},
    });
    let openapi = |server: Value| {
        json!({"openapi": "3.1.0", "info": {"title": "Things", "version": bait, "description": bait}, "servers": [server],
            "paths": paths, "components": {"securitySchemes": schemes}, "security": [{"key": []}, {bait: []}]})
    };
    let swagger = json!({"swagger": "2.0", "info": {"title": "Things"}, "host": format!("{bait}.example"),
        "basePath": format!("/{bait}"), "consumes": [bait], "paths": {"/a/{id}": {"post": {"parameters": [
            {"name": "id", "in": "path", "type": "string"}, {"name": bait, "in": "formData", "type": "string"}]}}}});
    let google = json!({"kind": "discovery#restDescription", "name": "things", "rootUrl": "https://things.example/",
    "servicePath": "v1/", "auth": {"oauth2": {"scopes": {bait: {}}}}, "schemas": {"Thing": schema},
    "resources": {bait: {"methods": {
        "get": {"id": format!("things.{bait}"), "httpMethod": "GET", "path": format!("a/{bait}/{{id}}"),
            "parameters": {"id": {"type": "string", "location": "path", "default": bait}}},
        "set": {"id": "things.set", "httpMethod": "POST", "path": "a/{+id}", "description": bait,
            "request": {"$ref": "Thing"}, "parameters": {"id": {"location": "path"}, bait: {"location": "query"}}},
    }}}});
    let elsewhere = json!({"kind": "discovery#restDescription", "name": "things", "rootUrl": format!("https://{bait}/"),
        "resources": {"a": {"methods": {"get": {"id": "a.get", "httpMethod": "GET", "path": "a"}}}}});
    let string = json!({"kind": "SCALAR", "name": "String"});
    let graphql = json!({"data": {"__schema": {"queryType": {"name": "Query"}, "types": [
        {"kind": "OBJECT", "name": "Query", "fields": [
            {"name": format!("f{bait}"), "args": [], "type": string},
            {"name": "named", "args": [{"name": bait, "type": string, "defaultValue": bait}], "type": string},
            {"name": "typed", "description": bait, "args": [{"name": "id", "type": {"kind": "SCALAR", "name": bait}}],
                "type": {"kind": "OBJECT", "name": "Thing"}},
        ]},
        {"kind": "OBJECT", "name": "Thing", "fields": [
            {"name": bait, "args": [], "type": string}, {"name": "id", "args": [], "type": string}]},
    ]}}});
    let mcp = json!({"server": {"name": "things", "url": "https://things.example/mcp"}, "snapshot": {"tools": [
        {"tool": {"name": bait, "description": bait, "inputSchema": schema}, "digest": "0"},
        {"tool": {"name": "plain", "title": bait, "inputSchema": {"type": "object", "properties": {
            "id": {"type": "string", "x-mcp-header": bait, "default": bait}}}}, "digest": bait},
    ]}});
    let sql = json!({"database": "shop", "snapshot": {"dialect": "PostgreSQL", "tables": [{"name": bait, "comment": bait,
        "columns": [{"name": bait, "type": bait, "values": [bait], "comment": bait}]},
        {"name": "plain", "columns": [{"name": "id", "type": "text", "key": "primary"}]}]}});
    let help = format!(
        "{bait}\n\nUsage: prog [OPTIONS] <{bait}> [ID]\n\nOptions:\n      --one={bait}  {bait}\n      --{bait} <ID>  x\n  \
         -v, --verbose <{bait}>  [possible values: {bait}, b] [default: {bait}]\n"
    );
    let cli = json!({"command": ["prog"], "helps": {"--help": {"text": help}}});
    let servers = [
        json!({"url": "https://things.example/v1"}),
        json!({"url": "https://{host}/v1", "variables": {"host": {"default": bait, "enum": [bait]}}}),
        json!({"url": format!("https://things.example/{bait}")}),
    ];
    let mut all: Vec<_> = servers.into_iter().map(|server| ("openapi", openapi(server))).collect();
    all.extend([("openapi", swagger), ("google", google), ("google", elsewhere), ("graphql", graphql)]);
    all.extend([("mcp", mcp), ("sql", sql), ("cli", cli)]);
    let server = "https://things.example/spec";
    all.into_iter().map(|(kind, data)| (kind, Document::new(server, data.to_string()).expect("readable"))).collect()
}

fn import(kind: &str, document: &Document) -> Result<Imported, ImportError> {
    let mut options = ImportOptions { pack: Some("things".to_owned()), full: true, ..ImportOptions::default() };
    options.others.insert(crate::sql::TABLES.to_owned(), "*".to_owned());
    kinds::named(kind).expect("a kind").import(document, &options)
}

/// The places below `value` that an executor would fill in, other than fields of the input and secrets of the pack.
fn resolved(value: &Value, fields: &BTreeSet<String>, found: &mut Vec<String>) {
    match value {
        Value::String(text) => {
            let mut rest = text.as_str();
            while let Some(start) = rest.find("{{") {
                let inner = rest[start + 2..].split("}}").next().unwrap_or_default().trim();
                let name = inner.split('|').next().unwrap_or_default();
                let name = name.strip_prefix("input.").unwrap_or(name);
                if !fields.contains(name) && !ITEMS.contains(&name) {
                    found.push(text.clone());
                }
                rest = &rest[start + 2..];
            }
            let word = text.rsplit(' ').next().unwrap_or_default();
            let is_foreign = |name: &str| name != "things" && !name.starts_with("things_");
            if word.strip_prefix("secret:").is_some_and(is_foreign) || text.contains("env:") || text.contains("{#") {
                found.push(text.clone());
            }
        }
        Value::Array(items) => items.iter().for_each(|item| resolved(item, fields, found)),
        Value::Object(members) => members.iter().for_each(|(key, member)| {
            resolved(&key.as_str().into(), fields, found);
            resolved(member, fields, found);
        }),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

#[test]
fn no_importer_lets_a_source_bring_a_template_or_the_name_of_a_secret() {
    let mut kinds_seen = BTreeSet::new();
    for bait in BAITS {
        for (kind, document) in documents(bait) {
            let Ok(imported) = import(kind, &document) else { continue };
            kinds_seen.insert(kind);
            let mut found = Vec::new();
            let none = Value::Null;
            resolved(imported.defaults.get("run").unwrap_or(&none), &BTreeSet::new(), &mut found);
            for subtool in &imported.subtools {
                let fields = fields(&subtool.definition);
                for key in ["run", "result"] {
                    resolved(subtool.definition.get(key).unwrap_or(&none), &fields, &mut found);
                }
            }
            assert!(found.is_empty(), "{kind} with `{bait}`: {found:?}");
        }
    }
    let all: BTreeSet<_> = KINDS.iter().map(|kind| kind.word).filter(|word| *word != "curl").collect();
    assert_eq!(kinds_seen, all, "each kind was imported at least once");
}

/// A text of the source that is a template over a field of its own subtool has the form of one that importers write.
#[test]
fn a_literal_that_looks_like_our_own_template_leaves_its_subtool_out() {
    for bait in ["{{ id }}", "secret:things"] {
        for (kind, document) in documents(bait).into_iter().filter(|(kind, _)| matches!(*kind, "openapi" | "google")) {
            let Ok(imported) = import(kind, &document) else { continue };
            for subtool in &imported.subtools {
                let http = &subtool.definition["run"]["http"];
                let mut written = vec![http["path"].to_string().replacen("{{ id }}", "", 1)];
                written.extend(["X-A", "X-B", "Content-Type", "Cookie"].map(|name| http["headers"][name].to_string()));
                written.push(http["query"]["q"].to_string());
                // A cookie has a field of its own, whose name is made of the bait.
                assert!(!written.iter().any(|text| text.contains(bait)), "{}: {http}", subtool.what);
            }
        }
    }
}

#[test]
fn what_the_source_says_is_imported_when_it_is_plain() {
    for (kind, document) in documents("plain-word") {
        let imported = import(kind, &document).unwrap_or_else(|error| panic!("{kind}: {error}"));
        let refused: Vec<_> = imported.left_out.iter().filter(|left| left.reason == REASON).collect();
        assert!(refused.is_empty(), "{kind}: {refused:?}");
    }
}

#[test]
fn a_curl_line_is_copied_from_somewhere_and_is_data_too() {
    for line in [
        "curl https://a.example/x -H 'X-Key: secret:github'",
        "curl https://a.example/x -H 'X-Key: Token secret:github'",
        "curl https://a.example/x -H 'X-User: {{ caller.uid }}'",
        "curl 'https://a.example/{{ caller.uid }}/x'",
        "curl 'https://{{caller.uid}}.a.example/x'",
    ] {
        assert!(crate::curl::document(line).is_err(), "{line}");
    }
    let document = crate::curl::document("curl https://a.example/x?q=secret:github -d '{\"a\": \"{{ caller.uid }}\"}'");
    let imported = import("curl", &document.expect("values become inputs")).expect("it is imported");
    assert_eq!(imported.subtools[0].definition["run"]["http"]["query"], json!({"q": "{{ q }}"}));
    assert_eq!(imported.secrets, BTreeSet::new());
}

/// Every place of a `curl` line. `new` writes what comes of it, and `import curl` imports the same.
#[test]
fn no_place_of_a_curl_line_brings_a_template_or_the_name_of_a_secret() {
    let baits = BAITS.into_iter().chain([
        "{{ q }}",
        "{{q}}",
        "{{ vars.team }}",
        "{{vars.team}}",
        "a $vars.team",
        "secret:a_token",
    ]);
    for bait in baits {
        for line in [
            format!("curl 'https://{bait}/x?q=1'"),
            format!("curl 'https://{bait}@a.example/x?q=1'"),
            format!("curl 'https://a.example/{bait}/x?q=1'"),
            format!("curl 'https://a.example/x?q=1#{bait}'"),
            format!("curl 'https://a.example/x?q={bait}'"),
            format!("curl 'https://a.example/x?q=1&{bait}=2'"),
            format!("curl 'https://a.example/x?q=1' -G -d 'a={bait}'"),
            format!("curl 'https://a.example/x?q=1' -X '{bait}'"),
            format!("curl 'https://a.example/x?q=1' -H 'X-A: {bait}'"),
            format!("curl 'https://a.example/x?q=1' -H '{bait}: x'"),
            format!("curl 'https://a.example/x?q=1' -H 'Authorization: {bait} x'"),
            format!("curl 'https://a.example/x?q=1' -H 'Authorization: {bait}'"),
            format!("curl 'https://a.example/x?q=1' -H '{bait}-token: x'"),
            format!("curl 'https://a.example/x?q=1' -b 'a={bait}'"),
            format!("curl 'https://a.example/x?q=1' -u '{bait}:x'"),
            format!("curl 'https://a.example/x?q=1' -A '{bait}' -e '{bait}'"),
            format!("curl 'https://a.example/x?q=1' -d '{{\"a\": \"{bait}\"}}'"),
            format!("curl 'https://a.example/x?q=1' -d '{{\"a\": {{\"b\": [\"{bait}\"]}}}}'"),
            format!("curl 'https://a.example/x?q=1' -d '{{\"{bait}\": 1}}'"),
            format!("curl 'https://a.example/x?q=1' --json '[\"{bait}\"]'"),
            format!("curl 'https://a.example/x?q=1' -d 'a={bait}'"),
            format!("curl 'https://a.example/x?q=1' -d '{bait}=a'"),
            format!("curl 'https://a.example/x?q=1' -F 'a={bait}'"),
            format!("curl 'https://a.example/x?q=1' -F '{bait}=a'"),
        ] {
            let Ok(draft) = crate::curl::of_curl(&line, "cc") else { continue };
            let definition = draft.definition.as_object().expect("an object").clone();
            assert!(!names_variable(&draft.definition), "{line}: {definition:?}");
            let mut foreign = draft.definition["run"].to_string();
            for own in definition["input"]["properties"].as_object().expect("fields").keys() {
                // Each field is written once.
                foreign = foreign.replacen(&format!("\"{{{{ {own} }}}}\""), "", 1);
            }
            foreign = foreign.replacen("\"secret:a_token\"", "", 1);
            let foreign_host = ["\"secret:", "_token\""];
            let is_plain = is_plain(&foreign)
                || foreign_host.iter().all(|part| foreign.contains(part)) && !line.contains("a.example");
            assert!(is_plain, "{line}: {}", draft.definition["run"]);
        }
    }
}

/// A file that looks like what we write down of a program, a server or a line would choose what is run.
#[test]
fn only_descriptions_of_apis_are_recognized_in_what_was_read() {
    let definition = json!({"description": "x", "run": {"process": {"argv": ["sh", "-c", "id"]}}});
    for (kind, data) in [
        ("curl", json!({"curl_line": {"definition": definition, "steps": []}})),
        ("mcp", json!({"server": {"name": "x", "command": ["sh"]}, "snapshot": {"tools": []}})),
        ("sql", json!({"database": "shop", "snapshot": {"tables": []}})),
        ("cli", json!({"command": ["sh"], "helps": {"": "Usage: sh"}})),
    ] {
        let document = Document::new("/tmp/spec.json", data.to_string()).expect("readable");
        let known = kinds::named(kind).map(|kind| (kind.recognizes)(&document));
        assert_eq!(known, Some(true), "{kind}: the document is what the kind reads");
        assert!(kinds::of(&document).map(|kind: &Kind| kind.word).is_err(), "{kind}");
    }
}
