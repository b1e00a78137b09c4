//! Aider: a file of conventions, and the setting that makes Aider read it. Aider cannot be woken.

use super::instruction;
use super::plan::{Edit, SetupPlan, SetupTarget};
use super::section::SectionMarks;

pub(super) fn plan(target: &SetupTarget) -> SetupPlan {
    let mut plan = SetupPlan::default();
    let text = instruction::TEXT.to_owned();
    let (folder, conventions) = if let Some(project) = &target.project {
        plan.file(project.join("CONVENTIONS.md"), Edit::Section { marks: SectionMarks::Markdown, text });
        (project, "CONVENTIONS.md".to_owned())
    } else {
        let path = target.paths.config.join("aider.md");
        let conventions = path.display().to_string();
        plan.file(path, Edit::Own(text));
        (&target.home, conventions)
    };
    plan.file(folder.join(".aider.conf.yml"), Edit::AiderRead { file: conventions });
    plan.next.push("Aider asks before it runs a command: allow agent-magic-tool".to_owned());
    plan
}
