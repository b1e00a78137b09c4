//! The two files of a saved script: both are written, or none counts.

use std::fs::{self, Permissions};
use std::io::{self, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use protocol::regular_file;

/// How a file begins that is not whole yet.
const UNFINISHED: &str = ".saving-";

/// The files of a saved script, each with its content.
pub(super) struct SavedScript {
    pub(super) definition: (PathBuf, String),
    pub(super) program: (PathBuf, String),
}

impl SavedScript {
    pub(super) fn is_there(&self) -> bool {
        [&self.definition, &self.program].into_iter().all(|(path, text)| has_content(path, text))
    }

    /// Writes the program, and then the definition that names it. Replaces nothing; a program without a definition is what a
    /// killed attempt left.
    pub(super) fn write(&self) -> io::Result<()> {
        let folder = self.program.0.parent().unwrap_or(Path::new("."));
        fs::create_dir_all(folder)?;
        for entry in fs::read_dir(folder)? {
            let entry = entry?;
            let name = entry.file_name().to_string_lossy().to_lowercase();
            if name.starts_with(UNFINISHED) {
                fs::remove_file(entry.path())?;
                continue;
            }
            let is_own = |path: &Path| path.file_name().is_some_and(|own| own.to_string_lossy().to_lowercase() == name);
            let is_left = entry.path() == self.program.0 && has_content(&self.program.0, &self.program.1);
            if (is_own(&self.definition.0) || is_own(&self.program.0)) && !is_left {
                return Err(exists(&entry.path()));
            }
        }
        if !has_content(&self.program.0, &self.program.1) {
            create(&self.program.0, &self.program.1)?;
        }
        create(&self.definition.0, &self.definition.1)
    }
}

fn has_content(path: &Path, text: &str) -> bool {
    regular_file::read_text(path, text.len() as u64).is_ok_and(|found| found == text)
}

fn exists(path: &Path) -> io::Error {
    io::Error::new(io::ErrorKind::AlreadyExists, format!("`{}` exists", path.display()))
}

/// Makes a file that appears whole, and replaces no other.
fn create(path: &Path, text: &str) -> io::Result<()> {
    let folder = path.parent().unwrap_or(Path::new("."));
    let mut builder = tempfile::Builder::new();
    let mut file = builder.prefix(UNFINISHED).permissions(Permissions::from_mode(0o600)).tempfile_in(folder)?;
    file.write_all(text.as_bytes())?;
    file.as_file().sync_all()?;
    file.persist_noclobber(path).map_err(|error| match error.error.kind() {
        io::ErrorKind::AlreadyExists => exists(path),
        _ => error.error,
    })?;
    fs::File::open(folder)?.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_written_both_and_replace_nothing_and_what_a_killed_attempt_left_is_finished() {
        let folder = tempfile::tempdir().expect("a folder");
        let of = |name: &str, text: &str| SavedScript {
            definition: (folder.path().join(format!("{name}.json")), "{}\n".to_owned()),
            program: (folder.path().join(format!("{name}.js")), format!("{text}\n")),
        };
        let saved = of("late_orders", "return 1");
        saved.write().expect("written");
        assert!(saved.is_there() && !of("late_orders", "return 2").is_there());
        for other in [of("late_orders", "return 1"), of("late_orders", "return 2"), of("Late_Orders", "return 1")] {
            assert_eq!(other.write().expect_err("it exists").kind(), io::ErrorKind::AlreadyExists);
        }
        // Killed between the two files, or in the first one.
        fs::remove_file(&saved.definition.0).expect("removed");
        fs::write(folder.path().join(".saving-abc"), "half").expect("written");
        assert!(of("late_orders", "return 2").write().is_err(), "the program is another one's");
        saved.write().expect("finished");
        assert!(saved.is_there() && !folder.path().join(".saving-abc").exists());
    }
}
