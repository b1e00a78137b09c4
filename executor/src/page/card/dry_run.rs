//! What a dry run showed, as the card shows it.

use ground::page_client::api_client::GateDryRun;
use ground::task::confirmation::WouldChange;
use protocol::excerpt;
use serde::Serialize;

use crate::page::visible::{VisibleLine, VisibleText, line, plain_line};

/// The longest reason why nothing is shown.
const MAX_WHY_CHARS: usize = 300;

/// What a dry run showed, or why it showed nothing.
#[derive(Debug, Serialize)]
pub(super) struct ShownDryRun {
    data: Option<VisibleText>,
    /// Whether it has so many lines that it is folded.
    long: bool,
    cut: bool,
    why_not: Option<VisibleLine>,
}

impl ShownDryRun {
    pub(super) fn of(found: &WouldChange, preview_lines: usize) -> Self {
        match found {
            WouldChange::Shown { data, is_cut } => {
                let text = VisibleText::of(data);
                Self { long: text.height() > preview_lines, cut: *is_cut, why_not: None, data: Some(text) }
            }
            // Like everything that is not this program's own text, it stands there as a quotation.
            WouldChange::Unknown(why) | WouldChange::NotPermitted(why) => {
                let why = line(&excerpt::line(why, MAX_WHY_CHARS));
                Self { data: None, long: false, cut: false, why_not: Some(why) }
            }
        }
    }

    pub(super) fn as_gate(&self) -> GateDryRun {
        GateDryRun {
            shown: self.data.as_ref().map(VisibleText::plain),
            is_cut: self.cut,
            why_not: self.why_not.as_ref().map(|why| plain_line(why).text),
        }
    }
}
