//! Any agent that reads AGENTS.md: a section in that file. Such an agent cannot be woken, so `run` tells it to `wait`.

use super::instruction;
use super::plan::{Edit, SetupPlan, SetupTarget};
use super::section::SectionMarks;

pub(super) fn plan(target: &SetupTarget) -> SetupPlan {
    let mut plan = SetupPlan::default();
    let text = instruction::TEXT.to_owned();
    let folder = target.project.as_ref().unwrap_or(&target.home);
    plan.file(folder.join("AGENTS.md"), Edit::Section { marks: SectionMarks::Markdown, text });
    plan
}
