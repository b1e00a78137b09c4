//! Frameworks for agents, unchanged: `LangChain`, pydantic-ai and OpenAI's Agents SDK for Python, Vercel's AI SDK for JavaScript.
//! They ask, stream, call tools of their own, demand a form, show a picture, keep conversations apart, and wait for a human.

use serde_json::{Value, json};

use super::demands::PNG;
use super::sdk::{self, Sdk};
use super::{Server, rules, subtools};
use crate::agent::aimock::Model;
use crate::page::human::Human;
use crate::world::World;

/// A framework and the protocol that it speaks.
#[derive(Debug, Clone, Copy)]
struct Framework {
    name: &'static str,
    protocol: &'static str,
}

const PYTHON: [Framework; 8] = [
    Framework { name: "langchain", protocol: "chat" },
    Framework { name: "langchain", protocol: "responses" },
    Framework { name: "langchain", protocol: "anthropic" },
    Framework { name: "pydantic-ai", protocol: "chat" },
    Framework { name: "pydantic-ai", protocol: "responses" },
    Framework { name: "pydantic-ai", protocol: "anthropic" },
    Framework { name: "openai-agents", protocol: "chat" },
    Framework { name: "openai-agents", protocol: "responses" },
];

const JAVASCRIPT: [Framework; 4] = [
    Framework { name: "ai-sdk", protocol: "chat" },
    Framework { name: "ai-sdk", protocol: "responses" },
    Framework { name: "ai-sdk", protocol: "compatible" },
    Framework { name: "ai-sdk", protocol: "anthropic" },
];

impl Framework {
    /// Those of a script.
    fn of(script: &Sdk) -> &'static [Self] {
        if script.is_python() { &PYTHON } else { &JAVASCRIPT }
    }

    fn request(self, exercise: &str, stream: bool, message: &str) -> Value {
        json!({"framework": self.name, "protocol": self.protocol, "do": exercise, "stream": stream, "message": message})
    }

    /// Two conversations at the same time, in which the user says a name and asks for it.
    fn conversations(self) -> Value {
        let names = ["Anna", "Otto"].map(|name| [format!("My name is {name}"), "What is my name?".to_owned()]);
        json!({"framework": self.name, "protocol": self.protocol, "do": "turns", "messages": names})
    }

    /// The tool that it gives the model for a structured answer, if it does so.
    fn form_tool(self) -> Option<&'static str> {
        match self.name {
            "langchain" => Some("Weather"),
            "pydantic-ai" => Some("final_result"),
            "ai-sdk" => Some("report"),
            _ => None,
        }
    }

    /// A message by which the requests of this one are found.
    fn message(self, words: &str) -> String {
        format!("{words} for {} {}", self.name, self.protocol)
    }
}

/// What it is asked, and what is expected.
type Exercise = (Value, Expected);

#[derive(Debug, Clone, PartialEq)]
enum Expected {
    Answer(Value),
    /// An answer for which the client's tool was called.
    Called(&'static str),
    /// An error with these words.
    Refusal(&'static str),
}

impl Expected {
    /// Whether this was printed.
    fn is_met(&self, printed: &Value) -> bool {
        match self {
            Self::Answer(answer) => printed["answer"] == *answer,
            Self::Called(answer) => printed["answer"] == *answer && printed["performed"] == json!(["Bonn"]),
            Self::Refusal(words) => printed["error"]["message"].as_str().is_some_and(|message| message.contains(words)),
        }
    }
}

fn names() -> Expected {
    Expected::Answer(json!([["Hello.", "It is Anna."], ["Hello.", "It is Otto."]]))
}

/// A world with a model that takes pictures and calls the client's tools, and the key of a client that keeps its history.
fn world() -> Option<(World, Model, String)> {
    let world = World::new();
    world.define("tests.json", &subtools());
    let weather = json!({"name": "weather", "arguments": {"city": "Bonn"}});
    let count = "agent-magic-tool run count_words --wait --input='{\"text\": \"a b c\"}'";
    let report = |name: &str| {
        let arguments = json!({"city": "Bonn", "degrees": 7});
        json!({"last": format!("^Report by {name}"), "calls": [{"name": name, "arguments": arguments}]})
    };
    let own = [
        json!({"last": "^Weather", "calls": [weather]}),
        json!({"last": "^Look at the weather", "says": "I look.", "calls": [weather]}),
        json!({"last": "^Count first", "runs": [count]}),
        json!({"last": "\"data\":\\s*\"?(\\d+)", "seen": "Count first", "calls": [weather]}),
        json!({"last": "sunny in Bonn", "says": "It is sunny."}),
        report("Weather"),
        report("final_result"),
        report("report"),
        json!({"last": "^Fill", "says": "{\"city\": \"Bonn\", \"degrees\": 7}"}),
        json!({"last": "^See", "says": "It is a pixel."}),
        json!({"last": "^What is my name", "seen": "Anna.*Otto|Otto.*Anna", "says": "You have two."}),
        json!({"last": "^What is my name", "seen": "Anna", "says": "It is Anna."}),
        json!({"last": "^What is my name", "seen": "Otto", "says": "It is Otto."}),
        json!({"last": "^What is my name", "says": "You have none."}),
    ];
    let all: Vec<_> = own.into_iter().chain(rules().as_array().expect("a list").iter().cloned()).collect();
    let model = Model::start(&world, &json!(all), "")?;
    world.configure(&model.configuration("").replace("[models.openai]\n", "[models.openai]\nimages = true\n"));
    let made = world.run(&["serve", "key", "create", "own", "--history=client"]);
    let key = made.json()["key"].as_str().unwrap_or_else(|| panic!("{made}")).to_owned();
    Some((world, model, key))
}

/// Has each framework do its exercises, and says what was not as expected.
fn failures(
    scripts: &[Sdk],
    server: &Server,
    key: &str,
    exercises: impl Fn(Framework) -> Vec<Exercise>,
) -> Vec<String> {
    let mut failures = Vec::new();
    for script in scripts {
        let all: Vec<_> = Framework::of(script).iter().flat_map(|framework| exercises(*framework)).collect();
        let requests: Vec<_> = all.iter().map(|(request, _)| request.clone()).collect();
        let printed = script.run(&server.url(), key, &json!(requests));
        for ((request, expected), printed) in all.iter().zip(printed) {
            let is_streamed = request["stream"] == true && printed["error"].is_null();
            let streamed = printed["streamed"].as_str().unwrap_or_default();
            let is_whole = !is_streamed || printed["answer"].as_str().is_some_and(|answer| streamed.ends_with(answer));
            if !expected.is_met(&printed) || !is_whole {
                failures.push(format!("{request}: {expected:?}: {printed}"));
            }
        }
    }
    failures
}

#[test]
fn every_framework_asks_a_session_and_is_told_what_that_does_not_have() {
    let Some(scripts) = sdk::frameworks() else { return };
    let Some((world, _model, _)) = world() else { return };
    let server = Server::start(&world);
    let wrong = failures(&scripts, &server, "none", |framework| {
        let mut exercises = vec![(framework.conversations(), names())];
        for stream in [false, true] {
            exercises.push((framework.request("ask", stream, "Hi"), Expected::Answer("Hello.".into())));
        }
        let refused = [("tool", "Weather"), ("form", "Fill"), ("image", "See"), ("call", "Report")];
        for (exercise, message) in refused {
            if exercise != "call" || framework.form_tool().is_some() {
                exercises.push((framework.request(exercise, false, message), Expected::Refusal("--history=client")));
            }
        }
        exercises
    });
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn with_its_own_history_every_framework_gets_what_it_demands() {
    let Some(scripts) = sdk::frameworks() else { return };
    let Some((world, model, key)) = world() else { return };
    let server = Server::start(&world);
    let structured = json!({"city": "Bonn", "degrees": 7});
    let wrong = failures(&scripts, &server, &key, |framework| {
        let one = |exercise: &str, stream: bool, words: &str, expected: Expected| {
            (framework.request(exercise, stream, &framework.message(words)), expected)
        };
        let mut exercises = vec![
            (framework.conversations(), names()),
            one("tool", false, "Look at the weather", Expected::Called("It is sunny.")),
            one("tool", false, "Count first, then the weather", Expected::Called("It is sunny.")),
            one("form", false, "Fill", Expected::Answer(structured.clone())),
        ];
        for stream in [false, true] {
            exercises.push(one("ask", stream, "Hi", Expected::Answer("Hello.".into())));
            exercises.push(one("tool", stream, "Weather", Expected::Called("It is sunny.")));
            exercises.push(one("image", stream, "See", Expected::Answer("It is a pixel.".into())));
        }
        let by_call = framework.form_tool().map(|tool| format!("Report by {tool}"));
        exercises.extend(by_call.map(|words| one("call", false, &words, Expected::Answer(structured.clone()))));
        exercises
    });
    assert!(wrong.is_empty(), "{wrong:#?}");
    assert_eq!(server.get("/api/v1/sessions").json()["sessions"], json!([]), "nothing is stored");
    let asked = model.asked();
    for framework in PYTHON.into_iter().chain(JAVASCRIPT) {
        let of = |words: &str| {
            let message = framework.message(words);
            let is_it = |body: &&Value| body.to_string().contains(&message);
            asked.iter().find(is_it).unwrap_or_else(|| panic!("the model was not asked `{message}`"))
        };
        let tool = of("Weather").to_string();
        for given in ["command_executor", "\"weather\"", "You are a pirate."] {
            assert!(tool.contains(given), "{framework:?}: {given}: {tool}");
        }
        let form = of("Fill");
        let properties = &form["response_format"]["json_schema"]["schema"]["properties"];
        assert_eq!(properties["degrees"]["type"], "integer", "{framework:?}: {form}");
        let picture = of("See").to_string();
        assert!(picture.contains(PNG), "{framework:?}: {picture}");
        if let Some(name) = framework.form_tool() {
            let call = of(&format!("Report by {name}"));
            let choice = &call["tool_choice"];
            assert!(choice["function"]["name"] == name || choice == "required", "{framework:?}: {call}");
        }
    }
}

#[test]
fn a_task_that_waits_for_a_human_goes_on_in_every_framework() {
    let Some(scripts) = sdk::frameworks() else { return };
    let Some((world, _model, own)) = world() else { return };
    let human = Human::of(&world);
    let decider = format!("Authorization: Bearer {}\r\n", world.make_deciding_key(&human, "phone"));
    let server = Server::start(&world);
    let mut gates = server.events("/api/v1/gates/stream", &decider);
    let mut notes = String::new();
    for key in ["none", own.as_str()] {
        for script in &scripts {
            let asked = |framework: &Framework| {
                [(" --wait", true), ("", false)].map(|(wait, stream)| {
                    framework.request("ask", stream, &format!("run: agent-magic-tool run note text=hello{wait}"))
                })
            };
            let requests: Vec<_> = Framework::of(script).iter().flat_map(asked).collect();
            let mut run = script.start(&server.url(), key, &json!(requests));
            for request in &requests {
                let gate = gates.until("gate").pop().expect("a gate").data;
                if request["stream"] == true {
                    run.until("`note` waits for your decision on the page");
                }
                let path = format!("/api/v1/gate/{}", gate["id"].as_str().expect("an id"));
                let approval = json!({"decision": "approve", "digest": gate["digest"]}).to_string();
                let approved = server.request("POST", &path, &decider, &approval);
                assert_eq!(approved.status, 200, "{request}: {}", approved.body);
                let printed = run.end();
                let answer = printed["answer"].as_str().unwrap_or_else(|| panic!("{request}: {printed}"));
                assert!(answer.ends_with("The note is written."), "{request}: {answer}");
                notes.push_str("hello");
                let written = std::fs::read_to_string(world.folder().join("note.txt")).expect("written");
                assert_eq!(written, notes, "{request}: it ran once");
            }
        }
    }
}

/// The AI SDK sends the ids of earlier messages instead of the messages, unless it is told that the server keeps none.
#[test]
fn the_id_of_an_earlier_message_is_that_message_or_is_refused() {
    let Some([_, script]) = sdk::frameworks() else { return };
    let Some((world, _model, own)) = world() else { return };
    let server = Server::start(&world);
    let framework = Framework { name: "ai-sdk", protocol: "stored" };
    let request = json!([framework.conversations()]);
    for key in ["none", own.as_str()] {
        let printed = script.run(&server.url(), key, &request).remove(0);
        let is_fine = names().is_met(&printed) || Expected::Refusal("`store`").is_met(&printed);
        assert!(is_fine, "{printed}");
    }
}
