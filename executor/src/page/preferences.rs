//! How the human likes the page. Kept by the executor, since the page's origin, and with it the browser's storage, is new
//! at each start.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::{fs, io};

use axum::body::Bytes;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse as _, Response};
use ground::page_client::write_private;
use protocol::code::Code;
use serde::{Deserialize, Serialize};

use super::Page;
use super::actions::parse_body;
use super::door::refuse;

/// The file in the executor's folder.
const FILE_NAME: &str = "page-preferences.json";

/// The choices, the same for all browsers of the human.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct PagePreferences {
    /// `None` follows the system.
    theme: Option<PageTheme>,
    /// Whether single keys are shortcuts.
    keys: bool,
    /// Whether the browser shows a notification when a request comes while the page is in the background.
    notify: bool,
    /// Whether it also makes a sound.
    sound: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum PageTheme {
    Light,
    Dark,
}

impl Default for PagePreferences {
    fn default() -> Self {
        Self { theme: None, keys: true, notify: false, sound: false }
    }
}

/// The stored choices.
#[derive(Debug)]
pub(super) struct PreferenceStore {
    folder: PathBuf,
    current: Mutex<PagePreferences>,
}

impl PreferenceStore {
    /// A file that is missing or not valid counts as no choice.
    pub(super) fn load(folder: &Path) -> Self {
        let saved = fs::read(folder.join(FILE_NAME)).ok().and_then(|bytes| serde_json::from_slice(&bytes).ok());
        Self { folder: folder.to_owned(), current: Mutex::new(saved.unwrap_or_default()) }
    }

    pub(super) fn current(&self) -> PagePreferences {
        *self.current.lock().expect("no code panics while it holds the lock")
    }

    fn save(&self, chosen: PagePreferences) -> io::Result<()> {
        *self.current.lock().expect("no code panics while it holds the lock") = chosen;
        write_private(&self.folder, FILE_NAME, &chosen)
    }
}

/// Replaces all choices.
pub(super) async fn save(State(page): State<Arc<Page>>, body: Bytes) -> Result<Response, Response> {
    let chosen: PagePreferences = parse_body(&body)?;
    page.preferences.save(chosen).map_err(|error| {
        tracing::warn!(%error, "failed to save the preferences of the page");
        refuse(
            StatusCode::INTERNAL_SERVER_ERROR,
            Code::Internal,
            "failed to save this; it lasts until the executor stops",
        )
    })?;
    Ok(StatusCode::NO_CONTENT.into_response())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn choices_are_kept_and_a_broken_file_is_none() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let store = PreferenceStore::load(folder.path());
        assert!(store.current().keys && store.current().theme.is_none());
        let chosen = PagePreferences { theme: Some(PageTheme::Dark), keys: false, ..PagePreferences::default() };
        store.save(chosen).expect("the file is written");
        let again = PreferenceStore::load(folder.path()).current();
        assert!(again.theme == Some(PageTheme::Dark) && !again.keys && !again.sound);
        fs::write(folder.path().join(FILE_NAME), "{").expect("the file is written");
        assert!(PreferenceStore::load(folder.path()).current().keys);
    }
}
