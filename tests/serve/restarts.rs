//! What a killed server leaves behind: nothing is lost, and nothing is done twice.

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::json;

use super::{Server, world_with_model};
use crate::world::until;

#[test]
fn a_killed_server_goes_on_and_its_client_gets_the_answer() {
    let Some((world, model)) = world_with_model("") else { return };
    let server = Server::start(&world);
    std::fs::write(world.folder().join("hold"), "").expect("written");
    let message = "How many words are in it?";
    server.post("/api/v1/submit", &json!({"session": "a", "message": message, "wait": false}));
    until("the task runs", || {
        server.ask("a", "!tasks")["answer"].as_str().is_some_and(|text| text.contains("running"))
    });
    server.kill();
    let server = Server::start(&world);
    std::fs::remove_file(world.folder().join("hold")).expect("removed");
    // The client sends its question again, as clients do whose connection broke.
    let answer = server.ask("a", message);
    assert_eq!(answer["answer"], "There are 3 words.");
    let asked = model.asked();
    let questions = asked.iter().filter(|body| body["messages"].as_array().is_some_and(|all| all.len() == 2)).count();
    assert_eq!(questions, 1, "it was asked once");
    let tasks = world.run(&["tasks"]).json();
    assert_eq!(tasks.as_array().map(Vec::len), Some(1), "and delegated once: {tasks}");
}

#[test]
fn an_answer_that_its_client_never_got_begins_the_next_one() {
    let Some((world, model)) = world_with_model("") else { return };
    let server = Server::start(&world);
    let body = json!({"session": "a", "message": "Tell a story"}).to_string();
    let client = server.send("POST", "/api/v1/submit", "", &body);
    until("the model was asked", || !model.asked().is_empty());
    drop(client);
    until("it is answered", || server.get("/api/v1/sessions").json()["sessions"][0]["is_busy"] == false);
    server.kill();
    let server = Server::start(&world);
    let answer = server.ask("a", "echo second");
    let text = answer["answer"].as_str().expect("text");
    assert!(text.starts_with("(The answer to your earlier question: "), "{text}");
    assert!(text.ends_with("second second"), "{text}");
    let again = server.ask("a", "echo third");
    assert!(again["answer"].as_str().expect("text").starts_with("third"), "{again}");
}

#[test]
fn questions_that_wait_for_their_turn_are_asked_after_a_kill() {
    let Some((world, model)) = world_with_model("") else { return };
    let server = Server::start(&world);
    std::fs::write(world.folder().join("hold"), "").expect("written");
    let ledger = world.state().join("serve/questions/101.json");
    let queue = |message: &str| {
        let body = json!({"session": "a", "message": message, "when_busy": "queue"}).to_string();
        let client = server.send("POST", "/api/v1/submit", "", &body);
        until("it is recorded", || std::fs::read_to_string(&ledger).is_ok_and(|text| text.contains(message)));
        client
    };
    let message = "How many words are in it?";
    let first = queue(message);
    until("the task runs", || server.get("/api/v1/session/a").json()["open"][0]["state"] == "running");
    let others = [queue("echo second"), queue("echo third")];
    until("only its end is waited for", || server.get("/api/v1/session/a").json()["state"] == "waiting");
    server.kill();
    drop((first, others));
    let server = Server::start(&world);
    std::fs::remove_file(world.folder().join("hold")).expect("removed");
    // Each client asks again, and gets its own answer.
    assert_eq!(server.ask("a", message)["answer"], "There are 3 words.");
    for word in ["second", "third"] {
        let answer = server.ask("a", &format!("echo {word}"));
        // After those that no client had waited for by then.
        assert!(answer["answer"].as_str().is_some_and(|text| text.ends_with(&[word; 8].join(" "))), "{answer}");
    }
    for word in ["second", "third"] {
        let question = format!("echo {word}");
        let is_it = |body: &serde_json::Value| {
            body["messages"].as_array().and_then(|all| all.last()).is_some_and(|last| last["content"] == question)
        };
        assert_eq!(model.asked().iter().filter(|body| is_it(body)).count(), 1, "`{question}` was asked once");
    }
    assert_eq!(world.run(&["tasks"]).json().as_array().map(Vec::len), Some(1), "and delegated once");
}

#[test]
fn what_is_not_waited_for_is_read_as_often_as_one_likes() {
    let Some((world, _model)) = world_with_model("") else { return };
    let server = Server::start(&world);
    let asked: Vec<_> = (0..3)
        .map(|number| {
            let message = format!("echo q{number}");
            let body = json!({"session": "a", "message": message, "wait": false, "when_busy": "queue"});
            server.post("/api/v1/submit", &body).json()["question"].clone()
        })
        .collect();
    let answer = |id: usize| vec![format!("q{id}"); 8].join(" ");
    let expected = |id: usize| {
        json!({"question": asked[id], "answer": answer(id),
        "state": "ended", "termination": "completed"})
    };
    let found = |server: &Server, id: usize| {
        let state = server.get("/api/v1/session/a").json();
        let mut question = state["questions"][id].clone();
        // Never idle before all were asked.
        assert!(state["state"] != "idle" || question["state"] == "ended", "{state}");
        question.as_object_mut().expect("an object").retain(|name, _| !["usage", "truncated"].contains(&name.as_str()));
        question
    };
    until("all have ended", || (0..3).all(|id| found(&server, id) == expected(id)));
    assert!((0..3).all(|id| found(&server, id) == expected(id)), "and again");
    assert_eq!(server.ask("a", "echo next")["answer"], ["next"; 8].join(" "), "nothing of it is told");
    server.kill();
    let server = Server::start(&world);
    assert!((0..3).all(|id| found(&server, id) == expected(id)), "after a restart too");
    assert_eq!(server.get("/api/v1/stream/a?question=nonsense").status, 400);
    // A turn that is over: its end is not waited for.
    let last = server.follow("a?until=turn", None).until("done");
    assert!(last.last().expect("an end").data.to_string().contains("next next"), "{last:?}");
    let path = format!("a?question={}", asked[1].as_str().expect("an id"));
    let events = server.follow(&path, None).until("done");
    assert!(events.last().expect("an end").data.to_string().contains("q1 q1"));
}

#[test]
fn what_became_of_a_task_is_told_after_a_kill() {
    let Some((world, model)) = world_with_model("") else { return };
    let server = Server::start(&world);
    std::fs::write(world.folder().join("hold"), "").expect("written");
    server.post("/api/v1/submit", &json!({"session": "a", "message": "How many words are in it?", "wait": false}));
    until("the task runs", || server.get("/api/v1/session/a").json()["open"][0]["state"] == "running");
    // The next question ends the turn of the first, whose task goes on.
    assert_eq!(server.ask("a", "echo second")["answer"], ["second"; 8].join(" "));
    let asked = model.asked().len();
    std::fs::remove_file(world.folder().join("hold")).expect("removed");
    until("the model was told, with no client there", || model.asked().len() > asked);
    until("it has answered", || server.get("/api/v1/sessions").json()["sessions"][0]["is_busy"] == false);
    server.kill();
    let server = Server::start(&world);
    let answer = server.ask("a", "echo third");
    let text = answer["answer"].as_str().expect("text");
    assert!(text.starts_with("(What has become of your earlier tasks: There are 3 words.)"), "{text}");
    let again = server.ask("a", "echo fourth");
    assert!(again["answer"].as_str().expect("text").starts_with("fourth"), "told once: {again}");
}

#[test]
fn a_stream_that_comes_back_after_a_restart_has_the_answers_it_missed_once() {
    let Some((world, _model)) = world_with_model("") else { return };
    let server = Server::start(&world);
    std::fs::write(world.folder().join("hold"), "").expect("written");
    let submit = |server: &Server, message: &str| {
        server.post("/api/v1/submit", &json!({"session": "a", "message": message, "wait": false}));
    };
    submit(&server, "How many words are in it?");
    let mut stream = server.follow("a", Some("0.0.0"));
    let seen = stream.until("task").pop().expect("an event").id;
    drop(stream);
    std::fs::remove_file(world.folder().join("hold")).expect("removed");
    let ended = |server: &Server| server.get("/api/v1/session/a").json()["state"] == "idle";
    until("it is answered", || ended(&server));
    server.kill();
    let server = Server::start(&world);
    let events = server.follow("a", Some(&seen)).until("done");
    let names: Vec<_> = events.iter().map(|event| event.name.as_str()).collect();
    assert_eq!(names, ["restart", "tok", "done"]);
    let end = events.last().expect("an end");
    assert_eq!(end.data["answer"], "There are 3 words.");
    // What it has is not told again.
    submit(&server, "echo second");
    until("it is answered", || ended(&server));
    let events = server.follow("a", Some(&end.id)).until("done");
    let text = events.iter().filter_map(|event| event.data["text"].as_str()).collect::<String>();
    assert_eq!(text.trim(), ["second"; 8].join(" "), "{events:?}");
}

#[test]
fn a_question_that_another_one_ended_has_ended_for_those_who_read_it_later() {
    let Some((world, _model)) = world_with_model("") else { return };
    let server = Server::start(&world);
    std::fs::write(world.folder().join("hold"), "").expect("written");
    let body = json!({"session": "a", "message": "How many words are in it?", "wait": false});
    let question = server.post("/api/v1/submit", &body).json()["question"].clone();
    until("only its end is waited for", || server.get("/api/v1/session/a").json()["state"] == "waiting");
    assert_eq!(server.ask("a", "echo second")["answer"], ["second"; 8].join(" "));
    let state = |server: &Server| server.get("/api/v1/session/a").json();
    let found = state(&server);
    assert_eq!(found["answer"], ["second"; 8].join(" "), "although a task is open: {found}");
    let ended = |found: &serde_json::Value| {
        let first = &found["questions"][0];
        (first["question"] == question, first["state"].clone(), first["termination"].clone())
    };
    assert_eq!(ended(&found), (true, json!("ended"), json!("cancelled")));
    let path = format!("a?question={}", question.as_str().expect("an id"));
    let events = server.follow(&path, None).until("done");
    assert_eq!(events.last().expect("an end").data["termination"], "cancelled", "{events:?}");
    server.kill();
    let server = Server::start(&world);
    assert_eq!(ended(&state(&server)), (true, json!("ended"), json!("cancelled")), "after a restart too");
    std::fs::remove_file(world.folder().join("hold")).expect("removed");
}

#[test]
fn a_stream_that_ends_because_the_server_stops_begins_the_turn_again() {
    let Some((world, _model)) = world_with_model("") else { return };
    let server = Server::start(&world);
    std::fs::write(world.folder().join("hold"), "").expect("written");
    let body = json!({"session": "a", "message": "How many words are in it?", "wait": false});
    server.post("/api/v1/submit", &body);
    until("only its end is waited for", || server.get("/api/v1/session/a").json()["state"] == "waiting");
    let mut stream = server.follow("a", Some("0.0.0"));
    stream.until("task");
    kill(Pid::from_raw(server.process_id().cast_signed()), Signal::SIGTERM).expect("it is alive");
    let told = stream.until("error").pop().expect("an event");
    assert_eq!(told.data["error"]["code"], "no-executor", "{told:?}");
    drop(server);
    let server = Server::start(&world);
    std::fs::remove_file(world.folder().join("hold")).expect("removed");
    let events = server.follow("a", Some(&told.id)).until("done");
    assert_eq!(events.first().expect("events").name, "restart", "{events:?}");
    assert_eq!(events.last().expect("an end").data["answer"], "There are 3 words.");
}

#[test]
fn questions_that_wait_when_the_server_is_told_to_stop_are_asked_in_their_order() {
    let Some((world, model)) = world_with_model("") else { return };
    let server = Server::start(&world);
    std::fs::write(world.folder().join("hold"), "").expect("written");
    let sessions = ["a", "b", "c", "d"];
    for session in sessions {
        let queue = |message: &str| {
            let body = json!({"session": session, "message": message, "wait": false, "when_busy": "queue"});
            server.post("/api/v1/submit", &body);
        };
        queue("How many words are in it?");
        let path = format!("/api/v1/session/{session}");
        until("only its end is waited for", || server.get(&path).json()["state"] == "waiting");
        for number in 0..4 {
            queue(&format!("echo {session}{number}"));
        }
    }
    kill(Pid::from_raw(server.process_id().cast_signed()), Signal::SIGTERM).expect("it is alive");
    until("it has ended", || std::net::TcpStream::connect(&server.address).is_err());
    drop(server);
    let server = Server::start(&world);
    std::fs::remove_file(world.folder().join("hold")).expect("removed");
    until("all are answered", || {
        sessions.iter().all(|session| server.get(&format!("/api/v1/session/{session}")).json()["state"] == "idle")
    });
    for session in sessions {
        let asked = model.asked();
        let last = asked.iter().filter_map(|body| body["messages"].as_array()?.last()?["content"].as_str());
        let order: Vec<_> = last.filter_map(|text| text.strip_prefix(&format!("echo {session}"))).collect();
        assert_eq!(order, ["0", "1", "2", "3"], "{session}");
    }
}
