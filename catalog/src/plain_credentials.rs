//! Credentials that stand in a definition in clear, where every reader of the file or of a plan sees them.

use definition::run::Run;
use ground::base::credential::{self, HIDDEN};
use serde_json::Value;

/// The places in `run`, like `http.headers.X-Key`, with texts that look like a credential.
pub fn places(run: &Run) -> Vec<String> {
    let Ok(written) = serde_json::to_value(run) else { return Vec::new() };
    let mut masked = written.clone();
    credential::mask_value(&mut masked);
    let mut found = Vec::new();
    differing(&written, &masked, "", &mut found);
    found
}

/// Adds the places at which texts differ. A template or a reference to a secret only has the place of a credential.
fn differing(written: &Value, masked: &Value, place: &str, found: &mut Vec<String>) {
    let below = |name: &str| if place.is_empty() { name.to_owned() } else { format!("{place}.{name}") };
    match (written, masked) {
        (Value::String(text), Value::String(masked)) => {
            let is_filled_in = text.contains("{{") || text.contains("{%") || text.split(' ').any(names_secret);
            if text != masked && masked.contains(HIDDEN) && !is_filled_in {
                found.push(place.to_owned());
            }
        }
        (Value::Array(items), Value::Array(others)) => {
            items.iter().zip(others).enumerate().for_each(|(index, (item, other))| {
                differing(item, other, &below(&index.to_string()), found);
            });
        }
        (Value::Object(fields), Value::Object(others)) => {
            for (name, field) in fields {
                differing(field, others.get(name).unwrap_or(&Value::Null), &below(name), found);
            }
        }
        _ => {}
    }
}

fn names_secret(word: &str) -> bool {
    word.starts_with("secret:")
}
