//! Every shipped subtool that can return a part of what there is says so, also through `--jq`, where only a number is left.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};

use super::TestDatabase;
use crate::executor::http::HttpScript;
use crate::world::World;

const PART: &str = "the data is not all there is";
const MAYBE: &str = "the data may not be all there is";

/// The packs without `magento-db`, which needs a server of its own.
const PACKS: [&str; 11] =
    ["files", "git", "github", "gmail", "web", "calendar", "drive", "search", "magento", "shopware", "typo3"];

/// Subtools whose answer is a part only if the database has more than 500 tables, or for another number of rows than
/// any test has.
const OTHERS: [&str; 6] = [
    "magento_list_tables",
    "typo3_list_tables",
    "magento_info",
    "magento_count_customers",
    "magento_count_products",
    "magento_list_stores",
];

/// A call whose answer is a part: of a server that answers this, or of the files and tables of the world.
struct Cut {
    tool: &'static str,
    input: Value,
    answer: Option<Value>,
    says: &'static str,
}

fn cut(tool: &'static str, input: Value) -> Cut {
    Cut { tool, input, answer: None, says: PART }
}

fn answered(tool: &'static str, input: Value, answer: Value) -> Cut {
    Cut { tool, input, answer: Some(answer), says: PART }
}

fn unsure(tool: &'static str, input: Value, answer: Value) -> Cut {
    Cut { says: MAYBE, ..answered(tool, input, answer) }
}

/// Every one that can be tried without a server of a database.
fn table() -> Vec<Cut> {
    let repository = |fields: Value| {
        let mut input = json!({"owner": "a", "repo": "b"});
        input.as_object_mut().expect("fields").extend(fields.as_object().expect("fields").clone());
        input
    };
    let shop = json!({"items": [{}], "total_count": 3});
    let listed = json!([{"number": 1}]);
    vec![
        cut("files_read", json!({"path": "text.txt", "lines": 2})),
        cut("files_search", json!({"pattern": "x", "limit": 2})),
        cut("files_list", json!({"limit": 1})),
        cut("magento_code_read", json!({"path": "lib/text.txt", "lines": 2})),
        cut("magento_code_search", json!({"pattern": "x", "path": "lib", "limit": 2})),
        cut("git_log", json!({"limit": 2})),
        answered("fetch_url", json!({"url": "URL/page", "max_chars": 100}), json!("word ".repeat(100))),
        answered("search_extract", json!({"url": "URL/page"}), json!("word ".repeat(10_000))),
        answered("github_search_repositories", json!({"query": "q", "limit": 1}), shop.clone()),
        answered("github_search_issues", json!({"query": "q", "limit": 1}), shop.clone()),
        answered(
            "github_search_code",
            json!({"query": "q"}),
            json!({"items": [], "total_count": 0, "incomplete_results": true}),
        ),
        answered(
            "github_get_file_contents",
            repository(json!({"path": "x"})),
            json!({"encoding": "none", "content": ""}),
        ),
        answered("github_list_issues", repository(json!({"limit": 1})), listed.clone()),
        answered("github_list_issue_comments", repository(json!({"number": 1, "limit": 1})), listed.clone()),
        answered("github_list_pull_requests", repository(json!({"limit": 1})), listed),
        answered(
            "gmail_search_messages",
            json!({"search_query": "q"}),
            json!({"messages": [{"id": "1"}], "nextPageToken": "t"}),
        ),
        unsure("web_search", json!({"query": "q", "limit": 1}), json!({"web": {"results": [{"title": "a"}]}})),
        answered(
            "search_web",
            json!({"query": "q", "limit": 1}),
            json!({"results": [{"title": "a", "url": "b"}, {"title": "c", "url": "d"}]}),
        ),
        unsure("search_news", json!({"query": "q", "limit": 1}), json!({"results": [{"title": "a", "url": "b"}]})),
        answered("calendar_list_calendars", json!({}), json!({"items": [{}], "nextPageToken": "NUMBER"})),
        answered("calendar_list_events", json!({"limit": 1}), json!({"items": [{}], "nextPageToken": "NUMBER"})),
        answered("drive_search", json!({"name": "a", "limit": 1}), json!({"files": [{}], "nextPageToken": "NUMBER"})),
        answered("drive_list", json!({"limit": 1}), json!({"files": [{}], "nextPageToken": "NUMBER"})),
        answered("magento_orders_search", json!({"limit": 1}), shop.clone()),
        answered("magento_products_search", json!({"limit": 1}), shop.clone()),
        answered("magento_customers_search", json!({"limit": 1, "page": 2}), shop.clone()),
        answered("magento_cart_rules_search", json!({"limit": 1}), shop.clone()),
        answered("magento_cms_pages_search", json!({"limit": 1}), shop.clone()),
        answered("magento_cms_blocks_search", json!({"limit": 1}), shop),
        answered(
            "magento_product_stock_read",
            json!({"sku": "a"}),
            json!({"items": [{"quantity": 1}], "total_count": 101}),
        ),
        answered(
            "magento_categories_list",
            json!({"depth": 1}),
            json!({"id": 1, "children_data": [{"id": 2, "children_data": []}]}),
        ),
        answered("shopware_entity_search", json!({"entity": "product", "limit": 1}), json!({"data": [{}], "total": 9})),
        answered(
            "shopware_delete_preview",
            json!({"entity": "category", "records": [{"id": "0".repeat(32)}]}),
            json!({"data": [{"id": "0".repeat(32), "children": vec![json!({}); 500]}]}),
        ),
        cut("typo3_read_log", json!({"limit": 1})),
        cut("typo3_page_tree", json!({"depth": 1})),
        cut("typo3_find_pages", json!({"title": "s", "limit": 1})),
        cut("typo3_page_content", json!({"page_uid": 2, "limit": 1})),
        cut("typo3_list_backend_users", json!({"limit": 1})),
        cut("typo3_list_backend_groups", json!({"limit": 1})),
    ]
}

/// The calls that need Magento's own tables.
fn of_magento() -> Vec<Cut> {
    [
        ("magento_sql_query", json!({"query": "SELECT entity_id FROM customer_entity", "limit": 1})),
        ("magento_sales_summary", json!({"by": "state", "limit": 1})),
        ("magento_top_products", json!({"limit": 1})),
        ("magento_find_orders", json!({"limit": 1})),
        ("magento_find_customers", json!({"limit": 1})),
        ("magento_low_stock", json!({"at_most": 1_000_000, "limit": 1})),
        ("magento_read_config", json!({"limit": 1})),
        ("magento_list_modules", json!({"limit": 1})),
    ]
    .map(|(tool, input)| cut(tool, input))
    .into()
}

/// All shipped definitions, with the defaults of their files.
fn shipped() -> Vec<(String, Value)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the workspace").join("subtools");
    let packs = fs::read_dir(root).expect("the packs").flatten().filter(|pack| pack.path().is_dir());
    let texts = packs.map(|pack| {
        let name = pack.file_name().into_string().expect("a name");
        fs::read_to_string(pack.path().join(format!("{name}.json"))).expect("its definitions")
    });
    let files = texts.map(|text| serde_json::from_str::<serde_json::Map<_, _>>(&text).expect("JSON"));
    files.flatten().filter(|(name, _)| !name.starts_with('$')).collect()
}

/// Whether an answer of it can be a part, as far as its definition tells.
fn can_be_cut(definition: &Value) -> bool {
    let input = &definition["input"]["properties"];
    let is_limited = ["limit", "lines", "max_chars", "depth"].iter().any(|field| input[field]["type"] == "integer");
    let run = definition["run"].to_string();
    let builtins = ["read_file", "search_files", "list_files", "fetch_url"];
    is_limited
        || ["pagination", "\"statement\"", "\"query\":\"{{ query", "list_tables", "\"steps\":["]
            .iter()
            .any(|it| run.contains(it))
        || builtins.iter().any(|builtin| run.contains(&format!("\"{builtin}\"")))
        || definition["result"]["part"].is_string()
}

#[test]
fn every_shipped_subtool_that_can_cut_its_answer_is_in_the_table() {
    let tried: BTreeSet<_> = table().into_iter().chain(of_magento()).map(|cut| cut.tool.to_owned()).collect();
    let known: BTreeSet<_> = tried.iter().cloned().chain(OTHERS.map(str::to_owned)).collect();
    let can: BTreeSet<_> =
        shipped().into_iter().filter(|(_, definition)| can_be_cut(definition)).map(|(name, _)| name).collect();
    // One row of a known page, and one record: they are whole.
    let whole = ["typo3_page_path", "typo3_find_record"].map(str::to_owned).into();
    let missing: Vec<_> = can.difference(&known).filter(|name| !BTreeSet::contains(&whole, *name)).collect();
    assert!(missing.is_empty(), "give an answer of each that is a part: {missing:?}");
    assert!(tried.iter().filter(|name| *name != "gmail_search_messages").all(|name| can.contains(name)));
}

#[track_caller]
fn assert_told(world: &World, Cut { tool, input, says, .. }: &Cut, input_text: &str) {
    let ran = world.run(&["run", tool, "--input", input_text, "--wait", "--jq", "length"]);
    assert_eq!(ran.exit, 0, "{tool} {input}: {ran}");
    assert!(ran.stderr.contains(says) && ran.stderr.contains("$_meta"), "{tool} {input}: {ran}");
}

/// A server that answers every request with `answer`, with a link to a next page if that is a list.
fn server(answer: &Arc<Mutex<Value>>) -> HttpScript {
    let answer = Arc::clone(answer);
    HttpScript::new(move |line, number| {
        let answer = if line.contains("oauth/token") {
            json!({"access_token": "token-of-the-tests", "token_type": "bearer", "expires_in": 600})
        } else {
            answer.lock().expect("no panic").clone()
        };
        let link = if answer.is_array() { "\r\nlink: </next>; rel=\"next\"" } else { "" };
        if let Some(text) = answer.as_str() {
            return format!("200 OK\r\ncontent-type: text/plain\r\n\r\n{text}");
        }
        let body = answer.to_string().replace("NUMBER", &number.to_string());
        format!("200 OK\r\ncontent-type: application/json{link}\r\n\r\n{body}")
    })
}

/// A world with all packs of [`PACKS`], whose services are all at `url`.
fn world(url: &str) -> World {
    let world = World::new();
    fs::write(world.folder().join("text.txt"), "x 1\nx 2\nx 3\n").expect("written");
    fs::write(world.folder().join("other.txt"), "x\n").expect("written");
    fs::create_dir(world.folder().join("lib")).expect("made");
    fs::copy(world.folder().join("text.txt"), world.folder().join("lib/text.txt")).expect("copied");
    let git = "git init -q . && for n in 1 2 3; do git -c user.name=a -c user.email=a@b.example commit -q --allow-empty -m $n; done";
    assert!(world.within("sh", &["-c", git]).status().expect("git").success());
    let database = TestDatabase::new(&world, "typo3", "sqlite", include_str!("typo3.sql")).expect("a database");
    let hosts = ["api.github.com", "gmail.googleapis.com", "www.googleapis.com", "api.search.brave.com"];
    let endpoints: Vec<_> = hosts.iter().map(|host| format!("\"https://{host}\" = \"{url}\"")).collect();
    world.configure(&format!(
        "{}[catalog]\npacks = {}\n[vars]\nmagento_url = \"{url}\"\nmagento_root = \"{root}\"\nshopware_url = \"{url}\"\n\
         typo3_root = \"/srv/typo3\"\nsearch_engine = \"searxng\"\nsearch_url = \"{url}\"\n\
         [http]\nprivate_hosts = [\"127.0.0.1\"]\n[http.endpoints]\n{}\n",
        database.config,
        json!(PACKS),
        endpoints.join("\n"),
        root = world.folder().display(),
    ));
    for secret in ["github", "google", "brave", "magento"] {
        assert_eq!(world.run_with(&["secret", "set", secret], "token-of-the-tests").exit, 0, "{secret}");
    }
    let shopware = json!({"token_url": format!("{url}/api/oauth/token"), "client_id": "a", "client_secret": "secret-of-the-tests"});
    assert_eq!(world.run_with(&["secret", "set", "shopware"], &shopware.to_string()).exit, 0);
    world
}

#[test]
fn a_part_is_told_by_every_subtool_that_returns_one() {
    let answer = Arc::new(Mutex::new(Value::Null));
    let server = server(&answer);
    let world = world(&server.url);
    for row in table() {
        *answer.lock().expect("no panic") = row.answer.clone().unwrap_or_default();
        assert_told(&world, &row, &row.input.to_string().replace("URL", &server.url));
    }
}

#[test]
fn a_part_is_told_by_every_subtool_of_the_database_of_a_shop() {
    let world = World::new();
    let Some(database) = TestDatabase::new(&world, "magento", "mariadb", include_str!("magento-db.sql")) else {
        return;
    };
    super::configure(&world, "magento-db", &database.config);
    for row in of_magento() {
        assert_told(&world, &row, &row.input.to_string());
    }
    // A snapshot says of itself whether its lists are whole.
    let whole = world.run(&["run", "magento_info", "--wait", "--jq", ".customers.total"]);
    assert!(whole.exit == 0 && !whole.stderr.contains("all there is"), "{whole}");
}

#[test]
fn what_is_whole_is_not_called_a_part() {
    let answer = Arc::new(Mutex::new(Value::Null));
    let server = server(&answer);
    let world = world(&server.url);
    for (tool, input, given) in [
        ("files_read", json!({"path": "text.txt"}), json!(null)),
        ("files_read", json!({"path": "text.txt", "start": 3, "lines": 1}), json!(null)),
        ("files_search", json!({"pattern": "x 1", "path": "text.txt", "limit": 1}), json!(null)),
        ("files_list", json!({"glob": "*.txt", "limit": 2}), json!(null)),
        ("git_log", json!({"limit": 3}), json!(null)),
        ("fetch_url", json!({"url": "URL/page"}), json!("word")),
        ("github_search_code", json!({"query": "q", "limit": 2}), json!({"items": [{}, {}], "total_count": 2})),
        ("gmail_search_messages", json!({"search_query": "q"}), json!({"messages": [{"id": "1"}]})),
        ("search_web", json!({"query": "q", "limit": 2}), json!({"results": [{"title": "a", "url": "b"}]})),
        ("drive_list", json!({"limit": 1}), json!({"files": [{}]})),
        ("magento_orders_search", json!({"limit": 3}), json!({"items": [{}, {}, {}], "total_count": 3})),
        ("typo3_list_backend_groups", json!({}), json!(null)),
    ] {
        *answer.lock().expect("no panic") = given;
        let input = input.to_string().replace("URL", &server.url);
        let ran = world.run(&["run", tool, "--input", &input, "--wait", "--jq", "length"]);
        assert!(ran.exit == 0 && !ran.stderr.contains("all there is"), "{tool} {input}: {ran}");
    }
    // The last of several pages is no part of what comes after it.
    *answer.lock().expect("no panic") = json!({"items": [{}], "total_count": 3});
    for (tool, input) in [
        ("magento_orders_search", json!({"limit": 1, "page": 3})),
        ("typo3_find_pages", json!({"title": "s", "limit": 1, "page": 99})),
    ] {
        let ran = world.run(&["run", tool, "--input", &input.to_string(), "--wait", "--jq", "length"]);
        assert!(ran.stderr.contains("this is the last page") && !ran.stderr.contains("all there is"), "{tool}: {ran}");
    }
}

#[test]
fn a_limit_that_was_lowered_is_told_by_builtins_and_pages() {
    let answer = Arc::new(Mutex::new(json!({"items": [{}, {}], "next": "NUMBER"})));
    let server = server(&answer);
    let world = World::new();
    fs::write(world.folder().join("text.txt"), "x\n".repeat(600)).expect("written");
    let own = |run: Value| {
        let input = json!({"type": "object", "properties": {"limit": {"type": "integer"}}});
        json!({"description": "Own.", "input": input, "annotations": {"readOnlyHint": true}, "run": run})
    };
    let paged = |pagination: Value| own(json!({"http": {"base_url": server.url, "pagination": pagination}}));
    world.configure("[http]\nprivate_hosts = [\"127.0.0.1\"]\n");
    world.define("own.json", &json!({
        "own_search": own(json!({"builtin": {"search_files": {"pattern": "x", "limit": "{{ limit }}"}}})),
        "own_read": own(json!({"builtin": {"read_file": {"path": "text.txt", "lines": "{{ limit }}"}}})),
        "own_pages": paged(json!({"next_token": {"query": "t", "response": "next"}, "items": "items", "max_pages": 2,
            "max_items": "{{ limit }}"})),
        "own_numbers": paged(json!({"page": {"query": "page"}, "items": "items", "max_pages": 1})),
    }));
    for (tool, most) in [("own_search", 50), ("own_read", 500), ("own_pages", 4)] {
        let ran = world.run(&["run", tool, "limit=1000", "--wait", "--jq", "length"]);
        assert!(ran.stderr.contains(PART), "{tool}: {ran}");
        assert!(ran.stderr.contains(&format!("the limit of 1000 was lowered to {most}")), "{tool}: {ran}");
        let meta = world.result_of(tool, &json!({"limit": 1000}))["_meta"].clone();
        assert_eq!(
            (&meta["limit"], &meta["asked_limit"], &meta["more_pages"]),
            (&json!(most), &json!(1000), &json!(true))
        );
    }
    // Whether a page follows that only the request counts is not known.
    let ran = world.run(&["run", "own_numbers", "--wait", "--jq", "length"]);
    assert!(ran.stderr.contains(MAYBE) && ran.stderr.contains("\"more_pages\":\"unknown\""), "{ran}");
    // A schema without the maximum is found.
    let found = world.run(&["lint", "--format=json"]).json();
    let found = found.as_array().expect("findings").iter().filter(|one| one["code"] == "limit-too-high");
    let found: Vec<_> = found.map(|one| (one["subtool"].clone(), one["place"].clone())).collect();
    assert_eq!(
        found,
        [("own_read", "input.properties.limit"), ("own_search", "input.properties.limit")]
            .map(|(a, b)| (json!(a), json!(b)))
    );
}

#[test]
fn a_definition_says_itself_which_part_its_result_is() {
    let world = World::new();
    let own = |part: &str| {
        json!({"description": "Own.", "input": {}, "annotations": {"readOnlyHint": true},
            "run": {"process": {"argv": ["echo", "{\"rows\": [1], \"total\": 9}"], "output": "json"}},
            "result": {"select": ".rows", "part": part}})
    };
    world.define(
        "own.json",
        &json!({
            "own_part": own("{more_pages: (.total > 1), total}"),
            "own_whole": own("null"),
            "own_wrong": own(".rows"),
            "own_failing": own(".rows.total"),
        }),
    );
    for (tool, expected) in [
        ("own_part", "{\"more_pages\":true,\"total\":9}"),
        ("own_wrong", "it is not known whether this is everything: `result.part` gave [1], which is not an object"),
        ("own_failing", "it is not known whether this is everything: "),
    ] {
        let ran = world.run(&["run", tool, "--wait", "--jq", "length"]);
        assert!(ran.exit == 0 && ran.stderr.contains(PART) && ran.stderr.contains(expected), "{tool}: {ran}");
    }
    let whole = world.run(&["run", "own_whole", "--wait", "--jq", "length"]);
    assert!(whole.exit == 0 && !whole.stderr.contains("all there is"), "{whole}");
}
