//! Real descriptions, many and dirty: nothing panics, nothing is lost, and everything that is written loads.

use std::path::{Path, PathBuf};

use serde_json::Value;

use super::quiet_world;
use crate::skip::skip;
use crate::world::World;

/// The folder of npm packages with descriptions.
const SPECS: &str = "AGENT_MAGIC_TOOL_TEST_SPECS";
/// The folder of Google's discovery documents.
const DISCOVERY: &str = "AGENT_MAGIC_TOOL_TEST_DISCOVERY";

/// The path of an npm package's file; reports that a test is skipped if the packages are not installed.
pub(in crate::cli) fn spec(path: &str) -> Option<PathBuf> {
    let Some(folder) = std::env::var_os(SPECS) else {
        skip(&format!("{SPECS} does not name a folder with npm packages of API descriptions"));
        return None;
    };
    Some(Path::new(&folder).join(path))
}

/// The folder of Google's discovery documents; reports that a test is skipped if it is not there.
pub(super) fn discovery() -> Option<PathBuf> {
    let folder = std::env::var_os(DISCOVERY);
    if folder.is_none() {
        skip(&format!("{DISCOVERY} does not name the folder with Google's discovery documents"));
    }
    folder.map(PathBuf::from)
}

/// Imports `sources` at once, checks that every operation is accounted for and that all that was written loads, and
/// returns how many were found and imported.
fn import_all(world: &World, sources: &[PathBuf]) -> (u64, u64) {
    let sources: Vec<_> = sources.iter().map(|path| path.display().to_string()).collect();
    let words: Vec<&str> = ["import"].into_iter().chain(sources.iter().map(String::as_str)).collect();
    let ran = world.run(&words);
    assert_eq!(ran.exit, 0, "{}", ran.stderr);
    let report = ran.json();
    let reports = report["sources"].as_array().cloned().unwrap_or_else(|| vec![report.clone()]);
    assert_eq!(reports.len(), sources.len());
    let (mut found, mut imported, mut names) = (0, 0, 0);
    for report in &reports {
        let count = |key: &str| report[key].as_u64().expect("a number");
        let lists = report["left_out"].as_object().into_iter().flatten();
        let left_out = lists.map(|(_, operations)| operations.as_array().map_or(0, Vec::len) as u64).sum::<u64>();
        assert_eq!(count("found"), count("imported") + left_out, "{report:#}");
        found += count("found");
        imported += count("imported");
        names +=
            report["files"].as_array().into_iter().flatten().filter_map(|file| file["subtools"].as_u64()).sum::<u64>();
    }
    assert_eq!(names, imported);
    let listed = world.run(&["list", "tools", "--format=names", "--limit=100000"]);
    assert!(!listed.stderr.contains("left out:"), "{}", listed.stderr);
    let loaded = listed.json().as_array().map(Vec::len);
    assert_eq!(loaded, usize::try_from(imported).ok(), "{}", listed.stderr);
    (found, imported)
}

#[test]
fn large_apis_are_imported_almost_whole() {
    for (path, found, least) in [
        ("@octokit/openapi/generated/api.github.com.json", 1_223, 1_180),
        ("@directus/specs/dist/openapi.json", 136, 136),
        ("@figma/rest-api-spec/openapi/openapi.yaml", 54, 50),
        ("@shopware/api-client/api-types/adminApiSchema.json", 1_997, 1_990),
        ("@graphcommerce/magento-graphql-rest/scripts/m2rest-admin.json", 556, 550),
    ] {
        let Some(path) = spec(path) else { return };
        let world = quiet_world();
        let (all, imported) = import_all(&world, &[path]);
        assert_eq!(all, found);
        assert!(imported >= least, "{imported} of {all}");
    }
}

#[test]
fn small_and_hard_descriptions_are_imported() {
    let Some(folder) = spec("@readme/oas-examples") else { return };
    let (mut found, mut imported) = (0, 0);
    let mut paths = Vec::new();
    let mut open = vec![folder];
    while let Some(folder) = open.pop() {
        for entry in std::fs::read_dir(folder).expect("a folder") {
            let path = entry.expect("an entry").path();
            match path.extension().and_then(|it| it.to_str()) {
                _ if path.is_dir() => open.push(path),
                Some("json" | "yaml") => paths.push(path),
                _ => {}
            }
        }
    }
    paths.sort();
    paths.retain(|path| {
        let text = std::fs::read_to_string(path).expect("a text");
        text.contains("openapi") && text.contains("info") || text.contains("swagger")
    });
    paths.retain(|path| path.file_name().is_some_and(|name| name != "package.json"));
    assert!(paths.len() > 100, "{}", paths.len());
    // Many of them have the same title, so each has its world.
    for path in paths {
        let world = quiet_world();
        let (all, some) = import_all(&world, &[path]);
        (found, imported) = (found + all, imported + some);
    }
    assert!(imported * 100 >= found * 95, "{imported} of {found}");
}

#[test]
fn every_google_api_is_imported() {
    let Some(folder) = discovery() else { return };
    let mut paths: Vec<_> =
        std::fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("an entry").path()).collect();
    paths.retain(|path| path.extension().is_some_and(|it| it == "json") && !path.ends_with("index.json"));
    paths.sort();
    assert!(paths.len() >= 600, "{}", paths.len());
    // All versions of all APIs would be 28,000 subtools: an eighth of them shows the same in an eighth of the time, unless
    // all are asked for.
    let all =
        std::env::var_os("AGENT_MAGIC_TOOL_TEST_ALL_GOOGLE").is_some_and(|value: std::ffi::OsString| value == "1");
    let chosen: Vec<_> = if all { paths } else { paths.into_iter().step_by(8).collect() };
    let (found, imported) = import_all(&quiet_world(), &chosen);
    assert!(imported * 100 >= found * 98, "{imported} of {found}");
    assert!(Value::from(found).as_u64() > Some(1_000), "{found}");
}
