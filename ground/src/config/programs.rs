//! Where programs are found: in the folders of the configuration, whatever `PATH` the executor was started with.

use std::ffi::OsString;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use protocol::paths::home_folder;
use serde::{Deserialize, Deserializer, de};

/// The folders in which programs are found.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ProgramSettings {
    /// Absolute folders, in the order in which they are searched.
    #[serde(deserialize_with = "folders")]
    pub path: Vec<PathBuf>,
}

impl ProgramSettings {
    /// The folders as the value of `PATH`.
    pub fn search_path(&self) -> OsString {
        std::env::join_paths(&self.path).expect("no folder contains `:`")
    }
}

/// Returns the first program called `name` in `folders`; an absolute `name` is returned as it is.
pub fn find(name: &Path, folders: impl IntoIterator<Item = PathBuf>) -> Option<PathBuf> {
    if name.is_absolute() {
        return Some(name.to_owned());
    }
    let mut candidates = folders.into_iter().filter(|folder| folder.is_absolute()).map(|folder| folder.join(name));
    candidates.find(|candidate| is_program(candidate))
}

/// Whether `path` is a file that can be executed.
pub fn is_program(path: &Path) -> bool {
    path.metadata().is_ok_and(|metadata| metadata.is_file() && metadata.permissions().mode() & 0o111 != 0)
}

/// Absolute folders, or folders below `~`. Without a home folder, the latter are left out.
fn folders<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<PathBuf>, D::Error> {
    let home = home_folder();
    let mut folders = Vec::new();
    for text in Vec::<String>::deserialize(deserializer)? {
        let folder = match text.strip_prefix("~/") {
            Some(below) => home.map(|home| home.join(below)),
            None => Some(PathBuf::from(&text)),
        };
        let Some(folder) = folder else { continue };
        if !folder.is_absolute() || text.contains([':', '\0']) {
            let message = format!("`{text}` is not an absolute folder, nor one below `~/`");
            return Err(de::Error::custom(message));
        }
        // A home folder with `:` in its name cannot stand in a PATH.
        if !folder.as_os_str().as_encoded_bytes().contains(&b':') {
            folders.push(folder);
        }
    }
    Ok(folders)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(path: &str) -> Result<ProgramSettings, toml::de::Error> {
        toml::from_str(&format!("path = {path}"))
    }

    #[test]
    fn only_absolute_folders_and_those_of_the_home_folder_are_searched() {
        let home = PathBuf::from(std::env::var_os("HOME").expect("tests run with a home folder"));
        let known = settings(r#"["/usr/bin", "~/.local/bin"]"#).expect("valid folders");
        assert_eq!(known.path, [PathBuf::from("/usr/bin"), home.join(".local/bin")]);
        for wrong in [r#"["bin"]"#, r#"["."]"#, r#"[""]"#, r#"["~"]"#, r#"["/a:/b"]"#] {
            assert!(settings(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn the_first_program_of_the_name_is_found() {
        let folder = tempfile::tempdir().expect("a folder");
        let folders = ["first", "second"].map(|name| folder.path().join(name));
        for (folder, mode) in folders.iter().zip([0o644, 0o755]) {
            std::fs::create_dir(folder).expect("created");
            std::fs::write(folder.join("tool"), "").expect("written");
            let mode = std::fs::Permissions::from_mode(mode);
            std::fs::set_permissions(folder.join("tool"), mode).expect("set");
        }
        assert_eq!(find(Path::new("tool"), folders.clone()), Some(folders[1].join("tool")), "the first cannot run");
        assert_eq!(find(Path::new("other"), folders), None);
    }
}
