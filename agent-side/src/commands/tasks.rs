//! `tasks`: lists open and ended tasks, reading only the result files.

use protocol::code::Exit;
use protocol::handover::Reply;
use protocol::mailbox::Mailbox;
use protocol::mailbox::request::{Answer, Operation};
use protocol::task::{State, TaskId};
use protocol::wording::inflected;
use serde_json::{Map, Value, json};

use crate::answer;
use crate::context::Context;
use crate::error::Error;
use crate::handover;
use crate::launch;
use crate::option_value::count;
use crate::result::ResultFile;

const LIMIT: usize = 20;
/// A list of tasks shows texts of inputs up to this length.
const MAX_LISTED_CHARS: usize = 120;
/// And errors, of which a URL may be a part.
const MAX_ERROR_CHARS: usize = 400;

#[derive(Debug, clap::Args)]
pub struct Args {
    /// Only tasks in this state, like `running` or `failed`; `pending` means all that have not ended, `scheduled` those with a start time
    #[arg(long, value_name = "STATE")]
    state: Option<StateFilter>,
    /// List at most this many
    #[arg(long, value_name = "N", default_value_t = LIMIT, value_parser = count)]
    limit: usize,
    /// Delete the ended tasks of a session and their results: the named session, or the caller's own
    #[arg(long, value_name = "SESSION", num_args = 0..=1, default_missing_value = "", conflicts_with_all = ["state", "limit"])]
    forget_session: Option<String>,
}

impl Args {
    /// Whether it deletes results, which only humans may do.
    pub fn forgets(&self) -> bool {
        self.forget_session.is_some()
    }
}

#[derive(Debug, Clone, Copy)]
enum StateFilter {
    Pending,
    /// Those that have a start time and have not started.
    Scheduled,
    State(State),
}

impl std::str::FromStr for StateFilter {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        // `open` is what people call it.
        if ["pending", "open"].contains(&text) {
            return Ok(Self::Pending);
        }
        if text == "scheduled" {
            return Ok(Self::Scheduled);
        }
        text.parse().map(Self::State).map_err(|_: String| {
            let states = State::ALL.map(State::as_str).join(", ");
            format!("`{text}` is not a state; the states are pending (all that have not ended), scheduled, {states}")
        })
    }
}

pub fn run(args: &Args, context: &Context) -> Result<Exit, Error> {
    if let Some(name) = &args.forget_session {
        let session = Some(name).filter(|name| !name.is_empty()).or(context.caller.session.as_ref());
        let session = session.cloned().ok_or_else(|| {
            Error::usage("the caller has no session").hint("name it: agent-magic-tool tasks --forget-session NAME")
        })?;
        let (forgotten, open) = forget(session.clone(), context)?;
        context.output.json(&json!({"session": session, "forgotten": forgotten, "open": open}))?;
        return Ok(Exit::Ok);
    }
    let mailbox = Mailbox::open(&context.paths.mailbox)?;
    launch::revive(context, &mailbox);
    let ids = mailbox.tasks_with_results().map_err(|error| Error::io("failed to list the results", &error))?;
    let mut shown = Vec::new();
    let (mut more, mut calls) = (0, 0_u32);
    // Ids sort by time.
    for id in ids.into_iter().rev() {
        // Skips a file that was deleted meanwhile, is not trusted or belongs to another caller.
        let Ok(file) = ResultFile::read(&mailbox, id, &context.caller) else { continue };
        let matches = match args.state {
            // The script tells of its calls.
            None if file.is_final() && !file.field("part_of")["call"].is_null() => {
                calls += 1;
                false
            }
            None => true,
            Some(StateFilter::Pending) => !file.is_final(),
            Some(StateFilter::Scheduled) => !file.is_final() && !file.field("run_at").is_null(),
            Some(StateFilter::State(state)) => file.state == state,
        };
        match matches {
            true if shown.len() < args.limit => shown.push(line(&file)),
            true => more += 1,
            false => {}
        }
    }
    context.output.json_or(&shown, "list fewer: agent-magic-tool tasks --limit 10")?;
    if more > 0 {
        context.output.note(&format!("{more} older tasks left out by --limit"));
    }
    if calls > 0 {
        context.output.note(&format!(
            "{} left out; to see them: agent-magic-tool tasks --state=succeeded, or --state=failed",
            inflected(calls, "ended call of a script", "ended calls of scripts")
        ));
    }
    Ok(Exit::Ok)
}

/// Deletes the ended tasks of a session; returns how many those were, and the ids of the tasks still open.
pub fn forget(session: String, context: &Context) -> Result<(usize, Vec<TaskId>), Error> {
    let mailbox = Mailbox::open(&context.paths.mailbox)?;
    match handover::ask(context, &mailbox, Operation::Forget { session })? {
        Reply::Answer(Answer::Forgotten { forgotten, open }) => Ok((forgotten, open)),
        Reply::Answer(Answer::Refused(error)) => Err(error.into()),
        Reply::Accepted(_) | Reply::Answer(_) => Err(Error::unexpected_answer("forget")),
    }
}

/// A task as it is listed: what distinguishes it, and what to do about it.
fn line(file: &ResultFile) -> Value {
    let mut line = Map::new();
    line.insert("id".to_owned(), file.id.to_string().into());
    let mut insert = |key: &str, value: &Value| {
        if !value.is_null() {
            line.insert(key.to_owned(), value.clone());
        }
    };
    insert("tool", file.field("tool"));
    insert("part_of", file.field("part_of"));
    insert("input", &answer::echoed(file.field("input"), MAX_LISTED_CHARS));
    for key in ["status", "state", "run_at"] {
        insert(key, file.field(key));
    }
    // To the second; a caller compares it with what it remembers.
    let created = file.field("created_at").as_str().and_then(|at| at.get(..19)).map(|at| format!("{at}Z"));
    insert("created_at", &created.into());
    if !file.is_final() {
        for key in ["why", "expires_at"] {
            insert(key, &file.field("confirmation")[key]);
        }
    }
    let error = file.field("error");
    if !error.is_null() {
        // Without its hint and details: which one to look at.
        let said = json!({"code": error["code"], "message": error["message"]});
        insert("error", &answer::echoed(&said, MAX_ERROR_CHARS));
    }
    insert("resolution", &file.field("_meta")["resolution"]);
    Value::Object(line)
}
