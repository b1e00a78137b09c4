//! The shipped packs: every definition loads, and every example can be planned.

use std::collections::{BTreeMap, BTreeSet};

use catalog::{Catalog, Origin, SHIPPED, Sources};
use definition::run::Run;
use executor::lint::{LintScope, lint};
use ground::config::Config;
use protocol::caller::Caller;
use runner::{Invocation, Runner as _};
use serde_json::Value;

/// The variables that packs need which are off by default.
const VARIABLES: &str = r#"
    shopware_url = "https://shop.example.com"
    magento_url = "https://magento.example.com"
    magento_root = "/srv/magento"
    typo3_root = "/srv/typo3"
    search_url = "https://search.example.com"
    search_engine = "searxng"
"#;

/// All shipped packs, for callers with every permission.
pub(crate) fn shipped_sources() -> (Sources, Config) {
    sources_of(SHIPPED.iter().map(|pack| pack.name.to_owned()).collect())
}

/// The packs that are on by default, for callers with every permission.
pub(crate) fn default_sources() -> (Sources, Config) {
    sources_of(Config::default().catalog.packs)
}

fn sources_of(packs: Vec<String>) -> (Sources, Config) {
    let mut config = Config::default();
    config.catalog.folders.clear();
    config.access.admin = true;
    config.catalog.packs = packs;
    config.vars = toml::from_str(VARIABLES).expect("variables");
    let model = "provider = \"ollama\"";
    config.models.insert("a-model".to_owned(), toml::from_str(model).expect("a model"));
    let folder = tempfile::tempdir().expect("a temporary folder");
    for name in ["magento", "typo3"] {
        let database = "url = \"mysql://reader@127.0.0.1/shop\"";
        config.databases.insert(name.to_owned(), toml::from_str(database).expect("a database"));
    }
    config.access.privileges = vec!["*".to_owned()];
    (Sources::new(&config, folder.path(), None), config)
}

fn shipped() -> (Catalog, Config) {
    let (sources, config) = shipped_sources();
    (Catalog::load(&sources), config)
}

#[test]
fn every_definition_of_every_pack_is_loaded() {
    let (catalog, _) = shipped();
    assert_eq!(catalog.all_problems(), []);
    let defined: usize = SHIPPED
        .iter()
        .map(|pack| {
            let file: Value = serde_json::from_str(pack.text).expect("it is JSON");
            let definitions = file.as_object().expect("an object").iter().filter(|(key, _)| !key.starts_with('$'));
            definitions.filter(|(_, definition)| definition["enabled"] != false).count()
        })
        .sum();
    assert_eq!(catalog.subtools().count(), defined);
}

#[test]
fn every_example_is_valid_and_can_be_planned() {
    let (catalog, config) = shipped();
    let home = tempfile::tempdir().expect("a temporary folder");
    for subtool in catalog.subtools() {
        assert!(!subtool.definition.examples.is_empty(), "{}: no example", subtool.name);
        for example in &subtool.definition.examples {
            let mut input = example.input.clone();
            subtool.schema.normalize(&mut input);
            assert_eq!(subtool.schema.problems(&Value::Object(input.clone())), [], "{}", subtool.name);
            let invocation = Invocation {
                id: "task".to_owned(),
                attempt: 1,
                input,
                caller: Caller { folder: Some(home.path().to_owned()), ..Caller::default() },
                ..Invocation::default()
            };
            let plan = subtool.definition.run.plan(&invocation, &config);
            let plan = plan.unwrap_or_else(|failure| panic!("{}: {failure:?}", subtool.name));
            assert!(!plan.to_string().contains("{{"), "{}: unrendered template in {plan}", subtool.name);
        }
    }
}

#[test]
fn every_health_check_is_a_run_that_its_subtool_accepts() {
    let (catalog, _) = shipped();
    let mut checked = Vec::new();
    for pack in catalog.packs() {
        let Some(health) = &pack.manifest.health else { continue };
        let subtool = catalog.get(health.subtool.as_str()).expect("it is loaded");
        assert!(subtool.definition.runs_in_read_only_sessions(), "{}", pack.name());
        let mut input = health.input.clone();
        subtool.schema.normalize(&mut input);
        assert_eq!(subtool.schema.problems(&Value::Object(input)), [], "{}", pack.name());
        checked.push(pack.name().to_owned());
    }
    checked.sort();
    let expected = ["calendar", "drive", "github", "gmail", "magento", "magento-db", "search", "shopware", "typo3"];
    assert_eq!(checked, expected);
}

/// What subtools use is what the manifest of their pack says that they need.
#[test]
fn every_manifest_names_what_its_subtools_need() {
    let (catalog, _) = shipped();
    for pack in SHIPPED {
        let loaded = catalog.packs().iter().find(|loaded| loaded.name() == pack.name).expect("it is loaded");
        let needs = &loaded.manifest.needs;
        let named = |prefix: &str, letters: fn(char) -> bool| -> BTreeSet<String> {
            let found = pack.text.split(prefix).skip(1);
            found.map(|rest| rest.chars().take_while(|letter| letters(*letter)).collect()).collect()
        };
        let is_word = |letter: char| letter.is_ascii_alphanumeric() || letter == '_';
        let is_secret = |letter: char| letter.is_ascii_alphanumeric() || letter == '_' || letter == '-';
        let declared = |needs: &BTreeMap<String, _>| needs.keys().cloned().collect::<BTreeSet<_>>();
        assert_eq!(declared(&needs.variables), named("vars.", is_word), "{}: variables", pack.name);
        assert_eq!(declared(&needs.secrets), named("secret:", is_secret), "{}: secrets", pack.name);
        let subtools: Vec<_> =
            catalog.subtools().filter(|it| it.origin == Origin::Pack(pack.name.to_owned())).collect();
        let databases = subtools.iter().filter_map(|it| match &it.definition.run {
            Run::Sql(sql) => Some(sql.database.clone()),
            _ => None,
        });
        assert_eq!(declared(&needs.databases), databases.collect(), "{}: databases", pack.name);
        // Also what the subtools need that are switched off.
        let file: Value = serde_json::from_str(pack.text).expect("it is JSON");
        let definitions = file.as_object().expect("an object").values();
        let required = definitions.filter_map(|definition| definition["requires"].as_array()).flatten();
        let required = required.map(|privilege| privilege.as_str().expect("a text"));
        // What depends on the input stands there as a star.
        let required: BTreeSet<_> = required.map(|privilege| privilege.replace("{{ entity }}", "*")).collect();
        assert_eq!(declared(&needs.privileges), required, "{}: privileges", pack.name);
    }
}

#[test]
fn lint_has_no_findings() {
    let (catalog, config) = shipped();
    let findings: Vec<_> = lint(&catalog, &config, &LintScope::default())
        .into_iter()
        .map(|finding| format!("{:?}: {}: {}", finding.subtool, finding.code, finding.message))
        .collect();
    assert!(findings.is_empty(), "{findings:#?}");
}
