//! Any agent that reads AGENTS.md: a section of it. Whoever it is, `run` says `wait`.

use super::instruction;
use super::plan::{Edit, Plan, Site};
use super::section::Marks;

pub(super) fn plan(site: &Site) -> Plan {
    let mut plan = Plan::default();
    let text = instruction::TEXT.to_owned();
    let folder = site.project.as_ref().unwrap_or(&site.home);
    plan.file(folder.join("AGENTS.md"), Edit::Section { marks: Marks::Markdown, text });
    plan
}
