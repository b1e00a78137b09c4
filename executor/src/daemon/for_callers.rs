//! What a `list` needs that sees nothing of the machine but the mailbox: the listing of all subtools, and whether it is that
//! of the definitions as they are.
//!
//! A listing is made when a `list` first asks for it, and again after each change that a `list` meets. It is known by the state
//! of its file: a caller that read another one, or a damaged one, is told that it is not current. That is no guard against
//! those who may write to the mailbox on purpose; they could also write the answer.

use std::fs::File;
use std::io::{self, BufReader, Read as _, Seek as _};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use catalog::{Catalog, Sources, listing_cache};
use listing::{Listing, ListingEntry, Stamp};
use protocol::file_state::FileState;
use protocol::mailbox::Mailbox;
use protocol::mailbox::for_callers::{Lacking, ListingAnswer, ListingQuestion};

use super::background::Background;
use crate::intake::settings::Settings;

/// Longer than the steps in which the times of files advance: a change after that has a later time.
const CLOCK_STEP: Duration = Duration::from_millis(20);

/// How long no other listing is made after one could not be published.
const PAUSE_AFTER_FAILURE: Duration = Duration::from_secs(1);
/// How many subtools are looked up for one `list`.
const MAX_SUBTOOLS: usize = 1_000;

/// Answers the questions of `list`.
pub(super) struct ListingPublisher {
    mailbox: Mailbox,
    /// Where the listing is kept, also for the commands that make one themselves.
    cache: PathBuf,
    background: Background,
    published: Arc<Mutex<Publication>>,
}

/// What was published last.
#[derive(Default)]
struct Publication {
    listing: Option<PublishedListing>,
    /// Whether the next one is being made.
    is_busy: bool,
}

/// A listing as it was published.
struct PublishedListing {
    /// The definitions that it is of.
    stamp: Stamp,
    /// The state of the file in the mailbox.
    file: FileState,
    /// That in the cache, which no caller can change.
    listing: Listing,
}

impl ListingPublisher {
    pub(super) fn new(mailbox: Mailbox, cache: PathBuf, background: Background) -> Self {
        Self { mailbox, cache, background, published: Arc::default() }
    }

    /// Answers by the definitions in `catalog`; has a listing made if that of the caller is another one.
    pub(super) fn answer(&self, question: &ListingQuestion, catalog: &Catalog, settings: &Settings) -> ListingAnswer {
        let published = self.published.lock().unwrap_or_else(PoisonError::into_inner);
        let known = published.listing.as_ref().filter(|known| known.stamp == catalog.listing_stamp());
        if let Some(known) = known.filter(|known| question.file == Some(known.file)) {
            let lacking = lacking(&known.listing, &question.subtools, settings);
            return ListingAnswer { is_current: true, lacking, ..ListingAnswer::default() };
        }
        drop(published);
        self.publish_soon(settings.sources.clone());
        ListingAnswer::default()
    }

    /// Publishes the listing of `sources` from another thread, unless one is being made.
    fn publish_soon(&self, sources: Sources) {
        if std::mem::replace(&mut self.published.lock().unwrap_or_else(PoisonError::into_inner).is_busy, true) {
            return;
        }
        let (mailbox, cache, published) = (self.mailbox.clone(), self.cache.clone(), Arc::clone(&self.published));
        self.background.spawn(async move {
            let made = publish(sources, cache, mailbox).await;
            if made.is_err() {
                tokio::time::sleep(PAUSE_AFTER_FAILURE).await;
            }
            let mut published = published.lock().unwrap_or_else(PoisonError::into_inner);
            published.is_busy = false;
            match made {
                Ok(listing) => published.listing = Some(listing),
                Err(error) => tracing::warn!(%error, "failed to publish the listing for callers"),
            }
        });
    }
}

/// Makes and publishes the listing of `sources`.
async fn publish(sources: Sources, cache: PathBuf, mailbox: Mailbox) -> io::Result<PublishedListing> {
    let copied = tokio::task::spawn_blocking(move || copy(&sources, &cache, &mailbox)).await;
    let (source, copy, listing) = copied.map_err(io::Error::other)??;
    tokio::time::sleep(CLOCK_STEP).await;
    let file = tokio::task::spawn_blocking(move || state_of_copy(source, &copy)).await.map_err(io::Error::other)??;
    Ok(PublishedListing { stamp: listing.stamp(), file, listing })
}

/// The file in the cache, its copy in the mailbox, and what they say.
fn copy(sources: &Sources, cache: &Path, mailbox: &Mailbox) -> io::Result<(File, File, Listing)> {
    listing_cache::read(sources, cache, |_| Ok(())).map_err(io::Error::other)?;
    let source = File::open(cache)?;
    let listing = Listing::of_file(source.try_clone()?).map_err(io::Error::other)?;
    let copy = mailbox.publish_listing(&source)?;
    Ok((source, copy, listing))
}

/// What those of these subtools lack that there are.
fn lacking(listing: &Listing, subtools: &[String], settings: &Settings) -> Lacking {
    let entry = |name: &String| listing.find(name).ok()?.and_then(|number| listing.entry(number).ok());
    let entries: Vec<_> = subtools.iter().take(MAX_SUBTOOLS).filter_map(entry).collect();
    settings.config().lacking(entries.iter().map(ListingEntry::needs), &settings.runner_context.secrets)
}

/// The state of `copy`, which has the content of `source` and had it for as long as the file has had this state.
fn state_of_copy(source: File, copy: &File) -> io::Result<FileState> {
    let state = FileState::of_file(copy)?;
    if !is_same(source, copy.try_clone()?)? || FileState::of_file(copy)? != state {
        return Err(io::Error::other("it was changed meanwhile"));
    }
    Ok(state)
}

fn is_same(mut one: File, mut other: File) -> io::Result<bool> {
    const BLOCK: usize = 1 << 16;
    one.rewind()?;
    other.rewind()?;
    let (mut one, mut other) = (BufReader::with_capacity(BLOCK, one), BufReader::with_capacity(BLOCK, other));
    let (mut of_one, mut of_other) = (Vec::with_capacity(BLOCK), Vec::with_capacity(BLOCK));
    loop {
        of_one.clear();
        of_other.clear();
        one.by_ref().take(BLOCK as u64).read_to_end(&mut of_one)?;
        other.by_ref().take(BLOCK as u64).read_to_end(&mut of_other)?;
        if of_one != of_other || of_one.is_empty() {
            return Ok(of_one == of_other);
        }
    }
}
