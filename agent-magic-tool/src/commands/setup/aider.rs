//! Aider: conventions that it reads, and the line of its configuration that says so. It cannot be woken.

use super::instruction;
use super::plan::{Edit, SetupPlan, SetupTarget};
use super::section::SectionMarks;

pub(super) fn plan(site: &SetupTarget) -> SetupPlan {
    let mut plan = SetupPlan::default();
    let text = instruction::TEXT.to_owned();
    let (folder, word) = if let Some(project) = &site.project {
        plan.file(project.join("CONVENTIONS.md"), Edit::Section { marks: SectionMarks::Markdown, text });
        (project, "CONVENTIONS.md".to_owned())
    } else {
        let path = site.paths.config.join("aider.md");
        let word = path.display().to_string();
        plan.file(path, Edit::Own(text));
        (&site.home, word)
    };
    plan.file(folder.join(".aider.conf.yml"), Edit::AiderRead { word });
    plan.next.push("Aider asks before it runs a command: say yes to agent-magic-tool".to_owned());
    plan
}
