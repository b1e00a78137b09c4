//! Google's API discovery documents.

mod operation;

use serde_json::{Map, Value, json};

use crate::document::Document;
use crate::schema::{Dialect, Schemas};
use crate::{ImportError, ImportOptions, Imported, LeftOut, describe, names};
use operation::Method;

/// The secret that the APIs of Google share.
const GOOGLE_SECRET: &str = "google";

/// How deeply resources may lie in each other; Google's do at most 7 levels.
const MAX_RESOURCE_LEVELS: usize = 32;

/// Everything of many APIs lies in `projects.locations`, or in one resource like `users`, which groups nothing.
const CONTAINERS: [&str; 6] = ["projects", "locations", "organizations", "folders", "users", ""];

pub(crate) fn recognizes(document: &Document) -> bool {
    let data = &document.data;
    data["kind"] == "discovery#restDescription"
        || data.get("discoveryVersion").is_some() && data.get("rootUrl").is_some()
}

pub(crate) fn import(document: &Document, options: &ImportOptions) -> Result<Imported, ImportError> {
    let data = &document.data;
    let text = |key: &str| data[key].as_str().unwrap_or_default();
    let server = match &options.server {
        Some(server) => server.trim_end_matches('/').to_owned(),
        None => text("rootUrl").trim_end_matches('/').to_owned(),
    };
    if server.is_empty() {
        return Err(ImportError::new("the document has no `rootUrl`"));
    }
    let word = names::pack(if text("name").is_empty() { text("title") } else { text("name") }, 3);
    let pack = options.pack.clone().unwrap_or_else(|| word.clone());
    let has_scopes = data["auth"]["oauth2"]["scopes"].as_object().is_some_and(|scopes| !scopes.is_empty());
    let mut http = json!({"base_url": server});
    let secret = if is_google(&server) { GOOGLE_SECRET.to_owned() } else { pack.clone() };
    if has_scopes {
        http["auth"] = json!({"oauth2": format!("secret:{secret}")});
    }
    let defaults = json!({"run": {"http": http}, "tags": [pack]});
    let mut imported = Imported {
        id: text("id").to_owned(),
        word,
        version: Some(format!("{} {}", text("version"), text("revision")).trim().to_owned()),
        defaults: defaults.as_object().cloned().unwrap_or_default(),
        ..Imported::default()
    };
    let texts = describe::FieldTexts::default();
    let api = DiscoveryApi {
        data,
        schemas: Schemas { root: data, dialect: Dialect::Discovery, full: options.full, texts: &texts },
        options,
        pack,
        boilerplate: describe::Boilerplate::default(),
        service_path: format!("/{}", text("servicePath").trim_matches('/')).trim_end_matches('/').to_owned(),
    };
    let mut names = names::Names::new(options.max_name_chars);
    let mut scopes = Map::new();
    api.resource(data, "", 0, &mut |group, method| {
        imported.found += 1;
        let what = method["id"].as_str().unwrap_or("a method without an id").to_owned();
        if let Some(needed) = method["scopes"].as_array().and_then(|scopes| narrowest(scopes)) {
            scopes.insert(needed.to_owned(), Value::Null);
        }
        match Method::import(&api, group, method, &what, &mut names) {
            Ok((subtool, simplified)) => {
                imported.subtools.push(subtool);
                imported.simplified.extend(simplified.into_iter().map(|reason| LeftOut::new(what.as_str(), reason)));
            }
            Err(reason) => imported.left_out.push(LeftOut::new(what, reason)),
        }
    });
    if has_scopes {
        let scopes: Vec<_> = scopes.keys().map(String::as_str).take(6).collect();
        imported.notes.push(format!(
            "store an access token, or OAuth client data with a refresh token, as the secret `{secret}`: agent-magic-tool secret \
             set {secret}; its scopes: {}",
            scopes.join(" ")
        ));
        imported.secrets.insert(secret);
    }
    Ok(imported)
}

/// Whether `server` is Google's: only there goes the secret that all of Google's APIs share.
fn is_google(server: &str) -> bool {
    let url = url::Url::parse(server).ok();
    url.as_ref().and_then(url::Url::host_str).is_some_and(|host| host.ends_with(".googleapis.com"))
}

/// The scope that allows the least: the last one of the list is usually that, and a read-only one always.
fn narrowest(scopes: &[Value]) -> Option<&str> {
    let all = || scopes.iter().filter_map(Value::as_str);
    all().find(|scope| scope.ends_with(".readonly")).or_else(|| all().next_back())
}

/// What all methods of a document share.
pub(crate) struct DiscoveryApi<'a> {
    pub(crate) data: &'a Value,
    pub(crate) schemas: Schemas<'a>,
    pub(crate) options: &'a ImportOptions,
    pub(crate) pack: String,
    pub(crate) boilerplate: describe::Boilerplate,
    pub(crate) service_path: String,
}

impl<'a> DiscoveryApi<'a> {
    /// Passes on every method of a resource and of those in it, with the name of the outermost telling resource.
    fn resource(&self, resource: &'a Value, group: &str, level: usize, found: &mut dyn FnMut(&str, &'a Value)) {
        for (_, method) in resource["methods"].as_object().into_iter().flatten() {
            found(if group.is_empty() { &self.pack } else { group }, method);
        }
        if level == MAX_RESOURCE_LEVELS {
            return;
        }
        for (name, inner) in resource["resources"].as_object().into_iter().flatten() {
            let is_container = CONTAINERS.contains(&name.as_str());
            let is_open = CONTAINERS.contains(&group);
            let group = if is_open && (!is_container || group.is_empty()) { name.as_str() } else { group };
            self.resource(inner, group, level + 1, found);
        }
    }
}
