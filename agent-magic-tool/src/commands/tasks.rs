//! `tasks`: what is under way and what has ended, from the result files alone.

use executor::code::Exit;
use executor::mailbox::Mailbox;
use executor::task::State;
use serde_json::{Map, Value};

use crate::context::Context;
use crate::error::Error;
use crate::launch;
use crate::result::{self, ResultFile};

const LIMIT: usize = 50;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Only these: a state like `running` or `failed`, or `pending` for all that have not ended
    #[arg(long, value_name = "STATE")]
    state: Option<Wanted>,
    /// How many at most, newest first
    #[arg(long, value_name = "N", default_value_t = LIMIT)]
    limit: usize,
}

#[derive(Debug, Clone, Copy)]
enum Wanted {
    Pending,
    State(State),
}

impl std::str::FromStr for Wanted {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "pending" { Ok(Self::Pending) } else { text.parse().map(Self::State) }
    }
}

pub(crate) fn run(args: &Args, context: &Context) -> Result<Exit, Error> {
    let mailbox = Mailbox::open(&context.places.mailbox)?;
    launch::revive(&context.places, &mailbox);
    let ids = mailbox.results_of().map_err(|error| Error::io("the results cannot be listed", &error))?;
    let mut shown = Vec::new();
    let mut more = 0;
    // Ids sort by time.
    for id in ids.into_iter().rev() {
        // One that was swept just now, or that is not ours to trust, is no task.
        let Ok(file) = ResultFile::read(&mailbox, id) else { continue };
        let is_wanted = match args.state {
            None => true,
            Some(Wanted::Pending) => !file.is_final(),
            Some(Wanted::State(state)) => file.state == state,
        };
        match is_wanted {
            true if shown.len() < args.limit => shown.push(line(&file, &mailbox)),
            true => more += 1,
            false => {}
        }
    }
    context.output.json(&shown)?;
    if more > 0 {
        context.output.note(&format!("{more} older ones left out by --limit"));
    }
    Ok(Exit::Ok)
}

fn line(file: &ResultFile, mailbox: &Mailbox) -> Value {
    let mut line = Map::new();
    line.insert("id".to_owned(), file.id.to_string().into());
    for key in ["tool", "input", "status", "state", "run_at", "created_at", "finished_at"] {
        let value = file.field(key);
        if !value.is_null() {
            line.insert(key.to_owned(), value.clone());
        }
    }
    let asked = file.field("confirmation");
    if !file.is_final() {
        for key in ["why", "expires_at"] {
            if let Some(value) = asked.get(key) {
                line.insert(key.to_owned(), value.clone());
            }
        }
    }
    let settled = &file.field("_meta")["settled"];
    if !settled.is_null() {
        line.insert("settled".to_owned(), settled.clone());
    }
    line.insert("result_file".to_owned(), result::path_text(&mailbox.result_file(file.id)));
    Value::Object(line)
}
