//! Hooks that see every request to a protected operation, and may refuse it before anything is looked up.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use firstwrite_core::{Key, RecordId, Rejection, RejectionKind, Tenant};
use http::request::Parts;
use http::{Response, StatusCode};
use tokio::time::Instant;

use crate::body::ResponseBody;
use crate::policies::Operation;

/// Observes every request to a protected operation: for limits and for metrics.
///
/// Its methods run on the request's own task and must not block.
pub trait Observer: Send + Sync + 'static {
    /// Called when tenant and key are known, before the body is read and the store is touched. A refusal is
    /// sent as the answer.
    fn admit(&self, asked: &AdmitContext<'_>) -> Result<(), Rejection> {
        let _ = asked;
        Ok(())
    }

    /// Called when a tenant asks for the result of a key at the status resource. A refusal is sent as the
    /// answer. A caller that is admitted may wait there, and [leaves](Self::left) like any other.
    fn admit_look_up(&self, tenant: &Tenant) -> Result<(), Rejection> {
        let _ = tenant;
        Ok(())
    }

    /// Called before a key of this tenant is looked up. If this refuses, existing keys are still answered and
    /// only new keys are rejected, so that a client can always learn what became of a key it used. Costs one
    /// extra look-up.
    fn may_make_key(&self, tenant: &Tenant) -> Result<(), Rejection> {
        let _ = tenant;
        Ok(())
    }

    /// An attempt of this process changed what stands in the store. Not told of [atomic] handlers, whose
    /// own transactions write the record.
    ///
    /// [atomic]: firstwrite_core::Mode::Atomic
    fn stored(&self, stored: &RecordChange<'_>) {
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

    /// Reports how a request ended: once for each that was admitted or refused, also if its caller hung up.
    fn answered(&self, answered: &RequestFinished<'_>) {
        let _ = answered;
    }
}

/// A request that wants to be admitted.
#[derive(Debug)]
pub struct AdmitContext<'a> {
    /// Operation that the request is for.
    pub operation: &'a Operation,
    /// Tenant of the request.
    pub tenant: &'a Tenant,
    /// Key of the request.
    pub key: &'a Key,
    /// Head of the request.
    pub request: &'a Parts,
}

/// Change that an attempt made in the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordChange<'a> {
    /// Tenant of the record.
    pub tenant: &'a Tenant,
    /// Id of the record.
    pub id: RecordId,
    /// Change of the record.
    pub step: RecordStep,
}

/// Change of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RecordStep {
    /// It was created.
    Made,
    /// It was completed with an outcome of so many bytes, headers and body.
    Kept(u64),
    /// It was removed.
    Freed,
}

/// A request that was answered.
#[derive(Debug)]
#[non_exhaustive]
pub struct RequestFinished<'a> {
    /// Operation that the request was for.
    pub operation: &'a Operation,
    /// Tenant of the request, if known.
    pub tenant: Option<&'a Tenant>,
    /// True if [`Observer::admit`] let it in.
    pub was_admitted: bool,
    /// Result of the request.
    pub how: RequestResult,
    /// Status sent to the caller; none if it had hung up.
    pub status: Option<StatusCode>,
    /// Time from the request's head to the answer's head.
    pub took: Duration,
}

/// Result of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum RequestResult {
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

/// Observes nothing.
#[derive(Debug)]
pub(crate) struct Nobody;

impl Observer for Nobody {}

/// Place of an admitted request, shared with the attempt that it begins; calls `Observer::left` when dropped.
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

/// A request that is reported to the observer, at the latest when it is dropped.
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
        let how = response.extensions_mut().remove().unwrap_or(RequestResult::Ran);
        self.tell(how, Some(response.status()));
        response
    }

    fn tell(&mut self, how: RequestResult, status: Option<StatusCode>) {
        self.is_told = true;
        self.observer.answered(&RequestFinished {
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
            self.tell(RequestResult::Abandoned, None);
        }
    }
}

impl RequestResult {
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
