//! A dry run: what shows what a run would do, without it happening.
//!
//! Either another subtool, which only reads, or the subtool's own request with fields that tell the service to change
//! nothing. A change of a database needs no declaration: it can be tried and rolled back.

use serde_json::{Map, Value};

use crate::run::Run;
use crate::subtool::{Definition, DryRun};

impl DryRun {
    /// Whether it is the subtool's own request.
    pub fn is_own_request(&self) -> bool {
        self.subtool.is_none()
    }
}

impl Definition {
    /// Whether what a run would do can be shown, as far as its definition tells: it says how, or it changes a database.
    pub fn has_dry_run(&self) -> bool {
        self.dry_run.is_some() || self.run.change().is_some()
    }

    /// The fields of the input that make a run one in which nothing happens, with the values that do so.
    pub fn dry_run_fields(&self) -> Option<&Map<String, Value>> {
        self.dry_run.as_ref().filter(|dry_run| dry_run.is_own_request()).map(|dry_run| &dry_run.input)
    }

    /// The definition of its own request as a dry run, which changes nothing; `None` if another subtool shows it, or
    /// nothing does. Rules judge it like a subtool that is declared to be read-only.
    #[must_use]
    pub fn as_dry_run(&self) -> Option<Self> {
        let run = match (&self.run, &self.dry_run) {
            (run, Some(dry_run)) if dry_run.is_own_request() => run.clone(),
            (Run::Sql(sql), None) if sql.changes() => {
                let mut tried = sql.clone();
                tried.dry_run = Some(true.into());
                Run::Sql(tried)
            }
            _ => return None,
        };
        // A program could do anything with the fields that tell it to change nothing: if a human has to be asked before it
        // runs, it does not run for a dry run.
        let confirm = self.confirm.clone().filter(|_| matches!(run, Run::Process(_)));
        let mut own = Self { run, confirm, verify: None, preview: None, dry_run: None, ..self.clone() };
        own.annotations.read_only_hint = true;
        Some(own)
    }
}

#[cfg(test)]
mod tests {
    use ground::task::effect::EffectClass;
    use serde_json::json;

    use super::*;

    fn definition(run: &Value, dry_run: &Value) -> Definition {
        let whole = json!({"description": "x", "input": {}, "confirm": "always", "run": run, "dry_run": dry_run});
        serde_json::from_value(whole).expect("a valid definition")
    }

    #[test]
    fn its_own_request_as_a_dry_run_counts_as_one_that_reads() {
        let request = json!({"http": {"base_url": "https://example.com", "method": "POST", "path": "/"}});
        let own = definition(&request, &json!({"input": {"validateOnly": true}}));
        assert!(own.has_dry_run());
        assert_eq!(own.dry_run_fields(), json!({"validateOnly": true}).as_object());
        let tried = own.as_dry_run().expect("a dry run");
        assert_eq!((tried.effect_class(), tried.confirm, tried.dry_run.is_none()), (EffectClass::Read, None, true));

        let by_another = definition(&request, &json!({"subtool": "look", "input": {"id": 1}}));
        assert!(by_another.has_dry_run() && by_another.as_dry_run().is_none() && by_another.dry_run_fields().is_none());
        let none = definition(&request, &Value::Null);
        assert!(!none.has_dry_run() && none.as_dry_run().is_none());
    }

    #[test]
    fn a_change_of_a_database_is_tried_without_a_declaration() {
        let change = json!({"sql": {"database": "shop", "change": "{{ statement }}", "dry_run": "{{ dry_run }}"}});
        let definition = definition(&change, &Value::Null);
        assert!(definition.has_dry_run() && definition.dry_run_fields().is_none());
        let Some(Definition { run: Run::Sql(tried), .. }) = definition.as_dry_run() else { panic!("it can be tried") };
        assert_eq!(tried.dry_run, Some(json!(true)));
        let query = json!({"sql": {"database": "shop", "query": "{{ statement }}"}});
        let query: Definition =
            serde_json::from_value(json!({"description": "x", "input": {}, "run": query})).expect("valid");
        assert!(!query.has_dry_run());
    }
}
