//! `inspect`: everything about one subtool, from the same catalog that `run` uses.

use executor::catalog::Catalog;
use executor::code::{Code, Exit};
use serde_json::json;

use crate::context::Context;
use crate::error::Error;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The subtool; without one, a line on each: where it comes from, what it depends on and requires
    name: Option<String>,
}

pub(crate) fn run(args: &Args, context: &Context) -> Result<Exit, Error> {
    let config = context.places.read_config()?;
    let catalog = Catalog::load(&context.places.sources(&config));
    let Some(name) = &args.name else { return overview(&catalog, context) };
    let Some(subtool) = catalog.get(name) else {
        let nearest = catalog.nearest(name);
        let hint = nearest.first().map_or_else(
            || "search by what it should do: agent-magic-tool list tools --query=\"...\"".to_owned(),
            |first| format!("did you mean `{first}`?"),
        );
        let left_out: Vec<_> = catalog
            .problems()
            .iter()
            .filter(|problem| problem.subtool.as_ref() == Some(name))
            .map(ToString::to_string)
            .collect();
        let error = Error::new(Code::UnknownSubtool, format!("no subtool named `{name}`"))
            .hint(hint)
            .detail("nearest", nearest);
        return Err(if left_out.is_empty() { error } else { error.detail("left_out", left_out) });
    };
    let definition = &*subtool.definition;
    context.output.json(&json!({
        "name": subtool.name,
        "origin": subtool.origin.to_string(),
        "hash": subtool.hash,
        "effect": definition.effect_class(),
        "definition": definition,
    }))?;
    Ok(Exit::Ok)
}

fn overview(catalog: &Catalog, context: &Context) -> Result<Exit, Error> {
    let lines: Vec<_> = catalog
        .subtools()
        .map(|subtool| {
            let definition = &subtool.definition;
            json!({
                "name": subtool.name,
                "origin": subtool.origin.to_string(),
                "runner": definition.run.name(),
                "effect": definition.effect_class(),
                "depends_on": definition.depends_on,
                "requires": definition.requires,
            })
        })
        .collect();
    context.output.json(&lines)?;
    for problem in catalog.problems() {
        context.output.note(&format!("left out: {problem}"));
    }
    Ok(Exit::Ok)
}
