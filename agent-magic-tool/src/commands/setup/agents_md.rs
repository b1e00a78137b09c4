//! Any agent that reads AGENTS.md: a section of it. Whoever it is, `run` says `wait`.

use super::instruction;
use super::plan::{Edit, SetupPlan, SetupTarget};
use super::section::SectionMarks;

pub(super) fn plan(site: &SetupTarget) -> SetupPlan {
    let mut plan = SetupPlan::default();
    let text = instruction::TEXT.to_owned();
    let folder = site.project.as_ref().unwrap_or(&site.home);
    plan.file(folder.join("AGENTS.md"), Edit::Section { marks: SectionMarks::Markdown, text });
    plan
}
