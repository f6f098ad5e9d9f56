//! Who is told of every request to a protected operation, and may refuse it before anything is looked up.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use firstwrite_core::{Key, RecordId, Rejection, RejectionKind, Tenant};
use http::request::Parts;
use http::{Response, StatusCode};
use tokio::time::Instant;

use crate::body::ResponseBody;
use crate::policies::Operation;

/// Is told of every request to a protected operation: for limits and for metrics.
///
/// Called on the request's own task: nothing in it may wait.
pub trait Observer: Send + Sync + 'static {
    /// Asked when tenant and key are known, before the body is read and the store is touched. A refusal is
    /// the answer.
    fn admit(&self, asked: &Asked<'_>) -> Result<(), Rejection> {
        let _ = asked;
        Ok(())
    }

    /// Asked before a key of this tenant is looked for. A refusal is the answer if nothing stands under the
    /// key, which costs a look-up more; a record that stands answers as ever. Whoever used a key must be
    /// able to learn what became of it, however many its tenant has.
    fn may_make_key(&self, tenant: &Tenant) -> Result<(), Rejection> {
        let _ = tenant;
        Ok(())
    }

    /// An attempt of this process changed what stands in the store. Not told of [atomic] handlers, whose
    /// own transactions write the record.
    ///
    /// [atomic]: firstwrite_core::Mode::Atomic
    fn stored(&self, stored: &Stored<'_>) {
        let _ = stored;
    }

    /// A key was reserved, or found not to be free, in this time.
    fn reserved(&self, took: Duration) {
        let _ = took;
    }

    /// Nothing of a request that was admitted is under way any more: it was answered or its caller hung up,
    /// and the attempt that it began, if it did, has ended.
    fn left(&self, tenant: &Tenant) {
        let _ = tenant;
    }

    /// How a request ended: once for each that was admitted or refused, also if its caller hung up.
    fn answered(&self, answered: &Answered<'_>) {
        let _ = answered;
    }
}

/// A request that wants to be admitted.
#[derive(Debug)]
pub struct Asked<'a> {
    /// What it wants to do.
    pub operation: &'a Operation,
    /// Whose it is.
    pub tenant: &'a Tenant,
    /// Under which key.
    pub key: &'a Key,
    /// Its head.
    pub request: &'a Parts,
}

/// What an attempt changed in the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stored<'a> {
    /// Whose record it is.
    pub tenant: &'a Tenant,
    /// Which one.
    pub id: RecordId,
    /// What became of it.
    pub step: StoredStep,
}

/// What became of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StoredStep {
    /// It stands where nothing stood.
    Made,
    /// It was completed with an outcome of so many bytes, headers and body.
    Kept(u64),
    /// It stands no more.
    Freed,
}

/// A request that was answered.
#[derive(Debug)]
pub struct Answered<'a> {
    /// What it wanted to do.
    pub operation: &'a Operation,
    /// Whose it is, if that was known.
    pub tenant: Option<&'a Tenant>,
    /// Whether [`Observer::admit`] let it in.
    pub was_admitted: bool,
    /// How it ended.
    pub how: How,
    /// What the caller was told; none if it had hung up.
    pub status: Option<StatusCode>,
    /// From the head to the answer's head.
    pub took: Duration,
}

/// How a request ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum How {
    /// The handler ran.
    Ran,
    /// The first answer was given again.
    Replayed,
    /// It waited for an attempt that was released, and got that attempt's answer.
    Followed,
    /// The caller did not want to wait, and was told where to look.
    Accepted,
    /// It was refused.
    Refused(RejectionKind),
    /// The caller hung up; what had begun goes on.
    Abandoned,
}

/// Nobody is told.
#[derive(Debug)]
pub(crate) struct Nobody;

impl Observer for Nobody {}

/// What an admitted request takes up, shared with the attempt that it begins.
pub(crate) struct Place {
    observer: Arc<dyn Observer>,
    tenant: Tenant,
}

impl Place {
    pub(crate) fn new(observer: &Arc<dyn Observer>, tenant: &Tenant) -> Arc<Self> {
        Arc::new(Self { observer: Arc::clone(observer), tenant: tenant.clone() })
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.observer.left(&self.tenant);
    }
}

impl fmt::Debug for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Place").finish_non_exhaustive()
    }
}

/// A request that somebody is told of, at the latest when it is dropped.
pub(crate) struct Seen {
    observer: Arc<dyn Observer>,
    operation: Operation,
    tenant: Option<Tenant>,
    was_admitted: bool,
    began: Instant,
    is_told: bool,
}

impl Seen {
    /// `began`: when its head was there.
    pub(crate) fn new(
        observer: &Arc<dyn Observer>,
        operation: Operation,
        tenant: Option<Tenant>,
        was_admitted: bool,
        began: Instant,
    ) -> Self {
        let observer = Arc::clone(observer);
        Self { observer, operation, tenant, was_admitted, began, is_told: false }
    }

    /// Tells how it ended, as its answer says.
    pub(crate) fn answered(
        mut self,
        mut response: Response<ResponseBody>,
    ) -> Response<ResponseBody> {
        let how = response.extensions_mut().remove().unwrap_or(How::Ran);
        self.tell(how, Some(response.status()));
        response
    }

    fn tell(&mut self, how: How, status: Option<StatusCode>) {
        self.is_told = true;
        self.observer.answered(&Answered {
            operation: &self.operation,
            tenant: self.tenant.as_ref(),
            was_admitted: self.was_admitted,
            how,
            status,
            took: self.began.elapsed(),
        });
    }
}

impl Drop for Seen {
    fn drop(&mut self) {
        if !self.is_told {
            self.tell(How::Abandoned, None);
        }
    }
}

impl How {
    /// The word used in metrics.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Ran => "ran",
            Self::Replayed => "replayed",
            Self::Followed => "followed",
            Self::Accepted => "accepted",
            Self::Refused(kind) => kind.code(),
            Self::Abandoned => "abandoned",
        }
    }
}

impl fmt::Debug for Seen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Seen").field("operation", &self.operation.name).finish_non_exhaustive()
    }
}
