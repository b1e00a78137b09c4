//! Goose: a section in its hints file. Goose cannot be woken, so `run` tells it to `wait`.

use super::instruction;
use super::plan::{Edit, SetupPlan, SetupTarget};
use super::section::SectionMarks;

pub(super) fn plan(target: &SetupTarget) -> SetupPlan {
    let folder = target.project.clone().unwrap_or_else(|| target.paths.config_of("goose"));
    let mut plan = SetupPlan::default();
    let text = instruction::TEXT.to_owned();
    plan.file(folder.join(".goosehints"), Edit::Section { marks: SectionMarks::Markdown, text });
    plan.next.push("start a new session of Goose".to_owned());
    plan
}
