//! `script`: runs a program that calls subtools, as one task.
//!
//! It delegates a subtool whose input is the program, so everything else is as with `run`.

use protocol::code::Exit;
use protocol::mailbox::request::RunRequest;
use serde_json::Value;

use super::run::{Options, read_input, read_program};
use crate::context::Context;
use crate::error::Error;

/// The subtool that runs programs of callers.
const SUBTOOL: &str = "run_script";

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
--wait[=60s], --jq and the other options: as with `run`.
";

#[derive(Debug, clap::Args)]
#[command(before_help = HOW_TO, help_template = HELP)]
pub struct Args {
    /// The file with the program; `-`, or none, for standard input
    #[arg(value_name = "FILE", default_value = "-", hide_default_value = true)]
    file: String,
    /// What the program knows as `input`: a JSON object, or `@FILE` to read it from a file
    #[arg(long, short, value_name = "JSON|@FILE")]
    input: Option<String>,
    #[command(flatten)]
    options: Options,
}

pub fn run(args: Args, context: &Context) -> Result<Exit, Error> {
    args.options.check()?;
    let input = args.input.map(|input| read_input(&input, SUBTOOL, context)).transpose()?;
    let mut request = RunRequest { tool: SUBTOOL.to_owned(), ..RunRequest::default() };
    request.input.insert("source".to_owned(), read_program(&args.file, context)?.into());
    if let Some(input) = input {
        request.input.insert("arguments".to_owned(), Value::Object(input));
    }
    args.options.delegate(request, context)
}
