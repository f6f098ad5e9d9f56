//! The atomic mode for stores that run a closure in their transaction, as SQLite's one writer does.

use std::fmt;
use std::sync::Arc;

use firstwrite_core::{TransactionalStore, protocol};
use http::{Extensions, Response};

use super::{AtomicAnswer, ExtractorError, Slot};
use crate::attempt::Attempt;
use crate::body::ResponseBody;

/// The right to do the work of a request in one transaction with its record.
///
/// An axum extractor, and elsewhere [taken from the extensions](Self::from_extensions) of the request. The
/// operation's policy must be in [`Mode::Atomic`](firstwrite_core::Mode::Atomic) and the layer built by
/// [`IdempotencyLayer::atomic`](crate::IdempotencyLayer::atomic) over the same `S`. Its twin for stores
/// whose transactions a handler holds is [`Transaction`](crate::Transaction).
pub struct Atomic<S> {
    store: S,
    slot: Arc<Slot>,
}

impl<S: TransactionalStore + Clone> Atomic<S> {
    /// Takes it from the extensions of a request, for services without axum.
    pub fn from_extensions(extensions: &Extensions) -> Result<Self, ExtractorError> {
        let slot = Slot::of(extensions)?;
        let store = slot.content.downcast_ref::<S>().ok_or_else(|| slot.other_than::<Self>())?;
        Ok(Self { store: store.clone(), slot: Arc::clone(slot) })
    }

    /// The attempt this is.
    pub fn attempt(&self) -> &Attempt {
        &self.slot.attempt
    }

    /// Does `work` in one transaction with the request's record, and answers.
    ///
    /// A kept answer below 400 commits what `work` wrote; a kept 4xx rolls it back and keeps the
    /// answer; a 5xx rolls everything back, and a retry runs afresh. If `work` fails, everything is
    /// rolled back and the error is the caller's to answer with, which is not kept.
    ///
    /// `work` must not change anything but through the transaction: it is undone with it. Give
    /// the answer to the client as it is: retries get what was committed.
    pub async fn run<E, W, A, Form>(self, work: W) -> Result<Response<ResponseBody>, E>
    where
        E: Send + 'static,
        A: AtomicAnswer<Form>,
        W: for<'t> FnOnce(&mut S::Tx<'t>, &Attempt) -> Result<A, E> + Send + 'static,
    {
        let Self { store, slot } = self;
        slot.begin();
        let attempt = slot.attempt.clone();
        let work = move |tx: &mut S::Tx<'_>| work(tx, &attempt).map(A::into_whole);
        let (request, policy) = slot.exchange.parts();
        slot.end(protocol::atomic(&store, request, policy, fastrand::u64(..), work).await)
    }
}

impl<S> fmt::Debug for Atomic<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Atomic").field("attempt", &self.slot.attempt).finish_non_exhaustive()
    }
}
