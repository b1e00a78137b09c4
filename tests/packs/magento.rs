//! The pack `magento` against a shop whose requests must fit the description of Magento's REST Admin API, and with a
//! program in place of PHP that runs a script as `bin/magento`.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use serde_json::{Value, json};

use super::{FarSide, approved, assert_found, assert_says_what_to_set, data, error};
use crate::world::World;

const NEEDS: [&str; 2] = ["AGENT_MAGIC_TOOL_TEST_SPECS", "AGENT_MAGIC_TOOL_TEST_PRISM"];
/// The words for a record that does not exist and for one that may not be read.
const DENIED: &str = "no such record, or not permitted";
const ALLOWED: &str = "[confirm]\nwrites = \"allow\"\n";

/// Prints its arguments, as `bin/magento` in the folder of the shop.
const BIN_MAGENTO: &str = "[ -f app/etc/config.php ] || exit 9\nprintf '%s\\n' \"$@\"\n";

fn connected(base: &str, token: &str, config: &str) -> World {
    let world = World::new();
    let root = world.folder().join("shop");
    for folder in ["bin", "php", "app/etc", "app/code/Acme/Shop/etc", "var/log"] {
        fs::create_dir_all(root.join(folder)).expect("made");
    }
    for (file, text) in [
        ("bin/magento", BIN_MAGENTO),
        ("php/php", "#!/bin/sh\nexec sh \"$@\"\n"),
        ("app/etc/config.php", "<?php return ['modules' => []];\n"),
        ("app/etc/env.php", "<?php return ['db' => ['password' => 'hunter2-of-the-shop']];\n"),
        ("app/code/Acme/Shop/etc/module.xml", "<module name=\"Acme_Shop\"/>\n"),
        ("var/log/system.log", "main.CRITICAL: out of paper\n"),
    ] {
        fs::write(root.join(file), text).expect("written");
    }
    let mode = fs::Permissions::from_mode(0o755);
    fs::set_permissions(root.join("php/php"), mode).expect("executable");
    let shop = root.display();
    super::configure(
        &world,
        "magento",
        &format!(
            "{config}\n[files]\nroots = [\"{shop}\"]\n[programs]\npath = [\"{shop}/php\", \"/usr/bin\", \"/bin\"]\n\
             [vars]\nmagento_url = \"{base}\"\nmagento_root = \"{shop}\"\n"
        ),
    );
    assert_eq!(world.run_with(&["secret", "set", "magento"], token).exit, 0);
    world
}

fn shop(config: &str) -> Option<(FarSide, World)> {
    let shop = FarSide::start("magento.mjs", &NEEDS)?;
    let world = connected(&shop.base, "all-of-magento", config);
    Some((shop, world))
}

fn ids(found: &Value, field: &str) -> Vec<Value> {
    found["items"].as_array().expect("items").iter().map(|item| item[field].clone()).collect()
}

#[tokio::test]
async fn orders_and_products_and_customers_are_found_by_simple_words() {
    let Some((shop, world)) = shop("") else { return };
    let search = |tool: &str, input: Value| data(&world, tool, &input);
    let pending = search("magento_orders_search", json!({"status": "pending"}));
    assert_eq!(
        (ids(&pending, "increment_id"), &pending["total"]),
        (vec![json!("000000002"), json!("000000001")], &json!(2))
    );
    let since = search("magento_orders_search", json!({"created_after": "2026-11-02", "created_before": "2026-11-03"}));
    assert_eq!(ids(&since, "order_id"), [json!(2)]);
    let second = search("magento_orders_search", json!({"limit": 2, "page": 2}));
    assert_eq!((ids(&second, "order_id"), &second["page"], &second["limit"]), (vec![json!(1)], &json!(2), &json!(2)));
    let order = search("magento_order_read", json!({"order_id": 1}));
    let facts = (&order["customer_name"], &order["payment"], order["items"].as_array().map(Vec::len));
    assert_eq!(facts, (&json!("Ann Lee"), &json!("checkmo"), Some(1)));

    let shirts = search("magento_products_search", json!({"name": "shirt"}));
    assert_eq!(ids(&shirts, "sku"), ["MH_1", "a/b 3"]);
    assert_eq!(ids(&search("magento_products_search", json!({"name": "100%"})), "sku"), ["MH_1"], "no wildcard");
    assert_eq!(ids(&search("magento_products_search", json!({"sku": "H_1"})), "sku"), ["MH_1"]);
    assert_eq!(
        ids(&search("magento_products_search", json!({"enabled": false})), "sku"),
        ["MH_1"],
        "disabled ones too"
    );
    let cheap = search("magento_products_search", json!({"price_to": 40, "category_id": 3}));
    assert_eq!(ids(&cheap, "sku"), ["24-MB01"]);
    assert_eq!(search("magento_product_read", json!({"sku": "a/b 3"}))["name"], "Shirt", "a SKU may have a slash");
    let read = search("magento_product_read", json!({"sku": "24-MB01"}));
    assert_eq!((&read["attributes"], &read["category_ids"]), (&json!({"color": "7"}), &json!(["3"])));
    assert_eq!(search("magento_product_stock_read", json!({"sku": "24-MB01"}))["total"], 7);

    assert_eq!(search("magento_customers_count", json!({})), json!({"count": 3}));
    assert_eq!(search("magento_customers_count", json!({"created_after": "2026-11-01"})), json!({"count": 2}));
    assert_eq!(ids(&search("magento_customers_search", json!({"lastname": "lee2"})), "id"), [json!(2)]);
    assert_eq!(search("magento_customer_read", json!({"customer_id": 1}))["email"], "c1@example.com");
    assert_eq!(search("magento_categories_list", json!({}))["children"][0]["name"], "Gear");
    assert_eq!(ids(&search("magento_cart_rules_search", json!({"active": true})), "rule_id"), [json!(3)]);
    assert_eq!(ids(&search("magento_cms_pages_search", json!({"identifier": "home"})), "page_id"), [json!(2)]);
    assert_eq!(ids(&search("magento_cms_blocks_search", json!({"title": "foot"})), "title"), ["Footer"]);
    shop.assert_no_problems().await;
}

#[tokio::test]
async fn orders_are_commented_invoiced_shipped_refunded_and_cancelled() {
    let Some((shop, world)) = shop(ALLOWED) else { return };
    let write = |tool: &str, input: Value| data(&world, tool, &input);
    write("magento_order_comment", json!({"order_id": 1, "comment": "Called \"back\"."}));
    assert!(write("magento_order_invoice", json!({"order_id": 1, "capture": true}))["invoice_id"].is_number());
    let tracks = json!([{"carrier_code": "dhl", "title": "DHL", "track_number": "JJD1"}]);
    let items = json!([{"order_item_id": 11, "qty": 1}]);
    let parcel = json!({"order_id": 1, "tracks": tracks, "items": items, "comment": "Fragile"});
    assert!(write("magento_order_ship", parcel)["shipment_id"].is_number());
    let refund = json!({"order_id": 1, "items": items, "shipping_amount": 0, "adjustment_fee": 2.5});
    assert!(write("magento_order_refund", refund)["creditmemo_id"].is_number());
    let order = write("magento_order_read", json!({"order_id": 1}));
    assert_eq!((&order["comments"][0]["comment"], &order["total_refunded"]), (&json!("Called \"back\"."), &json!(10)));
    let sent = shop.requests("/order/1/refund").await;
    assert_eq!(sent[0]["body"]["arguments"], json!({"shipping_amount": 0, "adjustment_negative": 2.5}));
    let asked = shop.requests("/order/1/ship").await;
    assert_eq!((&asked[0]["body"]["notify"], &asked[0]["body"]["tracks"]), (&json!(false), &tracks), "no mail unasked");

    let asking = connected(&shop.base, "all-of-magento", "");
    let cancelled = approved(
        &asking,
        "magento_order_cancel",
        &json!({"order_id": 2}),
        &["000000002", "c2@example.com"],
        "magento_order_cancel",
    );
    assert_eq!(cancelled, json!({"cancelled": true}));
    assert_eq!(write("magento_order_read", json!({"order_id": 2}))["status"], "canceled");
    shop.assert_no_problems().await;
}

#[tokio::test]
async fn prices_stock_pages_and_coupons_are_changed_after_a_human_saw_the_old_ones() {
    let Some((shop, world)) = shop("") else { return };
    let price = json!({"sku": "24-MB01", "price": 30.5});
    approved(&world, "magento_product_price_update", &price, &["34", "Joust Bag"], "");
    assert_eq!(data(&world, "magento_product_read", &json!({"sku": "24-MB01"}))["price"], 30.5);
    let stock = json!({"sku": "24-MB01", "quantity": 0});
    approved(&world, "magento_product_stock_update", &stock, &["7"], "");
    let now = json!([{"source_code": "default", "quantity": 0, "in_stock": false}]);
    assert_eq!(data(&world, "magento_product_stock_read", &json!({"sku": "24-MB01"}))["sources"], now);
    let page = json!({"page_id": 2, "identifier": "home", "content": "<p>New text</p>"});
    approved(&world, "magento_cms_page_update", &page, &["Old text"], "");
    let page = data(&world, "magento_cms_page_read", &json!({"page_id": 2}));
    assert_eq!((&page["content"], &page["title"]), (&json!("<p>New text</p>"), &json!("Home")));
    let coupon = json!({"rule_id": 3, "code": "SUMMER26", "expires": "2026-12-31"});
    assert_eq!(approved(&world, "magento_coupon_create", &coupon, &["SUMMER26"], "")["coupon_id"], 1);

    let open = connected(&shop.base, "all-of-magento", ALLOWED);
    let unknown = error(&open, "magento_product_price_update", &json!({"sku": "NONE", "price": 1}));
    let said = unknown["message"].as_str().expect("a message");
    assert!(said.starts_with("the price was not set: The product") && said.ends_with("NONE"), "{said}");
    shop.assert_no_problems().await;
}

#[tokio::test]
async fn a_missing_record_cannot_be_told_from_a_forbidden_one() {
    let Some((shop, world)) = shop("") else { return };
    let limited = connected(&shop.base, "only-products", "");
    let missing = error(&world, "magento_order_read", &json!({"order_id": 99}));
    assert_eq!(missing["message"], DENIED);
    assert_eq!(error(&limited, "magento_order_read", &json!({"order_id": 1})), missing);
    assert_eq!(data(&limited, "magento_product_read", &json!({"sku": "24-MB01"}))["price"], 34);
    shop.assert_no_problems().await;
}

#[test]
fn only_the_listed_commands_of_bin_magento_run_and_those_that_change_something_ask() {
    let world = connected("http://127.0.0.1:9", "never-to-be-used", "");
    let status = data(&world, "magento_cli_status", &json!({"command": "indexer:status"}));
    let fixed = "--no-ansi\n--no-interaction\n";
    assert_eq!(status.as_str().map(str::trim_end), Some(format!("{fixed}indexer:status").as_str()));
    for command in ["cache:clean", "setup:upgrade", "config:show", "list; id", "--version"] {
        let input = json!({"command": command});
        let refused = world.run(&["run", "magento_cli_status", "--input", &input.to_string()]);
        assert_eq!(refused.error()["code"], "invalid-input", "{command}: {refused}");
    }
    let options = json!({"command": "cache:clean", "arguments": ["--help"]});
    let refused = world.run(&["run", "magento_cli_run", "--input", &options.to_string()]);
    assert_eq!(refused.error()["code"], "invalid-input", "an option is not a cache: {refused}");
    let described = world.run(&["list", "tools", "--in=magento", "--full"]).json()["magento_cli_run"].to_string();
    assert!(described.contains("setup:upgrade") && described.contains("refused"), "{described}");
    let clean = json!({"command": "cache:clean", "arguments": ["config", "full_page"]});
    let printed = approved(&world, "magento_cli_run", &clean, &["cache:clean", "full_page"], "");
    let printed = printed.as_str().expect("a text").trim_end().to_owned();
    assert_eq!(printed, format!("{fixed}cache:clean\nconfig\nfull_page"));
}

#[test]
fn code_is_read_only_inside_the_shop_and_never_its_credentials() {
    let world = connected("http://127.0.0.1:9", "never-to-be-used", "");
    let module = "app/code/Acme/Shop/etc/module.xml";
    let read = data(&world, "magento_code_read", &json!({"path": module}));
    assert!(read["text"].as_str().is_some_and(|text| text.contains("Acme_Shop")), "{read}");
    let found = data(&world, "magento_code_search", &json!({"pattern": "Acme_.*"}));
    let path = found["matches"][0]["path"].as_str().expect("a match");
    assert!(Path::new(path).ends_with(module), "{found}");
    let log = json!({"pattern": "CRITICAL", "path": "var/log"});
    assert_eq!(data(&world, "magento_code_search", &log)["matches"].as_array().map(Vec::len), Some(1));
    for path in
        ["app/etc/env.php", "../secret", "app/code/../../app/etc/env.php", "/etc/passwd", "app/code/./../etc/env.php"]
    {
        for (tool, input) in [
            ("magento_code_read", json!({"path": path})),
            ("magento_code_search", json!({"pattern": "password", "path": path})),
        ] {
            let refused = world.run(&["run", tool, "--input", &input.to_string()]);
            assert_eq!(refused.error()["code"], "invalid-input", "{tool} {path}: {refused}");
        }
    }
}

#[test]
fn requests_of_people_find_its_subtools() {
    assert_found("magento", "[vars]\nmagento_url = \"https://shop.example.com\"\nmagento_root = \"/srv/magento\"\n");
}

#[test]
fn without_its_variables_it_says_what_to_set() {
    assert_says_what_to_set("magento", &["magento_url", "magento_root"]);
}
