//! Puts imported definitions into files: which files, under which names, and merged into what is there already.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use agent_side::error::Error;
use catalog::{Catalog, Origin, Sources};
use import::document::Document;
use import::file::{self, GroupedFile, Merge, SourceRecord};
use import::kinds::Kind;
use import::{Imported, ImportedSubtool};
use protocol::invisible;
use protocol::paths::create_private;
use serde_json::{Map, Value, json};

use super::{Selection, servers};

/// The files of one imported description, as they are to be.
pub(super) struct Pack {
    /// The first part of the names of its files.
    prefix: String,
    namespace: Option<String>,
    files: Vec<PackFile>,
    /// Whether its first file has the settings of a server, by which it is asked again: it stays without subtools too.
    is_server: bool,
}

/// One file of a pack: what is there, and what the import makes.
struct PackFile {
    path: PathBuf,
    /// The content, if it exists and is of this pack.
    existing: Option<Map<String, Value>>,
    /// Whether a file is there that is not of this pack.
    is_foreign: bool,
    generated: Map<String, Value>,
}

/// A file that was written, or would be.
pub(super) struct WrittenFile {
    pub(super) path: PathBuf,
    subtools: Vec<String>,
    bytes: usize,
    state: &'static str,
    /// What it has, or would have.
    pub(super) content: Map<String, Value>,
    pub(super) merge: Option<Merge>,
}

impl Pack {
    pub(super) fn new(
        word: &str,
        namespace: Option<&str>,
        folder: &PackFolder,
        document: &Document,
        kind: &Kind,
        imported: &Imported,
        selection: &Selection,
    ) -> Self {
        let prefix = namespace.map_or_else(|| word.to_owned(), |namespace| format!("{word}-{namespace}"));
        let record = SourceRecord {
            kind: kind.word.to_owned(),
            from: document.from.clone(),
            id: imported.id.clone(),
            version: imported.version.clone(),
            sha256: document.sha256(),
            pack: prefix.clone(),
            options: selection.words(),
            about: imported.about.clone(),
            generated: BTreeMap::new(),
        };
        Self::with_record(&record, prefix, namespace.map(str::to_owned), folder, imported)
    }

    /// The pack of `record`. Definitions stay in the file where they are now.
    pub(super) fn with_record(
        record: &SourceRecord,
        prefix: String,
        namespace: Option<String>,
        folder: &PackFolder,
        imported: &Imported,
    ) -> Self {
        let existing = folder.existing(record);
        let mut by_file: BTreeMap<PathBuf, Vec<ImportedSubtool>> = BTreeMap::new();
        let mut fresh = Vec::new();
        for subtool in imported.subtools.iter().cloned() {
            let home = existing.iter().find(|(_, (_, known))| known.generated.contains_key(&subtool.name));
            match home {
                Some((path, _)) => by_file.entry(path.to_path_buf()).or_default().push(subtool),
                None => fresh.push(subtool),
            }
        }
        for GroupedFile { name, subtools, .. } in file::grouped(&prefix, &imported.defaults, fresh) {
            by_file.entry(folder.path.join(format!("{name}.json"))).or_default().extend(subtools);
        }
        // A file all of whose definitions are gone.
        for path in existing.keys() {
            by_file.entry(path.to_path_buf()).or_default();
        }
        let files = by_file.into_iter().map(|(path, subtools)| {
            let name = path.file_stem().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
            let GroupedFile { defaults, subtools, .. } = file::with_defaults(name, &imported.defaults, subtools);
            let generated = file::content(record, namespace.as_deref(), &defaults, &subtools);
            let known = existing.get(path.as_path()).map(|(content, _)| content.clone());
            PackFile { is_foreign: known.is_none() && path.exists(), path, existing: known, generated }
        });
        Self { files: files.collect(), prefix, namespace, is_server: record.kind == servers::WORD }
    }

    pub(super) fn name(&self) -> &str {
        &self.prefix
    }

    /// What is there of each file, and what the import makes of it.
    pub(super) fn contents(&self) -> impl Iterator<Item = (Option<&Map<String, Value>>, &Map<String, Value>)> {
        self.files.iter().map(|file| (file.existing.as_ref(), &file.generated))
    }

    /// The files.
    pub(super) fn paths(&self) -> impl Iterator<Item = &Path> {
        self.files.iter().map(|file| file.path.as_path())
    }

    fn is_first(&self, path: &Path) -> bool {
        path.file_stem().is_some_and(|name| *name == *self.prefix)
    }

    /// The names of all generated subtools, as the catalog knows them.
    fn names(&self) -> impl Iterator<Item = String> {
        let prefix = self.namespace.as_ref().map(|namespace| format!("{namespace}-")).unwrap_or_default();
        let names = self.files.iter().flat_map(|file| file.generated.keys());
        names.filter(|name| !name.starts_with('$')).map(move |name| format!("{prefix}{name}"))
    }
}

/// The folder that is written to, and what was imported into it before.
pub(super) struct PackFolder {
    pub(super) path: PathBuf,
    /// The files that have a `$source`, in the order of their names.
    pub(super) imported: Vec<ImportedFile>,
    /// Whether a pack of the same name from another place is the same one, which moved.
    pub(super) may_move: bool,
}

/// A file that was imported.
pub(super) struct ImportedFile {
    pub(super) path: PathBuf,
    pub(super) namespace: Option<String>,
    pub(super) record: SourceRecord,
}

impl PackFolder {
    /// Reads the folder once: a large import asks about it for each of its sources. With `may_move`, a pack that the
    /// human names is the one of that name, wherever its source lay before.
    pub(super) fn read(path: &Path, may_move: bool) -> Self {
        let mut paths: Vec<_> = fs::read_dir(path).into_iter().flatten().flatten().map(|entry| entry.path()).collect();
        paths.retain(|path| path.extension().is_some_and(|extension| extension == "json"));
        paths.sort();
        let imported = paths.into_iter().filter_map(|path| {
            let content = content(&path)?;
            let record = SourceRecord::of_file(&content)?;
            let namespace = content.get("$namespace").and_then(Value::as_str).map(str::to_owned);
            Some(ImportedFile { path, namespace, record })
        });
        Self { imported: imported.collect(), path: path.to_owned(), may_move }
    }

    /// Whether the names of this pack have the prefix of their server.
    pub(super) fn has_prefix(&self, kind: &str, pack: &str) -> bool {
        let prefix = format!("--{}", import::mcp::PREFIX);
        let mut records = self.imported.iter().map(|file| &file.record);
        records.any(|record| record.kind == kind && record.pack == pack && record.options.contains(&prefix))
    }

    /// The files that were imported from the same as `record`, with their contents.
    fn existing(&self, record: &SourceRecord) -> BTreeMap<&Path, (Map<String, Value>, &SourceRecord)> {
        let is_same = |known: &SourceRecord| {
            let is_pack = known.kind == record.kind && known.id == record.id && known.pack == record.pack;
            is_pack && (self.may_move || known.from == record.from)
        };
        let same = self.imported.iter().filter(|file| is_same(&file.record));
        same.filter_map(|file| Some((file.path.as_path(), (content(&file.path)?, &file.record)))).collect()
    }
}

/// The content of a definition file that was imported.
pub(super) fn content(path: &Path) -> Option<Map<String, Value>> {
    let text = fs::read_to_string(path).ok()?;
    if text.contains("\"$source\"") { serde_json::from_str(&text).ok() } else { None }
}

/// A namespace for the pack of `document`, whose names are taken: its version, or a number.
pub(super) fn namespace(document: &Document, attempt: usize) -> String {
    let version = document.data["version"].as_str().or_else(|| document.data["info"]["version"].as_str());
    let version: String =
        version.unwrap_or_default().chars().map(|it| if it.is_ascii_alphanumeric() { it } else { '_' }).collect();
    let version = version.trim_matches('_').to_lowercase();
    match attempt {
        0 if (1..=12).contains(&version.len()) => {
            if version.starts_with(|first: char| first.is_ascii_digit()) {
                format!("v{version}")
            } else {
                version
            }
        }
        _ => format!("n{}", attempt + 1),
    }
}

/// The names that are in use, with the files that define them.
pub(super) struct TakenNames {
    names: BTreeMap<String, PathBuf>,
    files: BTreeSet<PathBuf>,
}

/// Why a pack cannot have the names that it wants.
pub(super) enum NameConflict {
    File(PathBuf),
    Name(String, PathBuf),
}

impl NameConflict {
    pub(super) fn error(&self) -> Error {
        match self {
            Self::File(path) => Error::usage(format!("`{}` exists, and was not imported from this", path.display()))
                .hint("choose another name with --name"),
            Self::Name(name, path) => Error::usage(format!("`{name}` is defined by {} already", path.display()))
                .hint("choose another name with --name"),
        }
    }
}

impl TakenNames {
    pub(super) fn of(sources: &Sources, folder: &Path) -> Self {
        let sources = if folder.exists() { sources.clone().with(&[folder.to_owned()]) } else { sources.clone() };
        let catalog = Catalog::load(&sources);
        let path = |origin: &Origin| match origin {
            Origin::File(path) => path.canonicalize().unwrap_or_else(|_| path.clone()),
            pack @ Origin::Pack(_) => PathBuf::from(pack.to_string()),
        };
        let names = catalog.files().iter().flat_map(|file| {
            let path = path(&file.origin);
            file.names().map(move |name| (name.to_string(), path.clone()))
        });
        Self { names: names.collect(), files: BTreeSet::new() }
    }

    pub(super) fn conflict(&self, pack: &Pack) -> Option<NameConflict> {
        let own: Vec<_> = pack
            .files
            .iter()
            .filter(|file| file.existing.is_some())
            .filter_map(|file| file.path.canonicalize().ok())
            .collect();
        let foreign = pack.files.iter().find(|file| file.is_foreign || self.files.contains(&file.path));
        if let Some(file) = foreign {
            return Some(NameConflict::File(file.path.clone()));
        }
        pack.names().find_map(|name| {
            let path = self.names.get(&name).filter(|path| !own.contains(path))?;
            Some(NameConflict::Name(name, path.clone()))
        })
    }

    pub(super) fn add(&mut self, pack: &Pack) {
        self.files.extend(pack.files.iter().map(|file| file.path.clone()));
        let file = pack.files.first().map(|file| file.path.clone()).unwrap_or_default();
        self.names.extend(pack.names().map(|name| (name, file.clone())));
    }
}

impl WrittenFile {
    pub(super) fn to_json(&self, is_dry_run: bool) -> Value {
        let mut report = json!({
            "file": self.path, "subtools": self.subtools.len(), "bytes": self.bytes,
            "state": if is_dry_run && self.state != "unchanged" { format!("would be {}", self.state) } else { self.state.to_owned() },
        });
        if is_dry_run {
            report["names"] = self.subtools.clone().into();
        }
        if let Some(merge) = &self.merge {
            for (key, names) in [("added", &merge.added), ("removed", &merge.removed), ("orphaned", &merge.orphaned)] {
                if !names.is_empty() {
                    report[key] = names.clone().into();
                }
            }
            for (key, names) in [("changed", &merge.changed), ("kept", &merge.kept)] {
                if !names.is_empty() {
                    report[key] = json!(names);
                }
            }
            if !merge.differences.is_empty() {
                let shown = |lines: &Vec<String>| lines.iter().map(|line| invisible::escaped(line)).collect::<Vec<_>>();
                let shown: BTreeMap<_, _> =
                    merge.differences.iter().map(|(name, lines)| (name, shown(lines))).collect();
                report["differences"] = json!(shown);
            }
        }
        report
    }
}

/// Writes the files of `pack`, unless it `is_dry_run`.
pub(super) fn write(pack: &Pack, is_dry_run: bool) -> Result<Vec<WrittenFile>, Error> {
    let mut written = Vec::new();
    for file in &pack.files {
        let merge = file.existing.as_ref().map(|existing| file::merge(existing, &file.generated));
        let content = merge.as_ref().map_or(&file.generated, |merge| &merge.file);
        let subtools: Vec<_> = content.keys().filter(|name| !name.starts_with('$')).cloned().collect();
        let is_kept = pack.is_server && (pack.files.len() == 1 || pack.is_first(&file.path));
        let text = file::text(content);
        let state = match &file.existing {
            None => "written",
            Some(_) if subtools.is_empty() && !is_kept => "removed",
            Some(existing) if file::text(existing) == text => "unchanged",
            Some(_) => "updated",
        };
        if !is_dry_run {
            match state {
                "unchanged" => {}
                "removed" => fs::remove_file(&file.path)
                    .map_err(|error| Error::io(&format!("failed to remove `{}`", file.path.display()), &error))?,
                _ => replace(&file.path, &text, file.existing.is_some())?,
            }
        }
        let (path, content, bytes) = (file.path.clone(), content.clone(), text.len());
        written.push(WrittenFile { path, subtools, bytes, state, content, merge });
    }
    Ok(written)
}

/// Writes a file under a temporary name and renames it, so that it is never half written.
pub(super) fn replace(path: &Path, text: &str, may_replace: bool) -> Result<(), Error> {
    let failed = |error: std::io::Error| Error::io(&format!("failed to write `{}`", path.display()), &error);
    let folder = path.parent().unwrap_or(Path::new("."));
    create_private(folder).map_err(failed)?;
    let mut file = tempfile::Builder::new().prefix(".import-").suffix(".tmp").tempfile_in(folder).map_err(failed)?;
    file.write_all(text.as_bytes()).map_err(failed)?;
    let persisted = if may_replace { file.persist(path) } else { file.persist_noclobber(path) };
    persisted.map(drop).map_err(|error| failed(error.error))
}
