//! The listing of the definitions as they are, which `list` reads here whether an executor runs or not.

use agent_side::cli::Program;
use agent_side::commands::list;
use agent_side::context::Context;
use agent_side::error::Error;
use agent_side::listing_source::{ListFailure, ListingSource};
use catalog::absent::why_absent;
use catalog::{Sources, listing_cache};
use ground::config::Config;
use ground::config::secret::Secrets;
use listing::rights::Rights;
use listing::{Listing, ListingEntry};
use protocol::code::{Code, Exit};
use protocol::error::ErrorBody;
use protocol::mailbox::Mailbox;
use protocol::mailbox::for_callers::{CallerSettings, Lacking};
use protocol::paths::Paths;
use protocol::tool_scope::ToolScope;

/// The listing of this user's definitions.
struct OwnListing {
    config: Config,
    sources: Sources,
    secrets: Secrets,
    paths: Paths,
    tool_scope: ToolScope,
}

impl OwnListing {
    fn of(paths: &Paths, tool_scope: &ToolScope) -> Result<Self, Error> {
        let config = Config::read(paths)?;
        let (sources, secrets) = (Sources::of(paths, &config), Secrets::of(paths, &config));
        Ok(Self { config, sources, secrets, paths: paths.clone(), tool_scope: tool_scope.clone() })
    }
}

impl ListingSource for OwnListing {
    fn read<T>(&self, read: impl Fn(&Listing) -> Result<T, ListFailure>) -> Result<T, ListFailure> {
        // Only a damaged listing is a reason to build it again.
        listing_cache::read(&self.sources, &self.paths.listing(), |listing| match read(listing) {
            Err(ListFailure::Unusable(error)) => Err(error),
            outcome => Ok(outcome),
        })?
    }

    fn lacking(&self, entries: &[&ListingEntry]) -> Result<Lacking, ListFailure> {
        Ok(self.config.lacking(entries.iter().map(|entry| entry.needs()), &self.secrets))
    }

    fn rights(&self) -> Result<Rights, ListFailure> {
        let scope = &self.tool_scope;
        let rules = self.sources.profiles().rules_of(scope).map_err(Error::from)?;
        Ok(Rights::new(scope, &rules))
    }

    fn why_absent(
        &self,
        name: &str,
        tool_scope: &ToolScope,
        listing: &Listing,
    ) -> Result<Option<ErrorBody>, ListFailure> {
        Ok(why_absent(name, tool_scope, &self.sources, listing.problems()))
    }

    fn learns(&self) -> bool {
        self.config.catalog.learn
    }
}

/// This program.
pub(crate) struct FullProgram;

impl Program for FullProgram {
    fn list(&self, args: &list::Args, context: &Context) -> Result<Exit, Error> {
        list::run(args, &OwnListing::of(&context.paths, &context.caller.tool_scope)?, context).map_err(|failure| {
            match failure {
                ListFailure::Failed(error) => error,
                ListFailure::Unusable(error) => {
                    Error::new(Code::Internal, format!("failed to read the listing: {error}"))
                        .hint(format!("remove it and try again: rm '{}'", context.paths.listing().display()))
                }
                ListFailure::Elsewhere => Error::internal("the listing was looked for elsewhere"),
            }
        })
    }

    /// Those of the configuration itself: what lies in the mailbox, others may have written.
    fn settings(&self, paths: &Paths, _: &Mailbox) -> Result<CallerSettings, Error> {
        Ok(Config::read(paths)?.for_callers())
    }
}

/// The names of the input fields of a subtool; `None` if a caller with this scope has no such subtool.
pub(crate) fn fields_of(subtool: &str, paths: &Paths, scope: &ToolScope) -> Option<Vec<String>> {
    let own = OwnListing::of(paths, scope).ok()?;
    let rights = own.rights().ok()?;
    let find = |listing: &Listing| {
        let usable = listing.find(subtool)?.filter(|_| rights.cover_name(listing, subtool).unwrap_or(false));
        Ok(usable.map(|number| listing.entry(number)).transpose()?)
    };
    Some(own.read(find).ok()??.fields())
}
