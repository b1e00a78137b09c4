//! Programs that are not on this machine, or not where programs are looked for.

use std::path::Path;

use catalog::packs::shipped;
use catalog::{Catalog, Origin, Subtool};
use definition::run::Run;
use ground::config::Config;
use ground::config::programs::find;

use super::{Finding, Level, LintScope, warning};

const CODE: &str = "missing-program";

/// A shipped pack is not warned about: no one uses all of them. Nor is a program that the manifest of the subtool's pack
/// names.
pub(super) fn check(subtool: &Subtool, catalog: &Catalog, config: &Config, findings: &mut Vec<Finding>) {
    let Run::Process(process) = &subtool.definition.run else { return };
    if process.find(&config.programs).is_some() || matches!(subtool.origin, Origin::Pack(_)) {
        return;
    }
    let name = process.program();
    if catalog.pack_of(subtool).is_none_or(|pack| !pack.manifest.needs.programs.contains_key(name)) {
        findings.push(warning(subtool, CODE, "run.process.argv[0]", missing(name)));
    }
}

/// Warns once of each program that the manifest of a human's pack names.
pub(super) fn check_packs(catalog: &Catalog, config: &Config, scope: &LintScope, findings: &mut Vec<Finding>) {
    let own = catalog.packs().iter().filter(|pack| shipped(pack.name()).is_none() && scope.covers(&pack.file));
    for pack in own {
        let missing_programs = pack.manifest.needs.programs.keys();
        for name in missing_programs.filter(|name| find(Path::new(name), config.programs.path.clone()).is_none()) {
            findings.push(Finding {
                level: Level::Warning,
                code: CODE,
                file: pack.file.clone(),
                line: None,
                subtool: None,
                place: Some(format!("needs.programs.{name}")),
                message: missing(name),
            });
        }
    }
}

fn missing(name: &str) -> String {
    if name.starts_with('/') {
        format!("there is no program `{name}`; install it, or name another one")
    } else {
        format!(
            "no program named `{name}` in the folders of `path` under [programs] in config.toml; install it, add its \
             folder there, or name it with its whole path"
        )
    }
}
