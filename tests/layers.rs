//! The layers of the crates, and the rule that keeps them: a module uses its own layer and those below.
//!
//! Reads `use` lines and paths, not types. ARCHITECTURE.md draws the same ladder.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use crate::tidy::{CRATES, folder_of, without_tests};

/// The folders of each crate, lowest first.
const LADDERS: [(&str, &[&str]); 11] = [
    ("ground", &["base", "task", "config", "results", "page_client"]),
    (
        "agent-loop",
        &[
            "model",
            "journal",
            "machine",
            "driver",
            "one_tool",
            "client_tools",
            "model_factory",
            "blocking_model",
            "brief",
            "input",
            "outcome",
            "own_tasks",
            "session_loop",
            "session",
        ],
    ),
    ("executor", &["lint", "attempt", "intake", "notify", "telemetry", "page", "daemon"]),
    ("mcp", &["event_stream", "client", "http_listener", "server"]),
    ("definition", &["enabled_files", "run", "subtool", "dry_run"]),
    ("store", &["outbox", "retention", "switched_off", "memory", "sqlite"]),
    ("net", &["text", "guard", "clients", "download"]),
    ("sql", &["dialect", "schema", "rules", "settings", "guard", "parameters", "value"]),
    (
        "database",
        &[
            "error",
            "stop",
            "pool",
            "rows",
            "statement",
            "read_again",
            "cascades",
            "replaced",
            "write",
            "schema_cache",
            "sqlite",
            "postgres",
            "mysql",
            "answer",
        ],
    ),
    (
        "import",
        &[
            "literal",
            "agents",
            "document",
            "names",
            "curl",
            "describe",
            "file",
            "schema",
            "identifiers",
            "http",
            "google",
            "text",
            "graphql",
            "mcp",
            "openapi",
            "phrases",
            "program",
            "sql",
            "kinds",
        ],
    ),
    (
        "serve",
        &[
            "limits",
            "delivery",
            "json_input",
            "error_shape",
            "service",
            "http",
            "proxy",
            "ollama",
            "anthropic",
            "openai",
            "a2a",
            "slack",
            "routes",
            "program",
        ],
    ),
];

/// A circle of more files than this has no order in which it could be read.
const MAX_CIRCLE: usize = 3;

/// One file of a crate.
struct Module {
    /// Like `runner::http::call`; the crate's root is empty.
    path: String,
    /// Every path of the crate that its code names, and the line it stands on.
    names: Vec<(String, usize)>,
}

#[test]
fn every_folder_of_a_crate_is_a_layer() {
    for (package, ladder) in LADDERS {
        let folders: BTreeSet<_> = modules(package).into_iter().filter_map(|module| module.layer()).collect();
        assert_eq!(folders, ladder.iter().map(|layer| (*layer).to_owned()).collect(), "{package}");
    }
}

#[test]
fn no_layer_uses_a_higher_one() {
    let mut upward = Vec::new();
    for (package, ladder) in LADDERS {
        let height = |layer: &str| ladder.iter().position(|known| *known == layer);
        for module in modules(package) {
            let Some(own) = module.layer().as_deref().and_then(height) else { continue };
            for (name, line) in &module.names {
                let used = name.split("::").next().unwrap_or_default();
                if height(used).is_some_and(|used| used > own) {
                    let file = module.path.replace("::", "/");
                    upward
                        .push(format!("{package}/src/{file}.rs:{line}: `crate::{name}` lies above `{}`", ladder[own]));
                }
            }
        }
    }
    assert!(upward.is_empty(), "\n{}", upward.join("\n"));
}

#[test]
fn no_circle_has_more_files_than_can_be_read_together() {
    for package in CRATES {
        let large: Vec<_> = circles(&modules(package)).into_iter().filter(|circle| circle.len() > MAX_CIRCLE).collect();
        assert!(large.is_empty(), "{package}: {large:#?}");
    }
}

#[test]
fn what_decides_has_no_network_stack() {
    const NETWORK: [&str; 8] = ["axum", "genai", "hyper", "mysql_async", "reqwest", "rmcp", "rustls", "tokio-postgres"];
    const RUNTIME: [&str; 5] = ["tokio", "rusqlite", "jsonschema", "minijinja", "toml"];
    const EVALUATOR: &str = "jaq-core";
    let (light, agents) = (["protocol", "search", "listing"], ["jq", "agent-side"]);
    let light = light.map(|package| (package, [&RUNTIME[..], &[EVALUATOR]].concat()));
    let agents = agents.map(|package| (package, RUNTIME.to_vec()));
    let pure = ["sql", "ground", "definition", "catalog", "store", "dispatcher", "import"]
        .map(|package| (package, Vec::new()));
    let dependencies = dependencies();
    let uses = borrowed(&dependencies);
    let mut heavy = Vec::new();
    for (package, also) in light.into_iter().chain(agents).chain(pure) {
        let tree = reachable(package, &uses);
        assert!(tree.len() > 5, "what does {package} use? {tree:?}");
        let found = tree.iter().filter(|name| NETWORK.contains(name) || also.contains(name));
        heavy.extend(found.map(|name| format!("{package}: {name}")));
    }
    assert!(heavy.is_empty(), "{heavy:?}");
}

#[test]
fn what_stands_on_what_is_what_architecture_md_says() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the member lies in the workspace");
    let text = fs::read_to_string(root.join("ARCHITECTURE.md")).expect("it is there");
    let (_, text) = text.split_once("What stands on what").expect("it says that");
    let mut listed = Vec::new();
    for line in text.split("```").nth(1).expect("a block").lines().skip(1) {
        let (package, others) = line.split_once(' ').expect("a crate and what it stands on");
        listed.push((package, others.trim().trim_matches('-')));
    }
    let order: Vec<_> = listed.iter().map(|(package, _)| *package).collect();
    assert_eq!(order.iter().collect::<BTreeSet<_>>(), CRATES.iter().collect(), "each crate has a line");
    let dependencies = dependencies();
    let uses = borrowed(&dependencies);
    for (package, others) in listed {
        let direct: BTreeSet<_> = uses[package].iter().copied().filter(|name| CRATES.contains(name)).collect();
        let implied: BTreeSet<_> = direct.iter().flat_map(|other| reachable(other, &uses)).collect();
        let own: Vec<_> = direct.difference(&implied).copied().collect();
        assert_eq!(others, own.join(", "), "what {package} stands on");
        let place = |name: &str| order.iter().position(|other| *other == name);
        assert!(own.iter().all(|other| place(other) < place(package)), "{package} comes after what it stands on");
    }
}

/// What each package is built from, whichever features are on; crates of ours by their folders, without what their tests use.
fn dependencies() -> BTreeMap<String, BTreeSet<String>> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the member lies in the workspace");
    let read = |path: &str| -> toml_edit::DocumentMut {
        fs::read_to_string(root.join(path)).expect("it is committed").parse().expect("TOML")
    };
    let lock = read("Cargo.lock");
    let mut found: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for entry in lock["package"].as_array_of_tables().expect("packages") {
        let used = entry.get("dependencies").and_then(|list| list.as_array()).into_iter().flatten();
        let used = used.filter_map(|used| used.as_str()?.split(' ').next().map(str::to_owned));
        found.entry(entry["name"].as_str().expect("a name").to_owned()).or_default().extend(used);
    }
    for package in CRATES {
        let manifest = read(&format!("{package}/Cargo.toml"));
        let used = manifest["dependencies"].as_table().expect("a table").iter();
        found.insert(package.to_owned(), used.map(|(name, _)| folder_of(name).to_owned()).collect());
    }
    found
}

fn borrowed(dependencies: &BTreeMap<String, BTreeSet<String>>) -> BTreeMap<&str, BTreeSet<&str>> {
    dependencies.iter().map(|(name, used)| (name.as_str(), used.iter().map(String::as_str).collect())).collect()
}

impl Module {
    /// The folder of the crate that it lies in, or stands beside.
    fn layer(&self) -> Option<String> {
        self.path.split("::").next().filter(|layer| !layer.is_empty()).map(str::to_owned)
    }
}

/// The modules that need each other, wherever there are several.
fn circles(modules: &[Module]) -> Vec<Vec<String>> {
    let known: BTreeSet<&str> = modules.iter().map(|module| module.path.as_str()).collect();
    let mut uses: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for module in modules {
        let needed = module.names.iter().filter_map(|(name, _)| owner(name, &known));
        uses.insert(&module.path, needed.filter(|needed| *needed != module.path).collect());
    }
    let reached: BTreeMap<&str, BTreeSet<&str>> = known.iter().map(|from| (*from, reachable(from, &uses))).collect();
    let mut found = BTreeSet::new();
    for module in &known {
        let together = reached[module].iter().filter(|other| reached[*other].contains(module));
        let circle: Vec<_> = together.map(|other| (*other).to_owned()).collect();
        if circle.len() > 1 {
            found.insert(circle);
        }
    }
    found.into_iter().collect()
}

fn reachable<'a>(from: &'a str, uses: &BTreeMap<&'a str, BTreeSet<&'a str>>) -> BTreeSet<&'a str> {
    let (mut reached, mut open) = (BTreeSet::new(), vec![from]);
    while let Some(module) = open.pop() {
        open.extend(uses.get(module).into_iter().flatten().filter(|used| reached.insert(**used)));
    }
    reached
}

/// The module that a path leads into: the longest beginning of it that is one.
fn owner<'a>(name: &str, known: &BTreeSet<&'a str>) -> Option<&'a str> {
    let mut beginning = name;
    loop {
        if let Some(module) = known.get(beginning) {
            return Some(*module);
        }
        beginning = beginning.rsplit_once("::")?.0;
    }
}

fn modules(package: &str) -> Vec<Module> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the member lies in the workspace");
    let source = root.join(package).join("src");
    let mut modules = Vec::new();
    for file in rust_files(&source) {
        let path = file.strip_prefix(&source).expect("it lies there").with_extension("");
        let path = path.to_str().expect("names are plain").replace('/', "::");
        if ["main", "lib"].contains(&path.as_str()) || path.ends_with("::tests") {
            continue;
        }
        let text = fs::read_to_string(&file).expect("a source file");
        modules.push(Module { names: names(&without_tests(&text), &path), path });
    }
    assert!(modules.len() > 2, "the sources of {package} lie elsewhere than {}", source.display());
    modules
}

fn rust_files(folder: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder).expect("a folder of sources") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            files.extend(rust_files(&path));
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            files.push(path);
        }
    }
    files
}

/// The paths into its own crate that the code of module `own` names, without `crate::`.
fn names(code: &str, own: &str) -> Vec<(String, usize)> {
    let mut names = Vec::new();
    let mut lines = code.lines().enumerate().map(|(number, line)| (number + 1, line.trim()));
    while let Some((number, line)) = lines.next() {
        if line.starts_with("//") {
            continue;
        }
        let import = line.strip_prefix("pub ").or_else(|| line.split_once(") ").map(|(_, rest)| rest)).unwrap_or(line);
        if let Some(tree) = import.strip_prefix("use ") {
            let mut tree = tree.to_owned();
            while !tree.ends_with(';') {
                let Some((_, more)) = lines.next() else { break };
                tree.push_str(more);
            }
            names.extend(
                branches(tree.trim_end_matches(';'))
                    .iter()
                    .filter_map(|path| within(path, own))
                    .map(|path| (path, number)),
            );
        } else {
            for start in ["crate::", "super::"] {
                let inline = line.match_indices(start).map(|(at, _)| &line[at..]);
                let paths = inline.map(|rest| {
                    rest.split(|letter: char| !letter.is_alphanumeric() && letter != '_' && letter != ':')
                        .next()
                        .unwrap_or(rest)
                });
                names.extend(paths.filter_map(|path| within(path, own)).map(|path| (path, number)));
            }
        }
    }
    names
}

/// `path` from the root of the crate; `None` if it leads to another crate.
fn within(path: &str, own: &str) -> Option<String> {
    if let Some(rest) = path.strip_prefix("crate::") {
        return Some(rest.to_owned());
    }
    let mut module = own;
    let mut rest = path.strip_prefix("super::")?;
    module = module.rsplit_once("::").map_or("", |(parent, _)| parent);
    while let Some(higher) = rest.strip_prefix("super::") {
        rest = higher;
        module = module.rsplit_once("::").map_or("", |(parent, _)| parent);
    }
    Some(if module.is_empty() { rest.to_owned() } else { format!("{module}::{rest}") })
}

/// Each path of a tree of imports: `a::{b, c::{d}}` is `a::b` and `a::c::d`.
fn branches(tree: &str) -> Vec<String> {
    let Some((stem, rest)) = tree.split_once('{') else { return vec![tree.trim().to_owned()] };
    let inner = rest.rsplit_once('}').map_or(rest, |(inner, _)| inner);
    let (mut parts, mut depth, mut start) = (Vec::new(), 0, 0);
    for (at, letter) in inner.char_indices() {
        match letter {
            '{' => depth += 1,
            '}' => depth -= 1,
            ',' if depth == 0 => {
                parts.push(&inner[start..at]);
                start = at + 1;
            }
            _ => {}
        }
    }
    parts.push(&inner[start..]);
    let parts = parts.into_iter().filter(|part| !part.trim().is_empty());
    parts.flat_map(branches).map(|branch| format!("{}{branch}", stem.trim())).collect()
}

#[test]
fn imports_are_read_as_the_compiler_reads_them() {
    let code = "use crate::a::{self, b::{C, D}, e::F};\nuse super::g;\nfn x() { crate::h::i(); }\n// crate::no\n";
    let found: Vec<_> = names(code, "m::n").into_iter().map(|(name, _)| name).collect();
    assert_eq!(found, ["a::self", "a::b::C", "a::b::D", "a::e::F", "m::g", "h::i"]);
}
