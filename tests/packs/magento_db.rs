//! The pack `magento-db` against a MariaDB with Magento's own tables, 100,000 customers and as many orders.

use serde_json::{Value, json};

use super::{TestDatabase, assert_found, configure, data, error};
use crate::agent::aimock::Model;
use crate::world::World;

const TABLES: &str = include_str!("magento-db.sql");
/// What a shop's owner would deny and hide, as the documentation says.
const RULES: &str = "deny_tables = [\"admin_*\"]\nhidden_columns = [\"core_config_data.value\", \"*.remote_ip\"]\n";
const QUESTION: &str = "How many customers do we have?";

/// A shop with 100,000 customers and orders.
struct Shop {
    world: World,
    database: TestDatabase,
}

fn shop() -> Option<Shop> {
    let world = World::new();
    let database = TestDatabase::new(&world, "magento", "mariadb", TABLES)?;
    configure(&world, "magento-db", &format!("{}{RULES}", database.config));
    Some(Shop { world, database })
}

impl Shop {
    #[track_caller]
    fn data(&self, tool: &str, input: &Value) -> Value {
        data(&self.world, tool, input)
    }
}

/// The values of a field of each item of a list.
#[track_caller]
fn each(list: &Value, field: &str) -> Vec<Value> {
    list.as_array().expect("a list").iter().map(|item| item[field].clone()).collect()
}

#[test]
fn customers_orders_products_and_stock_are_counted_and_found() {
    let Some(shop) = shop() else { return };
    let customers = shop.data("magento_count_customers", &json!({}));
    assert_eq!((&customers["total"], &customers["inactive"]), (&json!(100_000), &json!(100)));
    assert_eq!(customers["new"], json!({"customers": 700, "days": 30}));
    assert_eq!(
        customers["groups"][0],
        json!({"group_id": 2, "group": "Wholesale", "customers": 33_334, "inactive": 34, "new": 234})
    );
    // Customer 1440 came a day after the start of 2020.
    let spanned = shop.data("magento_count_customers", &json!({"from": "2020-01-02", "until": "2020-01-03"}));
    assert_eq!(spanned["new"], json!({"customers": 1440, "from": "2020-01-02", "until": "2020-01-03"}));
    assert_eq!(shop.data("magento_count_customers", &json!({"days": 2}))["new"]["customers"], 0);
    let found = shop.data("magento_find_customers", &json!({"name": "müller"}));
    let jurgen = &found["customers"][0];
    assert_eq!((&jurgen["customer_id"], &jurgen["name"]), (&json!(4711), &json!("Jürgen Müller")));
    assert_eq!((&jurgen["orders"], &jurgen["revenue"], &jurgen["active"]), (&json!(1), &json!(21.0), &json!(true)));
    let inactive = shop.data("magento_find_customers", &json!({"active": false, "limit": 2}));
    assert_eq!(each(&inactive["customers"], "customer_id"), [100_000, 99_000], "newest first, inactive ones too");
    assert_eq!(each(&shop.data("magento_find_customers", &json!({"email": "c_@"}))["customers"], "email").len(), 0);

    let states = shop.data("magento_sales_summary", &json!({"by": "state"}));
    let revenue: u32 = (1..=100_000).filter(|order| order % 10 != 0).map(|order| 10 + order % 100).sum();
    assert_eq!(states["orders"], 100_000);
    assert_eq!(states["revenue"], json!([{"currency": "EUR", "revenue": f64::from(revenue)}]));
    assert_eq!(states["rows"][0]["states"], json!({"complete": 60_000}));
    assert_eq!(each(&states["rows"], "orders"), [60_000, 10_000, 10_000, 10_000, 10_000]);
    // Orders are placed at 23:30, which is the next day, and for the last day of a month the next month, in Berlin.
    let of_month = |offset: &str| {
        let input = json!({"by": "month", "from": "2026-02-01", "until": "2026-03-01", "utc_offset": offset});
        let summary = shop.data("magento_sales_summary", &input);
        assert_eq!(each(&summary["rows"], "month"), ["2026-02"]);
        summary["orders"].as_u64()
    };
    let orders =
        |first: u64, after: u64| Some((1..=100_000).filter(|it| (first..after).contains(&(it % 300))).count() as u64);
    assert_eq!((of_month("+00:00"), of_month("+01:00")), (orders(31, 59), orders(30, 58)));
    let weeks = shop.data("magento_sales_summary", &json!({"by": "week", "state": "canceled", "limit": 1, "page": 2}));
    assert_eq!((each(&weeks["rows"], "week"), &weeks["rows"][0]["revenue"]), (vec![json!("2026-W41")], &json!(0.0)));
    assert_eq!(weeks["orders"], 10_000, "of all pages");
    let stores = shop.data("magento_sales_summary", &json!({"by": "store"}));
    assert_eq!(
        (each(&stores["rows"], "store"), each(&stores["rows"], "orders")),
        (vec![json!("English"), json!("Deutsch")], vec![json!(50_000); 2])
    );

    let best = shop.data("magento_top_products", &json!({"limit": 2}));
    assert_eq!(best["products"][0]["sku"], "sku-8", "three pieces in each order");
    assert_eq!(
        (&best["products"][0]["quantity"], &best["products"][0]["orders"]),
        (&json!(1500.0), &json!(500)),
        "a child is not counted"
    );
    let dear = shop.data("magento_top_products", &json!({"by": "revenue", "limit": 1}));
    assert_eq!((&dear["products"][0]["sku"], &dear["products"][0]["revenue"]), (&json!("sku-9"), &json!(24_500.0)));

    let order = shop.data("magento_find_orders", &json!({"number": "4711"}));
    assert_eq!(
        (each(&order["orders"], "number"), &order["orders"][0]["customer"]),
        (vec![json!("000004711")], &json!("Jürgen Müller"))
    );
    let large =
        shop.data("magento_find_orders", &json!({"total_from": 109, "state": "complete", "limit": 3, "page": 2}));
    assert_eq!(each(&large["orders"], "grand_total"), [109.0, 109.0, 109.0]);
    assert_eq!(each(&large["orders"], "order_id"), [98_999, 98_699, 98_399], "the second page");
    let with_sku = shop.data("magento_find_orders", &json!({"sku": "sku-8", "customer_id": 7}));
    assert_eq!(each(&with_sku["orders"], "order_id"), [7]);

    let products = shop.data("magento_count_products", &json!({}));
    assert_eq!(
        (&products["total"], &products["enabled"], &products["disabled"]),
        (&json!(200), &json!(196), &json!(4))
    );
    let low = shop.data("magento_low_stock", &json!({"at_most": 2}));
    let lacking = json!({"sku": "sku-1", "name": "Product 1", "source": "default", "quantity": 1.0, "in_stock": true, "enabled": false});
    assert_eq!(
        (low["products"].as_array().map(Vec::len), &low["products"][0]),
        (Some(8), &lacking),
        "disabled ones too"
    );
    assert_eq!(
        shop.data("magento_low_stock", &json!({"at_most": 2, "enabled": true}))["products"].as_array().map(Vec::len),
        Some(4)
    );
}

#[test]
fn a_question_is_answered_in_two_calls_and_nothing_secret_is_seen() {
    let Some(shop) = shop() else { return };
    // By hand, as an agent does it.
    let listed = shop.world.run(&["list", "tools", &format!("--query={QUESTION}"), "--limit=1"]).json();
    assert_eq!(
        listed.as_object().and_then(|found| found.keys().next()).map(String::as_str),
        Some("magento_count_customers")
    );
    assert_eq!(shop.data("magento_count_customers", &json!({}))["total"], 100_000);
    // By our own agent, with a scripted model.
    let rules = json!([
        {"last": "^How many", "runs": [format!("agent-magic-tool list tools --query='{QUESTION}'")]},
        {"last": "\"status\":\\s*\"pending\"", "says": "It is under way."},
        {"last": "result is final", "runs": ["agent-magic-tool read $ID"]},
        {"last": "\"total\":\\s*(\\d+)", "says": "You have $1 customers."},
        {"last": "magento_count_customers", "runs": ["agent-magic-tool run magento_count_customers"]},
    ]);
    let packs = "[catalog]\npacks = [\"files\", \"git\", \"github\", \"gmail\", \"human\", \"web\", \"magento-db\"]\n";
    let model = Model::start(&shop.world, &rules, &format!("{}{RULES}{packs}", shop.database.config));
    if model.is_some() {
        let ran = shop.world.run(&["agent", "--json", QUESTION]);
        assert_eq!(ran.json()["answer"], "You have 100000 customers.", "{ran}");
    }

    let info = shop.data("magento_info", &json!({}));
    assert_eq!(info["customers"], json!({"total": 100_000, "inactive": 100, "new_in_30_days": 700}));
    assert_eq!(info["products"], json!({"total": 200, "enabled": 196, "disabled": 4}));
    assert_eq!((&info["orders"]["total"], &info["orders"]["by_state"]["new"]), (&json!(100_000), &json!(10_000)));
    assert_eq!(
        (&info["newest_order"]["number"], &info["modules"]["Magento_Sales"]),
        (&json!("000099899"), &json!("2.0.14"))
    );
    assert_eq!(each(&info["stores"], "active"), [true, true, false], "inactive ones are shown");
    let url =
        json!({"path": "web/secure/base_url", "scope": "default", "scope_id": 0, "value": "https://shop.example.com/"});
    assert!(info["settings"].as_array().expect("settings").contains(&url), "{info:#}");

    let config = shop.data("magento_read_config", &json!({}));
    let value = |path: &str| {
        let settings = config["settings"].as_array().expect("settings").iter();
        settings.filter(|it| it["path"] == path).map(|it| it["value"].clone()).collect::<Vec<_>>()
    };
    assert_eq!(value("general/locale/code"), ["en_US", "de_DE"]);
    for secret in ["payment/acme/api_key", "payment/acme/merchant_id", "system/smtp/password"] {
        assert_eq!(value(secret), ["[redacted]"], "{secret}");
    }
    let methods = shop.data("magento_read_config", &json!({"path": "payment/", "contains": "/active"}));
    assert_eq!(each(&methods["settings"], "value"), ["1", "0"]);
    assert_eq!(
        each(&shop.data("magento_list_modules", &json!({"name_contains": "Acme_"}))["modules"], "module"),
        ["Acme_Shop"]
    );

    let carts = "SELECT is_active, COUNT(*) AS carts FROM quote GROUP BY is_active ORDER BY is_active";
    let carts = shop.data("magento_sql_query", &json!({"query": carts}));
    assert_eq!(carts["data"], json!([{"is_active": 0, "carts": 60}, {"is_active": 1, "carts": 40}]));
    let described = shop.data("magento_describe_table", &json!({"table": "customer_entity"}));
    let columns = each(&described["columns"], "name");
    assert!(columns.contains(&json!("email")) && !columns.contains(&json!("password_hash")), "{described:#}");
    assert_eq!(each(&shop.data("magento_list_tables", &json!({"name_contains": "admin"}))["tables"], "name").len(), 0);
    let said = |query: &str| error(&shop.world, "magento_sql_query", &json!({"query": query}));
    assert_eq!(said("SELECT * FROM admin_user")["message"], "no table `admin_user`");
    assert_eq!(said("SELECT value FROM core_config_data")["message"], "no column `value` in `core_config_data`");
    assert_eq!(said("DELETE FROM quote")["code"], "refused-by-policy");

    // A shop without inventory and with an older database: the snapshot has what there is.
    shop.database
        .run("DROP TABLE setup_module; DROP TABLE catalog_product_entity_int; DROP TABLE inventory_source_item;");
    let rest = shop.data("magento_info", &json!({}));
    assert_eq!((&rest["products"], &rest["modules"]), (&Value::Null, &json!({})));
    assert_eq!((&rest["customers"], &rest["stores"]), (&info["customers"], &info["stores"]));
}

#[test]
fn requests_of_people_find_its_subtools() {
    assert_found("magento-db", "[databases.magento]\nurl = \"mysql://reader@127.0.0.1/magento\"\n");
}

#[test]
fn without_its_database_it_says_what_to_set() {
    let world = super::world("magento-db", "");
    let failed = error(&world, "magento_count_customers", &json!({}));
    assert_eq!(failed["message"], "the configuration has no database `magento`; it has none");
    assert!(failed["hint"].as_str().is_some_and(|hint| hint.contains("[databases.magento]")), "{failed:#}");
}
