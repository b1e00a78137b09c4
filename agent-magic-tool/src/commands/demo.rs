//! `demo`: shows how it all works, on this machine and without any account.
//!
//! It runs this program with a temporary mailbox and home folder, which are removed afterwards. Two parts may be
//! stand-ins, and then the output says so: the language model always is one (`demo/model.rs`), the human is one
//! if there is no answer (`demo/approver.rs`). Everything else is real.

use agent_side::context::Context;
use agent_side::error::Error;
use protocol::code::Exit;
use protocol::wording::counted;
use serde_json::Value;

mod approver;
mod model;
mod stage;

use approver::Approver;
use model::ScriptedModel;
use stage::Stage;

/// The subtool that the demo adds. It declares no effects, so a run needs a human's confirmation.
const ADDED_SUBTOOL: &str = r#"{
  "publish_report": {
    "description": "Publishes a report: puts a text with a title on the team's board.",
    "input": {
      "type": "object",
      "properties": {"title": {"type": "string"}, "text": {"type": "string"}},
      "required": ["title", "text"]
    },
    "run": {"process": {"argv": ["tee", "board/{{ title }}.md"], "stdin": "{{ text }}\n", "folder": "."}}
  }
}
"#;

const QUESTION: &str = "Publish the news about the 年度报告 on our board.";

#[derive(Debug, clap::Args)]
pub(crate) struct Args {}

pub(crate) fn run(_: &Args, context: &Context) -> Result<Exit, Error> {
    let stage = Stage::prepare(context).map_err(|error| Error::io("failed to create the demo's folder", &error))?;
    let result = play(&stage);
    // The demo's executor stops even if a step failed.
    let stopped = stage.call(&["executor", "stop"]);
    result.and(stopped.map(|_| Exit::Ok))
}

fn play(stage: &Stage<'_>) -> Result<Exit, Error> {
    stage.comment("An agent has one tool, its shell. It looks for a subtool in its own words:")?;
    stage.shell(
        "agent-magic-tool list tools --query=\"search text in my notes\" --limit=1",
        &["list", "tools", "--query=search text in my notes", "--limit=1"],
    )?;

    stage.comment("It runs the subtool. That returns at once, with the path of a result file:")?;
    let receipt = stage.shell(
        "agent-magic-tool run files_search pattern=年度报告 path=notes",
        &["run", "files_search", "pattern=年度报告", "path=notes"],
    )?;
    stage.comment("The file already exists. An executor outside the agent works on the task:")?;
    stage.cat(text(&receipt, "result_file"))?;
    stage.comment("`wait` blocks until the same file is final:")?;
    let id = text(&receipt, "id");
    stage.shell(&format!("agent-magic-tool wait {id}"), &["wait", id])?;

    stage.comment(
        "A developer adds a subtool by adding a file. This one changes something, so a human must approve it:",
    )?;
    stage.add_subtool("publish.json", ADDED_SUBTOOL)?;

    stage.comment(
        "Now an agent does it all: the loop that comes with the program. Its model is scripted for this demo.",
    )?;
    let model = ScriptedModel::start().map_err(|error| Error::io("failed to start the scripted model", &error))?;
    stage.configure(&model.configuration())?;
    let line = format!("agent-magic-tool agent --if-no-approver=wait \"{QUESTION}\"");
    let mut agent = stage.start(&["agent", "--if-no-approver=wait", QUESTION], &line)?;
    let mut approver = Approver::new(stage);
    while let Some(line) = agent.next_line() {
        stage.print_line(&line)?;
        if approver.is_needed(&line) {
            stage.comment("The loop sleeps: no request, no tokens. A human decides on the page:")?;
            approver.decide()?;
            stage
                .comment("The result file is final, and that wakes the loop. The model reads the file and answers:")?;
        }
    }
    agent.finish()?;
    let requests = model.requests();
    stage.comment(&format!(
        "The model was asked {}, and not once while it waited for the human.",
        counted(requests, "time")
    ))?;
    stage.comment("That is all. Next: agent-magic-tool --help")?;
    Ok(Exit::Ok)
}

/// A text field of an answer. Empty if it is missing, which then shows in the demo's output.
fn text<'a>(answer: &'a Value, field: &str) -> &'a str {
    answer[field].as_str().unwrap_or_default()
}
