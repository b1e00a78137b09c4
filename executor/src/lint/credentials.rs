//! Credentials in clear.

use super::{Finding, Level, finding};
use catalog::{Subtool, plain_credentials};

pub(super) fn check(subtool: &Subtool, findings: &mut Vec<Finding>) {
    // The message must not quote it.
    let message = "this looks like a credential in clear; store it with `agent-magic-tool secret set NAME` and write \
                   `secret:NAME` here";
    let places = plain_credentials::places(&subtool.definition.run).into_iter();
    findings.extend(
        places.map(|place| {
            finding(subtool, Level::Error, "plain-credential", &format!("run.{place}"), message.to_owned())
        }),
    );
}
