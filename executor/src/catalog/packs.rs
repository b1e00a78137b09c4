//! The packs of definitions that ship with the program.

/// A pack of definitions that ships with the program.
#[derive(Debug)]
pub struct Pack {
    pub name: &'static str,
    /// The definition file.
    pub text: &'static str,
}

/// All packs that ship with the program.
pub const SHIPPED: &[Pack] = &[
    Pack { name: "calendar", text: include_str!("../../../subtools/calendar.json") },
    Pack { name: "drive", text: include_str!("../../../subtools/drive.json") },
    Pack { name: "files", text: include_str!("../../../subtools/files.json") },
    Pack { name: "git", text: include_str!("../../../subtools/git.json") },
    Pack { name: "github", text: include_str!("../../../subtools/github.json") },
    Pack { name: "gmail", text: include_str!("../../../subtools/gmail.json") },
    Pack { name: "human", text: include_str!("../../../subtools/human.json") },
    Pack { name: "magento", text: include_str!("../../../subtools/magento.json") },
    Pack { name: "magento-db", text: include_str!("../../../subtools/magento-db.json") },
    Pack { name: "models", text: include_str!("../../../subtools/models.json") },
    Pack { name: "search", text: include_str!("../../../subtools/search.json") },
    Pack { name: "shell", text: include_str!("../../../subtools/shell.json") },
    Pack { name: "shopware", text: include_str!("../../../subtools/shopware.json") },
    Pack { name: "typo3", text: include_str!("../../../subtools/typo3.json") },
    Pack { name: "web", text: include_str!("../../../subtools/web.json") },
];
