//! The runners that work on the local machine, with real programs, files and repositories, and their packs.

use std::path::{Path, PathBuf};
use std::time::Duration;

use catalog::{Catalog, Sources};
use definition::Definition;
use definition::run::Run;
use ground::config::Config;
use ground::config::secret::Secrets;
use ground::task::failure::Failure;
use protocol::caller::Caller;
use runner::{Invocation, OutputData, Runner as _, RunnerContext, RunnerOutput};
use serde_json::{Map, Value};
use tempfile::TempDir;
use tokio_util::sync::CancellationToken;

#[path = "local/files.rs"]
mod files;
#[path = "local/git.rs"]
mod git;
#[path = "local/git_scope.rs"]
mod git_scope;
#[path = "local/group.rs"]
mod group;
#[path = "local/packs.rs"]
mod packs;
#[path = "local/process.rs"]
mod process;
#[path = "local/roots.rs"]
mod roots;

/// How long to wait for anything in these tests: longer than it takes on a busy machine.
const TIMEOUT: Duration = Duration::from_secs(30);

/// A folder for the caller, a folder outside all roots, and a runner context.
struct World {
    folder: TempDir,
    context: RunnerContext,
}

impl World {
    fn new() -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder");
        for name in ["home", "outside", "spool"] {
            std::fs::create_dir(folder.path().join(name)).expect("a new folder");
        }
        let config = Config::default();
        let secrets = Secrets::new(folder.path().join("secrets"), config.secrets.clone());
        let context = RunnerContext::new(config, secrets, folder.path().join("spool")).expect("clients");
        Self { folder, context }
    }

    /// The caller's folder, the only root.
    fn home(&self) -> PathBuf {
        self.folder.path().join("home")
    }

    fn outside(&self) -> PathBuf {
        self.folder.path().join("outside")
    }

    fn write(&self, path: &str, text: impl AsRef<[u8]>) {
        let path = self.home().join(path);
        std::fs::create_dir_all(path.parent().expect("a path in a folder")).expect("folders");
        std::fs::write(path, text).expect("a written file");
    }

    fn invocation(&self, input: Value) -> Invocation {
        Invocation {
            id: "task".to_owned(),
            attempt: 1,
            input: object(input),
            caller: Caller { folder: Some(self.home()), ..Caller::default() },
            ..Invocation::default()
        }
    }

    async fn perform(&self, run: &Value, input: Value) -> Result<RunnerOutput, Failure> {
        self.perform_until(run, input, &CancellationToken::new()).await
    }

    async fn perform_until(
        &self,
        run: &Value,
        input: Value,
        cancel: &CancellationToken,
    ) -> Result<RunnerOutput, Failure> {
        let run = runner(run);
        assert_eq!(run.check(), [], "a definition without mistakes");
        let invocation = self.invocation(input);
        let performed = run.perform(&invocation, &self.context, cancel);
        tokio::time::timeout(TIMEOUT, performed).await.expect("the invocation should end in time")
    }

    async fn data(&self, run: &Value, input: Value) -> Value {
        json_of(self.perform(run, input).await.expect("the invocation should succeed"))
    }

    async fn failure(&self, run: &Value, input: Value) -> Failure {
        self.perform(run, input).await.expect_err("the invocation should fail")
    }
}

fn runner(run: &Value) -> Run {
    serde_json::from_value(run.clone()).expect("a runner")
}

fn object(value: Value) -> Map<String, Value> {
    let Value::Object(object) = value else { panic!("{value} is not an object") };
    object
}

fn json_of(success: RunnerOutput) -> Value {
    match success.data {
        OutputData::Json(value) => value,
        OutputData::File { path, .. } => panic!("{} is not JSON", path.display()),
    }
}

/// The subtools of a shipped pack.
fn pack(name: &str) -> Vec<(String, Definition)> {
    let mut config = Config::default();
    config.catalog.packs = vec![name.to_owned()];
    let nowhere = Sources::new(&config, Path::new("/nonexistent"), None);
    let catalog = Catalog::load(&nowhere);
    assert_eq!(catalog.all_problems(), []);
    catalog.subtools().map(|subtool| (subtool.name.to_string(), Definition::clone(&subtool.definition))).collect()
}

/// The runner of a shipped subtool.
fn shipped(pack_name: &str, subtool: &str) -> Value {
    let found = pack(pack_name).into_iter().find(|(name, _)| name == subtool);
    let (_, definition) = found.expect("a subtool of the pack");
    serde_json::to_value(definition.run).expect("a definition is JSON")
}

/// Waits until `condition` holds; panics if it takes too long.
async fn eventually(what: &str, mut condition: impl FnMut() -> bool) {
    let deadline = tokio::time::Instant::now() + TIMEOUT;
    while !condition() {
        assert!(tokio::time::Instant::now() < deadline, "timed out waiting until {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}
