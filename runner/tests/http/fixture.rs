//! What a test needs to run a definition: a runner context in a temporary folder, invocations, and packs.

use std::path::{Path, PathBuf};

use definition::run::Run;
use ground::config::Config;
use ground::config::secret::Secrets;
use ground::task::failure::Failure;
use protocol::caller::Caller;
use runner::{Invocation, OutputData, Runner as _, RunnerContext, RunnerOutput};
use serde_json::{Map, Value, json};
use tokio_util::sync::CancellationToken;

#[derive(Debug)]
pub(crate) struct Fixture {
    pub(crate) context: RunnerContext,
    pub(crate) folder: tempfile::TempDir,
}

impl Fixture {
    pub(crate) fn new() -> Self {
        Self::with(|_| {})
    }

    pub(crate) fn with(change: impl FnOnce(&mut Config)) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let mut config = Config::default();
        change(&mut config);
        let secrets = Secrets::new(folder.path().join("secrets"), config.secrets.clone());
        let context = RunnerContext::new(config, secrets, folder.path().join("spool")).expect("clients");
        Self { context, folder }
    }

    /// Stores a secret and returns the fixture.
    pub(crate) fn secret(self, name: &str, value: &str) -> Self {
        self.set(name, value);
        self
    }

    pub(crate) fn set(&self, name: &str, value: &str) {
        self.context.secrets.set(&name.parse().expect("a name"), value).expect("it is stored");
    }

    pub(crate) async fn stored(&self, name: &str) -> String {
        let secret = self.context.secrets.get(&name.parse().expect("a name")).await.expect("it is set");
        secret.expose().to_owned()
    }

    pub(crate) async fn run(&self, definition: Value, input: Value) -> Result<RunnerOutput, Failure> {
        self.run_until(definition, input, &CancellationToken::new()).await
    }

    pub(crate) async fn run_until(
        &self,
        definition: Value,
        input: Value,
        cancel: &CancellationToken,
    ) -> Result<RunnerOutput, Failure> {
        let run = run_of(json!({ "http": definition }));
        run.perform(&self.invocation(input), &self.context, cancel).await
    }

    pub(crate) fn invocation(&self, input: Value) -> Invocation {
        Invocation {
            id: "01997f5e-task".to_owned(),
            attempt: 1,
            input: serde_json::from_value(input).expect("an object"),
            caller: Caller { folder: Some(self.folder.path().to_owned()), ..Caller::default() },
            ..Invocation::default()
        }
    }

    /// The files in the spool folder.
    pub(crate) fn spooled(&self) -> Vec<PathBuf> {
        let entries = std::fs::read_dir(&self.context.spool).map(Iterator::collect::<Result<Vec<_>, _>>);
        entries.map_or_else(
            |_| Vec::new(),
            |entries| entries.expect("readable").into_iter().map(|entry| entry.path()).collect(),
        )
    }
}

pub(crate) fn run_of(run: Value) -> Run {
    let run: Run = serde_json::from_value(run).expect("a definition");
    assert_eq!(run.check(), [], "a valid definition");
    run
}

/// The JSON data of a success.
pub(crate) fn json_of(outcome: Result<RunnerOutput, Failure>) -> Value {
    match outcome.expect("it succeeds").data {
        OutputData::Json(value) => value,
        OutputData::File { path, .. } => panic!("a file: {}", path.display()),
    }
}

/// The subtools of a shipped pack, with `$defaults` merged into each.
pub(crate) fn pack(name: &str) -> Map<String, Value> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../subtools");
    let path = folder.join(name.trim_end_matches(".json")).join(name);
    let text = std::fs::read_to_string(path).expect("the pack exists");
    let mut pack: Map<String, Value> = serde_json::from_str(&text).expect("the pack is JSON");
    let defaults = pack.remove("$defaults").unwrap_or_else(|| json!({}));
    pack.retain(|key, _| !key.starts_with('$'));
    for subtool in pack.values_mut() {
        // A subtool with another runner than the defaults does not inherit their `run`.
        let mut defaults = defaults.clone();
        if let (Some(own), Some(Value::Object(shared))) = (subtool["run"].as_object(), defaults.get_mut("run")) {
            shared.retain(|kind, _| own.contains_key(kind));
        }
        merge(&mut defaults, subtool);
        *subtool = defaults;
    }
    pack
}

fn merge(base: &mut Value, over: &Value) {
    match (base, over) {
        (Value::Object(base), Value::Object(over)) => {
            for (key, value) in over {
                merge(base.entry(key.clone()).or_insert(Value::Null), value);
            }
        }
        (base, over) => *base = over.clone(),
    }
}

/// Applies the jq expression `select` to `value`.
pub(crate) fn selected(value: &Value, select: &str) -> Value {
    use jaq_core::load::{Arena, File, Loader};
    use jaq_core::{Compiler, Ctx, Vars, data, unwrap_valr};
    use jaq_json::{Val, read};

    let text = value.to_string();
    let input = read::parse_single(text.as_bytes()).expect("JSON");
    let definitions = jaq_core::defs().chain(jaq_std::defs()).chain(jaq_json::defs());
    let functions = jaq_core::funs().chain(jaq_std::funs()).chain(jaq_json::funs());
    let arena = Arena::default();
    let modules = Loader::new(definitions).load(&arena, File { code: select, path: () }).expect("it parses");
    let filter = Compiler::default().with_funs(functions).compile(modules).expect("it compiles");
    let context = Ctx::<data::JustLut<Val>>::new(&filter.lut, Vars::new([]));
    let mut outputs = filter.id.run((context, input)).map(unwrap_valr);
    let output = outputs.next().expect("an output").expect("no error");
    serde_json::from_str(&output.to_string()).expect("JSON")
}
