//! The program that agents call: the small one, which is built as it is shipped and put beside the full one.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::LazyLock;
use std::{env, fs};

use crate::world::{PROGRAM, World};

const NAME: &str = "agent-magic-tool-small";

/// A command of the agent's program in this world.
pub(crate) fn command(world: &World, arguments: &[&str]) -> Command {
    static SMALL: LazyLock<PathBuf> = LazyLock::new(|| build().expect("the small program can be built"));
    world.within(&*SMALL, arguments)
}

/// Builds it, which takes a moment if nothing changed, and finds the full one beside it.
fn build() -> Result<PathBuf, String> {
    let cargo = env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut build = Command::new(cargo);
    build.args(["build", "--locked", "--profile", "small", "-p", "agent-magic-tool-agent-side"]);
    // Its progress would stand in the middle of ours.
    let output = build.stdin(Stdio::null()).output().map_err(|error| error.to_string())?;
    if !output.status.success() {
        return Err(String::from_utf8_lossy(&output.stderr).into_owned());
    }
    let beside = Path::new(PROGRAM).with_file_name(NAME);
    let target = beside.parent().and_then(Path::parent).ok_or("the program lies in no folder")?;
    fs::copy(target.join("small").join(NAME), &beside).map_err(|error| error.to_string())?;
    Ok(beside)
}
