//! Goose: a section of its hints. It cannot be woken, so `run` says `wait`.

use super::instruction;
use super::plan::{Edit, SetupPlan, SetupTarget};
use super::section::SectionMarks;

pub(super) fn plan(site: &SetupTarget) -> SetupPlan {
    let folder = site.project.clone().unwrap_or_else(|| site.paths.config_of("goose"));
    let mut plan = SetupPlan::default();
    let text = instruction::TEXT.to_owned();
    plan.file(folder.join(".goosehints"), Edit::Section { marks: SectionMarks::Markdown, text });
    plan.next.push("start a new session of Goose".to_owned());
    plan
}
