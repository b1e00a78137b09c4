//! What several checks of `doctor` need to know about all subtools, found in one pass over them.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use catalog::{Catalog, CheckOutcome, LoadProblem, Subtool};
use definition::run::Run;
use ground::config::Config;

/// What all subtools together need and have.
#[derive(Debug, Default)]
pub(super) struct CatalogSurvey {
    /// How many subtools can be used.
    pub(super) count: usize,
    pub(super) problems: Vec<LoadProblem>,
    /// The names of the secrets to which definitions refer.
    pub(super) secrets: BTreeSet<String>,
    /// The programs that subtools run, each with its file if there is one.
    pub(super) programs: BTreeMap<String, Option<PathBuf>>,
}

impl CatalogSurvey {
    pub(super) fn of(catalog: &Catalog, config: &Config) -> Self {
        let mut survey = Self { problems: catalog.problems().to_vec(), ..Self::default() };
        for (_, checked) in catalog.check() {
            match checked {
                CheckOutcome::Usable(subtool) => survey.add(&subtool, config),
                CheckOutcome::Hidden => {}
                CheckOutcome::Broken(problems) => survey.problems.extend(problems),
            }
        }
        survey.problems = catalog.once_per_pack(std::mem::take(&mut survey.problems));
        survey
    }

    fn add(&mut self, subtool: &Subtool, config: &Config) {
        let definition = &subtool.definition;
        self.count += 1;
        self.secrets.extend(definition.secrets());
        if let Run::Process(process) = &definition.run {
            self.programs.entry(process.program().to_owned()).or_insert_with(|| process.find(&config.programs));
        }
    }
}
