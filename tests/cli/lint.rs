//! `lint` for the developers of subtools, and the basics of `doctor`.

use insta::assert_snapshot;
use serde_json::{Value, json};

use crate::world::World;

#[test]
fn the_shipped_packs_are_clean() {
    let world = World::new();
    assert_snapshot!(world.run(&["lint"]), @"
    exit: 0
    --- stdout
    []
    --- stderr
    note: 0 errors, 0 warnings
    ");
}

/// A read-only definition without mistakes; `changes` replace keys.
fn clean(changes: Value) -> Value {
    let mut definition = json!({
        "description": "Finds the zebras of one zoo by name.",
        "input": {"type": "object", "properties": {"zoo": {"type": "string", "description": "The zoo."}},
            "required": ["zoo"], "additionalProperties": false},
        "annotations": {"readOnlyHint": true},
        "run": {"process": {"argv": ["echo", "--", "{{ zoo }}"]}},
        "examples": [{"input": {"zoo": "Lisbon"}}]
    });
    let Value::Object(changes) = changes else { panic!("changes are an object") };
    definition.as_object_mut().expect("an object").extend(changes);
    definition
}

/// The findings in `own.json`, as lines.
fn findings(file: &Value) -> String {
    let world = World::new();
    world.configure("[catalog]\npacks = []\n");
    world.define("own.json", file);
    world.run(&["lint", "--format=lines"]).to_string().replace("CONFIG/subtools/", "")
}

#[test]
fn what_a_definition_names_must_be_there() {
    let world = World::new();
    world.configure(
        "[catalog]\npacks = []\n[databases.shop]\nurl = \"sqlite:///tmp/none.db\"\n[models.small]\nprovider = \"openai\"\nmodel = \"m\"\n",
    );
    let empty = json!({"type": "object", "properties": {}, "additionalProperties": false});
    let of = |run: Value| clean(json!({"input": empty, "run": run, "examples": [{"input": {}}]}));
    let sql = |database: &str, field: &str, text: &str| {
        let mut sql = json!({"database": database});
        sql[field] = json!(text);
        let mut definition = of(json!({"sql": sql}));
        // What cannot be read may change something.
        definition["annotations"] = json!({});
        definition
    };
    let steps = |step: Value| of(json!({"steps": [{"name": "found", "subtool": "zebra_good", "input": {}}, step]}));
    let step = |fields: Value| {
        let mut step = json!({"name": "one", "subtool": "zebra_good"});
        step.as_object_mut().expect("an object").extend(fields.as_object().cloned().expect("an object"));
        steps(step)
    };
    let wrong = [
        ("zebra_database", "unknown-database", sql("store", "statement", "SELECT 1")),
        ("zebra_statement", "unreadable-sql", sql("shop", "statement", "SELEC 1 FROM zebras")),
        ("zebra_clause", "unreadable-sql", sql("shop", "statement", "SELECT a FROM zebras WHERE ORDER BY")),
        ("zebra_query", "unreadable-sql", sql("shop", "query", "SELECT FROM WHERE")),
        ("zebra_change", "unreadable-sql", sql("shop", "change", "UPDATE zebras SET")),
        ("zebra_explain", "unreadable-sql", sql("shop", "explain", "SELECT (1")),
        ("zebra_model", "unknown-model", of(json!({"llm": {"model": "large", "prompt": "Count."}}))),
        ("zebra_agent", "unknown-model", of(json!({"agent": {"model": "large", "prompt": "Count."}}))),
        ("zebra_item", "item-without-each", step(json!({"input": {"zoo": "{{ item.zoo }}"}}))),
        ("zebra_deep_item", "item-without-each", step(json!({"input": {"zoo": [{"a": "x {{ item }}"}]}}))),
        (
            "zebra_when",
            "item-without-each",
            step(json!({"each": "{{ steps.found }}", "when": "item.zoo == 'a'", "input": {"zoo": "{{ item }}"}})),
        ),
    ];
    let right = [
        ("zebra_good", sql("shop", "statement", "SELECT a FROM zebras WHERE b = 'item'")),
        ("zebra_any", sql("shop", "query", "SELECT a FROM zebras")),
        ("zebra_small", of(json!({"llm": {"model": "small", "prompt": "Count."}}))),
        ("zebra_each", step(json!({"each": "{{ steps.found }}", "input": {"zoo": "{{ item }}"}}))),
        ("zebra_text", step(json!({"input": {"zoo": "the item"}}))),
    ];
    let definitions: serde_json::Map<String, Value> = wrong
        .iter()
        .map(|(name, _, definition)| ((*name).to_owned(), definition.clone()))
        .chain(right.iter().map(|(name, definition)| ((*name).to_owned(), definition.clone())))
        .collect();
    world.define("own.json", &Value::Object(definitions));
    let found = world.run(&["lint"]).json();
    let has = |name: &str, code: &str| {
        found
            .as_array()
            .expect("findings")
            .iter()
            .any(|it| it["subtool"] == name && it["code"] == code && it["level"] == "error")
    };
    for (name, code, _) in &wrong {
        assert!(has(name, code), "`{name}` has no `{code}`: {found:#}");
    }
    for (name, _) in &right {
        for code in ["unknown-database", "unreadable-sql", "unknown-model", "item-without-each", "not-loaded"] {
            assert!(!has(name, code), "`{name}` has `{code}`: {found:#}");
        }
    }
}

#[test]
fn every_mistake_of_a_file_is_shown_at_once_with_its_line_and_hides_no_neighbor() {
    let world = World::new();
    world.configure("[catalog]\npacks = []\n");
    let text = r#"{
  "wrong": {
    "description": "Finds zebras by the name of their zoo.",
    "inptu": {},
    "input": {"type": "object", "properties": {"zoo": {"type": "string", "description": "The zoo."}},
      "additionalProperties": false},
    "timeout": "ten",
    "run": {"http": {
      "base_url": "https://zoo.example",
      "path": "zebras",
      "query": {"zoo": "{{ zooo }}", "name": "{{ zoo|uper }}"},
      "headers": {"X-Note": "secret:zoo and more"}
    }},
    "result": {"select": ".zebras[] | select(.zoo == \"{{ zoo }}\")"}
  },
  "fine": {
    "description": "Lists all the zoos there are.",
    "input": {"type": "object", "properties": {}, "additionalProperties": false},
    "annotations": {"readOnlyHint": true},
    "run": {"process": {"argv": ["echo", "Lisbon"]}}
  }
}"#;
    std::fs::write(world.subtools().join("own.json"), text).expect("written");
    assert_snapshot!(world.run(&["lint", "--format=lines"]), @r#"
    exit: 2
    --- stdout
    CONFIG/subtools/own.json:4: error: wrong: inptu: unknown field `inptu`; did you mean `input`?
    CONFIG/subtools/own.json:7: error: wrong: timeout: `ten` is not a valid duration; write it like `500ms`, `30s`, `5m`, `1h` or `7d`
    CONFIG/subtools/own.json:10: error: wrong: run.http.path: must start with `/`
    CONFIG/subtools/own.json:11: error: wrong: run.http.query.zoo: `zooo` is not declared in `input.properties`; did you mean `zoo`?
    CONFIG/subtools/own.json:11: error: wrong: run.http.query.name: no filter named `uper`; did you mean `upper`?
    CONFIG/subtools/own.json:12: error: wrong: run.http.headers.X-Note: a secret is filled in only at the end of a header and without a template beside it
    CONFIG/subtools/own.json:14: error: wrong: result.select: `{{ }}` is not filled in in a jq expression; write `$input.NAME` for a field of the input
    --- stderr
    note: 7 errors, 0 warnings
    "#);
    assert_snapshot!(world.run(&["list", "--format=names"]), @r#"
    exit: 0
    --- stdout
    ["fine"]
    --- stderr
    note: left out: 1 definition of CONFIG/subtools/own.json; see: agent-magic-tool lint
    "#);
    let document = world.run(&["lint"]).json();
    assert_eq!(document[0]["line"], 4, "{document}");
}

#[test]
fn one_file_is_compared_with_the_whole_catalog() {
    let world = World::new();
    world.configure("[catalog]\npacks = []\n");
    let tied = clean(json!({}));
    world.define("a.json", &json!({"zebra_find": tied, "noise": clean(json!({"description": "Short."}))}));
    let file = world.subtools().join("b.json");
    world.define(
        "b.json",
        &json!({"zebra_find": clean(json!({})), "zebra_seek": tied,
        "zebra_feed": clean(json!({"description": "Feeds a zebra with grass.", "depends_on": ["zebra_find"]}))}),
    );
    let one = world.run(&["lint", "--format=lines", file.to_str().expect("a path")]);
    let all = world.run(&["lint", "--format=lines"]);
    assert_snapshot!(one, @"
    exit: 2
    --- stdout
    CONFIG/subtools/b.json:1: error: zebra_find: the name is already defined by CONFIG/subtools/a.json; the first definition wins
    CONFIG/subtools/b.json:1: warning: zebra_seek: description: the description of `zebra_seek` finds `zebra_find` just as well; say in one of the two what it is not for, like `NOT zebra_find`
    --- stderr
    note: 1 error, 1 warning
    ");
    assert!(all.stdout.contains("short-description") || all.stdout.contains("not say when"), "{all}");
    let absent = world.run(&["lint", "/nowhere/at.json"]);
    assert_eq!(absent.exit, 3, "{absent}");
}

#[test]
fn a_tie_is_found_from_either_side() {
    let find = clean(json!({}));
    let longer =
        clean(json!({"description": "Finds the zebras of one zoo by name. Finds the zebras of one zoo by name."}));
    for (one, other) in [(&find, &longer), (&longer, &find)] {
        let found = findings(&json!({"aa_zebras": one, "bb_zebras": other}));
        assert_eq!(found.matches("just as well").count(), 1, "{found}");
    }
}

#[test]
fn what_loads_but_does_not_do_what_it_says_is_a_warning_with_its_mending() {
    let writes = |changes: Value| {
        let mut definition = clean(json!({"annotations": {}}));
        definition.as_object_mut().expect("an object").extend(changes.as_object().expect("an object").clone());
        definition
    };
    let http = json!({"http": {"method": "POST", "base_url": "https://zoo.example", "path": "/zebras",
        "body": {"json": {"zoo": "{{ zoo }}"}}, "idempotency_header": "Idempotency-Key"}});
    let file = json!({
        "zebra_look": clean(json!({"description": "Looks for one zebra by its number."})),
        "zebra_add": writes(json!({"description": "Adds a zebra. Use zebra_look first.", "retries": {"times": 2}})),
        "zebra_buy": writes(json!({"description": "Buys a zebra. Use zebra_find first.", "run": http})),
        "zebra_sell": writes(json!({"description": "Sells a zebra to a zoo.",
            "verify": {"subtool": "zebra_look", "input": {"zoo": "Lisbon"}, "happened": "length > 0"}})),
        "zebra_lose": writes(json!({"description": "Loses a zebra on the way.",
            "verify": {"subtool": "zebra_look", "input": {"zoo": "{{ zoo }}"}, "happened": "true"}})),
        "zebra_tell": clean(json!({"description": "Tells a zebra something nice.",
            "input": {"type": "object", "properties": {"zoo": {"type": "string", "description": "The zoo."}}}})),
        "zebra_read": clean(json!({"description": "Reads a file about some zebras.",
            "run": {"http": {"base_url": "https://{{ zoo }}", "path": "/zebras"}},
            "examples": [{"input": {"zoo": "not a host"}}]})),
    });
    assert_snapshot!(findings(&file), @r#"
    exit: 2
    --- stdout
    own.json:1: error: zebra_read: examples[0]: its dry run fails: `https://not%20a%20host` is not a valid URL: invalid international domain name
    own.json:1: warning: zebra_add: description: it says in prose that `zebra_look` comes first; add "depends_on": ["zebra_look"]
    own.json:1: warning: zebra_add: retries: an attempt that may have had an effect is never repeated, so this helps only before anything was sent; say that repeating is safe with "idempotentHint": true, or how to look it up with `verify`
    own.json:1: warning: zebra_buy: description: it names `zebra_find`, but there is no such subtool; did you mean `zebra_add`?
    own.json:1: warning: zebra_buy: run.http.idempotency_header: the key is sent, but a lost attempt is still not repeated; if the service acts once for each key, say so with "annotations": {"idempotentHint": true}
    own.json:1: warning: zebra_lose: verify.happened: it is true even if nothing was found; test what was found, like `length > 0`
    own.json:1: warning: zebra_sell: verify.input: it accepts any hit, also one of another run; look for this very run, by a field of the input or by `{{ task.id }}`
    own.json:1: warning: zebra_tell: input: a misspelled field is accepted, and may be dropped without a word; add "additionalProperties": false
    --- stderr
    note: 1 error, 7 warnings
    "#);
}

#[test]
fn the_example_in_the_readme_is_clean_and_works_in_a_dry_run() {
    let readme = include_str!("../../README.md");
    let example = readme.split("```json\n").nth(1).and_then(|rest| rest.split("```").next()).expect("an example");
    let world = World::new();
    std::fs::write(world.subtools().join("weather.json"), example).expect("written");
    let lint = world.run(&["lint"]);
    assert_eq!((lint.exit, lint.json()), (0, json!([])), "{lint}");
    let plan = world.run(&["run", "weather_now", "place=São Paulo", "--dry-run"]).json();
    let sent = &plan["would_send"]["http"];
    assert_eq!(sent["url"], "https://api.example.com/v1/weather/S%C3%A3o%20Paulo", "{plan}");
    assert_eq!(sent["headers"]["x-api-key"], "secret:weather", "{plan}");
}

#[test]
fn lint_prints_the_shipped_schema() {
    let world = World::new();
    let shipped = include_str!("../../subtools/subtool.schema.json");
    assert_eq!(world.run(&["lint", "--schema"]).stdout, shipped);
}

#[test]
fn a_healthy_installation_passes() {
    let world = World::new();
    let ran = world.run(&["doctor"]);
    assert_eq!((ran.exit, &ran.json()["ok"]), (0, &json!(true)), "{ran}");
}

#[test]
fn an_invalid_configuration_is_reported() {
    let world = World::new();
    world.configure("[executor]\nconcurency = 3\n");
    let ran = world.run(&["doctor"]);
    assert_eq!(ran.exit, 1, "{ran}");
    let config = ran.json()["checks"][0].clone();
    assert_eq!((&config["name"], &config["ok"]), (&json!("config"), &json!(false)));
    assert!(config["message"].as_str().is_some_and(|message| message.contains("concurency")), "{config}");
}

#[test]
fn the_printed_settings_are_a_valid_configuration() {
    let world = World::new();
    let settings = world.run(&["doctor", "--settings"]).stdout;
    world.configure(&settings);
    assert_eq!(world.run(&["doctor"]).exit, 0, "the printed settings are valid");
}

#[test]
fn requests_are_routed_and_those_that_go_astray_are_shown() {
    let world = World::new();
    world.configure("[catalog]\npacks = []\n");
    world.define(
        "own.json",
        &json!({"zebra_find": clean(json!({})), "gift_wrap": clean(json!({"description": "Wraps a gift."}))}),
    );
    let file = world.folder().join("requests.jsonl");
    std::fs::write(&file, "{\"query\": \"zebras of a zoo\", \"subtools\": [\"zebra_find\"]}\n\n{\"query\": \"wrap it\", \"subtools\": [\"zebra_find\", \"horse_find\"]}\n").expect("written");
    let file = file.to_str().expect("a path");
    assert_snapshot!(world.run(&["lint", "--eval", file]), @r#"
    exit: 0
    --- stdout
    {"requests":2,"first":1,"among_three":1,"among_ten":1,"wrong":[{"query":"wrap it","wanted":["zebra_find","horse_find"],"found":["gift_wrap"]}]}
    --- stderr
    note: no subtool is named so: horse_find
    note: 1 of 2 requests (50 %) find their subtool first, 50 % among the best three
    "#);
    assert_eq!(world.run(&["lint", "--eval", file, "--min=50"]).exit, 0);
    assert_eq!(world.run(&["lint", "--eval", file, "--min=51"]).exit, 1);
    std::fs::write(file, "{\"query\": \"a\", \"subtools\": [\"b\"]}\n{\"query\": \"a\"}\n").expect("written");
    let wrong = world.run(&["lint", "--eval", file]);
    assert_eq!(wrong.exit, 2);
    assert!(wrong.error()["message"].as_str().is_some_and(|message| message.contains("line 2")), "{wrong}");
}

/// The codes of the findings about one subtool.
fn codes(name: &str, definition: Value) -> Vec<String> {
    let world = World::new();
    world.configure("[catalog]\npacks = []\n");
    let zebras = clean(json!({}));
    let mut file = json!({"zebras": zebras});
    file[name] = definition;
    world.define("own.json", &file);
    let found = world.run(&["lint", "--format=json"]).json();
    let own = found.as_array().expect("findings").iter().filter(|finding| finding["subtool"] == name);
    own.map(|finding| finding["code"].as_str().expect("a code").to_owned()).collect()
}

#[test]
fn inputs_that_do_not_arrive_or_are_made_up_are_found() {
    let text = |description: &str| json!({"type": "string", "description": description});
    let http = |http: Value, properties: Value, required: Value| {
        clean(json!({"input": {"properties": properties, "required": required, "additionalProperties": false},
            "run": {"http": http}, "examples": []}))
    };
    let zoo = || json!({"zoo": text("The zoo.")});
    let url = "https://zoo.example";
    let many: serde_json::Map<_, _> = (0..6).map(|number| (format!("f{number}"), text("Some."))).collect();
    let names: Vec<_> = many.keys().cloned().collect();
    let all = names.iter().map(|name| format!("{{{{ {name} }}}}")).collect::<Vec<_>>().join("-");
    for (definition, expected) in [
        (
            http(json!({"base_url": url, "path": "/zoos/{zoo}"}), zoo(), json!(["zoo"])),
            vec!["foreign-template", "unused-input"],
        ),
        (
            http(json!({"base_url": url, "path": "/zoos/${zoo}"}), zoo(), json!(["zoo"])),
            vec!["foreign-template", "unused-input"],
        ),
        (
            http(json!({"base_url": url, "path": "/zoos/:zoo"}), zoo(), json!(["zoo"])),
            vec!["foreign-template", "unused-input"],
        ),
        (
            http(json!({"base_url": url, "path": "/zoos", "query": {"q": "{zoo}"}}), zoo(), json!(["zoo"])),
            vec!["foreign-template", "unused-input"],
        ),
        (http(json!({"base_url": url, "path": "/zoos"}), zoo(), json!([])), vec!["unused-input"]),
        (
            http(
                json!({"base_url": url, "path": "/zoos", "query": {"limit": "{{ limit }}"}}),
                json!({"limit": {"type": "integer", "description": "How many."}}),
                json!(["limit"]),
            ),
            vec!["rarely-given-required"],
        ),
        (
            http(json!({"base_url": url, "path": "/zoos", "query": {"q": all}}), json!(many), json!(names)),
            vec!["many-required"],
        ),
        (
            http(json!({"base_url": url, "path": "/zoos", "query": {"q": "in:{{ zoo }}"}}), zoo(), json!([])),
            vec!["unguarded-optional"],
        ),
        // What is fine.
        (http(json!({"base_url": url, "path": "/zoos/{{ zoo }}"}), zoo(), json!(["zoo"])), vec![]),
        (http(json!({"base_url": url, "path": "/zoos", "query": {"q": "{{ zoo }}"}}), zoo(), json!([])), vec![]),
        (
            http(
                json!({"base_url": url, "path": "/zoos", "query": {"q": "a{% if zoo %} in:{{ zoo }}{% endif %}"}}),
                zoo(),
                json!([]),
            ),
            vec![],
        ),
        (
            http(
                json!({"base_url": url, "path": "/zoos", "query": {"limit": "{{ limit }}"}}),
                json!({"limit": {"type": "integer", "default": 9, "description": "How many."}}),
                json!([]),
            ),
            vec![],
        ),
        (
            http(
                json!({"base_url": url, "path": "/zoos", "query": {"q": "{{ input | json }}"}}),
                zoo(),
                json!(["zoo"]),
            ),
            vec![],
        ),
    ] {
        let shown = definition["run"].to_string();
        let mut found = codes("yaks", definition);
        found.retain(|code| !["same-words", "tie"].contains(&code.as_str()));
        assert_eq!(found, expected, "{shown}");
    }
}

#[test]
fn a_name_that_means_something_else_is_found_or_refused() {
    for name in ["list", "run", "doctor", "secret"] {
        assert!(codes(name, clean(json!({}))).contains(&"command-name".to_owned()), "{name}");
    }
    for name in [
        "mcp__zoo__find",
        "MCP__zoo",
        "agent-magic-tool_zoo",
        "agent_magic_tool_zoo",
        "agent-magic-tool",
        "human_question",
    ] {
        assert_eq!(codes(name, clean(json!({}))), ["not-loaded"], "{name}");
    }
    assert!(!codes("mcp_zoo", clean(json!({}))).contains(&"not-loaded".to_owned()));
}

#[test]
fn a_lookup_that_accepts_any_hit_is_found() {
    let once = |verify: Value| {
        clean(json!({"annotations": {}, "verify": verify,
            "input": {"properties": {"zoo": {"type": "string", "description": "The zoo."}, "limit": {"type": "integer",
                "default": 3, "description": "How many."}}, "required": ["zoo"], "additionalProperties": false},
            "run": {"process": {"argv": ["echo", "--", "{{ zoo }}", "{{ limit }}"]}}}))
    };
    for (verify, expected) in [
        (
            json!({"subtool": "zebras", "input": {"zoo": "Lisbon"}, "happened": "length > 0"}),
            Some("verify-accepts-any-hit"),
        ),
        (
            json!({"subtool": "zebras", "input": {"zoo": "{{ caller.session }}"}, "happened": "length > 0"}),
            Some("verify-accepts-any-hit"),
        ),
        (
            json!({"subtool": "zebras", "input": {"zoo": "{{ limit }}"}, "happened": "length > 0"}),
            Some("verify-accepts-any-hit"),
        ),
        (
            json!({"subtool": "zebras", "input": {"zoo": "{{ zoo }}"}, "happened": "length > -1"}),
            Some("verify-accepts-anything"),
        ),
        (
            json!({"subtool": "zebras", "input": {"zoo": "{{ zoo }}"}, "happened": "length > 0 or true"}),
            Some("verify-accepts-anything"),
        ),
        (json!({"subtool": "zebras", "input": {"zoo": "{{ zoo }}"}, "happened": "length > 0"}), None),
        (json!({"subtool": "zebras", "input": {"zoo": "{{ task.id }}"}, "happened": "length > 0"}), None),
    ] {
        let found = codes("yaks", once(verify.clone()));
        let found = found.iter().map(String::as_str).find(|code| code.starts_with("verify"));
        assert_eq!(found, expected, "{verify}");
    }
}

#[test]
fn a_credential_in_clear_is_an_error_of_lint_and_hidden_in_a_plan() {
    const CLEAR: &str = "0123456789abcdef";
    let http = |more: Value| {
        let mut http = json!({"base_url": "https://api.example.com"});
        http.as_object_mut().expect("an object").extend(more.as_object().expect("an object").clone());
        json!({"http": http})
    };
    let cases = [
        ("key", http(json!({"headers": {"X-Api-Key": CLEAR}})), Some("run.http.headers.X-Api-Key")),
        (
            "bearer",
            http(json!({"headers": {"Authorization": format!("Bearer {CLEAR}")}})),
            Some("run.http.headers.Authorization"),
        ),
        ("query", http(json!({"query": {"access_token": CLEAR}})), Some("run.http.query.access_token")),
        (
            "body",
            http(json!({"method": "POST", "body": {"json": {"a": [{"password": CLEAR}]}}})),
            Some("run.http.body.json.a.0.password"),
        ),
        ("program", json!({"process": {"argv": ["true"], "env": {"API_KEY": CLEAR}}}), Some("run.process.env.API_KEY")),
        (
            "named",
            http(json!({"headers": {"X-Api-Key": "secret:things", "Authorization": "Bearer secret:things"}})),
            None,
        ),
        ("filled", http(json!({"query": {"access_token": "{{ word }}", "key": "{{ word }}"}})), None),
        ("user", http(json!({"headers": {"X-Database": "postgres://reader@db.example/shop"}})), None),
        (
            "login",
            http(json!({"headers": {"X-Database": format!("postgres://reader:{CLEAR}@db.example/shop")}})),
            Some("run.http.headers.X-Database"),
        ),
    ];
    let world = World::new();
    world.configure("[catalog]\npacks = []\n");
    let tool = |run: &Value| {
        json!({"description": "Gets it.", "annotations": {"readOnlyHint": true}, "run": run, "input": {"type": "object",
            "properties": {"word": {"type": "string", "description": "a word"}}, "additionalProperties": false}})
    };
    let tools = cases.iter().map(|(name, run, _)| ((*name).to_owned(), tool(run)));
    world.define("own.json", &Value::Object(tools.collect()));
    let linted = world.run(&["lint", "--format", "json"]);
    let findings: Vec<Value> = serde_json::from_str(&linted.stdout).unwrap_or_else(|_| panic!("{linted}"));
    for (name, _, expected) in &cases {
        let found = findings.iter().filter(|it| it["code"] == "plain-credential" && it["subtool"] == *name);
        let places: Vec<_> = found.map(|it| (it["level"].as_str(), it["place"].as_str())).collect();
        let expected_places: Vec<_> = expected.iter().map(|place| (Some("error"), Some(*place))).collect();
        assert_eq!(places, expected_places, "{name}: {linted}");
        let planned = world.run(&["run", name, "--dry-run"]);
        let shown = format!("{planned}");
        assert!(!shown.contains(CLEAR), "{name}: {shown}");
        assert_eq!(shown.contains("[hidden]"), expected.is_some(), "{name}: {shown}");
    }
    assert!(!format!("{linted}").contains(CLEAR), "{linted}");
}
