//! `import --phrases`: a model drafts phrases for what was imported, so that a search finds it by everyday words.
//!
//! The phrases are written into the file after each request, as text that was edited there: a refresh keeps them, and an
//! interrupted drafting goes on with what is left.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use agent_loop::blocking_model::BlockingModel;
use agent_loop::model::conversation::{TokenUsage, TurnEnd};
use agent_loop::model::prompt::PromptMode;
use agent_loop::model::provider::ModelFailure;
use agent_loop::model::registry::{cost, rounded_cost};
use agent_loop::model_factory::ModelFactory;
use agent_side::context::Context;
use agent_side::error::Error;
use ground::config::Config;
use import::file;
use import::phrases::drafting::{self, BATCH, MIN_PHRASES, Undescribed};
use protocol::code::Code;
use protocol::wording::{counted, inflected};
use serde_json::{Value, json};

use super::writing::{self, WrittenFile};

/// After as many answers in a row that give nothing, the model does not understand what it is asked.
const MAX_EMPTY_ANSWERS: usize = 2;

#[derive(Debug, Clone, clap::Args)]
pub(super) struct DraftingArgs {
    /// Have a model draft phrases for what has none, so that it is found by everyday words: a name in [models] [default:
    /// the model of \[agent]]
    #[arg(long, value_name = "MODEL", num_args = 0..=1, default_missing_value = "", require_equals = true)]
    phrases: Option<String>,
    /// Draft phrases in this language as well as in English, like `German`
    #[arg(long, value_name = "LANGUAGE", requires = "phrases")]
    phrases_in: Vec<String>,
    /// Stop when the phrases have cost this much, at the prices of the model; they are kept, and the rest is drafted next time
    #[arg(long, value_name = "PRICE", default_value_t = 1.0, requires = "phrases")]
    phrases_cost: f64,
}

impl DraftingArgs {
    /// Drafts phrases for the definitions of `files`, if it is wanted. Returns what is reported; a failure is in it, since
    /// what was imported stays.
    pub(super) fn run(
        &self,
        files: &[WrittenFile],
        is_dry_run: bool,
        config: &Config,
        context: &Context,
    ) -> Option<Value> {
        let model = self.phrases.as_deref()?;
        Some(
            self.draft(Some(model).filter(|model| !model.is_empty()), files, is_dry_run, config, context)
                .unwrap_or_else(|error| json!({"error": error.body()})),
        )
    }

    /// Whether it is part of a report that phrases could not be drafted.
    pub(super) fn has_failed(report: &Value) -> bool {
        report["phrases"]["error"].is_object()
    }

    fn draft(
        &self,
        model: Option<&str>,
        files: &[WrittenFile],
        is_dry_run: bool,
        config: &Config,
        context: &Context,
    ) -> Result<Value, Error> {
        let lacking: Vec<(&Path, Vec<Undescribed>)> =
            files.iter().map(|file| (file.path.as_path(), drafting::without_phrases(&file.content))).collect();
        let operations: usize = lacking.iter().map(|(_, operations)| operations.len()).sum();
        let requests: usize = lacking.iter().map(|(_, operations)| operations.len().div_ceil(BATCH)).sum();
        let tokens =
            lacking.iter().map(|(_, operations)| drafting::estimated_tokens(operations, self.phrases_in.len()));
        let (input, output) = tokens.fold((0, 0), |sum, more| (sum.0 + more.0, sum.1 + more.1));
        let models = ModelFactory::new(config, &context.paths, PromptMode::of(config, true), None)?;
        let chosen = models.models().choose(model)?;
        let usage = TokenUsage { input: input as u64, output: output as u64, cached: 0 };
        let price = rounded_cost(cost(chosen.model.price, usage));
        let expected = json!({"model": chosen.name, "operations": operations, "requests": requests,
            "input_tokens": input, "output_tokens": output, "cost": price});
        if is_dry_run || operations == 0 {
            return Ok(expected);
        }
        let bound = if price > 0.0 {
            format!("at its prices {price}")
        } else {
            "without a `price`, so nothing bounds what it costs".to_owned()
        };
        context.output.note(&format!(
            "phrases for {}: {} to the model `{}`, about {input} tokens in, {output} out, {bound}; what is drafted is \
             kept, whatever ends it",
            counted(operations, "operation"),
            counted(requests, "request"),
            chosen.name
        ));
        let price_of = |batch: &[Undescribed]| {
            let (input, output) = drafting::estimated_tokens(batch, self.phrases_in.len());
            cost(chosen.model.price, TokenUsage { input: input as u64, output: output as u64, cached: 0 })
        };
        let model = BlockingModel::open(&models, model)?;
        let mut course = Course { model, args: self, spent: 0.0, requests: 0, empty_answers: 0 };
        let mut drafted = Drafted::default();
        let ended = lacking
            .iter()
            .try_for_each(|(path, operations)| course.draft_file(path, operations, &price_of, &mut drafted, context));
        let few = drafted.few;
        if few > 0 {
            context.output.note(&format!(
                "{} fewer than {MIN_PHRASES} phrases: the model wrote no more for them",
                inflected(few, "operation has", "operations have")
            ));
        }
        let mut report = json!({"model": chosen.name, "operations": operations, "drafted": drafted.operations,
            "phrases": drafted.phrases, "requests": course.requests, "cost": rounded_cost(course.spent)});
        if let Err(error) = ended {
            report["error"] = json!(error.body());
        }
        Ok(report)
    }
}

/// What was drafted so far.
#[derive(Debug, Default)]
struct Drafted {
    operations: usize,
    phrases: usize,
    /// Those that got fewer than are of use.
    few: usize,
}

/// The requests of one drafting.
struct Course<'a> {
    model: BlockingModel,
    args: &'a DraftingArgs,
    spent: f64,
    requests: u32,
    empty_answers: usize,
}

impl Course<'_> {
    fn draft_file(
        &mut self,
        path: &Path,
        operations: &[Undescribed],
        price_of: &dyn Fn(&[Undescribed]) -> f64,
        drafted: &mut Drafted,
        context: &Context,
    ) -> Result<(), Error> {
        let gone = || Error::new(Code::NotFound, format!("`{}` is no longer a file of an import", path.display()));
        for batch in operations.chunks(BATCH) {
            let next = price_of(batch);
            if self.spent + next > self.args.phrases_cost {
                let (spent, next) = (rounded_cost(self.spent), rounded_cost(next));
                let most = self.args.phrases_cost;
                let message =
                    format!("the phrases have cost {spent}, and the next request about {next}; they may cost {most}");
                return Err(Error::new(Code::BudgetExhausted, message)
                    .hint("for the rest: the same with `--refresh PACK` and a higher `--phrases-cost`"));
            }
            let answer = self.ask(batch)?;
            // It may have been edited while the model answered.
            let mut file = writing::content(path).ok_or_else(gone)?;
            let mut said: BTreeSet<String> = drafting::said_in(&file);
            let phrases = match drafting::read(&answer, batch, self.args.phrases_in.len(), &mut said) {
                Ok(phrases) => phrases,
                Err(why) => {
                    context.output.note(&format!(
                        "{} without phrases: {why}",
                        inflected(batch.len(), "operation stays", "operations stay")
                    ));
                    BTreeMap::default()
                }
            };
            self.empty_answers = if phrases.is_empty() { self.empty_answers + 1 } else { 0 };
            if self.empty_answers >= MAX_EMPTY_ANSWERS {
                let message = format!("the model answered {MAX_EMPTY_ANSWERS} times without any phrases");
                return Err(Error::new(Code::ModelFailed, message).hint("choose another model: --phrases=MODEL"));
            }
            drafting::add(&mut file, &phrases);
            writing::replace(path, &file::text(&file), true)?;
            let few = phrases.values().filter(|phrases| phrases.len() < MIN_PHRASES).count();
            drafted.few += few + batch.len() - phrases.len();
            drafted.operations += phrases.len();
            drafted.phrases += phrases.values().map(Vec::len).sum::<usize>();
        }
        Ok(())
    }

    fn ask(&mut self, batch: &[Undescribed]) -> Result<String, Error> {
        let question = drafting::question(batch, &self.args.phrases_in);
        let turn = self.model.ask(drafting::SYSTEM, &question).map_err(failed)?;
        self.requests += 1;
        self.spent += turn.cost;
        if turn.end == TurnEnd::Refused {
            return Err(Error::new(Code::ModelFailed, "the model or its provider refused to answer"));
        }
        Ok(turn.text)
    }
}

fn failed(failure: ModelFailure) -> Error {
    let code = failure.class.code();
    Error::new(code, failure.message)
        .hint("what was drafted is kept; for the rest: agent-magic-tool import --refresh PACK --phrases")
}
