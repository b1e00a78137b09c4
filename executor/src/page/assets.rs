//! The page's style sheet, scripts and icon, compiled into the program. The templates are in `page.rs`.

use axum::extract::Path;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse as _, Response};

const CSS: &str = "text/css; charset=utf-8";
const JAVASCRIPT: &str = "text/javascript; charset=utf-8";
const SVG: &str = "image/svg+xml";

/// One style sheet from the files in `web/styles`. The order matters: later rules override earlier ones.
const STYLE: &str = concat!(
    include_str!("../../web/styles/tokens.css"),
    include_str!("../../web/styles/base.css"),
    include_str!("../../web/styles/layout.css"),
    include_str!("../../web/styles/forms.css"),
    include_str!("../../web/styles/values.css"),
    include_str!("../../web/styles/card.css"),
    include_str!("../../web/styles/actions.css"),
    include_str!("../../web/styles/closed-card.css"),
    include_str!("../../web/styles/overlays.css"),
    include_str!("../../web/styles/lists.css"),
    include_str!("../../web/styles/task.css"),
    include_str!("../../web/styles/grants.css"),
    include_str!("../../web/styles/small-screens.css"),
    include_str!("../../web/styles/accessibility.css"),
);

/// The modules that `page.js` imports, by file name.
const SCRIPTS: [(&str, &str); 20] = [
    ("batch.js", include_str!("../../web/page/batch.js")),
    ("card.js", include_str!("../../web/page/card.js")),
    ("draw.js", include_str!("../../web/page/draw.js")),
    ("edit.js", include_str!("../../web/page/edit.js")),
    ("filter.js", include_str!("../../web/page/filter.js")),
    ("first.js", include_str!("../../web/page/first.js")),
    ("form.js", include_str!("../../web/page/form.js")),
    ("keyboard.js", include_str!("../../web/page/keyboard.js")),
    ("keys.js", include_str!("../../web/page/keys.js")),
    ("live.js", include_str!("../../web/page/live.js")),
    ("login.js", include_str!("../../web/page/login.js")),
    ("notice.js", include_str!("../../web/page/notice.js")),
    ("remember.js", include_str!("../../web/page/remember.js")),
    ("send.js", include_str!("../../web/page/send.js")),
    ("session.js", include_str!("../../web/page/session.js")),
    ("tasks.js", include_str!("../../web/page/tasks.js")),
    ("theme.js", include_str!("../../web/page/theme.js")),
    ("time.js", include_str!("../../web/page/time.js")),
    ("touch.js", include_str!("../../web/page/touch.js")),
    ("waiting.js", include_str!("../../web/page/waiting.js")),
];

pub(super) async fn style() -> Response {
    file(CSS, STYLE)
}

pub(super) async fn script() -> Response {
    file(JAVASCRIPT, include_str!("../../web/page.js"))
}

pub(super) async fn script_module(Path(name): Path<String>) -> Response {
    match SCRIPTS.iter().find(|(module, _)| *module == name) {
        Some((_, text)) => file(JAVASCRIPT, text),
        None => StatusCode::NOT_FOUND.into_response(),
    }
}

pub(super) async fn icon() -> Response {
    file(SVG, include_str!("../../web/icon.svg"))
}

/// The icon while something waits.
pub(super) async fn waiting_icon() -> Response {
    file(SVG, include_str!("../../web/icon-waiting.svg"))
}

fn file(content_type: &'static str, text: &'static str) -> Response {
    ([(header::CONTENT_TYPE, content_type)], text).into_response()
}
