//! What a running attempt tells the executor before it ends.

use std::fmt;
use std::sync::Arc;

use crate::task::failure::{Failure, Retry};
use crate::task::notes::AttemptProgress;
use protocol::code::Code;
use tokio::sync::oneshot;

/// Tells the executor how a running attempt gets on. The default tells it nothing.
#[derive(Clone, Default)]
pub struct Feedback(Option<Arc<dyn Fn(AttemptNews) + Send + Sync>>);

/// Tells an attempt that is stopped whether the executor itself stops, so that a later one goes on. The default is no.
#[derive(Clone, Default)]
pub struct ShutdownProbe(Option<Arc<dyn Fn() -> bool + Send + Sync>>);

impl ShutdownProbe {
    pub fn new(is_shutdown: impl Fn() -> bool + Send + Sync + 'static) -> Self {
        Self(Some(Arc::new(is_shutdown)))
    }

    /// Whether the attempt was stopped because the executor stops.
    pub fn is_shutdown(&self) -> bool {
        self.0.as_ref().is_some_and(|is_shutdown| is_shutdown())
    }
}

impl fmt::Debug for ShutdownProbe {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ShutdownProbe").finish_non_exhaustive()
    }
}

/// What the executor must know of an attempt before it ends.
#[derive(Debug)]
pub enum AttemptNews {
    /// A server does a job for it: where that is.
    Job(String),
    /// It waits for a human before it sends anything: if it is lost now, it is begun again, and does not count.
    Unsent,
    /// It is about to send something, and goes on when the record no longer says [`Self::Unsent`].
    Sending(RecordedSignal),
    /// How far it is, for those who wait.
    Progress(AttemptProgress),
}

/// Tells an attempt that what it told is in the record. If it is dropped instead, the attempt is no longer wanted.
#[derive(Debug)]
pub struct RecordedSignal(oneshot::Sender<()>);

impl RecordedSignal {
    /// Call it when the changes that follow from the news are durable.
    pub fn fire(self) {
        // An attempt that was stopped meanwhile does not wait anymore.
        self.0.send(()).ok();
    }
}

impl Feedback {
    pub fn new(told: impl Fn(AttemptNews) + Send + Sync + 'static) -> Self {
        Self(Some(Arc::new(told)))
    }

    /// Records where the job is that a server does for this attempt.
    pub fn job_accepted(&self, job: &str) {
        self.tell(AttemptNews::Job(job.to_owned()));
    }

    /// Records that nothing was sent yet, and that a human is waited for.
    pub fn unsent(&self) {
        self.tell(AttemptNews::Unsent);
    }

    /// Takes back what [`Self::unsent`] recorded. Durable when it returns; before, nothing may be sent.
    pub async fn sending(&self) -> Result<(), Failure> {
        if self.0.is_none() {
            return Ok(());
        }
        let (signal, recorded) = oneshot::channel();
        self.tell(AttemptNews::Sending(RecordedSignal(signal)));
        recorded.await.map_err(|_| {
            Failure::new(Code::Cancelled, "the executor no longer waits for this attempt").retry(Retry::Later)
        })
    }

    /// Shows in the result file how far the attempt is.
    pub fn progress(&self, progress: AttemptProgress) {
        self.tell(AttemptNews::Progress(progress));
    }

    fn tell(&self, news: AttemptNews) {
        if let Some(told) = &self.0 {
            told(news);
        }
    }
}

impl fmt::Debug for Feedback {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Feedback").finish_non_exhaustive()
    }
}
