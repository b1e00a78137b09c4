//! The option `--profile` of the commands that start what calls for others.

use agent_side::context::Context;
use agent_side::error::Error;
use ground::config::Config;
use protocol::caller::Caller;
use protocol::code::Code;
use protocol::nearest::{did_you_mean, nearest};

/// Fails for a profile that the configuration does not have.
pub(crate) fn check(profile: Option<&str>, config: &Config) -> Result<(), Error> {
    let Some(profile) = profile.filter(|profile| !config.profiles.contains_key(*profile)) else { return Ok(()) };
    let near = did_you_mean(nearest(profile, config.profiles.keys().map(String::as_str), 1).first());
    let hint = near.unwrap_or_else(|| format!("write it under [profiles.{profile}] in config.toml"));
    Err(Error::usage(format!("the configuration has no profile `{profile}`")).hint(hint))
}

/// The caller of this process, with no more than the rights of `profile`.
pub(crate) fn caller(profile: Option<&str>, config: &Config, context: &Context) -> Result<Caller, Error> {
    check(profile, config)?;
    let mut caller = context.caller.clone();
    if let Some(profile) = profile {
        let narrowed = caller.tool_scope.within_profile(profile);
        caller.tool_scope = narrowed.map_err(|error| Error::usage(error.to_string()))?;
    }
    Ok(caller)
}

/// Fails for a caller who has a part of all subtools or is one client of several: this part of a command is about all callers.
pub(crate) fn refuse_restricted(command: &str, context: &Context) -> Result<(), Error> {
    let (is_client, has_all) = (context.caller.client().is_some(), context.caller.tool_scope.is_everything());
    if has_all && !is_client {
        return Ok(());
    }
    let who = if is_client { "you work for one client" } else { "you have a part of the subtools" };
    let message = format!("`{command}` is about the sessions and rights of all callers, and {who}");
    Err(Error::new(Code::HumansOnly, message).hint("if it is needed, ask the user to run it in a terminal"))
}
