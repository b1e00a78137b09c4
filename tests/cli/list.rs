//! `list`: one JSON object with what a model needs, best match first.

use insta::assert_snapshot;
use serde_json::json;

use crate::world::{World, until};

fn mail() -> serde_json::Value {
    let subtool = |description: &str| {
        json!({
            "description": description,
            "input": {"type": "object", "properties": {"search_query": {"type": "string", "description": "The search query string."}}, "required": ["search_query"]},
            "annotations": {"readOnlyHint": true},
            "run": {"process": {"argv": ["echo", "{{ search_query }}"]}}
        })
    };
    json!({"mail_search": subtool("Searches for messages in the mail."), "report_zh": subtool("查找年度报告和月度报告。")})
}

#[test]
fn a_query_returns_only_names_descriptions_and_schemas() {
    let world = World::new();
    world.configure("[catalog]\npacks = []\n");
    world.define("mail.json", &mail());
    assert_snapshot!(world.run(&["list", "tools", "--query=mail"]), @r#"
    exit: 0
    --- stdout
    {"mail_search":{"description":"Searches for messages in the mail.","input":{"type":"object","properties":{"search_query":{"type":"string","description":"The search query string."}},"required":["search_query"]}}}
    --- stderr
    note: to run one: agent-magic-tool run NAME key=value --wait
    "#);
}

#[test]
fn chinese_words_find_chinese_descriptions() {
    let world = World::new();
    world.configure("[catalog]\npacks = []\n");
    world.define("mail.json", &mail());
    assert_snapshot!(world.run(&["list", "tools", "--query=年度报告", "--format=names"]), @r#"
    exit: 0
    --- stdout
    ["report_zh"]
    "#);
}

#[test]
fn a_query_without_matches_returns_an_empty_object() {
    let world = World::new();
    assert_snapshot!(world.run(&["list", "tools", "--query=xylophone"]), @r#"
    exit: 0
    --- stdout
    {}
    --- stderr
    note: no close match. There are subtools for: asking the user, files, git, github, gmail, script, web.
    "#);
}

#[test]
fn a_query_says_all_of_the_best_hit_and_less_of_each_other() {
    let world = World::new();
    let listed = |arguments: &[&str]| {
        let listed = world.run(&[&["list", "tools", "--query=search files messages issues"], arguments].concat());
        (listed.json().as_object().expect("an object").clone(), listed.stderr)
    };
    let (hits, notes) = listed(&[]);
    assert_eq!(hits.len(), 10, "{hits:?}");
    let has = |key: &str| hits.values().filter(|hit| hit.get(key).is_some()).count();
    // Which of them have a signature, the scores decide.
    assert!((1..=2).contains(&has("signature")), "{hits:?}");
    assert_eq!((has("input"), has("description")), (1, 5), "{hits:?}");
    let (_, best) = hits.iter().next().expect("a hit");
    assert!(best["input"]["properties"].is_object(), "{hits:?}");
    let signature = hits.values().find_map(|hit| hit["signature"].as_str()).expect("a signature");
    assert!(signature.starts_with('(') && signature.ends_with(')') && signature.contains('?'), "{signature}");
    let first = notes.lines().next().expect("a note");
    assert!(
        first.starts_with("note: all parameters: list tools NAME; ") && first.contains(" more: --limit N"),
        "{notes}"
    );
    let (full, _) = listed(&["--full"]);
    assert!(full.values().all(|hit| hit["input"].is_object() && hit["description"].is_string()), "{full:?}");
    assert_eq!(world.run(&["list", "tools", "--query="]).stdout, world.run(&["list", "tools"]).stdout);
}

#[test]
fn a_signature_is_enough_to_run_a_hit() {
    let world = World::new();
    world.configure("[catalog]\npacks = []\n");
    let subtool = |description: &str, fields: &serde_json::Value| {
        json!({"description": description, "annotations": {"readOnlyHint": true},
            "input": {"type": "object", "required": ["to"], "properties": fields},
            "run": {"process": {"argv": ["echo", "{{ to }}"]}}})
    };
    let fields = json!({"copies": {"type": "integer"}, "to": {"type": "string"}, "tags": {"type": "array", "items": {"type": "string"}}});
    world.define(
        "print.json",
        &json!({"print_letter": subtool("Prints a letter.", &json!({"to": {"type": "string"}})),
            "print_letters": subtool("Prints letters.", &fields)}),
    );
    let listed = world.run(&["list", "tools", "--query=print a letter"]).json();
    assert_eq!(listed["print_letters"]["signature"], "(to, copies?: number, tags?: string[])", "{listed}");
    let ran = world.run(&["run", "print_letters", "to=Ann", "copies=2", r#"tags:=["a"]"#, "--wait"]).json();
    assert_eq!(ran["data"], "Ann", "{ran}");
}

#[test]
fn poor_matches_and_none_are_said_to_be_so() {
    let world = World::new();
    let notes = |query: &str| world.run(&["list", "tools", &format!("--query={query}"), "--limit=1"]).stderr;
    assert!(
        notes("order pizza from a file").contains("note: no close match: "),
        "{}",
        notes("order pizza from a file")
    );
    for good in ["search mail", "read a file", "git history", "create an issue on github", "ask the user"] {
        assert!(!notes(good).contains("no close match"), "{good}: {}", notes(good));
    }
    assert!(notes("音乐").contains("Their descriptions are in English, so search in English."), "{}", notes("音乐"));
}

#[test]
fn a_query_that_nothing_fits_gets_a_line_each_and_no_schemas() {
    let world = World::new();
    let listed = world.run(&["list", "tools", "--query=order pizza from a file"]);
    let lines = listed.json();
    let lines = lines.as_object().expect("an object");
    assert!((1..=5).contains(&lines.len()) && lines.values().all(|line| line["input"].is_null()), "{listed}");
    assert!(lines.values().all(|line| line["description"].is_string()), "{listed}");
    let notes: Vec<_> = listed.stderr.lines().collect();
    assert!(notes[0].starts_with("note: no close match: the best one has only "), "{listed}");
    let expected =
        ["note: all parameters: list tools NAME", "note: to run one: agent-magic-tool run NAME key=value --wait"];
    assert_eq!(notes[1..], expected);
    assert!(world.run(&["list", "tools", "--query=book a flight"]).stderr.contains("no close match"));
    let full = world.run(&["list", "tools", "--query=order pizza from a file", "--full", "--limit=1"]).json();
    assert!(full.as_object().expect("an object").values().all(|line| line["input"].is_object()), "{full}");
}

#[test]
fn a_query_is_close_if_one_of_the_first_three_is() {
    let world = World::new();
    world.configure("[catalog]\npacks = []\n");
    let subtool = |description: &str| {
        json!({"description": description, "input": {"type": "object"}, "annotations": {"readOnlyHint": true},
            "run": {"process": {"argv": ["true"]}}})
    };
    let mut subtools = serde_json::Map::new();
    subtools.insert("zebra".to_owned(), subtool("Zebra."));
    for number in 0..9 {
        subtools.insert(format!("paint_{number}"), subtool("Paints a stripe."));
    }
    world.define("own.json", &json!(subtools));
    let listed = world.run(&["list", "tools", "--query=paint stripe zebra hoof"]);
    let first = listed.json().as_object().and_then(|listed| listed.keys().next().cloned());
    assert!(first.as_deref() == Some("zebra") && !listed.stderr.contains("no close match"), "{listed}");
    assert!(world.run(&["list", "tools", "--query=zebra hoof ranch"]).stderr.contains("no close match"));
}

#[test]
fn a_read_only_session_lists_only_what_it_may_run() {
    let world = World::new();
    let list = |arguments: &[&str]| {
        let mut command = world.command(&[&["list", "tools", "--format=names"], arguments].concat());
        world.transcript(&command.env("AGENT_MAGIC_TOOL_READ_ONLY", "1").output().expect("it starts"))
    };
    let all = list(&["--limit=100"]);
    let names = all.json().to_string();
    assert!(names.contains("files_read") && !names.contains("gmail_send_message"), "{all}");
    let sends = list(&["--query=send message"]);
    assert!(sends.stderr.contains("this session is read-only"), "{sends}");
}

#[test]
fn a_subtool_whose_secret_is_missing_says_so() {
    let world = World::new();
    let needs = || world.run(&["list", "tools", "web_search"]).json()["web_search"]["needs"].clone();
    let name = needs().as_str().and_then(|text| text.rsplit(' ').next()).expect("a command").to_owned();
    assert_eq!(needs(), format!("a secret that only the user can set: agent-magic-tool secret set {name}"));
    assert_eq!(world.run_with(&["secret", "set", &name], "a-secret-value").exit, 0);
    assert_eq!(needs(), json!(null));
}

#[test]
fn subtools_beyond_the_limit_are_named_in_a_note() {
    let world = World::new();
    assert_snapshot!(world.run(&["list", "--limit=2", "--format=names"]), @r#"
    exit: 0
    --- stdout
    ["ask_user","draft_script"]
    --- stderr
    note: 32 more: --limit N
    note: what there is, in groups: agent-magic-tool list packs
    "#);
}

#[test]
fn the_openai_format_is_that_of_function_calling() {
    let world = World::new();
    world.configure("[catalog]\npacks = []\n");
    world.define("mail.json", &mail());
    assert_snapshot!(world.run(&["list", "--query=mail", "--format=openai"]), @r#"
    exit: 0
    --- stdout
    [{"type":"function","function":{"name":"mail_search","description":"Searches for messages in the mail.","parameters":{"type":"object","properties":{"search_query":{"type":"string","description":"The search query string."}},"required":["search_query"]}}}]
    "#);
}

#[test]
fn the_table_format_has_one_line_per_subtool() {
    let world = World::new();
    assert_snapshot!(world.run(&["list", "--query=git log", "--limit=2", "--format=table"]), @"
    exit: 0
    --- stdout
    git_log     Git log: the commits of a repository, or those that changed some files, newest first: the history…
    files_read  Reads a text file, or some lines of it: source code, logs, configuration, notes
    ");
}

#[test]
fn listing_anything_but_tools_suggests_a_query() {
    let world = World::new();
    assert_snapshot!(world.run(&["list", "gmail"]), @r#"
    exit: 2
    --- stderr
    {"error":{"code":"usage","message":"`list` lists `tools` or `packs`, not `gmail`","hint":"agent-magic-tool list tools --query=\"gmail\""}}
    "#);
}

#[test]
fn a_bad_file_is_reported_and_hides_nothing_else() {
    let world = World::new();
    world.configure("[catalog]\npacks = []\n");
    world.define("mail.json", &mail());
    std::fs::write(world.subtools().join("broken.json"), "{\"x\": ").expect("written");
    assert_snapshot!(world.run(&["list", "--format=names"]), @r#"
    exit: 0
    --- stdout
    ["mail_search","report_zh"]
    --- stderr
    note: left out: all of CONFIG/subtools/broken.json; see: agent-magic-tool lint
    "#);
}

#[test]
fn a_file_change_is_seen_by_the_next_command() {
    let world = World::new();
    world.configure("[catalog]\npacks = []\n");
    let names = || world.run(&["list", "--format=names"]).json();
    assert_eq!(names(), json!([]));
    world.define("mail.json", &mail());
    assert_eq!(names(), json!(["mail_search", "report_zh"]));
    let mut edited = mail();
    edited["mail_search"]["description"] = "Finds letters.".into();
    world.define("mail.json", &edited);
    assert_eq!(world.run(&["list", "--query=letters", "--format=names"]).json(), json!(["mail_search"]));
    std::fs::remove_file(world.subtools().join("mail.json")).expect("removed");
    assert_eq!(names(), json!([]));
}

#[test]
fn only_subtools_that_the_caller_may_use_are_listed_or_run() {
    let world = World::new();
    world.configure("[access]\nallow = [\"git_*\", \"files_*\"]\ndeny = [\"git_show\"]\n");
    let listed = world.run(&["list", "--format=names", "--limit=100"]).json().to_string();
    assert!(listed.contains("git_log") && !listed.contains("git_show") && !listed.contains("gmail"), "{listed}");
    let ran = world.run(&["run", "git_show"]);
    assert_eq!((ran.exit, ran.error()["code"].as_str()), (3, Some("unknown-subtool")), "{ran}");
}

#[test]
fn an_empty_schema_stays_an_object() {
    let world = World::new();
    world.configure("[catalog]\npacks = []\n");
    world.define(
        "noop.json",
        &json!({"noop": {"description": "Does nothing at all.", "input": {},
        "annotations": {"readOnlyHint": true}, "run": {"process": {"argv": ["true"]}}}}),
    );
    assert_snapshot!(world.run(&["list"]), @r#"
    exit: 0
    --- stdout
    {"noop":{"description":"Does nothing at all.","input":{}}}
    "#);
    let ran = world.run(&["run", "noop", "--wait"]);
    let id = ran.json()["id"].as_str().expect("an id").to_owned();
    assert_eq!((ran.exit, &world.result_file(&id)["input"]), (0, &json!({})), "{ran}");
}

#[test]
fn the_formats_of_other_tool_interfaces_have_their_names_for_the_schema() {
    let world = World::new();
    world.configure("[catalog]\npacks = []\n");
    world.define("mail.json", &mail());
    let listed = |format: &str| world.run(&["list", "--query=mail", &format!("--format={format}")]).json();
    let schema = mail()["mail_search"]["input"].clone();
    let description = "Searches for messages in the mail.";
    assert_eq!(
        listed("anthropic"),
        json!([{"name": "mail_search", "description": description, "input_schema": schema}])
    );
    assert_eq!(
        listed("gemini"),
        json!([{"functionDeclarations": [
            {"name": "mail_search", "description": description, "parametersJsonSchema": schema}]}])
    );
    assert_eq!(
        listed("mcp"),
        json!({"tools": [{"name": "mail_search", "description": description, "inputSchema": schema,
            "annotations": {"readOnlyHint": true}}]})
    );
}

#[test]
fn hits_have_scores_and_say_where_the_words_were_found() {
    let world = World::new();
    let hits = |arguments: &[&str]| {
        world.run(&[&["list", "tools", "--format=hits", "--query=github issues"], arguments].concat()).json()
    };
    let best = hits(&[]);
    let found = best["hits"].as_array().expect("a list");
    assert_eq!(found.len(), 3, "{best}");
    assert!(found.iter().all(|hit| hit["tool"].as_str().is_some_and(|name| name.starts_with("github_"))), "{best}");
    assert!(found.is_sorted_by(|one, other| one["score"].as_f64() >= other["score"].as_f64()), "{best}");
    assert!(found[0]["matched_in"].as_array().is_some_and(|fields| fields.contains(&json!("name"))), "{best}");
    let all = best["_meta"]["total_candidates"].as_u64().expect("a number");
    assert!(all > 3);
    let most = hits(&["--limit=100"])["hits"].as_array().map(Vec::len);
    assert_eq!(most, usize::try_from(all.min(20)).ok());
}

#[test]
fn packs_are_an_overview_and_one_of_them_can_be_listed() {
    let world = World::new();
    world.define("mail.json", &mail());
    let packs = world.run(&["list", "packs"]).json();
    assert_eq!((&packs["mail"]["subtools"], &packs["github"]["subtools"]), (&json!(2), &json!(13)), "{packs}");
    let names = |arguments: &[&str]| {
        let listed = world.run(&[&["list", "tools", "--format=names"], arguments].concat());
        (listed.json(), listed.stderr)
    };
    assert_eq!(names(&["--in=mail"]).0, json!(["mail_search", "report_zh"]));
    let searched = names(&["--in=git*", "--query=history"]).0;
    let searched = searched.as_array().expect("a list");
    let is_of_git = |name: &serde_json::Value| name.as_str().is_some_and(|name| name.starts_with("git"));
    assert!(!searched.is_empty() && searched.iter().all(is_of_git), "{searched:?}");
    let (nothing, note) = names(&["--in=gamil"]);
    assert_eq!(
        (nothing, note.as_str()),
        (json!([]), "note: there is no pack `gamil`; see: agent-magic-tool list packs\n")
    );
    let scoped = |arguments: &[&str]| {
        let mut command = world.command(&[&["list", "packs"], arguments].concat());
        world.transcript(&command.env("AGENT_MAGIC_TOOL_READ_ONLY", "1").output().expect("it starts")).json()
    };
    assert!(scoped(&[])["github"]["subtools"].as_u64().is_some_and(|count| count < 13));
}

#[test]
fn a_large_schema_is_shortened_and_can_be_had_whole() {
    let world = World::new();
    world.configure("[catalog]\npacks = []\n");
    let choices: Vec<_> = (0..2000).map(|number| format!("zone-{number}")).collect();
    let schema = json!({"type": "object", "properties": {"zone": {"type": "string", "enum": choices}}});
    world.define(
        "zones.json",
        &json!({"zone_set": {"description": "Sets the time zone of a server.", "input": schema,
            "run": {"process": {"argv": ["true"]}}}}),
    );
    let listed = world.run(&["list", "tools", "--query=zone"]);
    assert!(listed.stdout.len() < 2_000 && listed.stdout.contains("1970 more"), "{listed}");
    let note = "note: all parameters: list tools NAME\n";
    assert_eq!(listed.stderr, format!("{note}note: to run one: agent-magic-tool run NAME key=value --wait\n"));
    world.start("zone_set", &json!({"zone": "zone-1"}));
    assert_eq!(world.run(&["list", "tools", "--query=zone"]).stderr, note, "who has run something knows how");
    let whole = world.run(&["list", "tools", "zone_set", "--full"]).json();
    assert_eq!(whole["zone_set"]["input"], schema);
}

#[test]
fn a_subtool_that_cannot_run_comes_after_those_that_can() {
    let world = World::new();
    world.configure("[catalog]\npacks = []\n");
    let subtool = |program: &str| {
        json!({"description": "Draws a picture of a cat.", "input": {"type": "object"},
            "run": {"process": {"argv": [program]}}})
    };
    let missing = || subtool("no-such-program-1");
    world.define("draw.json", &json!({"draw_x": missing(), "draw_y": subtool("true"), "draw_z": missing()}));
    let listed = world.run(&["list", "tools", "--query=draw a cat"]).json();
    assert_eq!(listed.as_object().expect("an object").keys().collect::<Vec<_>>(), ["draw_y", "draw_x", "draw_z"]);
    assert_eq!(listed["draw_x"]["needs"], "the program `no-such-program-1`, which is not installed");
    // What was explained is only named.
    assert_eq!(listed["draw_z"]["needs"], "the program no-such-program-1");
}

#[test]
fn neither_the_limit_nor_the_format_changes_the_order() {
    let world = World::new();
    world.configure("[catalog]\npacks = []\n");
    let subtool = |description: &str, program: &str| json!({"description": description, "input": {"type": "object"}, "run": {"process": {"argv": [program]}}});
    world.define(
        "draw.json",
        &json!({"draw_x": subtool("Draws a cat.", "no-such-program-1"),
            "draw_y": subtool("Draws a cat.", "true"),
            "draw_z": subtool("Draws a line.", "true")}),
    );
    let list = |arguments: &[&str]| world.run(&[&["list", "tools", "--query=draw a cat"], arguments].concat()).json();
    let all = json!(["draw_y", "draw_x", "draw_z"]);
    assert_eq!(list(&["--format=names"]), all, "what merely has a word in common stays behind");
    for limit in 1..=3 {
        let names = list(&["--format=names", &format!("--limit={limit}")]);
        assert_eq!(names.as_array().expect("names")[..], all.as_array().expect("names")[..limit]);
    }
    let pick = |listed: &serde_json::Value, key: &str| -> serde_json::Value {
        listed.as_array().expect("a list").iter().map(|tool| tool[key].clone()).collect()
    };
    assert_eq!(pick(&list(&["--format=hits"])["hits"], "tool"), all);
    assert_eq!(pick(&list(&["--format=anthropic"]), "name"), all);
    assert_eq!(pick(&list(&["--format=mcp"])["tools"], "name"), all);
}

#[test]
fn the_subtool_that_was_run_after_a_search_is_found_sooner_by_the_next() {
    let world = World::new();
    world.configure("[catalog]\npacks = []\n");
    let subtool = |description: &str| {
        json!({"description": description, "input": {"type": "object"}, "annotations": {"readOnlyHint": true},
            "run": {"process": {"argv": ["true"]}}})
    };
    world.define(
        "own.json",
        &json!({"ledger_close": subtool("Closes the books of a period."), "period_list": subtool("Lists all periods."),
            "wrap_gift": subtool("Wraps a gift for a birthday.")}),
    );
    let in_session = |session: &str, arguments: &[&str]| {
        let mut command = world.command(arguments);
        world.transcript(&command.env("AGENT_MAGIC_TOOL_SESSION", session).output().expect("it starts"))
    };
    let session = |arguments: &[&str]| in_session("s1", arguments);
    let names_in = |session: &str, query: &str| {
        let query = format!("--query={query}");
        let listed = in_session(session, &["list", "tools", "--format=names", &query]).json();
        listed.as_array().expect("names").iter().filter_map(|name| name.as_str().map(str::to_owned)).collect::<Vec<_>>()
    };
    let names = |query: &str| names_in("s1", query);
    assert!(names("wrap up march").first().is_some_and(|name| name == "wrap_gift"));
    // The words that led to it: `books` finds it, `wrap up march` is how this user says it.
    session(&["list", "tools", "--query=wrap up march books"]);
    assert_eq!(session(&["run", "ledger_close", "--wait"]).exit, 0);
    let kept = || std::fs::read_to_string(world.state().join("learned.jsonl")).unwrap_or_default();
    until("the search is remembered", || kept().contains("\"tool\":\"ledger_close\""));
    assert_eq!(kept().lines().count(), 1, "{}", kept());
    assert!(names("march").first().is_some_and(|name| name == "ledger_close"), "{:?}", names("march"));
    // What is found by learned words alone is a close match.
    assert!(!session(&["list", "tools", "--query=march"]).stderr.contains("no close match"));
    // Another session is not steered by it, until it has taught the same itself; then it counts for all.
    assert!(names_in("s2", "march").is_empty(), "{:?}", names_in("s2", "march"));
    in_session("s2", &["list", "tools", "--query=wrap up march books"]);
    assert_eq!(in_session("s2", &["run", "ledger_close", "--wait"]).exit, 0);
    until("the second search is remembered", || kept().lines().count() == 2);
    assert_eq!(names_in("s3", "march"), ["ledger_close"]);
    in_session("s2", &["tasks", "--forget-session"]);
    until("the second session to be forgotten", || names_in("s3", "march").is_empty());
    assert!(!kept().contains("\"s2\""), "{}", kept());
    session(&["tasks", "--forget-session"]);
    until("the session to be forgotten", || names("march").is_empty());
    world.configure("[catalog]\npacks = []\nlearn = false\n");
    session(&["list", "tools", "--query=wrap up march books"]);
    assert_eq!(session(&["run", "ledger_close", "--wait"]).exit, 0);
    assert!(names("march").is_empty());
}
