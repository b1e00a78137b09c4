//! What an import demands of a caller, over all places where a description can demand something.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use crate::ImportOptions;
use crate::document::Document;
use crate::kinds::KINDS;

/// The definitions of the description, by what the description calls them.
fn imported(description: &Value) -> Vec<(String, Value)> {
    let document = Document::new("x", description.to_string()).expect("JSON");
    let kind = KINDS.iter().find(|kind| (kind.recognizes)(&document)).expect("a known kind");
    let imported = kind.import(&document, &ImportOptions::default()).expect("imported");
    assert_eq!(imported.left_out, [], "{description}");
    imported.subtools.into_iter().map(|it| (it.what, Value::Object(it.definition))).collect()
}

fn of(description: &Value, what: &str) -> Value {
    let found = imported(description).into_iter().find(|(known, _)| known == what);
    found.unwrap_or_else(|| panic!("{what} in {description}")).1
}

fn openapi(paths: &Value, schemas: &Value) -> Value {
    json!({"openapi": "3.0.3", "info": {"title": "T", "version": "1"}, "servers": [{"url": "https://a.example"}],
        "paths": paths, "components": {"schemas": schemas}})
}

fn body(schema: &Value) -> Value {
    json!({"required": true, "content": {"application/json": {"schema": schema}}})
}

fn id_in_path() -> Value {
    json!([{"name": "id", "in": "path", "required": true, "schema": {"type": "string"}}])
}

/// An entity with everything required, and the PATCH of it with `patch` as its schema.
fn with_patch(patch: &Value, more: &Value) -> Value {
    let product = json!({"type": "object", "required": ["id", "price", "tax", "maker", "parts"], "properties": {
        "id": {"type": "integer"}, "price": {"type": "number"}, "tax": {"type": "string"},
        "maker": {"type": "object", "required": ["city"], "properties": {"city": {"type": "string"}}},
        "parts": {"type": "array", "items": {"type": "object", "required": ["sku"], "properties": {"sku": {"type": "string"}}}}}});
    let mut schemas = json!({"Product": product});
    schemas.as_object_mut().expect("an object").extend(more.as_object().cloned().unwrap_or_default());
    let whole = json!({"$ref": "#/components/schemas/Product"});
    let answer = json!({"200": {"description": "ok", "content": {"application/json": {"schema": whole}}}});
    openapi(
        &json!({
            "/products": {"post": {"requestBody": body(&whole), "responses": answer}},
            "/products/{id}": {"parameters": id_in_path(),
                "patch": {"requestBody": body(patch), "responses": answer},
                "put": {"requestBody": body(&whole), "responses": answer}}
        }),
        &schemas,
    )
}

#[test]
fn a_patch_demands_only_what_its_own_schema_requires() {
    let entity = json!({"$ref": "#/components/schemas/Product"});
    let written_out = with_patch(&Value::Null, &json!({}))["components"]["schemas"]["Product"].clone();
    let own = json!({"type": "object", "required": ["version"], "properties": {"version": {"type": "integer"}}});
    for (case, patch, more, required) in [
        ("the whole entity", entity.clone(), json!({}), json!(["id"])),
        ("the whole entity, written out", written_out, json!({}), json!(["id"])),
        (
            "a reference to a reference",
            json!({"$ref": "#/components/schemas/Alias"}),
            json!({"Alias": entity}),
            json!(["id"]),
        ),
        ("the entity and something of its own", json!({"allOf": [entity, own]}), json!({}), json!(["id", "version"])),
        ("its own schema", own.clone(), json!({}), json!(["id", "version"])),
        (
            "its own named schema",
            json!({"$ref": "#/components/schemas/Change"}),
            json!({"Change": own}),
            json!(["id", "version"]),
        ),
    ] {
        let input = of(&with_patch(&patch, &more), "PATCH /products/{id}")["input"].clone();
        assert_eq!(input["required"], required, "{case}: {input:#}");
        assert!(input["properties"].get("body_id").is_none(), "{case}: {input:#}");
        if input["properties"].get("maker").is_some() {
            assert_eq!(input["properties"]["maker"].get("required"), None, "{case}: a part of a part");
            assert_eq!(input["properties"]["parts"]["items"]["required"], json!(["sku"]), "{case}: a list is whole");
        }
    }
}

#[test]
fn an_id_in_path_and_body_is_one_input_and_a_put_is_whole() {
    let put = of(&with_patch(&json!({}), &json!({})), "PUT /products/{id}");
    assert_eq!(put["input"]["required"], json!(["id", "price", "tax", "maker", "parts"]), "{put:#}");
    assert_eq!(put["input"]["properties"]["id"], json!({"type": "integer"}), "the body takes a number");
    assert_eq!(
        (&put["run"]["http"]["path"], &put["run"]["http"]["body"]["json"]["id"]),
        (&json!("/products/{{ id }}"), &json!("{{ id }}"))
    );
    // A name in the path says which one is meant, and the one in the body what it is called from now on.
    let named = openapi(
        &json!({"/labels/{name}": {"patch": {"parameters": [{"name": "name", "in": "path", "required": true, "schema": {"type": "string"}}],
            "requestBody": body(&json!({"type": "object", "properties": {"name": {"type": "string"}}})), "responses": {}}}}),
        &json!({}),
    );
    assert!(of(&named, "PATCH /labels/{name}")["input"]["properties"].get("body_name").is_some());
}

#[test]
fn a_required_field_with_a_default_is_optional_with_its_default() {
    let schema = json!({"type": "string", "enum": ["css", "text"], "default": "css"});
    let parameter = |place: &str| json!([{"name": "kind", "in": place, "required": true, "schema": schema}]);
    let object = json!({"type": "object", "required": ["kind"], "properties": {"kind": schema}});
    let form = |kind: &str| json!({"required": true, "content": {kind: {"schema": object}}});
    let paths = json!({
        "/query": {"get": {"parameters": parameter("query"), "responses": {}}},
        "/header": {"get": {"parameters": parameter("header"), "responses": {}}},
        "/path/{kind}": {"get": {"parameters": parameter("path"), "responses": {}}},
        "/json": {"post": {"requestBody": body(&object), "responses": {}}},
        "/form": {"post": {"requestBody": form("application/x-www-form-urlencoded"), "responses": {}}},
        "/parts": {"post": {"requestBody": form("multipart/form-data"), "responses": {}}},
        "/named": {"post": {"requestBody": body(&json!({"$ref": "#/components/schemas/Named"})), "responses": {}}}
    });
    let swagger = json!({"swagger": "2.0", "info": {"title": "T", "version": "1"}, "host": "a.example", "paths": {
        "/two": {"get": {"parameters": [{"name": "kind", "in": "query", "required": true, "type": "string",
            "enum": ["css", "text"], "default": "css"}], "responses": {}}},
        "/two-body": {"post": {"parameters": [{"name": "it", "in": "body", "required": true, "schema": object}], "responses": {}}}}});
    let google = json!({"kind": "discovery#restDescription", "name": "t", "version": "v1", "rootUrl": "https://a.googleapis.com/",
        "servicePath": "", "schemas": {}, "resources": {"it": {"methods": {"get": {"id": "t.it.get", "path": "it", "httpMethod": "GET",
        "parameters": {"kind": {"type": "string", "enum": ["css", "text"], "default": "css", "location": "query", "required": true}}}}}}});
    let mcp = json!({"server": {"name": "t", "command": ["x"]}, "snapshot": {"tools": [{"tool": {"name": "it", "inputSchema": object}}]}});
    let mut seen = 0;
    for description in [openapi(&paths, &json!({"Named": object})), swagger, google, mcp] {
        for (what, definition) in imported(&description) {
            let input = &definition["input"];
            assert_eq!(input["properties"]["kind"]["default"], "css", "{what}: {input:#}");
            assert_eq!(input.get("required"), None, "{what}: {input:#}");
            seen += 1;
        }
    }
    assert_eq!(seen, 11);
    // A default that the field does not accept makes nothing optional, and an optional field keeps words.
    let wrong = json!({"type": "object", "required": ["a"], "properties": {
        "a": {"type": "integer", "default": "many"}, "b": {"type": "integer", "default": 3}}});
    let input =
        &of(&openapi(&json!({"/x": {"post": {"requestBody": body(&wrong), "responses": {}}}}), &json!({})), "POST /x")
            ["input"];
    assert_eq!((&input["required"], input["properties"]["b"].get("default")), (&json!(["a"]), None), "{input:#}");
}

#[test]
fn a_read_is_retried_and_a_write_is_not() {
    let paths = json!({"/x": {"get": {"responses": {}}, "head": {"responses": {}}, "post": {"responses": {}}, "put": {"responses": {}},
        "patch": {"responses": {}}, "delete": {"responses": {}}}});
    for (what, definition) in imported(&openapi(&paths, &json!({}))) {
        let is_read = what.starts_with("GET") || what.starts_with("HEAD");
        assert_eq!(definition.get("retries").is_some(), is_read, "{what}");
    }
    let curl = KINDS.iter().find(|kind| kind.word == "curl").expect("in the table");
    let line = crate::curl::document("curl https://a.example/x").expect("a line");
    let imported = curl.import(&line, &ImportOptions::default()).expect("imported");
    assert!(imported.subtools[0].definition.contains_key("retries"), "{imported:?}");
}

#[test]
fn a_202_that_says_where_its_job_is_is_waited_for() {
    let states = |values: &Value| {
        json!({"application/json": {"schema": {"type": "object", "properties": {
        "status": {"type": "string", "enum": values}, "statusUrl": {"type": "string"}}}}})
    };
    let location = json!({"Location": {"schema": {"type": "string"}}});
    let known = states(&json!(["queued", "in_progress", "done", "failed"]));
    for (case, accepted, expected) in [
        ("nothing is described", json!({"description": "accepted"}), Value::Null),
        ("a header", json!({"description": "accepted", "headers": location}), json!({})),
        (
            "states in the body",
            json!({"description": "accepted", "content": known}),
            json!({"url": ".statusUrl",
            "until": "$status != 202 and (.status? as $state | [\"queued\",\"in_progress\"] | index($state) == null)",
            "failed": "(.status? // \"\") as $state | if [\"failed\"] | index($state) != null then $state else false end"}),
        ),
        (
            "states that are no words",
            json!({"description": "accepted", "headers": location,
            "content": states(&json!(["queued", "\\(env)", "done"]))}),
            json!({}),
        ),
    ] {
        let paths = json!({"/x": {"post": {"responses": {"202": accepted}}}});
        let definition = of(&openapi(&paths, &json!({})), "POST /x");
        assert_eq!(definition["run"]["http"]["poll"], expected, "{case}");
        assert_eq!(definition.get("timeout").is_some(), !expected.is_null(), "{case}");
    }
}

/// Where the request of a definition carries which secret.
fn secret_places(definition: &Value, defaults: &Value) -> BTreeSet<(String, String)> {
    let http = &definition["run"]["http"];
    let auth = http.get("auth").unwrap_or(&defaults["run"]["http"]["auth"]);
    let key = &auth["api_key"];
    let place = ["header", "query"].into_iter().find_map(|it| Some(format!("{it} {}", key[it].as_str()?)));
    let key_place = format!("{}{}", place.unwrap_or_default(), key["prefix"].as_str().unwrap_or_default());
    let mut places = vec![("bearer".to_owned(), &auth["bearer"]), ("oauth2".to_owned(), &auth["oauth2"])];
    places.extend(["username", "password"].map(|part| (part.to_owned(), &auth["basic"][part])));
    places.extend(["client_id", "client_secret"].map(|part| (part.to_owned(), &auth["client_credentials"][part])));
    places.push((key_place, &key["value"]));
    for (part, place) in [("headers", "header"), ("query", "query")] {
        let all = http[part].as_object().into_iter().flatten();
        places.extend(all.map(|(name, value)| (format!("{place} {name}"), value)));
    }
    let of_secret =
        |(place, value): (String, &Value)| Some((value.as_str()?.strip_prefix("secret:")?.to_owned(), place));
    places.into_iter().filter_map(of_secret).collect()
}

#[test]
fn each_security_scheme_has_its_own_secrets() {
    let kinds = [
        (json!({"type": "http", "scheme": "bearer"}), vec!["bearer"]),
        (json!({"type": "oauth2", "flows": {}}), vec!["oauth2"]),
        (
            json!({"type": "oauth2", "flows": {"clientCredentials": {"tokenUrl": "https://a.example/token", "scopes": {}}}}),
            vec!["client_id", "client_secret"],
        ),
        (json!({"type": "apiKey", "in": "header", "name": "X-NAME"}), vec!["header X-NAME"]),
        (json!({"type": "apiKey", "in": "header", "name": "Authorization"}), vec!["header Authorization"]),
        (json!({"type": "apiKey", "in": "query", "name": "NAME"}), vec!["query NAME"]),
        (json!({"type": "http", "scheme": "basic"}), vec!["password", "username"]),
        (json!({"type": "apiKey", "in": "cookie", "name": "NAME"}), vec!["header CookieNAME="]),
    ];
    let named = |kind: &Value, name: &str| {
        serde_json::from_str::<Value>(&kind.to_string().replace("NAME", name)).expect("JSON")
    };
    let key = json!({"type": "http", "scheme": "bearer"});
    let pairs_of_names = [
        ("one", "two"),
        ("api_key", "api-key"),
        ("apiKey", "API key"),
        ("-", "--"),
        ("login", "login_user"),
        ("a", "password"),
        ("a", "client secret"),
    ];
    let pairs = kinds.iter().flat_map(|first| kinds.iter().map(move |second| (first, second)));
    for (((first, first_places), (second, second_places)), (a, b)) in
        pairs.flat_map(|pair| pairs_of_names.map(|pairs_of_names| (pair, pairs_of_names)))
    {
        // With the third, neither of them is the one that has the name of the pack.
        for third in [None, Some(&key)] {
            let mut schemes = json!({a: named(first, "A"), b: named(second, "B")});
            if let Some(third) = third {
                schemes["0"] = third.clone();
            }
            let mut description = openapi(
                &json!({"/a": {"get": {"security": [{a: []}], "responses": {}}}, "/b": {"get": {"security": [{b: []}], "responses": {}}},
                    "/both": {"get": {"security": [{a: [], b: []}], "responses": {}}}}),
                &json!({}),
            );
            description["components"]["securitySchemes"] = schemes.clone();
            let document = Document::new("x", description.to_string()).expect("JSON");
            let imported = super::import(&document, &ImportOptions::default()).expect("imported");
            let defaults = Value::Object(imported.defaults.clone());
            let [of_a, of_b, of_both] = ["GET /a", "GET /b", "GET /both"].map(|what| {
                let subtool = imported.subtools.iter().find(|subtool| subtool.what == what).expect("imported");
                secret_places(&Value::Object(subtool.definition.clone()), &defaults)
            });
            let places = |found: &BTreeSet<(String, String)>| {
                let mut places: Vec<_> = found.iter().map(|(_, place)| place.clone()).collect();
                places.sort();
                places
            };
            let expected =
                |places: &[&str], name: &str| places.iter().map(|it| it.replace("NAME", name)).collect::<Vec<_>>();
            assert_eq!(places(&of_a), expected(first_places, "A"), "{a} of {schemes}");
            assert_eq!(places(&of_b), expected(second_places, "B"), "{b} of {schemes}");
            let secrets = |found: &BTreeSet<(String, String)>| {
                found.iter().map(|(secret, _)| secret.clone()).collect::<BTreeSet<_>>()
            };
            assert!(secrets(&of_a).is_disjoint(&secrets(&of_b)), "{of_a:?} {of_b:?} of {schemes}");
            let all: BTreeSet<_> = of_a.union(&of_b).cloned().collect();
            let is_simplified = imported.simplified.iter().any(|it| it.what == "GET /both");
            assert!(of_both.is_subset(&all) && !of_both.is_empty(), "{of_both:?} of {schemes}");
            assert!(is_simplified || of_both == all, "{of_both:?} of {schemes}");
        }
    }
}

#[test]
fn large_descriptions_take_no_more_than_their_share_of_time() {
    let many = |make: &dyn Fn(usize) -> Value| (0..300_000).map(make).collect::<Vec<_>>();
    let pairs_of_names = many(&|number| format!("v{number}").into());
    for (case, schema) in [
        ("values", json!({"type": "string", "enum": pairs_of_names})),
        ("numbers", json!({"type": "integer", "enum": many(&|number| number.into())})),
        ("constants", json!({"oneOf": many(&|number| json!({"const": number}))})),
        (
            "required pairs_of_names",
            json!({"type": "object", "required": pairs_of_names, "properties": {"v1": {"type": "string"}, "v2": {}}}),
        ),
        ("parts", json!({"allOf": many(&|number| json!({"required": [format!("v{number}")]}))})),
    ] {
        let body = body(&json!({"type": "object", "properties": {"a": schema}}));
        let description = openapi(&json!({"/x": {"post": {"requestBody": body, "responses": {}}}}), &json!({}));
        let started = std::time::Instant::now();
        imported(&description);
        assert!(started.elapsed() < std::time::Duration::from_secs(20), "{case}: {:?}", started.elapsed());
    }
}

#[test]
fn a_switch_with_which_nothing_is_changed_is_the_dry_run_of_a_write() {
    let switch = |name: &str, schema: Value| json!({"name": name, "in": "query", "schema": schema});
    let boolean = || json!({"type": "boolean"});
    let imported = |method: &str, parameter: Value| {
        let operation = json!({"parameters": [parameter], "responses": {"200": {"description": "ok"}}});
        let description = openapi(&json!({"/things": {method: operation}}), &json!({}));
        of(&description, &format!("{} /things", method.to_uppercase()))["dry_run"].clone()
    };
    for name in ["dryRun", "dry_run", "validateOnly", "validate_only"] {
        assert_eq!(imported("post", switch(name, boolean())), json!({"input": {name: true}}));
        assert_eq!(imported("get", switch(name, boolean())), Value::Null);
    }
    // Something else, and what is no switch.
    assert_eq!(imported("delete", switch("preview", boolean())), Value::Null);
    assert_eq!(imported("post", switch("dryRun", json!({"type": "string", "enum": ["All"]}))), Value::Null);
    let in_body = json!({"post": {"requestBody": body(&json!({"type": "object", "properties": {"validateOnly": boolean(), "name": {"type": "string"}}})),
        "responses": {"200": {"description": "ok"}}}});
    let found = of(&openapi(&json!({"/things": in_body}), &json!({})), "POST /things");
    assert_eq!(found["dry_run"], json!({"input": {"validateOnly": true}}));
}
