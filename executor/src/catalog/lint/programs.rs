//! Programs that are not on this machine, or not where programs are looked for.

use super::{Finding, warning};
use crate::catalog::{Origin, Subtool};
use crate::config::Config;
use crate::runner::Run;

/// A shipped pack is not warned about: no one uses all of them.
pub(super) fn check(subtool: &Subtool, config: &Config, findings: &mut Vec<Finding>) {
    let Run::Process(process) = &subtool.definition.run else { return };
    if process.find(&config.programs).is_some() || matches!(subtool.origin, Origin::Pack(_)) {
        return;
    }
    let name = process.program();
    let message = if name.starts_with('/') {
        format!("there is no program `{name}`; install it, or name another one")
    } else {
        format!(
            "no program named `{name}` in the folders of `path` under [programs] in config.toml; install it, add its \
             folder there, or name it with its whole path"
        )
    };
    findings.push(warning(subtool, "missing-program", "run.process.argv[0]", message));
}
