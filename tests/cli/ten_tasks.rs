//! Ten whole tasks, played through `command-executor` by a scripted model that follows only what is printed: the tool's
//! definition, the results, and the hints of errors.
//!
//! What it read and wrote is what a model would pay for. With `TEN_TASKS_OUT=FILE` it is written there, and
//! `agent-magic-tool/benches/tokens.mjs` counts its tokens. `TEN_TASKS_PROGRAM` plays the tasks with another build.

use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, ChildStdin, ChildStdout, Stdio};

use serde_json::{Map, Value, json};

use crate::page::human::Human;
use crate::world::{PROGRAM, World, until};

/// No task takes more turns; a model that needs more is lost.
const MAX_TURNS: usize = 12;

/// What a command printed, as a model understands it.
struct Printed {
    exit: u64,
    /// The result or receipt; null after an error.
    document: Value,
    error: Value,
    text: String,
}

struct Model<'a> {
    world: &'a World,
    tool: Child,
    stdin: ChildStdin,
    stdout: BufReader<ChildStdout>,
    definition: String,
    turns: Vec<Value>,
}

impl<'a> Model<'a> {
    fn new(world: &'a World) -> Self {
        let program = std::env::var("TEN_TASKS_PROGRAM").unwrap_or_else(|_| PROGRAM.to_owned());
        let definition = world.within(&program, &["command-executor", "--definition"]).output().expect("it starts");
        let mut command = world.within(&program, &["command-executor"]);
        let mut tool = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("it starts");
        let (stdin, stdout) = (tool.stdin.take().expect("a pipe"), tool.stdout.take().expect("a pipe"));
        let definition = String::from_utf8(definition.stdout).expect("UTF-8");
        Self { world, tool, stdin, stdout: BufReader::new(stdout), definition, turns: Vec::new() }
    }

    /// Whether the definition teaches `form`.
    fn is_taught(&self, form: &str) -> bool {
        self.definition.contains(form)
    }

    fn say(&mut self, command: &str) -> Printed {
        assert!(self.turns.len() < MAX_TURNS, "lost: {:#?}", self.turns);
        writeln!(self.stdin, "{}", json!({ "command": command })).expect("written");
        let mut line = String::new();
        self.stdout.read_line(&mut line).expect("an answer");
        let answer: Value = serde_json::from_str(&line).expect("JSON");
        let text = answer["output"].as_str().expect("a text").to_owned();
        self.turns.push(json!({"command": command, "output": text}));
        let first = serde_json::Deserializer::from_str(&text).into_iter().next();
        let first: Value = first.and_then(Result::ok).unwrap_or_default();
        let is_error = first["error"]["code"].is_string() && first.get("id").is_none();
        let (document, error) = if is_error { (Value::Null, first["error"].clone()) } else { (first, Value::Null) };
        Printed { exit: answer["exit"].as_u64().expect("a status"), document, error, text }
    }

    /// Searches as the definition shows it; returns the name and the input of the best match.
    fn find(&mut self, words: &str) -> (String, String) {
        let printed = self.say(&format!("agent-magic-tool list tools --query=\"{words}\""));
        best_match(&printed.text).unwrap_or_else(|| panic!("nothing found: {}", printed.text))
    }

    /// Runs a subtool in the first form that the definition teaches.
    fn run(&mut self, name: &str, input: &Value, wait: bool) -> Printed {
        let fields: Map<String, Value> = input.as_object().expect("an object").clone();
        let needs_here = input.to_string().contains("\\\"") || input.to_string().contains(['\'', '\\']);
        let wait = if wait && self.is_taught("--wait") { " --wait" } else { "" };
        let command = if needs_here {
            format!("agent-magic-tool run {name} --input=-{wait} <<'EOF'\n{input}\nEOF")
        } else if self.is_taught("run NAME key=value") {
            let field = |(key, value): (&String, &Value)| match value {
                Value::String(text) if text.contains(' ') => format!("{key}='{text}'"),
                Value::String(text) => format!("{key}={text}"),
                value => format!("{key}:='{value}'"),
            };
            format!("agent-magic-tool run {name} {}{wait}", fields.iter().map(field).collect::<Vec<_>>().join(" "))
        } else {
            format!("agent-magic-tool run {name} --input='{input}'{wait}")
        };
        self.say(&command)
    }

    /// Follows what is printed until there is a result.
    fn follow(&mut self, mut printed: Printed) -> Printed {
        loop {
            let document = &printed.document;
            let next = if printed.error.is_null() {
                if document["status"] != "pending" {
                    return printed;
                }
                let message = document["message"].as_str().unwrap_or_default().to_owned();
                if message.contains("agent-magic-tool executor page") {
                    self.tell_the_user(document["id"].as_str().expect("an id"));
                }
                document["next"].as_str().map(str::to_owned).or_else(|| command_in(&message))
            } else {
                printed.error["hint"].as_str().and_then(command_in)
            };
            match next {
                Some(next) => printed = self.say(&next),
                None => return printed,
            }
        }
    }

    /// The human opens the page and decides, or answers the question.
    fn tell_the_user(&self, id: &str) {
        let human = Human::of(self.world);
        let mut shown = human.pending_task(id);
        let answer = if self.world.result_file(id)["tool"] == "ask_user" {
            shown["action"] = "accept".into();
            shown["content"] = json!({"answer": "2025"});
            human.post("/answer", &shown)
        } else {
            human.approve(id)
        };
        assert_eq!(answer.status, 200);
        until("it has ended", || self.world.result_file(id)["status"] != "pending");
    }

    /// Reads the rows of a result until one has this `id`: in the data, or page by page with the printed commands.
    fn row(&mut self, printed: &Printed, id: u64) -> Value {
        let in_rows = |rows: &Value| rows.as_array().and_then(|rows| rows.iter().find(|row| row["id"] == id).cloned());
        let (document, whole) = (&printed.document, &printed.document["data"]["rows"]);
        if let Some(row) = in_rows(whole) {
            return row;
        }
        let read = [&document["read"], &document["_meta"]["read"]].into_iter().find_map(Value::as_array);
        let commands: Vec<_> = read.into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect();
        // A printed command that selects by this very field, with another value.
        let select = commands.iter().find_map(|command| command.split_once("select(.id == "));
        if let Some((before, after)) = select {
            let rest = after.trim_start_matches(|c: char| c.is_ascii_digit());
            return self.say(&format!("{before}select(.id == {id}{rest}")).document;
        }
        let mut next = commands.first().cloned().unwrap_or_else(|| panic!("no way on: {}", printed.text));
        loop {
            let page = self.say(&next).document;
            if let Some(row) = in_rows(&page["items"]) {
                return row;
            }
            page["next"].as_str().expect("another page").clone_into(&mut next);
        }
    }
}

impl Drop for Model<'_> {
    fn drop(&mut self) {
        // Fails if it has ended by itself.
        self.tool.kill().ok();
        self.tool.wait().ok();
    }
}

/// The name and the input of the first signature of a list: `name(input: {...})`, after a comment.
fn best_match(list: &str) -> Option<(String, String)> {
    let (comment, rest) = list.strip_prefix("/** ")?.split_once("*/\n")?;
    assert!(!comment.contains('\n'), "{list}");
    let (name, rest) = rest.split_once('(')?;
    let (input, _) = rest.split_once(")\n")?;
    Some((name.to_owned(), input.to_owned()))
}

/// The first command in a text for a model that the model itself may run.
fn command_in(text: &str) -> Option<String> {
    let starts = text.match_indices("agent-magic-tool ").map(|(start, _)| &text[start..]);
    let commands =
        starts.map(|rest| rest[..rest.find(['`', '\n', ';']).unwrap_or(rest.len())].trim_end_matches(['.', '?']));
    commands.map(str::to_owned).find(|command| !command.starts_with("agent-magic-tool executor"))
}

fn world() -> World {
    let world = World::new();
    fs::write(world.folder().join("note.txt"), "The meeting is on Friday.\n").expect("written");
    fs::write(world.folder().join("plan.txt"), "one\nthe needle is here\nthree\n").expect("written");
    let rows = |count: usize| {
        let row =
            |id: usize| json!({"id": id, "customer": format!("customer {id}"), "total": id * 3, "currency": "EUR"});
        json!({"rows": (0..count).map(row).collect::<Vec<_>>(), "next": null}).to_string()
    };
    fs::write(world.folder().join("orders.json"), rows(320)).expect("written");
    fs::write(world.folder().join("archive.json"), rows(4_000)).expect("written");
    let read = json!({"readOnlyHint": true});
    let text = |description: &str| json!({"type": "string", "description": description});
    let file = |description: &str, name: &str| {
        json!({"description": description, "input": {}, "annotations": read,
            "run": {"process": {"argv": ["cat", name], "output": "json", "max_bytes": 10_000_000}}})
    };
    world.define(
        "office.json",
        &json!({
            "orders_list": file("Lists the open orders of the shop with customer and total.", "orders.json"),
            "archive_list": file("Lists the archived invoices of all years.", "archive.json"),
            "message_send": {"description": "Sends a chat message to a person.", "annotations": {"destructiveHint": false},
                "input": {"type": "object", "required": ["recipient", "text"], "additionalProperties": false,
                    "properties": {"recipient": text("Who gets it."), "text": text("What it says.")}},
                "run": {"process": {"argv": ["printf", "sent to %s: %s", "{{ recipient }}", "{{ text }}"]}}},
            "backup_verify": {"description": "Verifies the last backup.", "input": {}, "annotations": read,
                "run": {"process": {"argv": ["sh", "-c", "echo 'block 7 is damaged' >&2; exit 3"]}}},
            "weather_now": {"description": "Tells the current weather of a city.", "annotations": read,
                "input": {"type": "object", "required": ["city"], "additionalProperties": false,
                    "properties": {"city": text("A city."), "unit": {"enum": ["C", "F"], "default": "C"}}},
                "run": {"process": {"argv": ["printf", "18 degrees in %s", "{{ city }}"]}}},
            "render_video": {"description": "Renders a video.", "annotations": read,
                "input": {"type": "object", "required": ["seconds"], "properties": {"seconds": {"type": "number"}}},
                "run": {"process": {"argv": ["sleep", "{{ seconds }}"]}}}
        }),
    );
    world
}

/// A task: what a model is asked to do, and how it does it.
type Task = (&'static str, fn(&mut Model<'_>));

const TASKS: [Task; 10] = [
    ("read a file", |model| {
        let (name, input) = model.find("read a file");
        assert!(input.contains(" path: string"), "{input}");
        let printed = model.run(&name, &json!({"path": "note.txt"}), true);
        assert!(model.follow(printed).text.contains("The meeting is on Friday."));
    }),
    ("search files", |model| {
        let (name, _) = model.find("search text in files");
        let printed = model.run(&name, &json!({"pattern": "needle", "path": "."}), true);
        assert!(model.follow(printed).text.contains("plan.txt"));
    }),
    ("find one of 320 rows", |model| {
        let (name, _) = model.find("open orders");
        let printed = model.run(&name, &json!({}), true);
        let printed = model.follow(printed);
        assert_eq!(model.row(&printed, 150)["total"], 450);
    }),
    ("find one of 4,000 rows", |model| {
        let (name, _) = model.find("archived invoices");
        let printed = model.run(&name, &json!({}), true);
        let printed = model.follow(printed);
        assert_eq!(model.row(&printed, 42)["total"], 126);
    }),
    ("send what a human approves", |model| {
        let (name, _) = model.find("send chat message");
        let printed = model.run(&name, &json!({"recipient": "Ann", "text": "It's \"done\"."}), false);
        assert_eq!(model.follow(printed).document["data"], "sent to Ann: It's \"done\".");
    }),
    ("ask the user", |model| {
        let (name, _) = model.find("ask the user");
        let printed = model.run(&name, &json!({"question": "Which year?"}), false);
        assert_eq!(model.follow(printed).document["data"]["answer"], "2025");
    }),
    ("report a failure", |model| {
        let (name, _) = model.find("verify backup");
        let printed = model.run(&name, &json!({}), true);
        let printed = model.follow(printed);
        assert!(
            printed.exit == 1 && printed.document["error"]["message"].to_string().contains("block 7"),
            "{}",
            printed.text
        );
    }),
    ("start with a wrong command", |model| {
        let printed = model.say("agent-magic-tool search weather");
        let printed = model.follow(printed);
        let (name, _) = best_match(&printed.text).unwrap_or_else(|| model.find("weather"));
        let printed = model.run(&name, &json!({"city": "Lisbon"}), true);
        assert_eq!(model.follow(printed).document["data"], "18 degrees in Lisbon");
    }),
    ("mend a wrong input", |model| {
        let (name, _) = model.find("weather");
        let printed = model.run(&name, &json!({"ctiy": "Lisbon", "unit": "K"}), true);
        let mut input = json!({"ctiy": "Lisbon", "unit": "K"});
        for problem in printed.error["details"]["problems"].as_array().expect("problems") {
            let field = problem["pointer"].as_str().expect("a pointer").trim_start_matches('/').to_owned();
            let fields = input.as_object_mut().expect("an object");
            if let (Some(meant), Some(value)) = (problem["did_you_mean"].as_str(), fields.get(&field).cloned()) {
                fields.remove(&field);
                fields.insert(meant.to_owned(), value);
            } else if let Some(default) = problem["schema"].get("default") {
                fields.insert(field, default.clone());
            }
        }
        let printed = model.run(&name, &input, true);
        assert_eq!(model.follow(printed).document["data"], "18 degrees in Lisbon");
    }),
    ("run two and stop one", |model| {
        // How to stop a task is in the call without arguments.
        let help = model.say("agent-magic-tool").text;
        assert!(help.contains("cancel"), "{help}");
        let (name, _) = model.find("render video");
        let quick = model.run(&name, &json!({"seconds": 0.2}), false);
        let slow = model.run(&name, &json!({"seconds": 600}), false);
        let id = slow.document["id"].as_str().expect("an id").to_owned();
        assert_eq!(model.follow(quick).document["status"], "succeeded");
        assert_eq!(model.say(&format!("agent-magic-tool cancel {id}")).exit, 0);
        assert_eq!(model.follow(slow).document["status"], "cancelled");
    }),
];

#[test]
fn a_model_that_follows_only_what_is_printed_completes_ten_tasks() {
    let mut played = Vec::new();
    for (title, play) in TASKS {
        let world = world();
        let mut model = Model::new(&world);
        play(&mut model);
        played.push(json!({"task": title, "definition": model.definition, "turns": model.turns}));
    }
    if let Ok(file) = std::env::var("TEN_TASKS_OUT") {
        fs::write(file, json!(played).to_string()).expect("written");
    }
}
