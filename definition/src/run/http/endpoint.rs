//! The configured endpoints, which replace the bases of URLs.

use std::collections::BTreeMap;

/// Returns `url` with its base replaced by the configured endpoint, if there is one.
pub fn endpoint(url: &str, endpoints: &BTreeMap<String, String>) -> String {
    let longest = endpoints
        .iter()
        .filter_map(|(declared, configured)| {
            let rest = url.strip_prefix(declared.trim_end_matches('/'))?;
            (rest.is_empty() || rest.starts_with(['/', '?'])).then_some((configured, rest))
        })
        .min_by_key(|(_, rest)| rest.len());
    match longest {
        Some((configured, rest)) => format!("{}{rest}", configured.trim_end_matches('/')),
        None => url.to_owned(),
    }
}
