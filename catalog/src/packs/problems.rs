//! What is wrong with a pack, said once: a variable that is not set leaves out many of its subtools, and those that need
//! them in turn.

use protocol::wording::counted;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::loaded::LoadedPack;
use crate::relatives::says_unusable;
use crate::variables::unset_variable;
use crate::{Catalog, LoadProblem};

impl Catalog {
    /// Replaces the problems of single subtools of a pack that follow from a variable that is not set by one for the
    /// whole pack, behind all others.
    pub fn once_per_pack(&self, problems: Vec<LoadProblem>) -> Vec<LoadProblem> {
        let of_packs = self.files().iter().filter_map(|file| Some((file.origin.to_string(), file.pack.as_ref()?)));
        let packs: BTreeMap<String, &Arc<LoadedPack>> = of_packs.collect();
        if packs.is_empty() {
            return problems;
        }
        let mut unset = UnsetVariables::default();
        let mut rest = Vec::new();
        for problem in problems {
            let pack = packs.get(&problem.file).map(|pack| pack.name());
            match (pack, &problem.subtool, unset_variable(&problem.message)) {
                (Some(pack), Some(subtool), Some(variable)) => unset.add(pack, variable, subtool),
                _ => rest.push(problem),
            }
        }
        // What needs a subtool that is left out is left out too, and so on.
        loop {
            let before = rest.len();
            rest.retain(|problem| {
                let (Some(pack), Some(subtool)) = (packs.get(&problem.file), &problem.subtool) else { return true };
                let Some(variable) = unset.behind(pack.name(), &problem.message) else { return true };
                unset.add(pack.name(), &variable, subtool);
                false
            });
            if rest.len() == before {
                break;
            }
        }
        rest.extend(self.packs().iter().flat_map(|pack| self.problems_of_pack(pack, &unset)));
        rest
    }

    /// One problem for each variable of the pack that is not set.
    fn problems_of_pack(&self, pack: &LoadedPack, unset: &UnsetVariables) -> Vec<LoadProblem> {
        let own = self.files().iter().filter(|file| file.pack.as_ref().is_some_and(|it| it.name() == pack.name()));
        let total = own.map(|file| file.names().count()).sum::<usize>();
        let mut known = BTreeSet::new();
        let mut problems = Vec::new();
        for (variable, subtools) in unset.0.get(pack.name()).into_iter().flatten() {
            let need = pack.manifest.needs.variables.get(variable);
            let example = need.and_then(|need| need.example.as_ref());
            let example = example.map(|example| format!(", like {variable} = {example:?}")).unwrap_or_default();
            let what = need.map(|need| format!(" ({})", need.description)).unwrap_or_default();
            let left_out = if subtools.len() == total { "all".to_owned() } else { format!("{} of", subtools.len()) };
            problems.push(LoadProblem {
                file: pack.file.clone(),
                subtool: None,
                place: need.map(|_| format!("needs.variables.{variable}")),
                message: format!(
                    "the variable `{variable}`{what} is not set, so {left_out} {} of the pack are left out; set it \
                     under [vars] in config.toml{example}",
                    counted(total, "subtool")
                ),
                // A subtool that lacks two variables counts once.
                count: Some(subtools.iter().filter(|name| known.insert(name.as_str())).count()),
            });
        }
        problems
    }
}

/// The subtools that are left out, by pack and variable.
#[derive(Default)]
struct UnsetVariables(BTreeMap<String, BTreeMap<String, BTreeSet<String>>>);

impl UnsetVariables {
    fn add(&mut self, pack: &str, variable: &str, subtool: &str) {
        let variables = self.0.entry(pack.to_owned()).or_default();
        variables.entry(variable.to_owned()).or_default().insert(subtool.to_owned());
    }

    /// The variable without which the subtool is left out that `message` says is missing.
    fn behind(&self, pack: &str, message: &str) -> Option<String> {
        let variables = self.0.get(pack)?;
        let is_behind = |subtools: &BTreeSet<String>| subtools.iter().any(|name| says_unusable(message, name));
        variables.iter().find(|(_, subtools)| is_behind(subtools)).map(|(variable, _)| variable.clone())
    }
}
