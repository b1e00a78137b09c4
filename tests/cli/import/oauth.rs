//! An API whose description says that clients get tokens for themselves, with npm's oidc-provider.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::process::{Child, Command, Stdio};

use serde_json::json;

use super::{quiet_world, written};
use crate::skip::skip;

/// The folder `node_modules` with npm's `oidc-provider`.
const PACKAGES: &str = "AGENT_MAGIC_TOOL_TEST_OAUTH";
/// As `oauth.mjs` has them.
const CLIENT_ID: &str = "the client:1";
const CLIENT_SECRET: &str = "s3:cr+t%&-of-the-client-0123456789";

struct Provider {
    url: String,
    process: Child,
}

impl Provider {
    fn start() -> Option<Self> {
        let Some(packages) = std::env::var_os(PACKAGES) else {
            skip(&format!("{PACKAGES} does not name npm's oidc-provider"));
            return None;
        };
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/cli/import/oauth.mjs");
        let mut command = Command::new("node");
        command.arg(script).arg(packages).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut process = command.spawn().expect("node starts");
        let mut url = String::new();
        BufReader::new(process.stdout.take().expect("a pipe")).read_line(&mut url).expect("its address");
        Some(Self { url: url.trim().to_owned(), process })
    }
}

impl Drop for Provider {
    fn drop(&mut self) {
        drop(self.process.kill());
        drop(self.process.wait());
    }
}

#[test]
fn an_imported_api_is_called_with_a_token_that_its_client_got() {
    let Some(provider) = Provider::start() else { return };
    for method in ["client_secret_basic", "client_secret_post"] {
        let world = quiet_world();
        let server = format!("{}/{method}", provider.url);
        let scopes = json!({"things": "Reads things"});
        let flow = json!({"clientCredentials": {"tokenUrl": format!("/{method}/token"), "scopes": scopes}});
        let spec = json!({"openapi": "3.0.0", "info": {"title": "Things", "version": "1"}, "servers": [{"url": server}],
            "components": {"securitySchemes": {"client": {"type": "oauth2", "flows": flow}}},
            "security": [{"client": ["things"]}],
            "paths": {"/things": {"get": {"operationId": "listThings", "summary": "List things", "responses": {}}}}});
        let path = world.folder().join("spec.json");
        fs::write(&path, spec.to_string()).expect("written");
        let imported = world.run(&["import", &path.display().to_string()]);
        assert_eq!((imported.exit, &imported.json()["imported"]), (0, &json!(1)), "{imported}");
        assert_eq!(
            written(&world, "things.json")["$defaults"]["run"]["http"]["auth"],
            json!({"client_credentials": {"token_url": format!("{server}/token"), "client_id": "secret:things_client_id",
                "client_secret": "secret:things_client_secret", "scope": "things"}})
        );
        for (name, value) in [("things_client_id", CLIENT_ID), ("things_client_secret", CLIENT_SECRET)] {
            assert_eq!(world.run_with(&["secret", "set", name], value).exit, 0);
        }
        let ran = world.run(&["run", "things_list_things", "--wait"]);
        assert_eq!(ran.exit, 0, "{method}: {ran}");
        assert!(ran.stdout.contains(r#""scope":"things""#), "{method}: {ran}");
        assert_eq!(world.run_with(&["secret", "set", "things_client_secret"], "another-secret-0123456789").exit, 0);
        let refused = world.run(&["run", "things_list_things", "--wait"]);
        assert_eq!(refused.json()["error"]["code"], json!("needs-reauthorization"), "{method}: {refused}");
        assert!(refused.stdout.contains("invalid_client") && !refused.stdout.contains("another-secret"), "{refused}");
    }
}
