//! A scheduled task starts at its time and not earlier, even if the executor is restarted.

use insta::assert_snapshot;
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use crate::world::{World, until};

/// A world with a subtool that returns the time at which it ran.
fn world(executor: &str) -> World {
    let world = World::new();
    world.configure(&format!("[executor]\n{executor}\n"));
    world.define(
        "now.json",
        &json!({"now": {"description": "Says what time it is.", "input": {}, "confirm": "never",
            "run": {"process": {"folder": ".", "argv": ["sh", "-c", "echo x >> ran; date +%s%N"]}}}}),
    );
    world
}

fn schedule(world: &World, span: &str) -> (String, Timestamp) {
    let ran = world.run(&["run", "now", "--in", span]);
    assert_eq!((ran.exit, &ran.json()["status"]), (0, &json!("pending")), "{ran}");
    (ran.json()["id"].as_str().expect("an id").to_owned(), time(&ran.json()["run_at"]))
}

fn time(text: &Value) -> Timestamp {
    text.as_str().expect("a time").parse().expect("a time")
}

/// The time at which the subtool ran.
fn ran_at(result: &Value) -> Timestamp {
    assert_eq!(result["status"], "succeeded", "{result}");
    let nanoseconds = result["data"].as_str().expect("a number").trim().parse().expect("a number");
    Timestamp::from_nanosecond(nanoseconds).expect("a time")
}

#[test]
fn a_scheduled_task_shows_its_start_time_and_starts_then() {
    let world = world("");
    let (later, at) = schedule(&world, "2h");
    let pending = world.result_file(&later);
    assert_eq!((&pending["state"], time(&pending["run_at"])), (&json!("queued"), at));
    let message = pending["message"].as_str().expect("a message");
    let expected = format!(
        "The tool execution is scheduled: it does not start before {at}. There is no need to wait for it; its result from \
         then on: `agent-magic-tool wait {later}`."
    );
    assert_eq!((message, pending.get("next")), (expected.as_str(), None));
    assert_eq!(time(&world.run(&["tasks"]).json()[0]["run_at"]), at);
    assert_eq!(world.run(&["tasks", "--state=scheduled"]).json()[0]["id"], json!(later));
    let (id, at) = schedule(&world, "700ms");
    world.run(&["wait", &id]);
    let ended = world.result_file(&id);
    assert!(ran_at(&ended) >= at, "{ended}");
    assert_eq!((time(&ended["_meta"]["run_at"]), ended.get("run_at")), (at, None));
    assert_eq!(world.run(&["tasks", "--state=scheduled"]).json().as_array().map(Vec::len), Some(1));
    let found = world.run(&["list", "tools", "--query=schedule later"]);
    assert!(found.stderr.contains("any subtool can be started later: agent-magic-tool run NAME"), "{found}");
    let note = |query: &str| world.run(&["list", "tools", &format!("--query={query}")]).stderr;
    assert!(note("remind me tomorrow").contains("to remind the user: agent-magic-tool run ask_user question="));
    for past in ["what did I run, today? executions", "task history", "list tasks", "past runs"] {
        assert!(note(past).contains("what was run: agent-magic-tool tasks"), "{past}: {}", note(past));
    }
    assert!(!note("git history of a file").contains("agent-magic-tool tasks"));
}

#[test]
fn an_executor_waits_for_a_scheduled_task_and_the_next_one_takes_it_over_after_a_kill() {
    let world = world("idle = \"100ms\"");
    // On a busy machine the task may end, and its executor with it, before it is looked at; then it gets more time.
    let (id, at, executor) = ["2s", "10s", "50s"]
        .into_iter()
        .find_map(|span| {
            let (id, at) = schedule(&world, span);
            world.executor().filter(|_| Timestamp::now() < at).map(|executor| (id, at, executor))
        })
        .expect("an executor is seen within 50 seconds");
    // There are no other requests, so only an executor that waits can run the task.
    until("the task has ended", || world.result_file(&id)["status"] != "pending");
    assert!(ran_at(&world.result_file(&id)) >= at);
    until("the idle executor has ended", || !crate::world::is_alive(executor));

    // On a busy machine the task may start before its executor is killed; then it is tried with more time.
    let (id, at) = ["2s", "10s", "50s"]
        .into_iter()
        .map(|span| schedule(&world, span))
        .find(|(_, at)| {
            world.kill_executor();
            Timestamp::now() < *at
        })
        .expect("an executor is killed within 50 seconds");
    assert_eq!(world.run(&["executor", "start"]).exit, 0);
    let again = world.result_file(&id);
    if Timestamp::now() < at {
        assert_eq!((&again["state"], time(&again["run_at"])), (&json!("queued"), at), "the task should keep its time");
    }
    world.run(&["wait", &id]);
    let ended = world.result_file(&id);
    assert!(ran_at(&ended) >= at, "{ended}");
    assert_eq!(ended["_meta"]["attempts"], 1, "it should run once: {ended}");
}

#[test]
fn a_task_scheduled_far_ahead_survives_a_kill_and_can_be_cancelled() {
    let world = world("");
    let (id, at) = schedule(&world, "8000h");
    world.kill_executor();
    assert_eq!(world.run(&["executor", "start"]).exit, 0);
    // The limit of five minutes for the pause before another attempt does not apply to a schedule.
    assert_eq!(time(&world.result_file(&id)["run_at"]), at);
    let cancelled = world.run(&["cancel", &id]);
    assert_eq!(cancelled.json()["state"], "cancelled", "{cancelled}");
    world.run(&["wait", &id]);
    let ended = world.result_file(&id);
    assert_eq!((&ended["error"]["hint"], time(&ended["_meta"]["run_at"])), (&json!("nothing was done"), at));
    assert_eq!(world.run(&["executor", "status"]).json()["tasks"], json!({}));
}

#[test]
fn a_task_scheduled_beyond_a_wait_is_not_waited_for() {
    let world = world("");
    // Any wait is far longer than this test takes on the busiest machine.
    world.configure("[wait]\nlimit = \"1h\"\n");
    let started = std::time::Instant::now();
    let receipt = world.run(&["run", "now", "--in=2h"]);
    let (id, message) = (receipt.json()["id"].clone(), receipt.json()["message"].clone());
    let (id, message) = (id.as_str().expect("an id"), message.as_str().expect("a text"));
    assert!(message.contains("There is no need to wait for it") && receipt.json().get("next").is_none(), "{receipt}");
    for words in [&["wait", id][..], &["wait", id, "--timeout=1h"], &["run", "now", "--in=3h", "--wait=1h"]] {
        let ran = world.run(words);
        assert_eq!((ran.exit, &ran.json()["state"]), (6, &json!("queued")), "{ran}");
        assert!(ran.json()["message"].as_str().is_some_and(|text| text.contains("is scheduled")), "{ran}");
    }
    assert!(started.elapsed() < std::time::Duration::from_mins(50), "{:?}", started.elapsed());
    // What starts within the wait is waited for.
    let soon = world.run(&["run", "now", "--in=300ms"]).json();
    assert!(soon["next"].is_string(), "{soon}");
    assert_eq!(world.run(&["wait", soon["id"].as_str().expect("an id")]).exit, 0);
}

#[test]
fn a_time_is_in_the_callers_time_zone_and_a_past_one_is_refused() {
    let world = world("");
    let later = Timestamp::now() + SignedDuration::from_hours(30);
    let in_tokyo =
        later.to_zoned(jiff::tz::TimeZone::fixed(jiff::tz::offset(9))).strftime("%Y-%m-%dT%H:%M:%S").to_string();
    let mut command = world.command(&["run", "now", "--at", &in_tokyo, "--dry-run"]);
    let planned = world.transcript(&command.env("TZ", "Asia/Tokyo").output().expect("ran")).json();
    assert_eq!(time(&planned["run_at"]).as_second(), later.as_second(), "{planned}");
    let past = world.run(&["run", "now", "--at", "2020-01-01T09:00"]);
    let message = past.error()["message"].as_str().expect("a text").to_owned();
    assert!(past.exit == 2 && message.starts_with("`2020-01-01T09:00` is in the past; it is now "), "{past}");
    let tomorrow = Timestamp::now() + SignedDuration::from_hours(24);
    let planned = world.run(&["run", "now", "--dry-run", "--at", &tomorrow.to_string()]).json();
    let difference = time(&planned["run_at"]).duration_since(tomorrow).abs();
    assert!(difference < SignedDuration::from_micros(1), "{planned}");
}

#[test]
fn an_invalid_or_too_distant_time_is_refused() {
    let world = world("");
    assert_snapshot!(world.run(&["run", "now", "--at", "soon"]), @r#"
    exit: 2
    --- stderr
    {"error":{"code":"usage","message":"`soon` is not a valid time","hint":"write it like 2026-05-01T09:00:00+02:00, or in local time like 2026-05-01T09:00 or 09:00; or use --in=90m"}}
    "#);
    assert_snapshot!(world.run(&["run", "now", "--in", "8785h"]), @r#"
    exit: 2
    --- stderr
    {"error":{"code":"usage","message":"a task can start at most 366 days ahead","hint":"request it again when the time is closer"}}
    "#);
    assert_snapshot!(world.run(&["run", "now", "--at", "09:00", "--in", "1h"]), @r#"
    exit: 2
    --- stderr
    {"error":{"code":"usage","message":"`--at` cannot be combined with `--in`","hint":"the options: agent-magic-tool help run"}}
    "#);
    assert_eq!(world.run(&["tasks"]).json(), json!([]));
}

/// A reminder: the human is asked at its time, and until then no answer is waited for.
#[test]
fn a_scheduled_question_is_put_to_the_human_at_its_time() {
    let world = World::new();
    world.define(
        "ask.json",
        &json!({
            "remind": {"description": "Asks.", "input": {"type": "object"}, "run": {"ask_user": {"question": "Done?"}}},
            "pay": {"description": "Pays.", "input": {"type": "object"}, "run": {"process": {"argv": ["true"]}}}
        }),
    );
    let later = world.run(&["run", "remind", "--in=1h"]);
    let soon = world.run(&["run", "remind", "--in=2s"]);
    assert!(later.json()["message"].as_str().is_some_and(|text| text.contains("is scheduled")), "{later}");
    let id = |ran: &crate::world::Transcript| ran.json()["id"].as_str().expect("an id").to_owned();
    assert_eq!(world.result_file(&id(&later))["state"], "queued");
    assert_eq!(id(&world.run(&["run", "remind", "--in=1h"])), id(&later), "the same reminder is one");
    until("it is asked", || world.result_file(&id(&soon))["state"] == "awaiting_confirmation");
    assert!(Timestamp::now() >= time(&soon.json()["run_at"]));
    assert_eq!(world.result_file(&id(&later))["state"], "queued");
    let message = |ran: &crate::world::Transcript| ran.json()["message"].as_str().unwrap_or_default().to_owned();
    let asked = world.result_file(&id(&later));
    let (at, until_then) = (&asked["run_at"], asked["will_ask"]["expires_at"].as_str().expect("a time"));
    let said =
        format!("the user is asked at {}. Without an answer it expires at {until_then}.", at.as_str().expect("a time"));
    assert!(message(&later).contains(&said), "{later}");
    // An approval is asked for at once: the human who schedules it is there now.
    let approval = world.run(&["run", "pay", "--in=1h"]);
    let asked = world.result_file(&id(&approval));
    assert_eq!(asked["state"], "awaiting_confirmation", "{approval}");
    let (at, expires) =
        (asked["run_at"].as_str().expect("a time"), asked["confirmation"]["expires_at"].as_str().expect("a time"));
    let said = format!(
        "It starts at {at} if it is confirmed by then, and otherwise as soon as it is; without a decision it expires at {expires}, and nothing is done."
    );
    assert!(message(&approval).contains("Tell the user") && message(&approval).contains(&said), "{approval}");
    world.kill_executor();
    assert_eq!(world.run(&["executor", "start"]).exit, 0);
    assert_eq!(world.result_file(&id(&later))["state"], "queued");
    assert_eq!(world.result_file(&id(&soon))["state"], "awaiting_confirmation");
    assert_eq!(world.run(&["cancel", &id(&later)]).json()["state"], "cancelled");
}
