//! The atomic mode for stores whose transactions a handler holds over its own awaits, as drivers
//! over a network do it.
//!
//! The layer begins the transaction before it calls the handler: beginning, locking and looking up
//! are one round trip. The open transaction waits in a place that the handler's extractor takes it
//! from, and returns to it when the handler lets it go, so that it is ended before the answer goes
//! out and a retry finds the key free.

use std::fmt;
use std::mem;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use firstwrite_core::protocol::{self, AtomicStart, OpenAttempt};
use firstwrite_core::{AsyncTransactionalStore, BoxFuture, StoreError};
use http::{Extensions, Response};

use super::{AtomicAnswer, Close, ExtractorError, Opened, Slot, Used};
use crate::attempt::Attempt;
use crate::body::ResponseBody;
use crate::exchange::Exchange;
use crate::respond;

/// An open transaction on the request's record, to do the work of the request in.
///
/// An axum extractor, and elsewhere [taken from the extensions](Self::from_extensions) of the request; it
/// derefs to the store's own transaction. The operation's policy must be in
/// [`Mode::Atomic`](firstwrite_core::Mode::Atomic) and the layer built by
/// [`IdempotencyLayer::atomic`](crate::IdempotencyLayer::atomic) over the same `S`. It was begun before
/// the handler was called: a duplicate, another request under the same key and a rival never reach
/// the handler.
///
/// End it with [`commit`](Self::commit). If it is let go instead, everything done in it is rolled
/// back, and the handler's refusal is passed on and not kept; a success is not passed on, because
/// nothing of it stays. A handler that answers without having touched it (the extractor of the body
/// refused, say) has its answer kept alone.
///
/// ```
/// # #[cfg(feature = "axum")]
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use axum::{Json, Router, response::IntoResponse, routing::post};
/// use firstwrite::{IdempotencyLayer, MemoryStore, Policy, Tenant, Transaction};
/// use http::StatusCode;
///
/// async fn pay(mut tx: Transaction<MemoryStore>) -> impl IntoResponse {
///     let key = tx.attempt().key().as_str().to_owned();
///     tx.put("payment", &key);
///     tx.commit((StatusCode::CREATED, Json("paid"))).await
/// }
///
/// // `MemoryStore` has transactions of both kinds; other stores need no type here.
/// let layer = IdempotencyLayer::atomic::<Transaction<_>, _>(firstwrite::memory_store())
///     .policy(Policy::atomic())?
///     .single_tenant(Tenant::new("acme")?);
/// let app: Router = Router::new().route("/payments", post(pay)).layer(layer);
/// # Ok(())
/// # }
/// # #[cfg(not(feature = "axum"))]
/// # fn main() {}
/// ```
pub struct Transaction<S: AsyncTransactionalStore> {
    /// None only on the way out.
    held: Option<OpenAttempt<S::Tx>>,
    /// True once the handler has used the transaction.
    touched: AtomicBool,
    place: Arc<Place<S>>,
    slot: Arc<Slot>,
}

/// A store whose transactions handlers hold, without its type.
pub(crate) trait Begin: Send + Sync {
    /// Begins a transaction on the request's record and judges that record.
    fn begin<'a>(
        &'a self,
        exchange: &'a Arc<Exchange>,
    ) -> BoxFuture<'a, Result<Opened, StoreError>>;
}

/// The store behind [`Begin`].
pub(crate) struct Holding<S>(pub(crate) S);

/// Holds a transaction's whereabouts while its handler runs.
struct Place<S: AsyncTransactionalStore> {
    store: S,
    whereabouts: Mutex<Whereabouts<S::Tx>>,
}

enum Whereabouts<Tx> {
    /// Here, and nothing was done in it.
    Untouched(OpenAttempt<Tx>),
    /// The handler has it, or has begun to end it.
    Out,
    /// Here again, after the handler had begun to work in it.
    LetGo(OpenAttempt<Tx>),
    /// The handler has ended; what comes back now is too late.
    Closed,
}

impl<S: AsyncTransactionalStore + Clone> Begin for Holding<S> {
    fn begin<'a>(
        &'a self,
        exchange: &'a Arc<Exchange>,
    ) -> BoxFuture<'a, Result<Opened, StoreError>> {
        Box::pin(async move {
            let Self(store) = self;
            let (request, policy) = exchange.parts();
            match protocol::begin(store, request, policy, fastrand::u64(..)).await? {
                AtomicStart::Run(held) => {
                    let whereabouts = Mutex::new(Whereabouts::Untouched(held));
                    let place = Arc::new(Place { store: store.clone(), whereabouts });
                    let tidied = Arc::clone(&place) as Arc<dyn Close>;
                    Ok(Opened::Run(Slot::new(exchange, place, Some(tidied))))
                }
                AtomicStart::Refused(verdict, found) => Ok(Opened::Refused(verdict, found)),
            }
        })
    }
}

impl<S: AsyncTransactionalStore> Transaction<S> {
    /// Takes it from the extensions of a request, for services without axum.
    pub fn from_extensions(extensions: &Extensions) -> Result<Self, ExtractorError> {
        let slot = Slot::of(extensions)?;
        let content = Arc::clone(&slot.content);
        let place = content.downcast::<Place<S>>().map_err(|_other| slot.other_than::<Self>())?;
        let held = place.take().ok_or(ExtractorError::Taken)?;
        let touched = AtomicBool::new(false);
        Ok(Self { held: Some(held), touched, place, slot: Arc::clone(slot) })
    }

    /// The attempt this is.
    pub fn attempt(&self) -> &Attempt {
        &self.slot.attempt
    }

    /// Ends the transaction with the handler's answer, and returns the answer to give.
    ///
    /// A kept answer below 400 commits what was done; a kept 4xx rolls it back and keeps the
    /// answer; a 5xx rolls everything back, and a retry runs afresh. Where the store could not
    /// commit, or a rival came first, the answer says so. Give it to the client as it is: retries
    /// get what was committed.
    pub async fn commit<Form>(mut self, answer: impl AtomicAnswer<Form>) -> Response<ResponseBody> {
        let response = answer.into_whole();
        let (place, slot) = (Arc::clone(&self.place), Arc::clone(&self.slot));
        let Some(held) = self.held.take().filter(|_| place.begin_to_end(&slot)) else {
            return too_late();
        };
        drop(self);
        match slot.end(protocol::conclude(&place.store, held, response).await) {
            Ok(answer) => answer,
            Err(never) => match never {},
        }
    }
}

impl<S: AsyncTransactionalStore> Place<S> {
    fn take(&self) -> Option<OpenAttempt<S::Tx>> {
        let mut whereabouts = self.whereabouts();
        match mem::replace(&mut *whereabouts, Whereabouts::Out) {
            Whereabouts::Untouched(held) => Some(held),
            elsewhere @ (Whereabouts::Out | Whereabouts::LetGo(_) | Whereabouts::Closed) => {
                *whereabouts = elsewhere;
                None
            }
        }
    }

    fn give_back(&self, held: OpenAttempt<S::Tx>, touched: bool) {
        let mut whereabouts = self.whereabouts();
        match *whereabouts {
            Whereabouts::Out if touched => *whereabouts = Whereabouts::LetGo(held),
            Whereabouts::Out => *whereabouts = Whereabouts::Untouched(held),
            // Dropped here, it is rolled back.
            Whereabouts::Closed | Whereabouts::Untouched(_) | Whereabouts::LetGo(_) => {}
        }
    }

    /// Lets the transaction commit, and returns true, if its request is not answered yet.
    fn begin_to_end(&self, slot: &Slot) -> bool {
        let whereabouts = self.whereabouts();
        let is_open = !matches!(*whereabouts, Whereabouts::Closed);
        if is_open {
            slot.begin();
        }
        is_open
    }

    fn whereabouts(&self) -> MutexGuard<'_, Whereabouts<S::Tx>> {
        self.whereabouts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<S: AsyncTransactionalStore> Close for Place<S> {
    fn close<'a>(&'a self, slot: &'a Slot) -> BoxFuture<'a, Used> {
        Box::pin(async move {
            let (left, used) = {
                let mut whereabouts = self.whereabouts();
                (mem::replace(&mut *whereabouts, Whereabouts::Closed), slot.used())
            };
            let (held, used) = match (left, used) {
                (Whereabouts::Untouched(held), used) => (Some(held), used),
                (Whereabouts::LetGo(held), _) => (Some(held), Used::LetGo),
                // The handler passed it on; its new holder can no longer commit it.
                (Whereabouts::Out, Used::No) => (None, Used::LetGo),
                (Whereabouts::Out | Whereabouts::Closed, used) => (None, used),
            };
            if let Some(held) = held
                && let Err(error) = protocol::abandon(&self.store, held).await
            {
                // No commit was asked for, so none can have happened.
                let record_id = slot.exchange.request.id;
                tracing::warn!(%error, %record_id, "a transaction could not be rolled back in order");
            }
            used
        })
    }
}

/// Makes the answer to a commit that comes after its request was answered.
fn too_late() -> Response<ResponseBody> {
    tracing::error!("a transaction was to be committed after its request was answered");
    respond::failed()
}

impl<S: AsyncTransactionalStore> Deref for Transaction<S> {
    type Target = S::Tx;

    fn deref(&self) -> &S::Tx {
        self.touched.store(true, Ordering::Relaxed);
        self.held.as_ref().expect("it is held until it is committed or dropped")
    }
}

impl<S: AsyncTransactionalStore> DerefMut for Transaction<S> {
    fn deref_mut(&mut self) -> &mut S::Tx {
        *self.touched.get_mut() = true;
        self.held.as_mut().expect("it is held until it is committed or dropped")
    }
}

impl<S: AsyncTransactionalStore> Drop for Transaction<S> {
    fn drop(&mut self) {
        if let Some(held) = self.held.take() {
            self.place.give_back(held, *self.touched.get_mut());
        }
    }
}

impl<S: AsyncTransactionalStore> fmt::Debug for Transaction<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Transaction").field("attempt", &self.slot.attempt).finish_non_exhaustive()
    }
}
