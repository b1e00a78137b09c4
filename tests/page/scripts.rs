//! What the page shows of scripts: which call of which script asks, all of one script decided together, and its story.

use serde_json::json;

use super::human::Human;
use crate::world::{World, until};

#[test]
fn the_calls_of_a_script_are_shown_as_such_and_decided_together() {
    let world = World::new();
    let asks = |name: &str| {
        json!({"description": "Does something that a human must approve.", "confirm": "always",
            "input": {"type": "object", "properties": {"n": {"type": "integer"}}},
            "annotations": {"destructiveHint": false},
            "run": {"process": {"argv": ["echo", name, "{{ n }}"]}}})
    };
    world.define("own.json", &json!({"pay": asks("paid"), "note": asks("noted")}));
    let human = Human::of(&world);
    let source = "const all = await Promise.allSettled([pay({n: 1}), pay({n: 2}), note({n: 3})]);
        return all.map(one => one.value ?? one.reason.code)";
    let id = world.run_with(&["script"], source).json()["id"].as_str().expect("an id").to_owned();
    let waiting = || world.run(&["tasks", "--state=awaiting_confirmation"]).json();
    until("its calls wait", || waiting().as_array().is_some_and(|tasks| tasks.len() == 3));
    let by_hand = world.start("pay", &json!({"n": 4}));
    let page = human.get("/").body;
    assert_eq!(page.matches(&format!("data-script=\"{id}\"")).count(), 3, "the call by hand is none of them");
    assert!(page.contains("Call 3 of <a href=\"/task/") && page.contains("Promise.allSettled"), "{page}");
    // All of them but one, in one decision: with a digest each, and all or none.
    let tasks = waiting();
    let of_script = tasks.as_array().expect("a list").iter().filter(|task| task["id"] != by_hand.as_str());
    let calls: Vec<_> = of_script.map(|task| task["id"].as_str().expect("an id").to_owned()).collect();
    let odd = calls.iter().find(|call| world.result_file(call)["input"]["n"] == 2).expect("a call");
    let decisions: Vec<_> = calls.iter().filter(|call| *call != odd).map(|call| human.pending_task(call)).collect();
    let decided = human.post("/decide", &json!({"decisions": decisions, "verdict": "approve"}));
    assert_eq!(decided.status, 200, "{}", decided.body);
    assert_eq!(human.deny(odd).status, 200);
    until("the script has ended", || world.result_file(&id)["status"] != "pending");
    assert_eq!(world.result_file(&id)["data"], json!(["paid 1", "denied", "noted 3"]));
    // Its story, and the way back from a call.
    let story = human.get(&format!("/task/{id}")).body;
    assert!(calls.iter().all(|call| story.contains(&format!("/task/{call}"))), "{story}");
    assert!(human.get(&format!("/task/{odd}")).body.contains(&format!("of <a href=\"/task/{id}\">a script</a>")));
    assert_eq!(world.result_file(odd)["part_of"], json!({"id": id, "call": 2}));
}

#[test]
fn the_program_on_a_card_is_the_one_that_runs() {
    let world = World::new();
    let asks = json!({"description": "Does something that a human must approve.", "confirm": "always",
        "input": {"type": "object"}, "run": {"process": {"argv": ["echo", "done"]}}});
    let script = json!({"description": "Asks.", "input": {"type": "object"}, "confirm": "never", "run": {"script": {"file": "asking.js"}}});
    world.define("own.json", &json!({"pay": asks, "asking": script}));
    let file = world.subtools().join("asking.js");
    std::fs::write(&file, "/* The first. */\nreturn await pay({})").expect("written");
    let id = world.start("asking", &json!({}));
    let by_hand = world.run_with(&["script"], "// Pays at once\n\nreturn await pay({})");
    let by_hand = by_hand.json()["id"].as_str().expect("an id").to_owned();
    let waiting = || world.run(&["tasks", "--state=awaiting_confirmation"]).json();
    until("their calls wait", || waiting().as_array().is_some_and(|tasks| tasks.len() == 2));
    std::fs::write(&file, "/* The second. */\nreturn 0").expect("written");
    // The executor sees the change with the next request.
    world.run(&["run", "pay", "--dry-run"]);
    let page = Human::of(&world).get("/").body;
    assert!(page.contains("The first.") && !page.contains("The second."), "{page}");
    for (id, name) in [(&id, "asking"), (&by_hand, "Pays at once")] {
        let link = format!("<a href=\"/task/{id}\">the script “");
        let (_, named) = page.split_once(&link).unwrap_or_else(|| panic!("no {link}: {page}"));
        assert!(named.contains(name) && named.find(name) < named.find("</a>"), "{name}: {named}");
    }
}
