//! `verify`: checks from the record alone that a human approved a task with a touch of a key.
//!
//! It asks no executor and believes nothing but the public key: that the key signed this decision, and that the record of
//! the task is what the decision is bound to.

use agent_side::context::Context;
use agent_side::error::Error;
use agent_side::result;
use ground::base::webauthn::PublicKey;
use ground::task::confirmation::{DecidedBy, Verdict};
use ground::task::touch::{Unproved, proof_of};
use protocol::code::{Code, Exit};
use protocol::error::chain;
use protocol::mailbox::Mailbox;
use serde_json::json;
use store::StoreError;
use store::sqlite::records::RecordReader;

use super::approver;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The task: an id, or the path of a result file
    #[arg(value_name = "ID|FILE")]
    task: String,
    /// The public key to believe, as `approver list` prints it [default: the enrolled keys]
    #[arg(long, value_name = "PUBLIC_KEY")]
    key: Option<String>,
}

pub(crate) fn run(args: &Args, context: &Context) -> Result<Exit, Error> {
    let believed = believed_keys(args.key.as_deref(), context)?;
    let mailbox = Mailbox::open(&context.paths.mailbox)?;
    let id = result::task_of(&args.task, &mailbox)?;
    let records = RecordReader::open(&context.paths.store()).map_err(|error| unreadable(&error))?;
    let unknown = || {
        Error::new(Code::UnknownTask, format!("no task `{id}` in the record"))
            .hint("to list the tasks: agent-magic-tool tasks")
    };
    let task = records.task(id).map_err(|error| unreadable(&error))?.ok_or_else(unknown)?;
    let decision = task.confirmation.as_ref().and_then(|confirmation| confirmation.decision.as_ref());
    let grant = match decision.map(|decision| &decision.by) {
        Some(DecidedBy::Grant(grant)) => {
            let grants = records.grants().map_err(|error| unreadable(&error))?;
            grants.into_iter().find(|other| other.id == *grant)
        }
        _ => None,
    };
    let checked = proof_of(&task, grant.as_ref()).and_then(|proof| {
        let key = believed.iter().find(|(_, key)| *key == proof.public_key);
        key.map_or(Ok((proof, None)), |key| proof.check(&key.1).map(|()| (proof, Some(key))).map_err(Unproved::from))
    });
    let unbelieved = "it is signed by a key that is not believed; to believe another one: --key";
    let (verified, reason, proof, name) = match &checked {
        // The key signs what was approved, never a denial.
        Ok((proof, Some(_))) if decision.is_none_or(|decision| decision.verdict == Verdict::Denied) => {
            (false, Some("the record says that it was not approved".to_owned()), Some(*proof), None)
        }
        Ok((proof, Some((name, _)))) => (true, None, Some(*proof), name.as_deref()),
        Ok((proof, None)) => (false, Some(unbelieved.to_owned()), Some(*proof), None),
        Err(error) => (false, Some(error.to_string()), None, None),
    };
    let mut shown = json!({"id": id, "verified": verified, "tool": task.tool, "input": task.input});
    if let Some(reason) = reason {
        shown["reason"] = reason.into();
    }
    if let Some(proof) = proof {
        shown["decision"] = json!(proof.statement);
        shown["key"] = json!({"name": name, "algorithm": proof.public_key.algorithm(), "public_key": proof.public_key});
    }
    if let (Some(decision), true) = (decision, verified) {
        // No key signs the time.
        shown["recorded_at"] = json!(decision.at);
    }
    context.output.json(&shown)?;
    Ok(if verified { Exit::Ok } else { Exit::Failed })
}

/// A key and the name under which it is enrolled.
type BelievedKey = (Option<String>, PublicKey);

/// The key that was given, or the enrolled ones.
fn believed_keys(given: Option<&str>, context: &Context) -> Result<Vec<BelievedKey>, Error> {
    if let Some(key) = given {
        let parsed = serde_json::from_value(key.into());
        return parsed
            .map(|key| vec![(None, key)])
            .map_err(|error| Error::usage(format!("`--key` is not a public key: {error}")));
    }
    let keys = approver::read(&approver::key_file(context)?)?;
    Ok(keys.keys.into_iter().map(|key| (Some(key.name), key.public_key)).collect())
}

fn unreadable(error: &StoreError) -> Error {
    let hint = error.hint().unwrap_or_else(|| "check this installation: agent-magic-tool doctor".to_owned());
    Error::new(Code::Io, chain(error)).hint(hint)
}
