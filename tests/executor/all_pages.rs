//! `run --all`: every page of a list in one result, bounded, and only where a next page is known.

use std::sync::mpsc;
use std::time::Duration;

use serde_json::{Value, json};

use super::http::HttpScript;
use crate::world::{World, until};

/// How many items the far side has.
const ITEMS: u64 = 23;
const DEADLINE: Duration = Duration::from_mins(1);

/// A page of numbered items, as a server answers `GET /…?page=2&limit=5`; the second page is asked for with the first one's
/// `page` plus one.
fn page_of(line: &str) -> String {
    let number = |name: &str, otherwise: u64| {
        let (_, query) = line.split_once('?').unwrap_or_default();
        let value = query.split('&').find_map(|pair| pair.strip_prefix(name)?.strip_prefix('='));
        value.and_then(|value| value.parse().ok()).unwrap_or(otherwise)
    };
    let (mut page, limit) = (number("page", 1), number("limit", 5).min(5));
    if line.contains("/clamped") {
        page = page.min(ITEMS.div_ceil(limit));
    }
    let first = (page - 1) * limit + 1;
    let items: Vec<_> =
        (first..first + limit).filter(|number| *number <= ITEMS).map(|number| json!({ "id": number })).collect();
    let body = json!({"items": items, "page": page, "total": ITEMS, "last": page * limit >= ITEMS});
    format!("200 OK\r\ncontent-type: application/json\r\n\r\n{body}")
}

fn numbers(data: &Value) -> Vec<u64> {
    let items = data["items"].as_array().unwrap_or_else(|| panic!("{data}"));
    items.iter().map(|item| item["id"].as_u64().expect("a number")).collect()
}

/// A world with subtools that know their next page in different ways.
fn world(url: &str) -> World {
    let world = World::new();
    let input = json!({"type": "object", "properties": {
        "page": {"type": "integer", "minimum": 1, "default": 1},
        "limit": {"type": "integer", "minimum": 1, "maximum": 5, "default": 2},
    }});
    let mut two_pages = input.clone();
    two_pages["properties"]["page"]["maximum"] = json!(2);
    let http = |more: Value| {
        let mut http = json!({"method": "GET", "base_url": url, "path": "/items",
            "query": {"page": "{{ page }}", "limit": "{{ limit }}"}});
        http.as_object_mut().expect("an object").extend(more.as_object().expect("an object").clone());
        json!({ "http": http })
    };
    let reads = json!({"readOnlyHint": true});
    let of_page = json!({"part": "{more_pages: (.last | not), page: $input.page, total}"});
    let walks = json!({"pagination": {"page": {"query": "page"}, "items": "items", "max_pages": 2, "max_items": "{{ limit }}"},
        "query": {"page": "{{ page }}"}});
    world.define(
        "pages.json",
        &json!({
            "by_number": {"description": "Lists.", "input": input, "annotations": reads, "run": http(json!({})), "result": of_page},
            "by_runner": {"description": "Lists.", "input": input, "annotations": reads, "run": http(walks)},
            "limited": {"description": "Lists.", "input": input, "annotations": reads, "run": http(json!({})),
                "result": of_page, "rate_limit": {"calls": 2, "per": "1h"}},
            "deaf": {"description": "Lists.", "input": input, "annotations": reads, "run": http(json!({"query": {}})), "result": of_page},
            "only_says_more": {"description": "Lists.", "input": input, "annotations": reads, "run": http(json!({})),
                "result": {"part": "{more_pages: (.last | not)}"}},
            "steps": {"description": "Lists.", "input": input, "annotations": reads,
                "run": {"steps": [{"name": "a", "subtool": "silent", "input": {"page": "{{ page }}"}}]}},
            "silent": {"description": "Lists.", "input": input, "annotations": reads, "run": http(json!({}))},
            "clamped": {"description": "Lists.", "input": input, "annotations": reads, "run": http(json!({"path": "/clamped"}))},
            "asks": {"description": "Lists.", "input": input, "annotations": reads, "run": http(json!({})), "confirm": "always"},
            "asks_late": {"description": "Lists.", "input": input, "annotations": reads, "run": http(json!({})), "result": of_page,
                "confirm": {"when": "input.page > 2"}},
            "privileged": {"description": "Lists.", "input": input, "annotations": reads, "run": http(json!({})), "result": of_page,
                "requires": ["{{ page }}:read"]},
            "two_pages": {"description": "Lists.", "input": two_pages, "annotations": reads, "run": http(json!({})), "result": of_page},
            "writes": {"description": "Changes.", "input": input, "run": http(json!({}))},
            "no_page": {"description": "Lists.", "input": {"type": "object"}, "annotations": reads, "run": http(json!({"query": {}}))},
        }),
    );
    world
}

#[test]
fn all_pages_are_one_result_and_a_sum_of_it_is_that_of_everything() {
    let server = HttpScript::new(|line, _| page_of(line));
    let world = world(&server.url);
    for subtool in ["by_number", "by_runner", "only_says_more", "silent", "clamped"] {
        let one = world.run(&["run", subtool, "--wait", "--jq", ".items | length"]);
        assert!(one.stderr.contains("run it with --all"), "{subtool}: {one}");
        let all = world.run(&["run", subtool, "--all", "--wait"]).json();
        assert_eq!(numbers(&all["data"]), (1..=ITEMS).collect::<Vec<_>>(), "{subtool}: {all}");
        assert!(all["more_pages"].is_null() && all["limit"].is_null(), "{subtool}: {all}");
        let sum = world.run(&["run", subtool, "--all", "--wait", "--jq", "[.items[].id] | add"]);
        assert_eq!(sum.json(), ITEMS * (ITEMS + 1) / 2, "{subtool}");
        assert!(!sum.stderr.contains("not all there is"), "{subtool}: {sum}");
    }
    // From a page on, and as many at once as the schema allows.
    let rest = world.run(&["run", "by_number", "page=3", "limit=5", "--all", "--wait"]).json();
    assert_eq!(numbers(&rest["data"]), (11..=ITEMS).collect::<Vec<_>>());
    // As many as were asked for, or the third page would begin elsewhere.
    let pairs = world.run(&["run", "by_number", "page=3", "limit=2", "--all", "--wait"]).json();
    assert_eq!(numbers(&pairs["data"]), (5..=ITEMS).collect::<Vec<_>>());
    let only = world.run(&["run", "by_number", "page=12", "--all", "--wait"]).json();
    assert_eq!(numbers(&only["data"]), [23], "{only}");
}

/// Whatever would refuse a page alone, or ask about it, ends the pages before it.
#[test]
fn each_page_is_judged_like_a_call_of_its_own() {
    let server = HttpScript::new(|line, _| page_of(line));
    let world = world(&server.url);
    let rule = |then: &str| {
        format!(
            "[[confirm.rules]]\ntools = [\"by_number\"]\nwhen = \"input.page > 2\"\nthen = \"{then}\"\nbecause = \"late\"\n"
        )
    };
    let privileges = "[access]\nprivileges = [\"1:read\", \"2:read\"]\n".to_owned();
    for (config, subtool, why) in [
        (rule("refuse"), "by_number", "is refused"),
        (rule("ask"), "by_number", "needs a human"),
        (String::new(), "asks_late", "needs a human"),
        (privileges, "privileged", "3:read"),
        (String::new(), "two_pages", "2"),
    ] {
        world.configure(&config);
        let some = world.run(&["run", subtool, "--all", "--wait"]).json();
        assert_eq!(numbers(&some["data"]), (1..=10).collect::<Vec<_>>(), "{subtool}: {some}");
        assert_eq!((&some["more_pages"], &some["limit"]), (&json!(true), &json!(10)), "{subtool}: {some}");
        let said = some["not_fetched"].as_str().unwrap_or_default();
        assert!(said.starts_with("page 3 was not read: ") && said.contains(why), "{subtool}: {some}");
    }
}

#[test]
fn a_rule_that_comes_while_pages_are_read_ends_them() {
    // Each answer after the second waits until the rule is there.
    let (tell, told) = mpsc::channel::<()>();
    let server = HttpScript::new(move |line, number| {
        if number >= 2 {
            told.recv_timeout(DEADLINE).ok();
        }
        page_of(line)
    });
    let world = world(&server.url);
    let accepted = world.run(&["run", "by_number", "--all"]).json();
    let id = accepted["id"].as_str().expect("an id").to_owned();
    until("some pages were read", || server.requests().len() > 1);
    world.configure("[[confirm.rules]]\ntools = [\"by_number\"]\nthen = \"refuse\"\nbecause = \"stop\"\n");
    until("the rule is in force", || world.run(&["run", "by_number", "--dry-run"]).exit == 5);
    drop(tell);
    let ended = world.run(&["wait", &id]).json();
    assert!(numbers(&ended["data"]).len() < 23 && ended["not_fetched"].to_string().contains("stop"), "{ended}");
}

/// An operation as `import` writes it for Magento: the page has another name, the answer says how many there are in all, and
/// behind the last page there is the last page again.
#[test]
fn a_page_by_another_name_is_read_until_all_are_there() {
    let server = HttpScript::new(|line, _| {
        let number = |name: &str| {
            let (_, rest) = line.split_once(name)?;
            rest.split(['&', ' ']).next()?.parse::<u64>().ok()
        };
        let (page, size) = (number("currentPage=").unwrap_or(1).min(3), number("pageSize=").unwrap_or(10).min(10));
        let items: Vec<_> = ((page - 1) * size + 1..=(page * size).min(ITEMS)).map(|id| json!({ "id": id })).collect();
        let body = json!({"items": items, "search_criteria": {}, "total_count": ITEMS});
        format!("200 OK\r\ncontent-type: application/json\r\n\r\n{body}")
    });
    let world = World::new();
    let integer = || json!({"type": "integer"});
    world.define(
        "orders.json",
        &json!({"orders": {"description": "Lists orders.", "annotations": {"readOnlyHint": true},
            "input": {"type": "object", "properties": {"criteria_pageSize": integer(), "criteria_currentPage": integer()}},
            "run": {"http": {"base_url": server.url, "path": "/orders",
                "query": {"pageSize": "{{ criteria_pageSize }}", "currentPage": "{{ criteria_currentPage }}"}}}}}),
    );
    // One page of a size that the server lowered is no sum of all, and says so.
    let part = world.run(&["run", "orders", "criteria_pageSize=300", "--wait", "--jq", "[.items[].id] | add"]);
    assert!(part.json() == 55 && part.stderr.contains("not all there is") && part.stderr.contains("--all"), "{part}");
    let asked = server.requests().len();
    let all = world.run(&["run", "orders", "criteria_pageSize=10", "--all", "--wait"]).json();
    assert_eq!(numbers(&all["data"]), (1..=ITEMS).collect::<Vec<_>>(), "{all}");
    assert!(all["more_pages"].is_null(), "{all}");
    assert_eq!(server.requests().len() - asked, 3, "none behind the last one");
    let rest =
        world.run(&["run", "orders", "criteria_pageSize=10", "criteria_currentPage=2", "--all", "--wait"]).json();
    assert_eq!(numbers(&rest["data"]), (11..=ITEMS).collect::<Vec<_>>(), "{rest}");
}

/// A selection may leave nothing of a page that has items.
#[test]
fn what_a_selection_leaves_does_not_end_the_pages() {
    let server = HttpScript::new(|line, _| page_of(line));
    let world = World::new();
    let input = json!({"type": "object", "properties": {"page": {"type": "integer", "default": 1}}});
    let picked = |select: &str| {
        json!({"description": "Lists.", "annotations": {"readOnlyHint": true}, "input": input, "result": {"select": select},
            "run": {"http": {"base_url": server.url, "path": "/items", "query": {"page": "{{ page }}"}}}})
    };
    world.define(
        "picked.json",
        &json!({"some": picked("[.items[] | select(.id % 9 == 0)]"), "none": picked("[.items[] | select(.id > 99)]"),
            "first": picked("[.items[0].id] | map(select(. == 1))")}),
    );
    for (subtool, expected) in [("some", json!([{"id": 9}, {"id": 18}])), ("none", json!([])), ("first", json!([1]))] {
        let all = world.run(&["run", subtool, "--all", "--wait"]).json();
        assert_eq!((&all["data"], &all["more_pages"]), (&expected, &json!(null)), "{subtool}: {all}");
    }
}

/// A page without its list may be the empty last one, or an error that the API answers with status 200.
#[test]
fn a_page_without_its_list_is_no_certain_end() {
    let server = HttpScript::new(|line, _| match line {
        line if line.contains("page=3") || line.contains("/fails") => {
            "200 OK\r\ncontent-type: application/json\r\n\r\n{\"message\": \"rate limited\"}".to_owned()
        }
        line if line.contains("/null") => {
            "200 OK\r\ncontent-type: application/json\r\n\r\n{\"items\": [1], \"more\": null}".to_owned()
        }
        line if line.contains("/none") => "200 OK\r\ncontent-type: application/json\r\n\r\n{}".to_owned(),
        line => page_of(line),
    });
    let world = World::new();
    let walks = |path: &str, pagination: Value| {
        json!({"description": "Lists.", "annotations": {"readOnlyHint": true}, "input": {},
            "run": {"http": {"base_url": server.url, "path": path, "pagination": pagination}}})
    };
    let by_page = || json!({"page": {"query": "page"}, "items": "items"});
    let mut says_more = by_page();
    says_more["has_more"] = json!("more");
    world.define(
        "walks.json",
        &json!({"third": walks("/items", by_page()), "first": walks("/fails", by_page()), "none": walks("/none", by_page()),
            "unsaid": walks("/items", says_more.clone()), "null": walks("/null", says_more)}),
    );
    for (subtool, items, why) in [
        ("third", 10, "page 3 has no list at `/items`"),
        ("first", 0, "page 1 has no list at `/items`"),
        ("none", 0, ""),
        ("null", 1, "the page does not say at `/more` whether there is another one"),
        ("unsaid", 5, "the page does not say at `/more` whether there is another one"),
    ] {
        let all = world.run(&["run", subtool, "--all", "--wait"]).json();
        assert_eq!(all["data"]["items"].as_array().map(Vec::len), Some(items), "{subtool}: {all}");
        assert_eq!(all["data"]["more"], json!(null), "{subtool}: what the server did not say is not said");
        let more = if why.is_empty() { json!(null) } else { json!("unknown") };
        assert_eq!(
            (&all["more_pages"], all["not_fetched"].as_str().unwrap_or_default()),
            (&more, why),
            "{subtool}: {all}"
        );
    }
}

#[test]
fn a_page_that_fails_is_named() {
    let server = HttpScript::new(|line, _| {
        if line.contains("page=3") { "500 Internal Server Error\r\n\r\nbroken".to_owned() } else { page_of(line) }
    });
    let ran = world(&server.url).run(&["run", "by_number", "--all", "--wait"]).json();
    assert!(ran["error"]["message"].as_str().is_some_and(|text| text.starts_with("page 3: ")), "{ran}");
}

#[test]
fn an_idempotency_key_tells_all_pages_from_one() {
    let server = HttpScript::new(|line, _| page_of(line));
    let world = world(&server.url);
    assert_eq!(world.run(&["run", "by_number", "--idempotency-key=k", "--wait"]).exit, 0);
    let other = world.run(&["run", "by_number", "--idempotency-key=k", "--all", "--wait"]);
    assert!(other.exit == 2 && other.stderr.contains("idempotency-mismatch"), "{other}");
    let plan = world.run(&["run", "by_number", "--all", "--dry-run"]).json();
    assert_eq!(plan["all_pages"], true, "{plan}");
}

#[test]
fn what_has_no_pages_is_refused_before_anything_is_sent() {
    let server = HttpScript::new(|line, _| page_of(line));
    let world = world(&server.url);
    for (subtool, why) in [
        ("writes", "does not only read"),
        ("no_page", "has no `page`"),
        ("limited", "how often it may be called is limited"),
        ("asks", "a human must approve it"),
        ("steps", "it runs other subtools"),
    ] {
        let refused = world.run(&["run", subtool, "--all", "--wait"]);
        assert_eq!(refused.exit, 2, "{refused}");
        assert!(refused.stderr.contains(why) && refused.stderr.contains("leave `--all` out"), "{refused}");
    }
    assert_eq!(server.requests(), [""; 0]);
    // One that answers each page with the same one.
    let ended = world.run(&["run", "deaf", "--all", "--wait"]);
    assert!(ended.exit == 1 && ended.stdout.contains("the same as the one before it"), "{ended}");
}

/// Other runners than HTTP have pages too.
#[test]
fn the_pages_of_files_and_of_databases_are_joined() {
    let world = World::new();
    std::fs::write(world.folder().join("text.txt"), "needle\n".repeat(230)).expect("written");
    let path = world.folder();
    let path = format!("path={}", path.display());
    let found =
        world.run(&["run", "files_search", "pattern=needle", &path, "--all", "--wait", "--jq", ".matches | length"]);
    assert_eq!(found.stdout.trim(), "230", "{found}");
    for number in 0..60 {
        std::fs::write(world.folder().join(format!("text-{number}.txt")), "needle\n").expect("written");
    }
    let counted = world.run(&[
        "run",
        "files_search",
        "pattern=needle",
        &path,
        "count:=true",
        "--all",
        "--wait",
        "--jq",
        ".most | length",
    ]);
    assert_eq!(counted.stdout.trim(), "61", "{counted}");
    let database = world.folder().join("shop.db");
    let rows = "CREATE TABLE sale (id INTEGER PRIMARY KEY);
        WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 230) INSERT INTO sale SELECT i FROM n;";
    rusqlite::Connection::open(&database).expect("it opens").execute_batch(rows).expect("it is filled");
    let imported = world.run(&["import", "sql", "shop", &format!("sqlite://{}", database.display())]);
    assert_eq!(imported.exit, 0, "{imported}");
    let query = ["run", "shop_query", "query=SELECT id FROM sale ORDER BY id", "limit=50", "--all", "--wait"];
    let all = world.run(&[&query[..], &["--jq", "[(.data | length), .row_count, ([.data[].id] | add)]"]].concat());
    assert_eq!((all.json(), all.stderr.as_str()), (json!([230, 230, 26_565]), ""), "{all}");
    // Rows may be equal on all pages.
    let equal = ["run", "shop_query", "query=SELECT 'x' AS g FROM sale ORDER BY g", "--all", "--wait"];
    let equal = world.run(&[&equal[..], &["--jq", "[(.data | length), has(\"preview\")]"]].concat());
    assert_eq!(equal.json(), json!([230, false]), "{equal}");
    // What comes before the page from which it reads is not there, and that is said.
    let later = world.run(&[&query[..], &["page=3", "--jq", ".data | length"]].concat());
    assert_eq!(later.stdout.trim(), "130", "{later}");
    assert!(later.stderr.contains("leaves out the pages before it") && later.stderr.contains("\"page\":3"), "{later}");
    let beyond =
        world.run(&["run", "files_search", "pattern=needle", &path, "page=99", "--wait", "--jq", ".matches | length"]);
    assert!(beyond.stdout.trim() == "0" && beyond.stderr.contains("\"page\":99"), "{beyond}");
    // No hint where it would be refused.
    let log = world.run(&["run", "files_read", "path=text.txt", "lines=2", "--wait", "--jq", ".text"]);
    assert!(!log.stderr.contains("--all"), "{log}");
}

/// A page that names one which was asked for before ends the walk, and repeats nothing. Alike items on other pages do not.
#[test]
fn pages_that_name_earlier_ones_end() {
    let server = HttpScript::new(|line, _| {
        let after = |name: &str| {
            let (_, value) = line.split_once(name)?;
            value.split([' ', '&']).next().map(str::to_owned)
        };
        let (token, page) = (after("token="), after("page=").unwrap_or_default());
        let (items, next) = match (line.contains("/circle"), token.as_deref(), &*page) {
            (true, None, _) => (json!([1]), json!("a")),
            (true, Some("a"), _) => (json!([2]), json!("b")),
            (true, Some(_), _) => (json!([3]), json!("a")),
            (false, None, _) if line.contains("/alike") => (json!([1]), json!("a")),
            (false, Some("a"), _) if line.contains("/alike") => (json!([1]), json!("b")),
            (false, Some("b"), _) if line.contains("/alike") => (json!([1]), Value::Null),
            // Whatever is asked for, it is the first page.
            _ => (json!([1]), json!("/links?page=2")),
        };
        let body = json!({"items": items, "next": next});
        format!("200 OK\r\ncontent-type: application/json\r\n\r\n{body}")
    });
    let world = World::new();
    let subtool = |path: &str, next: Value| {
        let mut pagination = json!({"items": "items", "max_pages": 9});
        pagination.as_object_mut().expect("an object").extend(next.as_object().expect("an object").clone());
        json!({"description": "Lists.", "input": {"type": "object"}, "annotations": {"readOnlyHint": true},
            "run": {"http": {"base_url": server.url, "path": path, "pagination": pagination}}})
    };
    let token = || json!({"next_token": {"query": "token", "response": "next"}});
    world.define(
        "back.json",
        &json!({"circle": subtool("/circle", token()), "alike": subtool("/alike", token()),
            "links": subtool("/links", json!({"next_url": "next"}))}),
    );
    for (name, items, more) in [
        ("circle", json!([1, 2, 3]), json!("unknown")),
        ("alike", json!([1, 1, 1]), Value::Null),
        ("links", json!([1]), json!("unknown")),
    ] {
        for all in [&[][..], &["--all"]] {
            let ran = world.run(&[&["run", name, "--wait"], all].concat()).json();
            assert_eq!((&ran["data"]["items"], &ran["more_pages"]), (&items, &more), "{name} {all:?}: {ran}");
        }
    }
}

/// What names the next page in a form that is not known is no end of the list.
#[test]
fn a_next_page_of_another_type_is_an_error() {
    let server = HttpScript::new(|line, _| {
        let next = match line.rsplit('/').next().and_then(|path| path.split([' ', '?']).next()) {
            Some("object") => json!({"id": 5}),
            Some("list") => json!([5]),
            Some("true") => json!(true),
            Some("text") => json!("true"),
            _ => Value::Null,
        };
        let body = json!({"items": [1], "next": next});
        format!("200 OK\r\ncontent-type: application/json\r\n\r\n{body}")
    });
    let kinds = [
        ("token", json!({"next_token": {"query": "token", "response": "next"}})),
        ("link", json!({"next_url": "next"})),
        ("flag", json!({"page": {"query": "page"}, "has_more": "next"})),
    ];
    let subtools: Vec<(String, Value)> = kinds
        .iter()
        .flat_map(|(kind, next)| {
            ["object", "list", "true", "text", "null"].map(|path| {
                let mut pagination = json!({"items": "items", "max_pages": 1});
                pagination.as_object_mut().expect("an object").extend(next.as_object().expect("an object").clone());
                let subtool = json!({"description": "Lists.", "input": {"type": "object"},
                    "annotations": {"readOnlyHint": true},
                    "run": {"http": {"base_url": server.url, "path": format!("/{path}"), "pagination": pagination}}});
                (format!("{kind}_{path}"), subtool)
            })
        })
        .collect();
    let world = World::new();
    world.define("next.json", &Value::Object(subtools.iter().cloned().collect()));
    let known = ["token_text", "token_null", "link_text", "link_null", "flag_true", "flag_null"];
    for (name, _) in subtools {
        let ran = world.run(&["run", &name, "--wait"]);
        let is_refused = ran.stdout.contains("the page has a value of type ");
        assert_eq!(
            (ran.exit, is_refused),
            if known.contains(&&*name) { (0, false) } else { (1, true) },
            "{name}: {ran}"
        );
    }
}
