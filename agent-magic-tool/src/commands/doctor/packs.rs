//! Whether the packs that are enabled have what they need.

use catalog::packs::report::{PackState, PackSurvey};

use super::Check;

/// What is missing is no failure: some packs are on by default, and hardly anyone has an account with every service. What
/// of a pack is not loaded is the matter of the check `subtools`.
pub(super) fn check(survey: &PackSurvey) -> Check {
    let mut found = Vec::new();
    let names = survey.names();
    let enabled: Vec<_> = names.iter().filter_map(|name| survey.report(name)).filter(|pack| pack.enabled).collect();
    for pack in &enabled {
        // Without a model, the pack that needs one is not loaded, which is what most want.
        let needs = pack.needs.iter().filter(|need| need.is_issue() && !["variable", "model"].contains(&need.kind));
        let missing = needs.map(|need| format!("{}; {}", need.missing(), need.how.as_deref().unwrap_or_default()));
        let failed = pack.check.as_ref().and_then(|check| check.failure(&pack.name));
        found.extend(missing.chain(failed).map(|issue| format!("{}: {issue}", pack.name)));
    }
    // A folder that the user made, and from which nothing is loaded, is a mistake.
    let all = names.iter().filter_map(|name| survey.report(name));
    let unusable: Vec<_> = all.filter(|pack| pack.state == PackState::Unavailable && pack.folder.is_some()).collect();
    found.extend(unusable.iter().flat_map(|pack| pack.issues.iter().map(|issue| format!("{}: {issue}", pack.name))));
    let message = match (unusable.len(), found.is_empty()) {
        (0, true) => "nothing is known to be missing".to_owned(),
        (0, false) => "something is missing or failed".to_owned(),
        (1, _) => "one has a mistake and cannot be used".to_owned(),
        (count, _) => format!("{count} have mistakes and cannot be used"),
    };
    let hint = (!found.is_empty()).then(|| "agent-magic-tool pack info NAME".to_owned());
    let message = format!("{} enabled, {message}", enabled.len());
    Check { hint, found, ok: unusable.is_empty(), ..Check::good("packs", message) }
}
