//! Says that the executor of a mailbox goes by another configuration than a command would.

use std::path::Path;

use protocol::paths::is_same_file;

use crate::context::Context;

/// Says that the executor reads the configuration `file`, if that is not the one of this command.
pub fn other_than_own(file: &Path, context: &Context) -> Option<String> {
    let own = context.paths.config_file();
    let words = || {
        let (file, own) = (file.display(), own.display());
        format!("the executor of this mailbox uses the configuration `{file}`, not `{own}`")
    };
    (!is_same_file(file, &own)).then(words)
}
