//! Where the programs of subtools are found.

use std::collections::BTreeMap;
use std::path::PathBuf;

use ground::base::write_access::WriteAccess;

use super::Check;

/// Says for each program of a subtool which file it is. One that is missing is no failure: hardly any installation uses
/// every shipped pack.
pub(super) fn check(files: &BTreeMap<String, Option<PathBuf>>) -> Check {
    const NAME: &str = "program_files";
    let missing = files.values().filter(|file| file.is_none()).count();
    let message = match missing {
        0 => format!("{} found in the folders of `path` under [programs]", files.len()),
        _ => format!("{} found in the folders of `path` under [programs], {missing} missing", files.len() - missing),
    };
    let user = nix::unistd::geteuid().as_raw();
    let line = |(name, file): (&String, &Option<PathBuf>)| match file {
        None => format!("`{name}`: missing"),
        Some(file) => {
            let mark = match WriteAccess::to(file, user) {
                Some(WriteAccess::Others) => ", which other users could change",
                Some(WriteAccess::Agent) | None => "",
            };
            format!("`{name}`: {}{mark}", file.display())
        }
    };
    let hint = "install what is missing, or add its folder to `path` under [programs] in config.toml";
    Check {
        found: files.iter().map(line).collect(),
        hint: Some(hint.to_owned()).filter(|_| missing > 0),
        ..Check::good(NAME, message)
    }
}
