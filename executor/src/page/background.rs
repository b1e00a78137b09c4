//! The background of a waiting task: its risk marks, and what its session did before.
//!
//! All of it is read from the record when the card is shown; no decision is bound to it.

use std::collections::HashMap;
use std::rc::Rc;

use ground::config::seal;
use ground::task::Task;
use jiff::tz::TimeZone;
use protocol::excerpt;
use serde::Serialize;
use serde_json::Value;
use store::StoreError;

use super::Page;
use super::marks::{ApprovedBefore, RiskMark, marks, of_definition};
use super::visible::{VisibleLine, line};
use super::wording::state_words;
use crate::intake::policy::PolicyCase;

/// How many approvals of a subtool are looked at.
const MAX_APPROVALS: u32 = 200;
/// How many earlier calls of the session are shown.
const MAX_EARLIER: u32 = 5;
/// The most characters of an earlier call's input.
const MAX_SUMMARY_CHARS: usize = 80;

/// What a card shows beside the request itself.
#[derive(Debug, Default, Serialize)]
pub(super) struct CardBackground {
    marks: Vec<RiskMark>,
    earlier: Vec<EarlierCall>,
}

/// A call that the same session made before.
#[derive(Debug, Serialize)]
struct EarlierCall {
    id: String,
    tool: String,
    state_words: &'static str,
    summary: VisibleLine,
}

/// Reads the backgrounds of the cards of one view; cards of one subtool share its approvals.
pub(super) struct BackgroundReader<'a> {
    page: &'a Page,
    approved: HashMap<String, Rc<ApprovedRuns>>,
}

/// What was approved of one subtool.
struct ApprovedRuns {
    inputs: ApprovedBefore,
    /// The hash of the definition that was approved last.
    definition: Option<String>,
}

impl<'a> BackgroundReader<'a> {
    pub(super) fn new(page: &'a Page) -> Self {
        Self { page, approved: HashMap::new() }
    }

    pub(super) fn of(&mut self, task: &Task) -> Result<CardBackground, StoreError> {
        let catalog = self.page.catalog();
        let Some(subtool) = catalog.get(task.tool.as_str()) else { return Ok(CardBackground::default()) };
        let (name, definition) = (&subtool.name, &*subtool.definition);
        let input = seal::shown(&task.input);
        let assurance = self.page.context.approver.assurance();
        let case = PolicyCase { name, definition, input: &input, caller: &task.caller, assurance };
        let asked_at = task.created_at.to_zoned(TimeZone::system());
        let own = self.page.context.settings.current().policy.marks(case, &asked_at);
        let earlier = self.page.read(|records| records.earlier_in_session(task, MAX_EARLIER))?;
        let approved = self.approved(task.tool.as_str())?;
        let is_other = approved.definition.as_ref().is_some_and(|known| *known != subtool.hash);
        let marks = marks(&input, &approved.inputs, own);
        let programs = &self.page.runner_context().config.programs;
        Ok(CardBackground {
            marks: of_definition(definition, is_other, programs).into_iter().chain(marks).collect(),
            earlier: earlier.iter().map(EarlierCall::of).collect(),
        })
    }

    fn approved(&mut self, tool: &str) -> Result<Rc<ApprovedRuns>, StoreError> {
        if let Some(known) = self.approved.get(tool) {
            return Ok(Rc::clone(known));
        }
        let tasks = self.page.read(|records| records.approved(tool, MAX_APPROVALS))?;
        let inputs: Vec<_> = tasks.iter().map(|task| seal::shown(&task.input)).collect();
        let definition = tasks.first().map(|task| task.definition_hash.clone());
        let known = Rc::new(ApprovedRuns { inputs: ApprovedBefore::of(&inputs), definition });
        self.approved.insert(tool.to_owned(), Rc::clone(&known));
        Ok(known)
    }
}

impl CardBackground {
    /// The risk marks as text.
    pub(super) fn mark_words(&self) -> Vec<String> {
        self.marks.iter().map(RiskMark::plain).collect()
    }
}

impl EarlierCall {
    fn of(task: &Task) -> Self {
        let input = Value::Object(seal::shown(&task.input)).to_string();
        Self {
            id: task.id.to_string(),
            tool: task.tool.to_string(),
            state_words: state_words(task.state),
            summary: line(&excerpt::chars(&input, MAX_SUMMARY_CHARS)),
        }
    }
}
