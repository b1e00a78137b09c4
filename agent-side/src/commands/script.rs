//! `script`: runs a program that calls subtools, as one task; `script save` makes a subtool of it.
//!
//! Both delegate subtools, to which the program is an input, so everything else is as with `run`.

use std::time::Duration;

use protocol::code::Exit;
use protocol::handover::Reply;
use protocol::mailbox::Mailbox;
use protocol::mailbox::request::{Answer, Operation, RunRequest};
use serde_json::Value;

use super::run::{Options, read_input, read_program};
use crate::context::Context;
use crate::error::Error;
use crate::result::task_of;
use crate::result_data::ResultData;
use crate::waiting::{self, WaitMode};
use crate::{answer, handover};

/// The subtool that runs programs of callers.
const SUBTOOL: &str = "run_script";
/// The subtools that make one of what a script was.
const DRAFT: &str = "draft_script";
const SAVE: &str = "save_script";
/// How long the test of a draft may take.
const MAX_TEST: Duration = Duration::from_mins(1);

/// What a program is, in the words of `help script`. No line is longer than those that clap leaves as they are.
const HOW_TO: &str = "\
A script is JavaScript, the body of an async function: one task, whose result is what it returns.
Each tool is an async function of one object (- in its name is _). It returns the data or throws.

  agent-magic-tool script --wait <<'EOF'
  const all = [];
  for (let page = 1; ; page++) {
    const {books} = await library_find_books({status: \"lent\", page});
    if (!books.length) break;
    all.push(...books);
  }
  const late = all.filter(book => Number(book.days) > 30);
  const sent = await Promise.allSettled(late.map(book => library_remind({id: book.id})));
  return {lent: all.length, late: late.length, failed: sent.filter(s => s.reason).length};
  EOF

Without `return` there is no result. Unsure of a tool's fields? Return one result first.
catch (e): e.code, e.message, e.details.http_status; e instanceof Denied (the user or a rule
said no), OutcomeUnknown (it may have happened: never repeat it).
Also tools[name]({}), ask_user({question}), list_tools(\"words\"), read(id), sleep(ms): all with
await; console.log (notes), input (from --input). No files, fetch or modules; UTC and en-US.
What a tool takes: agent-magic-tool list tools NAME --format=typescript
What needs the user's yes waits for it. After a crash it goes on; nothing is called twice.";

/// A model reads it all before its first script, and knows `run`.
const HELP: &str = "{before-help}{usage-heading} {usage}

FILE: the program, if it is not on standard input. --input JSON|@FILE: what it knows as `input`.
--wait[=60s], --jq and the other options: as with `run`. To keep one that succeeded as a subtool:
agent-magic-tool script save NAME ID --description TEXT
";

/// Without that of `save`, which few need.
const USAGE: &str = "agent-magic-tool script [OPTIONS] [FILE]";

#[derive(Debug, clap::Args)]
#[command(before_help = HOW_TO, help_template = HELP, override_usage = USAGE, args_conflicts_with_subcommands = true)]
pub struct Args {
    #[command(subcommand)]
    command: Option<ScriptCommand>,
    /// The file with the program; `-`, or none, for standard input
    #[arg(value_name = "FILE", default_value = "-", hide_default_value = true)]
    file: String,
    /// What the program knows as `input`: a JSON object, or `@FILE` to read it from a file
    #[arg(long, short, value_name = "JSON|@FILE")]
    input: Option<String>,
    #[command(flatten)]
    options: Options,
}

#[derive(Debug, clap::Subcommand)]
enum ScriptCommand {
    /// Save a script that succeeded as a subtool, after a test and the user's yes
    ///
    /// Each `const NAME = VALUE;` at the top of the program becomes an input, which is VALUE if it is left out. In the test
    /// the program gets the results that its calls had, and must call and return the same; nothing is called.
    Save(Box<SaveArgs>),
}

#[derive(Debug, clap::Args)]
struct SaveArgs {
    /// The name of the new subtool, like `late_orders`
    name: String,
    /// The id of the script, which has succeeded
    task: String,
    /// What it does: it is found by these words
    #[arg(long, value_name = "TEXT")]
    description: String,
    /// A constant that becomes an input; more than once for several [all at the top if none is given]
    #[arg(long = "input", value_name = "CONSTANT", conflicts_with = "no_inputs")]
    inputs: Vec<String>,
    /// No constant becomes an input
    #[arg(long)]
    no_inputs: bool,
    /// Other words that users would say for it; more than once for several
    #[arg(long = "phrase", value_name = "TEXT")]
    phrases: Vec<String>,
    #[command(flatten)]
    options: Options,
}

pub fn run(args: Args, context: &Context) -> Result<Exit, Error> {
    if let Some(ScriptCommand::Save(args)) = args.command {
        return save(*args, context);
    }
    args.options.check()?;
    let input = args.input.map(|input| read_input(&input, SUBTOOL, context)).transpose()?;
    let mut request = RunRequest { tool: SUBTOOL.to_owned(), ..RunRequest::default() };
    request.input.insert("source".to_owned(), read_program(&args.file, context)?.into());
    if let Some(input) = input {
        request.input.insert("arguments".to_owned(), Value::Object(input));
    }
    args.options.delegate(request, context)
}

/// Has a subtool drafted and tested, and then saved.
fn save(args: SaveArgs, context: &Context) -> Result<Exit, Error> {
    let SaveArgs { name, task, description, inputs, no_inputs, phrases, options } = args;
    options.check()?;
    let mailbox = Mailbox::open(&context.paths.mailbox)?;
    let task = task_of(&task, &mailbox)?.to_string();
    let mut request = RunRequest { tool: DRAFT.to_owned(), ..RunRequest::default() };
    request.input.insert("script".to_owned(), task.clone().into());
    if no_inputs || !inputs.is_empty() {
        request.input.insert("inputs".to_owned(), inputs.into());
    }
    let id = match handover::ask(context, &mailbox, Operation::run(request))? {
        Reply::Accepted(id) | Reply::Answer(Answer::SameAs(id)) => id,
        Reply::Answer(Answer::Refused(error)) => return Err(error.into()),
        Reply::Answer(_) => return Err(Error::unexpected_answer("run")),
    };
    let files = waiting::wait_for(&[id], WaitMode::All, Some(MAX_TEST), &mailbox, context)?;
    let [file] = files.as_slice() else { return Err(Error::internal("a task has one result file")) };
    if file.field("success") != true {
        return answer::print(&files, None, &mailbox, context);
    }
    let drafted: Value = serde_json::from_slice(&ResultData::of(file, &mailbox)?.whole()?)
        .map_err(|error| Error::internal(format!("the draft is no JSON: {error}")))?;
    let mut request = RunRequest { tool: SAVE.to_owned(), data_class: file.data_class(), ..RunRequest::default() };
    for (key, value) in [("name", name), ("description", description), ("script", task)] {
        request.input.insert(key.to_owned(), value.into());
    }
    for key in ["source", "calls", "schema", "example"] {
        request.input.insert(key.to_owned(), drafted[key].clone());
    }
    if !phrases.is_empty() {
        request.input.insert("phrases".to_owned(), phrases.into());
    }
    options.delegate(request, context)
}
