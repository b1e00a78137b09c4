//! A rule that is about nothing protects nothing, so it is a mistake: in `lint` and `doctor`, when an edit is taken over, and
//! at the start of an executor, which asks a human about everything until it is mended.

use serde_json::{Value, json};

use crate::world::{World, until};

fn world() -> World {
    let world = World::new();
    let input = json!({"type": "object", "properties": {"dry_run": {"type": "boolean"}, "to": {"type": "string"},
        "amount": {"type": "number"}, "cc": {"type": "array", "items": {"type": "string"}}, "how": {"enum": ["now", "later"]},
        "any": {}}});
    world.define(
        "own.json",
        &json!({
            "pay_out": {"description": "Pays.", "input": input, "tags": ["money"], "confirm": "never",
                "run": {"process": {"argv": ["true"]}}},
            "note": {"description": "Notes.", "input": {"type": "object", "properties": {"text": {"type": "string"}}},
                "tags": ["notes"], "confirm": "never", "run": {"process": {"argv": ["true"]}}},
            "any": {"description": "Anything.", "input": {"type": "object", "additionalProperties": true},
                "confirm": "never", "run": {"process": {"argv": ["true"]}}}
        }),
    );
    world
}

const DATABASE: &str = "[databases.shop]\nurl = \"sqlite:///nowhere/shop.db\"\n";

/// A part of a configuration, the place of its mistake, and whether that is an error.
fn cases() -> Vec<(String, &'static str, bool)> {
    let rule = |then: &str, what: &str| format!("{DATABASE}[[confirm.rules]]\n{what}\nthen = \"{then}\"\n");
    let mut cases = Vec::new();
    for (then, is_error) in [("refuse", true), ("ask", true), ("allow", false)] {
        cases.push((rule(then, "tools = [\"pay_out\", \"pay_uot\"]"), "confirm.rules[0].tools[1]", is_error));
        cases.push((rule(then, "tools = [\"pya_*\"]"), "confirm.rules[0].tools[0]", is_error));
        cases.push((rule(then, "tags = [\"mony\"]"), "confirm.rules[0].tags[0]", is_error));
        cases.push((rule(then, "tools = [\"note\"]\ntags = [\"money\"]"), "confirm.rules[0]", is_error));
        cases.push((
            rule(then, "tools = [\"pay_out\"]\nwhen = \"not input.dryrun\""),
            "confirm.rules[0].when",
            is_error,
        ));
        for when in ["input.dryrun == true", "input['dryrun']", "input.amount > '100'", "input.to|upper == 'lower'"] {
            cases.push((rule(then, &format!("when = \"{when}\"")), "confirm.rules[0].when", is_error));
        }
        cases.push((rule(then, "gates = [\"db.shpo.orders.write\"]"), "confirm.rules[0].gates[0]", is_error));
        cases.push((rule(then, "gates = [\"db.shop.*\", \"db.shp*.write\"]"), "confirm.rules[0].gates[1]", is_error));
    }
    let mark = |what: &str| format!("[[confirm.marks]]\n{what}\nsay = \"money\"\n");
    cases.push((mark("tools = [\"pay_uot\"]"), "confirm.marks[0].tools[0]", true));
    cases.push((mark("tags = [\"mony\"]"), "confirm.marks[0].tags[0]", true));
    cases.push((mark("tags = [\"money\"]\nwhen = \"input['too'] == 1\""), "confirm.marks[0].when", true));
    cases.push((
        "[rate_limits.tools]\npay_uot = { calls = 1, per = \"1h\" }\n".to_owned(),
        "rate_limits.tools.pay_uot",
        true,
    ));
    cases.push(("[rate_limits.tags]\nmony = { calls = 1, per = \"1h\" }\n".to_owned(), "rate_limits.tags.mony", true));
    cases.push(("[access]\ndeny = [\"pay_uot\"]\n".to_owned(), "access.deny[0]", true));
    cases.push(("[access]\nallow = [\"pay_out\", \"nothing\"]\n".to_owned(), "access.allow[1]", false));
    cases
}

fn findings(world: &World) -> Vec<Value> {
    let found = world.run(&["lint", "--format=json"]).json();
    found.as_array().expect("a list").iter().filter(|one| one["code"] == "about-nothing").cloned().collect()
}

#[test]
fn each_mistake_is_found_with_its_line() {
    let world = world();
    for (text, place, is_error) in cases() {
        world.configure_without_packs(&text);
        let found = findings(&world);
        assert_eq!(found.len(), 1, "{text}: {found:?}");
        let level = if is_error { "error" } else { "warning" };
        assert_eq!((&found[0]["place"], &found[0]["level"]), (&json!(place), &json!(level)), "{text}: {found:?}");
        assert!(found[0]["line"].as_u64().is_some_and(|line| line >= 1), "{text}: {found:?}");
        // It asks the same, and takes longer.
        if text.contains("ask") || text.contains("allow\"") {
            continue;
        }
        let doctor = world.run(&["doctor"]).json();
        let rules = doctor["checks"].as_array().expect("checks").iter().find(|check| check["name"] == "rules");
        let rules = rules.expect("the check `rules`");
        assert_eq!(rules["ok"], !is_error, "{text}: {rules}");
        assert!(rules["found"].to_string().contains(place), "{text}: {rules}");
    }
    for right in [
        "[[confirm.rules]]\ntools = [\"pay_*\"]\ntags = [\"money\"]\nwhen = \"not input.dry_run\"\nthen = \"refuse\"\n"
            .to_owned(),
        "[[confirm.rules]]\nwhen = \"input.text == 'x' or input.to == 'y'\"\nthen = \"ask\"\n".to_owned(),
        "[[confirm.rules]]\ntools = [\"any\"]\nwhen = \"input.whatever == 1\"\nthen = \"refuse\"\n".to_owned(),
        // A pack that is off, and a table that nobody has asked for.
        "[[confirm.rules]]\ntools = [\"gmail_*\", \"*\"]\nthen = \"ask\"\n".to_owned(),
        format!(
            "{DATABASE}[[confirm.rules]]\ngates = [\"db.shop.orders.write\", \"DB.SHOP.*\", \"db.*.read\", \"db.sh*orders.write\", \"*\"]\nthen = \"refuse\"\n"
        ),
    ] {
        world.configure(&right);
        assert_eq!(findings(&world), Vec::<Value>::new(), "{right}");
    }
    // The same of a definition's own condition.
    world.configure_without_packs("");
    let paid = |when: &str| {
        let input = json!({"type": "object", "properties": {"amount": {"type": "number", "description": "How much."}}});
        let tool = json!({"description": "Pays.", "input": input, "confirm": {"when": when}, "run": {"process": {"argv": ["true"]}}});
        world.define("confirmed.json", &json!({"pay_more": tool}));
        findings(&world)
    };
    for wrong in ["input.amount > '100'", "input.amount|string|upper == 'x'", "caller.depth == '1'"] {
        let found = paid(wrong);
        let of = found.first().map(|one| (&one["subtool"], &one["place"], &one["level"]));
        assert_eq!(
            (found.len(), of),
            (1, Some((&json!("pay_more"), &json!("confirm.when"), &json!("error")))),
            "{found:?}"
        );
    }
    assert_eq!(paid("input.amount|int > 100 and caller.depth > 0"), Vec::<Value>::new());
    std::fs::remove_file(world.subtools().join("confirmed.json")).expect("removed");
    // A wrong form is found before an executor would not start.
    world.configure("[[confirm.rules]]\ngates = [\"shop.orders.write\"]\nthen = \"refuse\"\n");
    let ran = world.run(&["lint", "--format=lines"]);
    assert!(ran.exit == 2 && ran.stdout.contains("config.toml:1: error: confirm.rules[0]"), "{ran}");
}

#[test]
fn a_field_is_looked_up_however_it_is_written_and_compared_with_what_it_can_be() {
    let world = world();
    let wrong = [
        "input['dryrun']",
        "input['dryrun'].x == 1",
        "input | attr('dryrun')",
        "(input or {}).dryrun",
        "'dryrun' in input",
        "input.amount > '100'",
        "'100' < input['amount']",
        "0 < input.amount < '100'",
        "input.amount in [1, '2']",
        "'1' in input.amount",
        "input.to == 5",
        "input.dry_run == 'true'",
        "input.cc == 'eve'",
        "input.how == 1",
        "(input.cc|length) > '5'",
        "input.amount|int in ['5']",
        "input.cc|length < 0",
        "'Eve' in input.to|lower",
        "input.amount * 2 >= '10'",
    ];
    let rule = |when: &&str| format!("[[confirm.rules]]\ntools = [\"pay_*\"]\nwhen = \"{when}\"\nthen = \"refuse\"\n");
    world.configure(&wrong.iter().map(rule).collect::<String>());
    let found = findings(&world);
    let places: Vec<_> = found.iter().map(|one| (one["place"].clone(), one["level"].clone())).collect();
    let expected: Vec<_> =
        (0..wrong.len()).map(|index| (json!(format!("confirm.rules[{index}].when")), json!("error"))).collect();
    assert_eq!(places, expected, "{found:#?}");
    let message = found[5]["message"].as_str().expect("words");
    let said = "`input.amount` is compared with `\"100\"`, which it cannot be: in every subtool that it is about it is a number";
    assert!(message.contains(said), "{message}");
    let message = found[14]["message"].as_str().expect("words");
    let said =
        "`length` gives a number, and is compared with `\"5\"`, which is a string: that is the same for every input";
    assert_eq!(message, said);
    let right = [
        "input['amount'] > 100",
        "(input.cc|length) > 5",
        "input.to|upper == 'EVE'",
        "input.amount in [1, 2]",
        "input.to in ['x', 'y']",
        "input.cc == ['x']",
        "'x' in input.cc",
        "'x' in input.to",
        "input.any == 1",
        "input['how'] == 'now'",
        "input.to == none",
        "input.dry_run == true",
        "input.amount | string == '1'",
    ];
    let other = "[[confirm.rules]]\ntools = [\"any\"]\nwhen = \"input['whatever'] == 1\"\nthen = \"refuse\"\n";
    world.configure(&right.iter().map(rule).chain([other.to_owned()]).collect::<String>());
    assert_eq!(findings(&world), Vec::<Value>::new());
    // Which field it reads is not known.
    world.configure(&rule(&"input[caller.session] == 1"));
    let ran = world.run(&["lint", "--format=lines"]);
    assert!(ran.exit == 2 && ran.stdout.contains("names each field"), "{ran}");
}

#[test]
fn an_edit_with_a_mistake_is_not_taken_over() {
    let world = world();
    let good = "[[confirm.rules]]\ntools = [\"pay_out\"]\nthen = \"refuse\"\n";
    world.configure_without_packs(good);
    assert_eq!(world.run(&["run", "pay_out"]).exit, 5);
    for (text, place, is_error) in cases() {
        world.configure_without_packs(&text);
        let reloaded = world.run(&["executor", "reload"]);
        if is_error {
            assert_eq!(reloaded.error()["code"], "bad-config", "{text}: {reloaded}");
            let message = reloaded.error()["message"].to_string();
            assert!(message.contains(place) && message.contains("config.toml:"), "{text}: {reloaded}");
            assert_eq!(world.run(&["run", "pay_out"]).exit, 5, "the last good one: {text}");
        } else {
            assert_eq!(reloaded.exit, 0, "{text}: {reloaded}");
        }
        world.configure_without_packs(good);
        until("the good one is in force again", || world.run(&["run", "pay_out"]).exit == 5);
    }
}

#[test]
fn an_executor_that_starts_with_a_mistake_asks_about_everything() {
    let world = world();
    world.configure("[[confirm.rules]]\ntools = [\"pay_uot\"]\nthen = \"refuse\"\n");
    for tool in ["pay_out", "note"] {
        let ran = world.run(&["run", tool]);
        assert_eq!((ran.exit, &ran.json()["state"]), (0, &json!("awaiting_confirmation")), "{ran}");
    }
    let status = world.run(&["executor", "status"]);
    let problem = status.json()["config"]["problem"]["message"].clone();
    assert!(problem.as_str().is_some_and(|message| message.contains("did you mean `pay_out`?")), "{status}");
    world.configure("[[confirm.rules]]\ntools = [\"pay_out\"]\nthen = \"refuse\"\n");
    until("it is mended", || world.run(&["run", "pay_out"]).exit == 5);
    let ran = world.run(&["run", "note", "text=x"]);
    assert_ne!(ran.json()["state"], "awaiting_confirmation", "{ran}");
}
