//! The word that a human must type to approve what cannot be undone: the name of what it destroys.

use ground::base::template::TemplateValues;
use ground::config::seal;
use ground::task::Task;

use super::visible::{TextSpan, line};
use crate::catalog::definition::Definition;

/// The longest word that is asked for; a longer one is the subtool's name instead.
const MAX_CHARS: usize = 80;

/// What must be typed to approve `task`; `None` if nothing.
pub(super) fn approval_word(definition: &Definition, task: &Task) -> Option<String> {
    if definition.type_to_approve.is_none() && definition.annotations.destructive_hint != Some(true) {
        return None;
    }
    let template = definition.type_to_approve.as_deref().unwrap_or_default();
    let word = TemplateValues::of_input(&seal::shown(&task.input)).text(template).unwrap_or_default();
    let can_be_typed = |word: &&str| !word.is_empty() && word.chars().count() <= MAX_CHARS && is_plain(word);
    Some(Some(word.trim()).filter(can_be_typed).unwrap_or(task.tool.as_str()).to_owned())
}

/// Whether a human sees all of a text, and can type it: no characters without a picture, and single spaces.
fn is_plain(word: &str) -> bool {
    !word.contains("  ") && line(word).iter().all(|span| matches!(span, TextSpan::Text(_)))
}
