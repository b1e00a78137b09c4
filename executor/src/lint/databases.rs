//! Databases that a pack needs and that the configuration does not have: said once for the pack.

use std::collections::BTreeMap;
use std::sync::Arc;

use catalog::packs::LoadedPack;
use catalog::{Catalog, Subtool};
use definition::run::Run;
use ground::config::Config;
use protocol::wording::counted;

use super::{Finding, Level};

/// How many subtools of each pack lack a database, by its name.
#[derive(Default)]
pub(super) struct MissingDatabases(BTreeMap<(String, String), (Arc<LoadedPack>, usize)>);

impl MissingDatabases {
    /// Notes a subtool that lacks a database which the manifest of its pack names. Returns whether it does: it need not be
    /// looked at further.
    pub(super) fn note(&mut self, subtool: &Subtool, catalog: &Catalog, config: &Config) -> bool {
        let Run::Sql(sql) = &subtool.definition.run else { return false };
        let pack = catalog.pack_of(subtool);
        let pack = pack.filter(|pack| pack.manifest.needs.databases.contains_key(&sql.database));
        let Some(pack) = pack.filter(|_| !config.databases.contains_key(&sql.database)) else { return false };
        let key = (pack.name().to_owned(), sql.database.clone());
        self.0.entry(key).or_insert_with(|| (Arc::clone(pack), 0)).1 += 1;
        true
    }

    pub(super) fn add_to(self, findings: &mut Vec<Finding>) {
        findings.extend(self.0.into_iter().map(|((_, database), (pack, count))| {
            let need = &pack.manifest.needs.databases[&database];
            let example = need.example.as_ref().map(|example| format!(", like {example}")).unwrap_or_default();
            Finding {
                level: Level::Error,
                code: "missing-database",
                file: pack.file.clone(),
                line: None,
                subtool: None,
                place: Some(format!("needs.databases.{database}")),
                message: format!(
                    "the database `{database}` ({}) is not configured, so {} of the pack will fail; describe it under \
                     [databases.{database}] in config.toml{example}",
                    need.description,
                    counted(count, "subtool")
                ),
            }
        }));
    }
}
