//! The pack `shopware` against a shop whose requests must fit Shopware's own description of its Admin API.

use serde_json::{Value, json};

use super::{FarSide, approved, assert_found, assert_says_what_to_set, data, error};
use crate::cli::import::calls::Prism;
use crate::world::World;

const NEEDS: [&str; 2] = ["AGENT_MAGIC_TOOL_TEST_SPECS", "AGENT_MAGIC_TOOL_TEST_PRISM"];
/// The words for a record that does not exist and for one that may not be read.
const DENIED: &str = "no such record, or not permitted";

const SHIRT: &str = "00000000000000000000000000000001";
const TROUSERS: &str = "00000000000000000000000000000002";
const ORDER: &str = "000000000000000000000000000000a1";

/// A world that is connected to `shop` with the integration `client`.
fn connected(shop: &FarSide, client: &str, config: &str) -> World {
    let world = super::world("shopware", &format!("{config}\n[vars]\nshopware_url = \"{}\"\n", shop.base));
    // The description demands the client's credentials in the body.
    let secret = json!({"auth_style": "body", "token_url": format!("{}/api/oauth/token", shop.base), "client_id": client,
        "client_secret": "a-secret-of-an-integration"});
    let ran = world.run_with(&["secret", "set", "shopware"], &secret.to_string());
    assert_eq!(ran.exit, 0, "{ran}");
    world
}

/// A shop with two products, one of which has a variant and pictures, and with orders.
fn shop() -> Option<(FarSide, World)> {
    let shop = FarSide::start("shopware.mjs", &NEEDS)?;
    let world = connected(&shop, "SWIAADMIN", "[confirm]\nwrites = \"allow\"\n");
    let products = json!([
        {"id": SHIRT, "name": "Shirt", "productNumber": "S-1", "stock": 3, "active": true,
            "manufacturer": {"name": "Acme"}, "media": [{"media": {"fileName": "front"}}, {"media": {"fileName": "back"}}],
            "prices": [{"quantityStart": 10}], "children": [{"name": "Shirt, red", "productNumber": "S-1.1", "stock": 0}]},
        {"id": TROUSERS, "name": "Trousers", "productNumber": "T-1", "stock": 0, "active": true}
    ]);
    data(&world, "shopware_entity_upsert", &json!({"entity": "product", "records": products}));
    let orders: Vec<_> = (0..7)
        .map(|number| {
            json!({"orderNumber": format!("{}", 10_000 + number), "amountTotal": 10.5 * f64::from(number),
                "deliveries": [{}], "transactions": [{}]})
        })
        .chain([json!({"id": ORDER, "orderNumber": "20000", "amountTotal": 99.0})])
        .collect();
    data(&world, "shopware_entity_upsert", &json!({"entity": "order", "records": orders}));
    Some((shop, world))
}

fn numbers(found: &Value, field: &str) -> Vec<String> {
    let records = found["records"].as_array().expect("records").iter();
    records.map(|record| record[field].as_str().expect("a text").to_owned()).collect()
}

#[tokio::test]
async fn pages_contain_every_record_once_in_every_count_mode() {
    let Some((shop, world)) = shop() else { return };
    let search = |page: u64, count: &str| {
        let criteria = json!({"sort": [{"field": "orderNumber"}]});
        data(
            &world,
            "shopware_entity_search",
            &json!({"entity": "order", "limit": 3, "page": page, "count": count, "criteria": criteria}),
        )
    };
    for (count, total) in [("exact", json!(8)), ("next-pages", Value::Null), ("none", Value::Null)] {
        let pages = [search(1, count), search(2, count), search(3, count)];
        let all: Vec<_> = pages.iter().flat_map(|page| numbers(page, "orderNumber")).collect();
        assert_eq!(all, ["10000", "10001", "10002", "10003", "10004", "10005", "10006", "20000"], "{count}");
        let facts = pages.each_ref().map(|it| json!([it["total"], it["page"], it["limit"], it["more"]]));
        assert_eq!(facts, [json!([total, 1, 3, true]), json!([total, 2, 3, true]), json!([total, 3, 3, false])]);
    }
    let by_default = data(&world, "shopware_entity_search", &json!({"entity": "order"}));
    assert_eq!((&by_default["limit"], &by_default["page"], &by_default["total"]), (&json!(25), &json!(1), &json!(8)));
    let in_criteria = json!({"entity": "order", "limit": 5, "criteria": {"limit": 2, "page": 2}});
    let in_criteria = data(&world, "shopware_entity_search", &in_criteria);
    assert_eq!((&in_criteria["limit"], &in_criteria["page"]), (&json!(2), &json!(2)), "the criteria take precedence");
    assert_eq!(in_criteria["records"].as_array().map(Vec::len), Some(2));
    shop.assert_no_problems().await;
}

#[tokio::test]
async fn a_search_returns_scalar_fields_and_what_was_asked_for_and_never_aggregations() {
    let Some((shop, world)) = shop() else { return };
    let found = |criteria: Value| {
        let input = json!({"entity": "product", "criteria": criteria});
        data(&world, "shopware_entity_search", &input)["records"][0].clone()
    };
    let of_shirt = json!([{"type": "equals", "field": "id", "value": SHIRT}]);
    let plain = found(json!({"filter": of_shirt}));
    let is_lean = |(key, value): (&String, &Value)| key == "translated" || !(value.is_object() || value.is_array());
    assert!(plain.as_object().is_some_and(|fields| fields.iter().all(is_lean)), "{plain}");
    assert_eq!((&plain["name"], &plain["translated"]["name"]), (&json!("Shirt"), &json!("Shirt")));
    let nested = json!({"media": {"associations": {"media": {}}}, "manufacturer": {}});
    let asked = found(json!({"filter": of_shirt, "associations": nested}));
    assert_eq!(
        (&asked["manufacturer"]["name"], &asked["media"][0]["media"]["fileName"]),
        (&json!("Acme"), &json!("front"))
    );
    assert_eq!((asked.get("prices"), asked["media"][0].get("product")), (None, None), "{asked}");
    let includes = json!({"filter": of_shirt, "includes": {"product": ["name", "extensions"]}});
    assert_eq!(found(includes), json!({"name": "Shirt", "extensions": {"search": {}}, "apiAlias": "product"}));

    let with_aggregation = json!({"entity": "product", "criteria": {"aggregations": []}});
    let refused = world.run(&["run", "shopware_entity_search", "--input", &with_aggregation.to_string()]);
    assert_eq!((refused.exit, refused.error()["code"].as_str()), (2, Some("invalid-input")), "{refused}");
    shop.assert_no_problems().await;
}

#[tokio::test]
async fn an_aggregation_returns_numbers_and_never_records() {
    let Some((shop, world)) = shop() else { return };
    assert_eq!(
        data(&world, "shopware_entity_aggregate", &json!({"entity": "product"})),
        json!({"count": {"count": 3}})
    );
    let wanted = json!({"entity": "order", "aggregations": [
        {"name": "revenue", "type": "sum", "field": "amountTotal"},
        {"name": "by_number", "type": "terms", "field": "orderNumber"}
    ], "filter": [{"type": "range", "field": "amountTotal", "parameters": {"gt": 50}}]});
    assert_eq!(
        data(&world, "shopware_entity_aggregate", &wanted),
        json!({"revenue": {"sum": 214.5}, "by_number": {"buckets": [
            {"key": "10005", "count": 1}, {"key": "10006", "count": 1}, {"key": "20000", "count": 1}]}})
    );
    shop.assert_no_problems().await;
}

#[tokio::test]
async fn an_entity_is_described_with_what_is_deleted_with_it() {
    let Some((shop, world)) = shop() else { return };
    let names = data(&world, "shopware_entity_schema", &json!({}));
    assert!(names.as_array().is_some_and(|names| names.contains(&json!("product")) && names.len() > 10), "{names}");
    let product = data(&world, "shopware_entity_schema", &json!({"entity": "product"}));
    assert_eq!(product["fields"]["id"], json!({"type": "uuid", "primary_key": true, "required": true}));
    assert_eq!(product["fields"]["stock"]["type"], "integer");
    let media = json!({"entity": "product_media", "relation": "one_to_many", "cascade_delete": true});
    assert_eq!(product["associations"]["media"], media);
    let unknown = error(&world, "shopware_entity_schema", &json!({"entity": "prodct"}));
    assert!(unknown["message"].as_str().is_some_and(|it| it.starts_with("entity not found: `prodct`")), "{unknown}");
    shop.assert_no_problems().await;
}

#[tokio::test]
async fn an_unknown_entity_is_named_and_a_missing_record_cannot_be_told_from_a_forbidden_one() {
    let Some((shop, world)) = shop() else { return };
    let limited = connected(&shop, "SWIALIMITED", "[confirm]\nwrites = \"allow\"\n");
    for world in [&world, &limited] {
        for (tool, more) in [
            ("shopware_entity_search", json!({})),
            ("shopware_entity_aggregate", json!({})),
            ("shopware_entity_read", json!({"id": SHIRT})),
            ("shopware_entity_upsert", json!({"records": [{"name": "x"}]})),
            ("shopware_entity_delete", json!({"records": [{"id": SHIRT}]})),
        ] {
            let mut input = more.clone();
            input["entity"] = "prodct".into();
            let found = error(world, tool, &input);
            let message = found["message"].as_str().expect("a message");
            assert!(message.starts_with("entity not found: `prodct`"), "{tool}: {found}");
        }
    }
    let missing = error(&world, "shopware_entity_read", &json!({"entity": "order", "id": TROUSERS}));
    let forbidden = error(&limited, "shopware_entity_read", &json!({"entity": "order", "id": ORDER}));
    assert_eq!(missing["message"], DENIED);
    assert_eq!(missing, forbidden);
    assert_eq!(error(&limited, "shopware_entity_search", &json!({"entity": "order"})), missing);
    let read = json!({"entity": "product", "id": SHIRT, "associations": {"manufacturer": {}}});
    assert_eq!(data(&limited, "shopware_entity_read", &read)["name"], "Shirt");
    shop.assert_no_problems().await;
}

#[test]
fn callers_need_the_privilege_for_the_entity_that_they_name() {
    let Some(shop) = FarSide::start("shopware.mjs", &NEEDS) else { return };
    let world = connected(&shop, "SWIAADMIN", "[access]\nprivileges = [\"product:read\"]\n");
    let search = |entity: &str| world.run(&["run", "shopware_entity_search", &format!("entity={entity}")]);
    assert_eq!(search("product").exit, 0);
    let refused = search("order");
    assert_eq!(refused.exit, 5, "{refused}");
    assert!(refused.error()["message"].as_str().is_some_and(|it| it.contains("`order:read`")), "{refused}");
}

#[tokio::test]
async fn a_human_sees_what_a_change_and_a_deletion_would_replace_and_previews_change_nothing() {
    let Some((shop, _)) = shop() else { return };
    let world = connected(&shop, "SWIAADMIN", "");
    let change = json!({"entity": "product", "records": [{"id": SHIRT, "stock": 50, "active": true}, {"name": "Hat"}]});
    let writes = || async { shop.requests("/_action/sync").await.len() };
    let before = writes().await;
    let preview = data(&world, "shopware_upsert_preview", &change);
    assert_eq!(
        preview["records"],
        json!([
            {"id": SHIRT, "exists": true, "change": {"stock": {"from": 3, "to": 50}}},
            {"id": "new", "exists": false, "change": {"name": {"from": null, "to": "Hat"}}}
        ])
    );
    let removal = json!({"entity": "product", "records": [{"id": SHIRT}, {"id": ORDER}]});
    let preview = data(&world, "shopware_delete_preview", &removal);
    let with = json!({"children": 1, "media": 2, "prices": 1});
    assert_eq!(preview["deletes"], json!([{"id": SHIRT, "label": "Shirt", "with": with}]));
    assert_eq!((&preview["not_found"], &preview["cascade_known"]), (&json!([ORDER]), &json!(true)));
    let plan = world.run(&["run", "shopware_entity_delete", "--input", &removal.to_string(), "--dry-run"]).json();
    assert_eq!((&plan["dry_run"], &plan["would_send"]["http"]["body"][0]["action"]), (&json!(true), &json!("delete")));
    assert_eq!(writes().await, before, "nothing was written");

    approved(&world, "shopware_entity_upsert", &change, &["exists", "&quot;stock&quot;: 3"], "");
    let read = json!({"entity": "product", "id": SHIRT});
    assert_eq!(data(&world, "shopware_entity_read", &read)["stock"], 50);
    let deleted = approved(&world, "shopware_entity_delete", &removal, &["Shirt", "children"], "product");
    assert_eq!(deleted["deleted"]["product_media"].as_array().map(Vec::len), Some(2), "{deleted}");
    assert_eq!(deleted["not_found"], json!({"product": [ORDER]}));
    assert_eq!(error(&world, "shopware_entity_read", &read)["message"], DENIED);
    shop.assert_no_problems().await;
}

#[tokio::test]
async fn settings_and_states_are_changed_after_a_human_saw_the_old_ones() {
    let Some((shop, open)) = shop() else { return };
    let world = connected(&shop, "SWIAADMIN", "");
    let write = |quantity: u32| json!({"domain": "core.cart", "values": {"core.cart.maxQuantity": quantity}});
    let read = json!({"domain": "core.cart"});
    assert_eq!(data(&world, "shopware_system_config_read", &read), json!({}));
    data(&open, "shopware_system_config_write", &write(77));
    approved(&world, "shopware_system_config_write", &write(100), &["77"], "");
    assert_eq!(data(&world, "shopware_system_config_read", &read), json!({"core.cart.maxQuantity": 100}));

    let order = json!({"entity": "order", "id": ORDER});
    let state = data(&world, "shopware_order_transitions", &order);
    let next = json!([{"transition": "process", "to": "in_progress"}, {"transition": "cancel", "to": "cancelled"}]);
    assert_eq!(state, json!({"state": "open", "transitions": next}));
    let change = json!({"entity": "order", "id": ORDER, "transition": "process"});
    assert_eq!(approved(&world, "shopware_order_state", &change, &["possible"], "")["state"], "in_progress");
    let asked = shop.requests("/state/process").await;
    assert_eq!(asked[0]["body"]["sendMail"], false, "no mail unless it was asked for");
    let wrong = json!({"entity": "order", "id": ORDER, "transition": "ship"});
    let refused = error(&open, "shopware_order_state", &wrong);
    assert!(refused["message"].as_str().is_some_and(|it| it.contains("Illegal transition")), "{refused}");
    let order = json!({"criteria": {"associations": {"deliveries": {}}}, "entity": "order", "limit": 1});
    let delivery = data(&world, "shopware_entity_search", &order)["records"][0]["deliveries"][0]["id"].clone();
    let transition = json!({"entity": "order_delivery", "id": delivery, "transition": "ship", "send_mail": true});
    assert_eq!(data(&open, "shopware_order_state", &transition)["state"], "shipped");
    shop.assert_no_problems().await;
}

#[tokio::test]
async fn a_picture_comes_from_a_url_and_becomes_the_cover() {
    let Some((shop, open)) = shop() else { return };
    let picture = json!({"url": format!("{}/picture.png", shop.base), "file_name": "shirt"});
    let media = data(&open, "shopware_media_upload", &picture)["id"].clone();
    let cover = json!({"product_id": SHIRT, "media_id": media});
    data(&open, "shopware_product_cover", &cover);
    let product = json!({"entity": "product", "id": SHIRT, "associations": {"cover": {"associations": {"media": {}}}}});
    assert_eq!(data(&open, "shopware_entity_read", &product)["cover"]["media"]["fileName"], "shirt");
    // The card of the next one shows the picture that it replaces.
    let world = connected(&shop, "SWIAADMIN", "");
    let other = data(&open, "shopware_media_upload", &picture)["id"].clone();
    let old = media.as_str().expect("an id");
    approved(&world, "shopware_product_cover", &json!({"product_id": SHIRT, "media_id": other}), &[old], "");
    let overview = data(&world, "shopware_capabilities", &json!({}));
    let facts = (&overview["version"], &overview["upload_from_url"], &overview["extensions"]);
    assert_eq!(facts, (&json!("6.7.10.1"), &json!(true), &json!(["SwagPayPal"])));
    shop.assert_no_problems().await;
}

/// The operations of reading, with schemas without associations, which lead to all of the document.
fn reading_operations(document: &Value) -> Value {
    let is_plain = |schema: &Value| {
        let text = schema.to_string();
        !text.contains("\"$ref\"") && !text.contains("links")
    };
    let mut tax = document["components"]["schemas"]["Tax"].clone();
    tax["properties"].as_object_mut().expect("properties").retain(|_, schema| is_plain(schema));
    // Prism makes no text that fits a pattern.
    tax["properties"]["id"]["example"] = SHIRT.into();
    let mut schemas = document["components"]["schemas"].clone();
    let of_requests = |name: &str| {
        let parts = [
            "Criteria",
            "Sort",
            "Includes",
            "Excludes",
            "Filters",
            "Associations",
            "SubAggregations",
            "infoConfigResponse",
        ];
        let is_filter =
            name.ends_with("Filter") && ["Simple", "Equals", "MultiNot", "Range"].iter().any(|it| name.starts_with(it));
        parts.contains(&name) || is_filter || name.starts_with("Aggregation")
    };
    schemas.as_object_mut().expect("schemas").retain(|name, _| of_requests(name));
    schemas["Tax"] = tax;
    let mut paths = serde_json::Map::new();
    for (path, method) in [
        ("/search/tax", "post"),
        ("/aggregate/tax", "post"),
        ("/_info/config", "get"),
        ("/_action/system-config", "get"),
        ("/_action/state-machine/{entityName}/{entityId}/state", "get"),
    ] {
        let mut operation = document["paths"][path][method].clone();
        let success = operation["responses"]["200"].clone();
        let mut json_only = success.clone();
        if let Some(content) = success["content"].as_object() {
            json_only["content"] = json!({"application/json": content["application/json"]});
        }
        operation["responses"] = json!({"200": json_only});
        paths.insert(format!("/api{path}"), json!({method: operation}));
    }
    json!({"openapi": document["openapi"], "info": {"title": "Shop", "version": "1"}, "paths": paths,
        "components": {"schemas": schemas, "securitySchemes": document["components"]["securitySchemes"]}})
}

/// Prism refuses what does not fit, and answers from the schemas alone.
#[test]
fn what_reads_understands_answers_that_prism_makes_from_the_description() {
    let Some(specs) = std::env::var_os(NEEDS[0]) else { return crate::skip::skip(NEEDS[0]) };
    let file = std::path::Path::new(&specs).join("@shopware/api-client/api-types/adminApiSchema.json");
    let document = serde_json::from_slice(&std::fs::read(file).expect("the description")).expect("JSON");
    let world = World::new();
    let reading = world.folder().join("reading.json");
    std::fs::write(&reading, reading_operations(&document).to_string()).expect("written");
    let Some(prism) = Prism::serve(&reading) else { return };
    super::configure(&world, "shopware", &format!("[vars]\nshopware_url = \"{}\"\n", prism.base));
    assert_eq!(world.run_with(&["secret", "set", "shopware"], "a-bare-access-token").exit, 0);
    let filter = json!([{"type": "equals", "field": "name", "value": "Standard"}]);
    let criteria =
        json!({"filter": filter, "sort": [{"field": "name", "order": "ASC"}], "associations": {"rules": {}}});
    let found = data(&world, "shopware_entity_search", &json!({"entity": "tax", "criteria": criteria}));
    assert_eq!((&found["limit"], found["records"].is_array()), (&json!(25), true), "{found}");
    data(&world, "shopware_entity_aggregate", &json!({"entity": "tax", "filter": filter}));
    data(&world, "shopware_delete_preview", &json!({"entity": "tax", "records": [{"id": SHIRT}]}));
    let overview = data(&world, "shopware_capabilities", &json!({}));
    assert!(overview["version"].is_string(), "{overview}");
    data(&world, "shopware_system_config_read", &json!({"domain": "core.cart"}));
    let state = data(&world, "shopware_order_transitions", &json!({"entity": "order", "id": ORDER}));
    assert!(state["transitions"].is_array(), "{state}");
}

#[test]
fn requests_of_people_find_its_subtools() {
    assert_found("shopware", "[vars]\nshopware_url = \"https://shop.example.com\"\n");
}

#[test]
fn without_its_variable_it_says_what_to_set() {
    assert_says_what_to_set("shopware", &["shopware_url"]);
}
