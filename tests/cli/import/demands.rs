//! What an import demands, repeats and waits for, and what ends it.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use serde_json::json;

use super::{pets, plan, quiet_world, source, written};
use crate::executor::http::HttpScript;
use crate::world::World;

#[test]
fn an_option_that_matches_nothing_is_refused_and_nothing_is_written() {
    let world = quiet_world();
    let pets_file = source(&world, "pets.json", &pets());
    for option in
        ["--exclude=pet_shop_delete_pett", "--include=*_adopt", "--tag=pats", "--method=OPTIONS", "--exclude=POST /pet"]
    {
        let refused = world.run(&["import", &pets_file, "--include=*", option]);
        assert_eq!((refused.exit, &refused.error()["code"]), (2, &json!("usage")), "{refused}");
        let error = refused.error();
        let (message, hint) =
            (error["message"].as_str().unwrap_or_default(), error["hint"].as_str().unwrap_or_default());
        assert!(message.contains("matches nothing") && hint.contains("`pet_shop_list_pets`"), "{refused}");
        assert_eq!(fs::read_dir(world.subtools()).expect("a folder").count(), 0);
    }
    // Of several sources it may mean one; what means none is said.
    let mut other = pets();
    other["info"]["title"] = "Zoo API".into();
    let words = [
        "import",
        &pets_file,
        &source(&world, "zoo.json", &other),
        "--exclude=pet_shop_delete_pet",
        "--exclude=lions",
        "--dry-run",
    ];
    let ran = world.run(&words);
    assert_eq!(ran.exit, 0, "{ran}");
    assert!(
        ran.stderr.contains("--exclude 'lions' matched nothing") && !ran.stderr.contains("'pet_shop_delete_pet'"),
        "{ran}"
    );

    // A refresh of a source that lost what was left out goes on, and says so.
    assert_eq!(world.run(&["import", &pets_file, "--exclude=pet_shop_delete_pet"]).exit, 0);
    let mut less = pets();
    less["paths"].as_object_mut().expect("paths").remove("/pets/{petId}");
    source(&world, "pets.json", &less);
    let refreshed = world.run(&["import", "--refresh"]);
    assert_eq!(refreshed.exit, 0, "{refreshed}");
    assert_eq!(
        refreshed.json()["packs"][0]["matched_nothing"],
        json!(["--exclude 'pet_shop_delete_pet'"]),
        "{refreshed}"
    );
}

/// An API of one entity, as most are described: the body of a PATCH is the entity.
fn shop(server: &str) -> serde_json::Value {
    let entity = json!({"$ref": "#/components/schemas/Product"});
    let content = json!({"application/json": {"schema": entity}});
    let path = json!([{"name": "id", "in": "path", "required": true, "schema": {"type": "string"}}]);
    json!({"openapi": "3.0.3", "info": {"title": "Shop", "version": "1"}, "servers": [{"url": server}],
        "components": {"schemas": {"Product": {"type": "object", "required": ["id", "price", "tax"], "properties": {
            "id": {"type": "string"}, "price": {"type": "number"}, "tax": {"type": "string"}}}}},
        "paths": {"/products/{id}": {"parameters": path,
            "get": {"operationId": "read", "responses": {"200": {"content": content}}},
            "patch": {"operationId": "change", "requestBody": {"required": true, "content": content}, "responses": {}}},
        "/sort": {"get": {"operationId": "sort", "responses": {}, "parameters": [
            {"name": "by", "in": "query", "required": true, "schema": {"type": "string", "enum": ["NO", "name"], "default": "name"}}]}}}})
}

#[test]
fn a_change_sends_only_what_changes_and_a_default_is_sent() {
    let world = quiet_world();
    assert_eq!(world.run(&["import", &source(&world, "shop.json", &shop("https://a.example"))]).exit, 0);
    let changed = plan(&world, "shop_change", &json!({"id": "7", "price": 2.5}));
    assert_eq!(
        (&changed["url"], &changed["body"]["price"]),
        (&json!("https://a.example/products/7"), &json!(2.5)),
        "{changed}"
    );
    assert_eq!(changed["body"].get("tax"), None, "{changed}");
    assert_eq!(plan(&world, "shop_sort", &json!({}))["url"], "https://a.example/sort?by=name");
    assert_eq!(plan(&world, "shop_sort", &json!({"by": "NO"}))["url"], "https://a.example/sort?by=NO");
}

#[test]
fn an_imported_read_is_retried() {
    let server = HttpScript::new(|_, number| match number {
        0 => "503 Busy\r\nretry-after: 0\r\n\r\n".to_owned(),
        _ => "200 OK\r\ncontent-type: application/json\r\n\r\n{\"id\": \"7\"}".to_owned(),
    });
    let world = quiet_world();
    assert_eq!(world.run(&["import", &source(&world, "shop.json", &shop(&server.url))]).exit, 0);
    assert_eq!(written(&world, "shop.json")["shop_change"].get("retries"), None);
    let result = world.result_of("shop_read", &json!({"id": "7"}));
    assert_eq!(result["data"], json!({"id": "7"}), "{result}");
    assert_eq!(server.requests().len(), 2);
}

#[test]
fn a_description_in_yaml_keeps_its_words() {
    let world = quiet_world();
    let text = "openapi: 3.0.3\ninfo: {title: Points, version: '1'}\nservers: [{url: 'https://a.example'}]\npaths:\n  /p:\n    post:\n      \
        operationId: add\n      requestBody: {content: {application/json: {schema: {type: object, required: [x, y], properties: {x: {type: \
        integer}, y: {type: integer}, country: {type: string, enum: [DE, NO, SE]}}}}}}\n      responses: {}\n";
    let path = world.folder().join("points.yaml");
    fs::write(&path, text).expect("written");
    assert_eq!(world.run(&["import", &path.display().to_string()]).exit, 0);
    let input = written(&world, "points.json")["points_add"]["input"].clone();
    assert_eq!(input["required"], json!(["x", "y"]), "{input:#}");
    assert_eq!(input["properties"]["country"]["enum"], json!(["DE", "NO", "SE"]), "{input:#}");
}

#[test]
fn a_url_that_drips_ends_an_import_in_time() {
    let world = World::new();
    world.configure("[catalog]\npacks = []\n[executor]\ntimeout = \"2s\"\n");
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address");
    let (_open, closed) = mpsc::channel::<()>();
    // The thread ends with the test, or when nobody reads anymore.
    std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().expect("a request");
        let read = stream.read(&mut [0; 4096]).expect("readable");
        assert!(read > 0, "a request");
        stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n").expect("written");
        while closed.recv_timeout(Duration::from_millis(50)) == Err(mpsc::RecvTimeoutError::Timeout) {
            if stream.write_all(b" ").is_err() {
                return;
            }
        }
    });
    let started = Instant::now();
    let refused = world.run(&["import", &format!("http://{address}/openapi.json")]);
    assert_eq!(refused.error()["code"], "timed-out", "{refused}");
    assert!(started.elapsed() < Duration::from_secs(30), "{:?}", started.elapsed());
}
