//! What an answer says of itself: which part it is, how a limit was lowered, where the rows are, and how rows are changed.

use serde_json::{Value, json};

use super::Shop;

/// What `run --wait --jq` prints as notes.
fn notes(shop: &Shop, tool: &str, input: &Value, expression: &str) -> String {
    let ran = shop.world.run(&["run", tool, "--input", &input.to_string(), "--wait", "--jq", expression]);
    assert_eq!(ran.exit, 0, "{input}: {ran}");
    ran.stderr
}

#[test]
fn a_limit_above_the_maximum_is_lowered_and_that_is_said() {
    let Some(shop) = Shop::new("sqlite", "max_rows = 50") else { return };
    let all = "SELECT entity_id FROM sales_order ORDER BY entity_id";
    for input in [
        json!({"query": all, "limit": 1000}),
        json!({"query": format!("{all} LIMIT 1000")}),
        json!({"query": all, "limit": 1000, "count": "none"}),
    ] {
        let result = shop.world.result_of("shop_query", &input);
        assert_eq!(
            (&result["_meta"]["limit"], &result["_meta"]["asked_limit"]),
            (&json!(50), &json!(1000)),
            "{result:#}"
        );
        let said = notes(&shop, "shop_query", &input, ".row_count");
        assert!(said.contains("all there is") && said.contains("the limit of 1000 was lowered to 50"), "{said}");
        let whole = shop.world.run(&["run", "shop_query", "--input", &input.to_string(), "--wait"]);
        assert_eq!(whole.json()["asked_limit"], 1000, "{whole}");
    }
    // Also if there are fewer.
    let few = json!({"query": "SELECT entity_id FROM sales_order WHERE entity_id < 4", "limit": 1000});
    let said = notes(&shop, "shop_query", &few, ".row_count");
    assert!(said.contains("was lowered to 50") && !said.contains("all there is"), "{said}");
    for fine in [json!({"query": "SELECT 1", "limit": 50}), json!({"query": "SELECT 1 LIMIT 5"})] {
        assert_eq!(shop.world.result_of("shop_query", &fine)["_meta"].get("asked_limit"), None, "{fine}");
    }
    // The maximum stands in the schema.
    for tool in ["shop_query", "shop_find_sales_order"] {
        let listed = shop.world.run(&["list", "tools", tool]);
        assert!(listed.stdout.contains("How many rows a page has, at most 50."), "{listed}");
    }
}

#[test]
fn the_last_page_is_not_called_a_part_of_what_follows() {
    let Some(shop) = Shop::new("sqlite", "") else { return };
    let page = |page: u64, count: &str| {
        let query = "SELECT entity_id FROM sales_order WHERE entity_id <= 250 ORDER BY entity_id";
        notes(&shop, "shop_query", &json!({"query": query, "page": page, "limit": 100, "count": count}), ".row_count")
    };
    for count in ["next_pages", "exact", "none"] {
        assert!(page(1, count).contains("all there is"), "{count}: {}", page(1, count));
        let last = page(3, count);
        assert!(last.contains("this is the last page") && !last.contains("all there is"), "{count}: {last}");
    }
}

#[test]
fn a_hint_names_the_path_of_the_rows() {
    let Some(shop) = Shop::new("sqlite", "") else { return };
    let input = json!({"query": "SELECT entity_id, status FROM sales_order ORDER BY entity_id LIMIT 3"});
    for (expression, expected) in [
        (".[0].status", "write `.data[0].status`"),
        (".[0]", "write `.data[0]`"),
        (".status", "it has `.data[].status`"),
        (".data[0].statuss", "there is no key `statuss` there; the keys are `entity_id`, `status`"),
        (".data[7].status", "there is no `.[7]`: the list has 3 items"),
    ] {
        let said = notes(&shop, "shop_query", &input, expression);
        assert!(said.contains(expected) && !said.contains("no `.data` before it"), "{expression}: {said}");
    }
    let failed = shop.world.run(&["run", "shop_query", "--input", &input.to_string(), "--wait", "--jq", ".[].status"]);
    assert!(failed.to_string().contains("sees only the data, like `.data[0].entity_id`"), "{failed}");
    // Where the data is a list, `.data` leads nowhere.
    let shaped = json!({"own_orders": {"description": "Lists orders.", "input": {}, "annotations": {"readOnlyHint": true},
        "run": {"sql": {"database": "shop", "statement": "SELECT entity_id FROM sales_order ORDER BY 1 LIMIT 2"}},
        "result": {"select": "{orders: .data}"}}});
    shop.world.define("own.json", &shaped);
    let said = notes(&shop, "own_orders", &json!({}), ".data[0].entity_id");
    assert!(said.contains("write `.orders[0].entity_id`"), "{said}");
}

#[test]
fn a_query_that_would_change_rows_is_told_what_does() {
    for (settings, expected) in [
        ("writable = true", "write a `SELECT`; `shop_change` changes rows"),
        ("", "write a `SELECT`; subtools may change nothing in this database"),
    ] {
        let Some(shop) = Shop::new("sqlite", settings) else { return };
        let error = shop.query("UPDATE sales_order SET status = 'x'")["error"].clone();
        assert_eq!(error["message"], "`UPDATE` is not allowed: a query only reads", "{error:#}");
        assert_eq!(error["hint"], expected, "{error:#}");
        let listed = shop.world.run(&["list", "tools", "shop_query"]);
        assert_eq!(
            listed.stdout.contains("It only reads: shop_change changes rows."),
            !settings.is_empty(),
            "{listed}"
        );
    }
}

#[test]
fn a_scheduled_change_says_that_a_human_is_asked_and_what_becomes_of_it() {
    let Some(shop) = Shop::new("sqlite", "writable = true") else { return };
    let input = json!({"statement": "UPDATE sales_order SET status = 'x' WHERE entity_id = 1", "dry_run": false});
    let receipt = shop.world.run(&["run", "shop_change", "--input", &input.to_string(), "--in=1h"]).json();
    let (message, at) = (receipt["message"].as_str().expect("words"), receipt["run_at"].as_str().expect("a time"));
    let is_asked = ["The user will be asked to confirm it", "Tell the user: run `agent-magic-tool executor page`"];
    assert!(is_asked.iter().any(|words| message.starts_with(words)), "{receipt:#}");
    let start = format!(
        "It starts at {at} if it is confirmed by then, and otherwise as soon as it is; without a decision it expires at "
    );
    assert!(message.contains(&start) && message.contains("and nothing is done"), "{receipt:#}");
}

#[test]
fn a_dry_run_approves_no_query_that_is_always_refused() {
    let Some(shop) = Shop::new("sqlite", "") else { return };
    for (query, code) in [
        ("UPDATE customer_entity SET email = 'x'", "refused-by-policy"),
        ("DELETE FROM customer_entity", "refused-by-policy"),
        ("PRAGMA user_version", "refused-by-policy"),
        ("SELEC nonsense", "invalid-input"),
        ("SELECT 1; SELECT 2", "invalid-input"),
    ] {
        let tried = shop.world.run(&["run", "shop_query", &format!("query={query}"), "--dry-run"]);
        assert_eq!(tried.error()["code"], code, "{query}: {tried}");
        assert_eq!(shop.query(query)["error"]["code"], code, "{query}");
    }
    let tried = shop.world.run(&["run", "shop_query", "query=SELECT entity_id FROM customer_entity", "--dry-run"]);
    assert_eq!(tried.exit, 0, "{tried}");
}
