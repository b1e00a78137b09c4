//! The desk: from a request to a task, or to a refusal that repairs the caller.
//!
//! Knows the catalog and keeps it fresh; what becomes of an admitted task is the dispatcher's.

use std::sync::Arc;

use jiff::Timestamp;
use serde_json::{Value, json};

use crate::catalog::{Catalog, Sources, Stamp, Subtool};
use crate::code::Code;
use crate::config::Config;
use crate::json;
use crate::mailbox::Taken;
use crate::mailbox::request::{Answer, Ask, Request, Run, VERSION};
use crate::policy::{self, Decision};
use crate::runner::Order;
use crate::subtool::Definition;
use crate::task::{Caller, ErrorBody, State, Task, TaskId};

#[derive(Debug)]
pub struct Desk {
    config: Config,
    sources: Sources,
    stamp: Stamp,
    catalog: Catalog,
}

/// What a request turned out to be.
#[derive(Debug)]
pub enum Wish {
    Run { task: Box<Task>, definition: Arc<Definition> },
    Cancel { task: TaskId, uid: u32 },
    Status,
    Answered(Answer),
}

impl Desk {
    pub fn new(config: Config, sources: Sources) -> Self {
        let stamp = sources.stamp();
        let catalog = Catalog::load(&sources);
        Self { config, sources, stamp, catalog }
    }

    /// Loads the catalog anew if any of its files changed.
    pub fn refresh(&mut self) {
        let stamp = self.sources.stamp();
        if stamp != self.stamp {
            self.catalog = Catalog::load(&self.sources);
            self.stamp = stamp;
        }
    }

    /// The definition that `task` was accepted under, if it is still the same.
    pub fn definition_of(&self, task: &Task) -> Option<Arc<Definition>> {
        let subtool = self.catalog.get(task.tool.as_str())?;
        (subtool.hash == task.definition_hash).then(|| Arc::clone(&subtool.definition))
    }

    pub fn read(&self, taken: &Taken, now: Timestamp) -> Wish {
        let request = match &taken.bytes {
            Ok(bytes) => parse(bytes),
            Err(error) if error.kind() == std::io::ErrorKind::FileTooLarge => {
                let error = ErrorBody::new(Code::RequestTooLarge, format!("the request is too large: {error}"))
                    .hint("put large data into a file and pass its path");
                Err(error)
            }
            Err(error) => Err(ErrorBody::new(Code::BadRequest, format!("the request cannot be read: {error}"))),
        };
        let request = match request {
            Ok(request) => request,
            Err(error) => return Wish::Answered(Answer::Refused(error)),
        };
        let caller = Caller { uid: taken.uid, session: request.session, folder: request.folder };
        match request.ask {
            Ask::Run(run) => self.run(taken.id, caller, run, now),
            Ask::Cancel { id } => Wish::Cancel { task: id, uid: taken.uid },
            Ask::Status => Wish::Status,
        }
    }

    fn run(&self, id: TaskId, caller: Caller, run: Run, now: Timestamp) -> Wish {
        let refused = |error| Wish::Answered(Answer::Refused(error));
        let Some(subtool) = self.catalog.get(&run.tool) else { return refused(self.unknown(&run.tool)) };
        let mut input = run.input;
        for (field, word) in &run.words {
            let value = word.as_str().map_or_else(|| word.clone(), |text| subtool.schema.read_word(field, text));
            input.insert(field.clone(), value);
        }
        subtool.schema.fill_defaults(&mut input);
        let problems = subtool.schema.problems(&Value::Object(input.clone()));
        if !problems.is_empty() {
            return refused(invalid(subtool, &problems));
        }
        let decision = policy::decide(&subtool.definition, &input, &caller, &self.config);
        if run.dry_run {
            let order = Order { id: id.to_string(), attempt: 1, input, caller_folder: caller.folder };
            return match subtool.definition.run.plan(&order, &self.config) {
                Ok(plan) => Wish::Answered(Answer::Plan(json!({
                    "tool": run.tool,
                    "input": order.input,
                    "dry_run": true,
                    "confirmation": match decision { Decision::Run => Value::Null, Decision::Ask(why) => why.into() },
                    "would_send": {subtool.definition.run.name(): plan},
                }))),
                Err(failure) => refused(crate::perform::error_body(failure)),
            };
        }
        if let Decision::Ask(why) = decision {
            let error = ErrorBody::new(Code::NeedsConfirmation, format!("`{}` needs a human's yes: {why}", run.tool))
                .hint("a human can allow it: `confirm = \"never\"` in its definition, or `writes = \"allow\"` under [confirm] in config.toml");
            return refused(error);
        }
        let task = Task {
            id,
            tool: subtool.name.clone(),
            input,
            definition_hash: subtool.hash.clone(),
            effect: subtool.definition.annotations.effect_class(),
            caller,
            idempotency_key: run.idempotency_key,
            created_at: now,
            state: State::Accepted,
            attempt: 0,
            not_before: None,
            end: None,
        };
        Wish::Run { task: Box::new(task), definition: Arc::clone(&subtool.definition) }
    }

    fn unknown(&self, name: &str) -> ErrorBody {
        let nearest = self.catalog.nearest(name);
        let hint = match nearest.first() {
            Some(first) => format!("did you mean `{first}`? or search: agent-magic-tool list tools --query=\"...\""),
            None => "search by what it should do: agent-magic-tool list tools --query=\"...\"".to_owned(),
        };
        ErrorBody::new(Code::UnknownSubtool, format!("no subtool named `{name}`")).hint(hint).detail("nearest", nearest)
    }
}

fn parse(bytes: &[u8]) -> Result<Request, ErrorBody> {
    let bad = |reason: String| ErrorBody::new(Code::BadRequest, format!("the request cannot be understood: {reason}"));
    let value = json::parse(bytes).map_err(|error| bad(error.to_string()))?;
    if value["v"] != VERSION {
        return Err(bad(format!("it is of version {}, and this executor knows {VERSION}", value["v"]))
            .hint("the command and the executor differ: agent-magic-tool executor stop"));
    }
    serde_json::from_value(value).map_err(|error| bad(error.to_string()))
}

fn invalid(subtool: &Subtool, problems: &[crate::schema::Problem]) -> ErrorBody {
    let first = &problems[0];
    let place = if first.pointer.is_empty() { "the input".to_owned() } else { format!("`{}`", first.pointer) };
    let more = match problems.len() {
        1 => String::new(),
        count => format!(" (and {} more)", count - 1),
    };
    let message = format!("the input of `{}` is wrong at {place}: {}{more}", subtool.name, first.problem);
    ErrorBody::new(Code::InvalidInput, message)
        .hint(format!("mend the fields below; the whole schema: agent-magic-tool inspect {}", subtool.name))
        .detail("problems", serde_json::to_value(problems).expect("problems are plain JSON"))
}
