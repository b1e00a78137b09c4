//! The crates that this project depends on, by `deny.toml`: their licenses, where they are from, and those that are banned.
//!
//! Licenses are those of the crates that this platform builds; names and sources those of all in `Cargo.lock`. `cargo deny
//! check` reads the same file and checks more, but takes minutes to build.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::iter::Peekable;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::str::SplitWhitespace;

use serde_json::Value;
use toml_edit::{DocumentMut, Item};

/// What is read of `deny.toml`.
#[derive(Debug, Clone)]
struct DenyFile {
    licenses: BTreeSet<String>,
    /// Names of crates, with the reason.
    banned: BTreeMap<String, String>,
    registries: BTreeSet<String>,
}

/// A crate that is built, or only named in `Cargo.lock`.
#[derive(Debug)]
struct Dependency {
    name: String,
    version: String,
    /// `None` for a crate of this repository.
    source: Option<String>,
}

impl DenyFile {
    fn read() -> Self {
        let file = toml("deny.toml");
        let texts = |list: &Item| {
            let items = list.as_array().expect("a list").iter();
            items.map(|item| item.as_str().expect("a text").to_owned()).collect()
        };
        let banned = file["bans"]["deny"].as_array().expect("a list").iter().map(|entry| {
            let text = |key: &str| entry.as_inline_table().and_then(|entry| entry.get(key)?.as_str()).expect("a text");
            (text("crate").to_owned(), text("reason").to_owned())
        });
        let licenses = texts(&file["licenses"]["allow"]);
        Self { licenses, banned: banned.collect(), registries: texts(&file["sources"]["allow-registry"]) }
    }

    /// The crates whose licenses are not allowed.
    fn unlicensed(&self, metadata: &Value) -> Vec<String> {
        let packages = metadata["packages"].as_array().expect("packages").iter();
        let refused = packages.filter_map(|package| {
            let license = package["license"].as_str().unwrap_or("none");
            let (name, version) = (package["name"].as_str()?, package["version"].as_str()?);
            (!is_satisfied(license, &self.licenses)).then(|| format!("{name} {version}: the license {license}"))
        });
        refused.collect()
    }

    /// The crates that are banned, or from elsewhere than an allowed registry or this repository.
    fn refused(&self, dependencies: &[Dependency]) -> Vec<String> {
        let refused = dependencies.iter().filter_map(|Dependency { name, version, source }| {
            if let Some(reason) = self.banned.get(name) {
                return Some(format!("{name} {version}: banned, since {reason}"));
            }
            let source = source.as_deref()?;
            let registry = source.strip_prefix("registry+");
            let is_allowed = registry.is_some_and(|registry| self.registries.contains(registry));
            (!is_allowed).then(|| format!("{name} {version}: the source {source}"))
        });
        refused.collect()
    }
}

#[test]
fn every_crate_has_an_allowed_license() {
    let refused = DenyFile::read().unlicensed(&metadata());
    assert!(refused.is_empty(), "deny.toml does not allow\n{}", refused.join("\n"));
}

#[test]
fn every_crate_is_from_the_registry_or_from_here_and_none_is_banned() {
    let refused = DenyFile::read().refused(&locked());
    assert!(refused.is_empty(), "deny.toml does not allow\n{}", refused.join("\n"));
}

/// An entry that nothing needs would allow what was never looked at.
#[test]
fn every_entry_of_the_file_counts() {
    let (file, metadata, locked) = (DenyFile::read(), metadata(), locked());
    for license in &file.licenses {
        let mut without = file.clone();
        without.licenses.remove(license);
        assert!(!without.unlicensed(&metadata).is_empty(), "no crate needs the license {license}");
    }
    assert!(!file.banned.is_empty());
    let mut without = file.clone();
    without.registries.clear();
    assert!(without.refused(&locked).iter().any(|line| line.starts_with("serde ")));
    let mut stricter = file;
    stricter.banned.insert("serde".to_owned(), "it is only an example".to_owned());
    let refused = stricter.refused(&locked);
    assert!(refused.iter().any(|line| line.ends_with("banned, since it is only an example")), "{refused:?}");
}

/// What `cargo` says of the crates that this platform builds.
fn metadata() -> Value {
    let version = cargo(&["-vV"]);
    let host = version.lines().find_map(|line| line.strip_prefix("host: ")).expect("the platform");
    let text = cargo(&["metadata", "--locked", "--offline", "--format-version=1", "--filter-platform", host]);
    serde_json::from_str(&text).expect("JSON")
}

fn cargo(arguments: &[&str]) -> String {
    let program = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let output = Command::new(program).args(arguments).current_dir(root()).output().expect("cargo starts");
    assert!(output.status.success(), "cargo {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("UTF-8")
}

/// The crates of every platform.
fn locked() -> Vec<Dependency> {
    let file = toml("Cargo.lock");
    let packages = file["package"].as_array_of_tables().expect("packages").iter();
    let dependencies = packages.map(|package| {
        let text = |key: &str| Some(package.get(key)?.as_str()?.to_owned());
        let (name, version) = (text("name").expect("a name"), text("version").expect("a version"));
        Dependency { name, version, source: text("source") }
    });
    dependencies.collect()
}

fn toml(name: &str) -> DocumentMut {
    let text = fs::read_to_string(root().join(name)).unwrap_or_else(|error| panic!("{name}: {error}"));
    text.parse().unwrap_or_else(|error| panic!("{name}: {error}"))
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the member lies in the workspace").to_owned()
}

type Words<'a> = Peekable<SplitWhitespace<'a>>;

/// Whether the licenses in `allowed` satisfy an SPDX expression. An older form writes `/` for `OR`.
fn is_satisfied(expression: &str, allowed: &BTreeSet<String>) -> bool {
    let spaced = expression.replace('(', " ( ").replace(')', " ) ").replace('/', " OR ");
    let mut words = spaced.split_whitespace().peekable();
    any_of(&mut words, allowed) && words.next().is_none()
}

fn any_of(words: &mut Words<'_>, allowed: &BTreeSet<String>) -> bool {
    let mut is_satisfied = all_of(words, allowed);
    while words.next_if_eq(&"OR").is_some() {
        is_satisfied |= all_of(words, allowed);
    }
    is_satisfied
}

fn all_of(words: &mut Words<'_>, allowed: &BTreeSet<String>) -> bool {
    let mut is_satisfied = one_of(words, allowed);
    while words.next_if_eq(&"AND").is_some() {
        is_satisfied &= one_of(words, allowed);
    }
    is_satisfied
}

/// One license, perhaps with an exception, or an expression in parentheses.
fn one_of(words: &mut Words<'_>, allowed: &BTreeSet<String>) -> bool {
    let Some(word) = words.next() else { return false };
    if word == "(" {
        let is_satisfied = any_of(words, allowed);
        return words.next_if_eq(&")").is_some() && is_satisfied;
    }
    match words.next_if_eq(&"WITH").and_then(|_| words.next()) {
        Some(exception) => allowed.contains(&format!("{word} WITH {exception}")),
        None => allowed.contains(word),
    }
}

#[test]
fn an_expression_needs_one_side_of_or_and_both_of_and() {
    let allowed = ["MIT", "Zlib", "Apache-2.0 WITH LLVM-exception"].map(str::to_owned).into();
    for (expression, expected) in [
        ("MIT", true),
        ("GPL-3.0-only", false),
        ("GPL-3.0-only OR MIT", true),
        ("Unlicense/MIT", true),
        ("MIT AND GPL-3.0-only", false),
        ("MIT AND Zlib", true),
        ("(MIT OR GPL-3.0-only) AND ISC", false),
        ("ISC AND (MIT OR GPL-3.0-only) OR Zlib", true),
        ("Apache-2.0 WITH LLVM-exception", true),
        ("Apache-2.0", false),
        ("MIT WITH LLVM-exception", false),
        ("(MIT", false),
        ("MIT Zlib", false),
        ("", false),
    ] {
        assert_eq!(is_satisfied(expression, &allowed), expected, "{expression}");
    }
}
