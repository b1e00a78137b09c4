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

/// What a program is, in the words of `help script`.
const HOW_TO: &str = "\
A script is JavaScript, the body of an async function. It is one task: only what it returns is its result.
Every tool is an async function of one object; - in its name is _. It returns the data and throws on failure.

  agent-magic-tool script --wait <<'EOF'
  const all = [];
  for (let page = 1; ; page++) {
    const {orders} = await shop_search_orders({status: \"open\", page});
    if (!orders.length) break;
    all.push(...orders);
  }
  const late = all.filter(o => o.days > 30);
  await Promise.all(late.map(o => shop_remind({id: o.id})));
  return {open: all.length, reminded: late.map(o => o.id)};
  EOF

catch (e): e.code, e.message, e.hint; e instanceof Denied (the user or a rule said no), OutcomeUnknown (it may have
happened: never repeat it). Also: await ask_user({question}), await list_tools(\"words\"), await read({id}), await sleep(ms),
console.log (short notes), input (from --input). No files, no fetch, no require.
What a tool takes: agent-magic-tool list tools NAME --format=typescript. A tool that needs the user's yes waits for it in
the script. Interrupted scripts go on where they were; nothing is called twice.";

#[derive(Debug, clap::Args)]
#[command(before_help = HOW_TO)]
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
        request.input.insert("input".to_owned(), Value::Object(input));
    }
    args.options.delegate(request, context)
}
