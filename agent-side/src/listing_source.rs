//! Where `list` reads: the listing that the executor publishes in the mailbox, or that of the full program.

use std::cell::Cell;
use std::collections::BTreeMap;

use listing::rights::Rights;
use listing::{Listing, ListingEntry};
use protocol::error::ErrorBody;
use protocol::file_state::FileState;
use protocol::handover::Reply;
use protocol::mailbox::Mailbox;
use protocol::mailbox::for_callers::{CallerSettings, Lacking, ListingAnswer, ListingQuestion};
use protocol::mailbox::request::{Answer, Operation};
use protocol::regular_file;
use protocol::tool_scope::ToolScope;
use search::Unusable;

use crate::context::Context;
use crate::error::Error;
use crate::{full_program, handover};

/// A listing, and what is known of the machine that it is of.
pub trait ListingSource {
    /// Gives `read` the listing.
    fn read<T>(&self, read: impl Fn(&Listing) -> Result<T, ListFailure>) -> Result<T, ListFailure>;

    /// What these subtools lack; fails if the listing that was read is not current.
    fn lacking(&self, entries: &[&ListingEntry]) -> Result<Lacking, ListFailure>;

    /// What the caller may use.
    fn rights(&self) -> Result<Rights, ListFailure>;

    /// Why the listing has no subtool of this name, if there is more to say than that.
    fn why_absent(
        &self,
        name: &str,
        tool_scope: &ToolScope,
        listing: &Listing,
    ) -> Result<Option<ErrorBody>, ListFailure>;

    /// Whether searches remember which subtool was run after them.
    fn learns(&self) -> bool;
}

/// Why nothing was listed.
#[derive(Debug)]
pub enum ListFailure {
    /// It cannot be said here, or not yet, but by the full program.
    Elsewhere,
    /// The listing is missing or damaged.
    Unusable(Unusable),
    Failed(Error),
}

impl From<Unusable> for ListFailure {
    fn from(error: Unusable) -> Self {
        Self::Unusable(error)
    }
}

impl From<Error> for ListFailure {
    fn from(error: Error) -> Self {
        Self::Failed(error)
    }
}

/// The listing in the mailbox. The executor says whether it is current, after it has seen every edit so far.
#[derive(Debug)]
pub struct PublishedListing<'a> {
    mailbox: Mailbox,
    learns: bool,
    /// The state of the file from which it was read.
    read: Cell<Option<FileState>>,
    context: &'a Context,
}

impl<'a> PublishedListing<'a> {
    /// `None` if no executor is there to ask.
    pub fn of(context: &'a Context) -> Option<Self> {
        let mailbox = Mailbox::open(&context.paths.mailbox).ok()?;
        // An executor whose settings are damaged answers all the same.
        let settings = mailbox.settings().or_else(|| mailbox.executor().ok()?.map(|_| CallerSettings::default()));
        let learns = settings?.learns;
        Some(Self { mailbox, learns, read: Cell::default(), context })
    }

    fn answer(&self, question: ListingQuestion) -> Result<ListingAnswer, Error> {
        match handover::ask(self.context, &self.mailbox, Operation::Listing(question))? {
            Reply::Answer(Answer::Listing(answer)) => Ok(answer),
            Reply::Answer(Answer::Refused(error)) => Err(error.into()),
            Reply::Accepted(_) | Reply::Answer(_) => Err(Error::unexpected_answer("listing")),
        }
    }
}

impl ListingSource for PublishedListing<'_> {
    fn read<T>(&self, read: impl Fn(&Listing) -> Result<T, ListFailure>) -> Result<T, ListFailure> {
        let file = regular_file::open_itself(&self.mailbox.listing());
        let opened = file.and_then(|file| Ok((FileState::of_file(&file)?, file)));
        let opened = opened.ok().and_then(|(state, file)| Some((state, Listing::of_file(file).ok()?)));
        let outcome = opened.map(|(state, listing)| {
            self.read.set(Some(state));
            read(&listing)
        });
        match outcome {
            None | Some(Err(ListFailure::Unusable(_))) => {
                // The executor publishes another one for the next command.
                self.answer(ListingQuestion::default())?;
                Err(ListFailure::Elsewhere)
            }
            Some(outcome) => outcome,
        }
    }

    fn lacking(&self, entries: &[&ListingEntry]) -> Result<Lacking, ListFailure> {
        let subtools = entries.iter().map(|entry| entry.name.clone()).collect();
        let answer = self.answer(ListingQuestion { file: self.read.get(), subtools, wants_rules: false })?;
        if answer.is_current { Ok(answer.lacking) } else { Err(ListFailure::Elsewhere) }
    }

    fn rights(&self) -> Result<Rights, ListFailure> {
        let scope = &self.context.caller.tool_scope;
        // Only the executor knows what a profile is.
        let rules = match scope.profiles().next() {
            Some(_) => self.answer(ListingQuestion { wants_rules: true, ..ListingQuestion::default() })?.rules,
            None => BTreeMap::new(),
        };
        Ok(Rights::new(scope, &rules))
    }

    fn why_absent(&self, _: &str, _: &ToolScope, _: &Listing) -> Result<Option<ErrorBody>, ListFailure> {
        self.lacking(&[])?;
        // The full program looks into the definitions.
        if full_program::path().is_some() { Err(ListFailure::Elsewhere) } else { Ok(None) }
    }

    fn learns(&self) -> bool {
        self.learns
    }
}
