//! Dry runs first: a change that a caller must show before it makes it, and the dry runs that callers made.
//!
//! They are kept in memory, so a restart forgets them: then a change is shown once more. Decides nothing about whether a
//! human is asked.

use std::collections::{HashMap, VecDeque};

use catalog::Subtool;
use definition::Definition;
use definition::run::sql::Sql;
use ground::base::template::names::uses_in_template;
use ground::config::{Config, seal};
use ground::task::confirmation::Digest;
use ground::task::effect::EffectClass;
use jiff::{SignedDuration, Timestamp};
use protocol::caller::Caller;
use protocol::code::Code;
use protocol::command_names;
use protocol::error::ErrorBody;
use protocol::task::TaskId;
use runner::{Invocation, sql};
use serde_json::{Map, Value};

/// How long a dry run counts.
const VALIDITY: SignedDuration = SignedDuration::from_hours(1);
/// How many dry runs are remembered; the oldest are forgotten first.
const MAX_REMEMBERED: usize = 10_000;
/// How many tasks that try a change are known until they end.
const MAX_TRYING: usize = 1_000;
/// A longer input is not repeated in a hint.
const MAX_INPUT_CHARS: usize = 2_000;

/// One call of one caller: what a dry run shows, and what may be done after it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct DryRunKey(Digest);

impl DryRunKey {
    /// `input` is that of the caller, with the defaults of the schema, and not sealed: what is sealed differs each time.
    /// `None` if the call changes nothing, or what it changes cannot be shown.
    pub(super) fn of(subtool: &Subtool, input: &Map<String, Value>, caller: &Caller) -> Option<Self> {
        let definition = &*subtool.definition;
        if definition.annotations.effect_class() == EffectClass::Read || !definition.has_dry_run() {
            return None;
        }
        let mut input = input.clone();
        // Whether it is a dry run: as the caller of a change says, or switched off, which is no other call than without.
        for field in fields_that_decide(definition, &input) {
            if definition.run.change().is_some() || input.get(&field) == Some(&Value::Bool(false)) {
                input.remove(&field);
            }
        }
        let mut input = Value::Object(input);
        // What is written in another order is the same call.
        input.sort_all_objects();
        let owner = caller.owner();
        let parts = [
            &caller.uid.to_be_bytes()[..],
            &[u8::from(owner.is_some()), u8::from(caller.session.is_some())],
            owner.as_ref().or(caller.session.as_ref()).map(String::as_bytes).unwrap_or_default(),
            subtool.name.as_str().as_bytes(),
            subtool.hash.as_bytes(),
            // The same relative path in another folder is another file.
            caller.folder.as_ref().map(|folder| folder.as_os_str().as_encoded_bytes()).unwrap_or_default(),
            &serde_json::to_vec(&input).expect("JSON values serialize"),
        ];
        Some(Self(Digest::of(&parts)))
    }
}

/// The fields of an input that say whether it is a dry run.
fn fields_that_decide(definition: &Definition, input: &Map<String, Value>) -> Vec<String> {
    match definition.run.change() {
        Some(sql) => input.keys().filter(|field| decides(sql, field)).cloned().collect(),
        None => definition.dry_run_fields().into_iter().flat_map(Map::keys).cloned().collect(),
    }
}

/// Whether `dry_run` of a change is filled in from this field.
fn decides(sql: &Sql, field: &str) -> bool {
    let template = sql.dry_run.as_ref().and_then(Value::as_str).unwrap_or_default();
    uses_in_template(template, field)
}

/// Whether this call of a change of a database only tries it.
fn is_try(definition: &Definition, input: &Map<String, Value>, caller: &Caller) -> bool {
    let (input, caller) = (input.clone(), caller.clone());
    let invocation = Invocation { input, caller, ..Invocation::default() };
    definition.run.change().is_some_and(|change| sql::is_dry_run(change, &invocation).unwrap_or_default())
}

/// What a call is to dry runs.
#[derive(Debug, Clone)]
pub enum DryRunUse {
    /// It has nothing to do with them.
    None,
    /// It only tries a change, so it is a dry run itself.
    Is(DryRunKey),
    /// It may only be made after one; the refusal before that.
    Needs(DryRunKey, Box<ErrorBody>),
}

impl DryRunUse {
    /// What a call is that is not made with `--dry-run`. `input` is sealed.
    pub(super) fn of(
        key: Option<DryRunKey>,
        subtool: &Subtool,
        input: &Map<String, Value>,
        caller: &Caller,
        config: &Config,
    ) -> Self {
        let Some(key) = key else { return Self::None };
        if is_try(&subtool.definition, input, caller) {
            return Self::Is(key);
        }
        match config.demands_dry_run(&caller.tool_scope) {
            Some(setting) => Self::Needs(key, Box::new(not_shown_yet(subtool, input, &setting))),
            None => Self::None,
        }
    }
}

/// The refusal of a call that was not shown.
fn not_shown_yet(subtool: &Subtool, input: &Map<String, Value>, setting: &str) -> ErrorBody {
    let name = subtool.name.as_str();
    let fields = fields_that_decide(&subtool.definition, input);
    // A change of a database may have an input of its own for that.
    let own = fields.first().filter(|_| subtool.definition.run.change().is_some());
    let mut tried = input.clone();
    tried.extend(own.map(|field| (field.clone(), true.into())));
    let text = Value::Object(tried).to_string();
    let is_whole = text.chars().count() <= MAX_INPUT_CHARS && !input.values().any(seal::has_token);
    let how = match (is_whole, own) {
        (true, own) => {
            let option = if own.is_some() { "--wait" } else { "--dry-run" };
            let words = ["run", name, &format!("--input={text}"), option].map(str::to_owned);
            command_names::line(&words)
        }
        (false, Some(field)) => format!("the same command with {field}:=true"),
        (false, None) => "the same command with --dry-run".to_owned(),
    };
    ErrorBody::new(Code::DryRunFirst, format!("what `{name}` would change must be shown first, as `{setting}` demands"))
        .hint(format!("make the dry run: {how}; if that is what is wanted, run it again as it is, within an hour"))
}

/// Refuses a run that sets the fields with which the service changes nothing: it would be told as done.
pub(super) fn check_is_no_dry_run(subtool: &Subtool, input: &Map<String, Value>) -> Result<(), ErrorBody> {
    let fields = subtool.definition.dry_run_fields();
    let set = |(field, value): &(&String, &Value)| input.get(*field) == Some(*value);
    let Some((field, value)) = fields.and_then(|fields| fields.iter().find(set)) else { return Ok(()) };
    let name = &subtool.name;
    Err(ErrorBody::new(Code::InvalidInput, format!("with `{field}` set to {value}, `{name}` would change nothing, and be told as done"))
        .hint(format!("to see what it would change: the same command with --dry-run instead of `{field}`; to change it: without `{field}`")))
}

/// The dry runs that callers made.
#[derive(Debug, Default)]
pub(super) struct DryRuns {
    made: HashMap<DryRunKey, Timestamp>,
    /// The oldest first; one that was made again is in it twice.
    order: VecDeque<(Timestamp, DryRunKey)>,
    /// The last tasks that only try a change.
    trying: VecDeque<(TaskId, DryRunKey)>,
}

impl DryRuns {
    /// Notes that what a call would change was shown to its caller.
    pub(super) fn note(&mut self, key: DryRunKey, now: Timestamp) {
        self.made.insert(key, now);
        self.order.push_back((now, key));
        let is_over = |(at, _): &(Timestamp, DryRunKey)| now.duration_since(*at) > VALIDITY;
        while self.order.len() > MAX_REMEMBERED || self.order.front().is_some_and(is_over) {
            let Some((at, oldest)) = self.order.pop_front() else { break };
            if self.made.get(&oldest) == Some(&at) {
                self.made.remove(&oldest);
            }
        }
    }

    /// Whether it was shown within the last hour.
    pub(super) fn has(&self, key: DryRunKey, now: Timestamp) -> bool {
        self.made.get(&key).is_some_and(|at| now.duration_since(*at) <= VALIDITY)
    }

    /// Notes that a task was accepted that only tries a change.
    pub(super) fn on_try(&mut self, id: TaskId, key: DryRunKey) {
        self.trying.push_back((id, key));
        if self.trying.len() > MAX_TRYING {
            self.trying.pop_front();
        }
    }

    /// Notes that a task succeeded.
    pub(super) fn on_success(&mut self, id: TaskId, now: Timestamp) {
        if let Some(at) = self.trying.iter().position(|(trying, _)| *trying == id)
            && let Some((_, key)) = self.trying.remove(at)
        {
            self.note(key, now);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(number: u32) -> DryRunKey {
        DryRunKey(Digest::of(&[&number.to_be_bytes()]))
    }

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(1_700_000_000 + second).expect("a time")
    }

    #[test]
    fn a_dry_run_counts_for_an_hour_from_when_it_was_made_last() {
        let mut made = DryRuns::default();
        assert!(!made.has(key(1), at(0)));
        made.note(key(1), at(0));
        made.note(key(1), at(1_800));
        made.note(key(2), at(3_700));
        assert!(made.has(key(1), at(5_400)) && !made.has(key(1), at(5_401)) && made.has(key(2), at(5_401)));
        assert!(!made.has(key(3), at(0)));
        made.note(key(3), at(9_000));
        assert_eq!((made.made.len(), made.order.len()), (1, 1), "what is over is forgotten");
    }

    #[test]
    fn only_so_many_are_remembered() {
        let mut made = DryRuns::default();
        let most = u32::try_from(MAX_REMEMBERED).expect("a small number");
        (0..=most).for_each(|number| made.note(key(number), at(0)));
        assert!(!made.has(key(0), at(0)) && made.has(key(1), at(0)) && made.has(key(most), at(0)));
        assert_eq!(made.made.len(), MAX_REMEMBERED);
    }

    #[test]
    fn a_try_counts_once_it_succeeded() {
        let mut made = DryRuns::default();
        let (one, other) = (TaskId::new(), TaskId::new());
        made.on_try(one, key(1));
        made.on_try(other, key(2));
        made.on_success(one, at(0));
        assert!(made.has(key(1), at(0)) && !made.has(key(2), at(0)));
        made.on_success(TaskId::new(), at(0));
        assert!(!made.has(key(2), at(0)));
    }
}
