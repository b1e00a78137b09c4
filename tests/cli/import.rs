//! `import`: what is written, what is kept, and what is refused. `import/` has real descriptions.

mod agents;
pub(crate) mod calls;
mod curl;
mod demands;
mod doors;
mod drafting;
mod google;
mod graphql;
mod hosts;
mod mcp;
mod oauth;
mod phrases;
mod program;
pub(super) mod torture;

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::TcpListener;

use serde_json::{Value, json};

use crate::world::{Transcript, World};

/// A small API with one of each: places of parameters, a body, pages, a deprecated operation, a cycle.
fn pets() -> Value {
    let pet = json!({"type": "object", "required": ["name"], "properties": {
        "id": {"type": "integer", "readOnly": true}, "name": {"type": "string", "description": "What it is called."},
        "parent": {"$ref": "#/components/schemas/Pet"}, "age": {"type": "integer", "minimum": 0, "exclusiveMinimum": true}}});
    let page = json!({"200": {"description": "ok", "content": {"application/json": {"schema": {"type": "object", "properties": {
        "data": {"type": "array", "items": {"$ref": "#/components/schemas/Pet"}}, "next_cursor": {"type": "string"}}}}}}});
    json!({
        "openapi": "3.0.3", "info": {"title": "Pet Shop API", "version": "1.2.0"},
        "servers": [{"url": "https://{region}.pets.example/v1", "variables": {"region": {"default": "eu"}}}],
        "security": [{"key": []}],
        "components": {"schemas": {"Pet": pet}, "securitySchemes": {"key": {"type": "apiKey", "in": "header", "name": "X-Key"}}},
        "paths": {
            "/pets": {
                "get": {"operationId": "listPets", "summary": "List pets", "tags": ["pets"], "responses": page, "parameters": [
                    {"name": "filter", "in": "query", "style": "deepObject", "schema": {"type": "object", "properties": {"status": {"type": "string", "enum": ["sold", "free"]}}}},
                    {"name": "ids", "in": "query", "explode": false, "schema": {"type": "array", "items": {"type": "integer"}}},
                    {"name": "limit", "in": "query", "schema": {"type": "integer", "default": 20}},
                    {"name": "cursor", "in": "query", "schema": {"type": "string"}}]},
                "post": {"operationId": "createPet", "summary": "Add a pet", "tags": ["pets"], "responses": {},
                    "requestBody": {"required": true, "content": {"application/json": {"schema": {"$ref": "#/components/schemas/Pet"}}}}}
            },
            "/pets/{petId}": {
                "parameters": [{"name": "petId", "in": "path", "required": true, "schema": {"type": "string"}}],
                "delete": {"operationId": "deletePet", "summary": "Remove a pet", "tags": ["pets"], "responses": {}},
                "put": {"operationId": "oldPet", "deprecated": true, "responses": {}}
            },
            "/owners/{id}.json": {"get": {"tags": ["owners"], "responses": {}, "security": []}}
        }
    })
}

/// Writes a description into the world's folder, and returns its path.
fn source(world: &World, name: &str, description: &Value) -> String {
    let path = world.folder().join(name);
    fs::write(&path, description.to_string()).expect("written");
    path.display().to_string()
}

fn written(world: &World, name: &str) -> Value {
    let text = fs::read_to_string(world.subtools().join(name)).expect("a definition file");
    serde_json::from_str(&text).expect("JSON")
}

fn quiet_world() -> World {
    let world = World::new();
    world.configure_without_packs("");
    world
}

fn plan(world: &World, name: &str, input: &Value) -> Value {
    let ran = world.run(&["run", name, &format!("--input={input}"), "--dry-run"]);
    assert_eq!(ran.exit, 0, "{ran}");
    let mut plan = ran.json()["would_send"]["http"].clone();
    plan.as_object_mut().expect("an object").remove("headers");
    plan
}

#[test]
fn an_api_becomes_subtools_that_load_and_send_what_it_expects() {
    let world = quiet_world();
    let imported = world.run(&["import", &source(&world, "pets.json", &pets())]);
    assert_eq!(imported.exit, 0, "{imported}");
    let report = imported.json();
    assert_eq!(
        json!([
            report["kind"],
            report["pack"],
            report["found"],
            report["imported"],
            report["share"],
            report["left_out"]
        ]),
        json!(["openapi", "pet_shop", 5, 4, 0.8, {"it is deprecated": ["PUT /pets/{petId}"]}]),
        "{imported}"
    );
    assert!(imported.stderr.contains("agent-magic-tool secret set pet_shop"), "{imported}");
    assert!(imported.stderr.contains("4 of 5 operations imported"), "{imported}");
    let lint = world.run(&["lint"]);
    assert_eq!(lint.exit, 0, "{lint}");

    let file = written(&world, "pet_shop.json");
    assert_eq!(file["$source"]["sha256"].as_str().map(str::len), Some(64));
    assert_eq!(
        file["$defaults"],
        json!({"run": {"http": {"base_url": "https://eu.pets.example/v1",
            "auth": {"api_key": {"header": "X-Key", "value": "secret:pet_shop"}}}}, "tags": ["pet_shop"]})
    );
    assert_eq!(
        file["pet_shop_create_pet"]["input"],
        json!({"type": "object", "properties": {
            "name": {"type": "string", "description": "What it is called."},
            "parent": {"type": "object", "description": "Fields: id, name, parent, age."},
            "age": {"type": "integer", "exclusiveMinimum": 0}}, "required": ["name"], "additionalProperties": false})
    );
    let delete = &file["pet_shop_delete_pet"];
    assert_eq!(delete["annotations"], json!({"destructiveHint": true, "idempotentHint": true}));
    assert_eq!(file["pet_shop_get_owners_by_id_json"]["run"]["http"]["auth"], Value::Null, "{file:#}");

    let listed = plan(&world, "pet_shop_list_pets", &json!({"filter_status": "sold", "ids": [1, 2], "limit": 3}));
    let url = "https://eu.pets.example/v1/pets?filter%5Bstatus%5D=sold&ids=1%2C2&limit=3";
    assert_eq!(listed, json!({"method": "GET", "url": url, "body": null}));
    let created = plan(&world, "pet_shop_create_pet", &json!({"name": "Rex", "age": 1}));
    assert_eq!(created["body"], json!({"name": "Rex", "age": 1}));
    let pages = &file["pet_shop_list_pets"]["run"]["http"]["pagination"];
    let token = json!({"query": "cursor", "response": "next_cursor"});
    assert_eq!(*pages, json!({"next_token": token, "items": "data", "max_items": "{{ limit }}"}));
}

#[test]
fn only_what_is_selected_is_imported_and_a_dry_run_writes_nothing() {
    let world = quiet_world();
    let pets = source(&world, "pets.json", &pets());
    let names = |options: &[&str]| -> Vec<String> {
        let words: Vec<_> = ["import", "openapi", &pets, "--dry-run"].iter().chain(options).copied().collect();
        let ran = world.run(&words);
        assert_eq!(ran.exit, 0, "{ran}");
        let names = ran.json()["files"][0]["names"].as_array().cloned().unwrap_or_default();
        names.iter().map(|name| name.as_str().expect("a name").replace("pet_shop_", "")).collect()
    };
    assert_eq!(names(&["--tag", "owners"]), ["get_owners_by_id_json"]);
    assert_eq!(names(&["--method", "delete", "--method", "POST"]), ["create_pet", "delete_pet"]);
    assert_eq!(names(&["--include", "GET *", "--exclude", "*owners*"]), ["list_pets"]);
    assert_eq!(names(&["--full", "--include", "*_old_pet"]), ["old_pet"]);
    assert_eq!(fs::read_dir(world.subtools()).expect("a folder").count(), 0);
}

#[test]
fn a_refresh_follows_the_source_and_keeps_what_was_edited_here() {
    let world = quiet_world();
    let mut api = pets();
    let path = source(&world, "pets.json", &api);
    let imported = world.run(&["import", &path]);
    assert_eq!(imported.exit, 0, "{imported}");
    let unchanged = world.run(&["import", "--refresh"]).json();
    assert_eq!(
        (&unchanged["packs"][0]["source_changed"], &unchanged["packs"][0]["files"][0]["state"]),
        (&json!(false), &json!("unchanged"))
    );

    let mut file = written(&world, "pet_shop.json");
    file["pet_shop_list_pets"]["description"] = "Our own words for it.".into();
    file["pet_shop_delete_pet"]["confirm"] = "always".into();
    world.define("pet_shop.json", &file);
    api["paths"]["/pets"]["get"]["summary"] = "List all of the pets".into();
    api["paths"]["/pets"]["post"]["summary"] = "Add another pet".into();
    api["paths"]["/pets"]["patch"] = json!({"operationId": "feedPets", "summary": "Feed all pets", "responses": {}});
    api["paths"].as_object_mut().expect("paths").remove("/owners/{id}.json");
    source(&world, "pets.json", &api);

    let shown = world.run(&["import", "--refresh", "pet_shop", "--dry-run"]);
    let expected = json!({
        "added": ["pet_shop_feed_pets"], "removed": ["pet_shop_get_owners_by_id_json"],
        "changed": {"pet_shop_create_pet": ["description"]},
        "kept": {"pet_shop_list_pets": ["!description"], "pet_shop_delete_pet": ["confirm"]}
    });
    let changes = |ran: &Transcript| {
        let file = ran.json()["packs"][0]["files"][0].clone();
        json!({"added": file["added"], "removed": file["removed"], "changed": file["changed"], "kept": file["kept"]})
    };
    assert_eq!(changes(&shown), expected, "{shown}");
    assert_eq!(written(&world, "pet_shop.json"), file, "a dry run writes nothing");
    let refreshed = world.run(&["import", "--refresh"]);
    assert_eq!((refreshed.exit, changes(&refreshed)), (0, expected), "{refreshed}");
    let after = written(&world, "pet_shop.json");
    assert_eq!(after["pet_shop_list_pets"]["description"], "Our own words for it.");
    assert_eq!(after["pet_shop_delete_pet"]["confirm"], "always");
    assert_eq!(after["pet_shop_create_pet"]["description"], "Add another pet: POST /pets.");
    assert_eq!(world.run(&["lint"]).exit, 0);
    let unknown = world.run(&["import", "--refresh", "other"]);
    assert_eq!((unknown.exit, &unknown.error()["code"]), (3, &json!("not-found")), "{unknown}");
}

#[test]
fn names_that_are_taken_get_a_namespace_and_a_file_of_another_is_never_overwritten() {
    let world = quiet_world();
    let mut other = pets();
    other["info"] = json!({"title": "Pet Shop API (new)", "version": "2"});
    assert_eq!(world.run(&["import", &source(&world, "a.json", &pets())]).exit, 0);
    let second = world.run(&["import", &source(&world, "b.json", &other)]);
    assert_eq!((second.exit, &second.json()["pack"]), (0, &json!("pet_shop-v2")), "{second}");
    assert_eq!(written(&world, "pet_shop-v2.json")["$namespace"], "v2");
    let lint = world.run(&["lint"]);
    assert_eq!(lint.exit, 0, "{lint}");

    world.define("mine.json", &json!({}));
    let refused = world.run(&["import", &source(&world, "a.json", &pets()), "--name", "mine"]);
    assert_eq!((refused.exit, &refused.error()["code"]), (2, &json!("usage")), "{refused}");
    assert_eq!(written(&world, "mine.json"), json!({}));
}

#[test]
fn one_bad_operation_or_source_hides_no_other() {
    let world = quiet_world();
    let mut api = pets();
    api["paths"]["/bad//path"] = json!({"get": {"responses": {}}});
    api["paths"]["/worse"] = json!({"get": "no operation", "post": {"operationId": "dirty", "responses": {}, "requestBody": {
        "content": {"application/json": {"schema": {"type": "object", "required": true, "properties": {
            "a": {"$ref": "#/nowhere"}, "b": {"type": "string", "pattern": "a{99999999}"}, "c": {"type": "nonsense"}, "d": null}}}}}}});
    let good = source(&world, "good.json", &api);
    let broken = source(&world, "broken.json", &json!([1]));
    let absent = world.folder().join("absent.json").display().to_string();
    let ran = world.run(&["import", &good, &broken, &absent]);
    let report = ran.json();
    assert_eq!((ran.exit, report["failed"].as_array().map(Vec::len)), (1, Some(2)), "{ran}");
    let imported = &report["sources"][0];
    assert_eq!(
        imported["left_out"],
        json!({"it is deprecated": ["PUT /pets/{petId}"], "it is not an object": ["GET /worse"],
            "its path has an empty segment": ["GET /bad//path"]}),
        "{ran}"
    );
    assert_eq!(imported["imported"], 5, "{ran}");
    assert_eq!(imported["simplified"].as_object().map(serde_json::Map::len), Some(3), "{ran}");
    assert_eq!(world.run(&["lint"]).exit, 0);
}

#[test]
fn a_description_is_not_fetched_from_where_a_redirect_leads_on_this_machine() {
    let world = quiet_world();
    let [given, other] = [(), ()].map(|()| TcpListener::bind("127.0.0.1:0").expect("a port"));
    let [given_at, other_at] = [&given, &other].map(|it| it.local_addr().expect("an address"));
    other.set_nonblocking(true).expect("it can");
    // To another server of this machine, to a private network, and to the addresses of a cloud's own services.
    let places =
        [format!("http://{other_at}/"), "http://10.0.0.1/".to_owned(), "http://169.254.169.254/latest/".to_owned()];
    let told = places.clone();
    let server = std::thread::spawn(move || {
        for place in told {
            let (mut stream, _) = given.accept().expect("a request");
            let mut request = [0; 4096];
            let read = stream.read(&mut request).expect("readable");
            assert!(read > 0);
            let head = format!("HTTP/1.1 302 Found\r\nLocation: {place}openapi.json\r\nConnection: close\r\n");
            write!(stream, "{head}Content-Length: 0\r\n\r\n").expect("written");
        }
    });
    for place in &places {
        let imported = world.run(&["import", &format!("http://{given_at}/openapi.json")]);
        assert_eq!((imported.exit, &imported.error()["code"]), (1, &json!("forbidden-address")), "{place}: {imported}");
    }
    server.join().expect("served");
    assert!(other.accept().is_err(), "nothing has connected");
}

#[test]
fn a_description_is_fetched_from_a_url_of_this_machine() {
    let world = quiet_world();
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address");
    let mut api = pets();
    api["servers"] = json!([{"url": "/api"}]);
    let server = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().expect("a request");
        let mut request = [0; 4096];
        let read = stream.read(&mut request).expect("readable");
        let body = api.to_string();
        let head = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nConnection: close\r\n";
        write!(stream, "{head}Content-Length: {}\r\n\r\n{body}", body.len()).expect("written");
        String::from_utf8_lossy(&request[..read]).into_owned()
    });
    let imported = world.run(&["import", &format!("http://{address}/openapi.json")]);
    assert_eq!(imported.exit, 0, "{imported}");
    assert!(server.join().expect("served").starts_with("GET /openapi.json HTTP/1.1"));
    let file = written(&world, "pet_shop.json");
    assert_eq!(file["$defaults"]["run"]["http"]["base_url"], format!("http://{address}/api"));
}
