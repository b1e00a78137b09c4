//! Packs: folders with definition files and a manifest, `pack.toml`, which says what they need.
//!
//! Some ship with the program, others lie in the folder `packs` of the configuration. The configuration says which are
//! enabled; only those are read (`sources.rs`, `scan.rs`). This file has the table of those that ship.

pub mod checks;
mod declared;
pub(super) mod loaded;
pub mod manifest;
mod needs;
pub(super) mod problems;
pub mod report;
pub mod schema;

pub use loaded::LoadedPack;
pub use needs::NeedReport;

/// The file name of a manifest.
pub const MANIFEST: &str = "pack.toml";

/// A pack that ships with the program.
#[derive(Debug)]
pub struct Pack {
    pub name: &'static str,
    pub manifest: &'static str,
    /// The definition file.
    pub text: &'static str,
}

macro_rules! shipped {
    ($($name:literal)*) => {
        &[$(Pack {
            name: $name,
            manifest: include_str!(concat!("../../subtools/", $name, "/pack.toml")),
            text: include_str!(concat!("../../subtools/", $name, "/", $name, ".json")),
        }),*]
    };
}

/// All packs that ship with the program.
pub const SHIPPED: &[Pack] = shipped!(
    "calendar" "drive" "files" "git" "github" "gmail" "human" "magento" "magento-db" "models" "script" "search" "shell"
    "shopware" "typo3" "web"
);

/// The pack that ships with this name.
pub fn shipped(name: &str) -> Option<&'static Pack> {
    SHIPPED.iter().find(|pack| pack.name == name)
}

/// Whether a pack may have this name, which is that of its folder.
pub fn is_pack_name(name: &str) -> bool {
    const MAX_LENGTH: usize = 64;
    let is_allowed = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-' || byte == b'_';
    (1..=MAX_LENGTH).contains(&name.len()) && name.bytes().all(is_allowed) && !name.starts_with('-')
}
