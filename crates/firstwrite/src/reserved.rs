//! The reserved mode: the reservation is committed first, the handler runs, the outcome is
//! committed after, guarded by the fence.

use std::sync::Arc;
use std::time::Duration;

use firstwrite_core::protocol::{self, Completed, Marked, Renewed, Reservation, Reserved};
use firstwrite_core::{
    Certainty, Fence, Found, OnLostAnswer, Outcome, RecordId, Rejection, Request, State, Store,
    Verdict, judge,
};
use http::{Response, StatusCode};
use tokio::time::{Instant, MissedTickBehavior, interval_at, sleep};

use crate::attempt::{self, Attempt, Ran, Reply};
use crate::body::ResponseBody;
use crate::coalesce::{Ended, Lead};
use crate::exchange::{Call, Exchange};
use crate::layer::Shared;
use crate::observe::{Observer, Stored, StoredStep};
use crate::respond;

/// A reservation in this process's hands.
struct Held<'a> {
    store: &'a dyn Store,
    observer: &'a dyn Observer,
    exchange: &'a Exchange,
    reservation: Reservation,
    /// Until when the lease certainly holds, by our own monotonic clock: counted from before the
    /// store was asked, so never later than the store's own deadline.
    safe_until: Instant,
}

/// What goes to the caller, and what to whoever follows.
type Concluded = (Response<ResponseBody>, Ended);

/// A reservation under which nothing was run, and which may stand all the same: the store failed when it was to
/// be written, or freed.
struct Left {
    id: RecordId,
    fence: Fence,
    /// Until when anybody would wait for it.
    until: Instant,
}

/// A store that failed once may be back in a moment…
const PAUSE_MIN: Duration = Duration::from_millis(50);
/// … or is asked once a second for as long as the lease holds.
const PAUSE_MAX: Duration = Duration::from_secs(1);

/// Reserves the key, runs the handler, writes its outcome down, answers.
pub(crate) async fn attempt(
    shared: &Shared,
    lead: Lead,
    exchange: &Arc<Exchange>,
    mut call: Call,
    mut reply: Reply,
) {
    let (store, request, policy) = (&*shared.store, &exchange.request, &exchange.policy);
    let asked_at = Instant::now();
    let nonce = fastrand::u64(..);
    let reserved = protocol::reserve(store, request, policy, nonce).await;
    shared.observer.reserved(asked_at.elapsed());
    let mut left = None;
    let ended = match reserved {
        Ok(Reserved::Granted(reservation)) => {
            lead.owned();
            reply.accepted(exchange);
            let attempt = Attempt::new(request, Some(reservation.fence()));
            call.parts.extensions.insert(attempt);
            let safe_until = asked_at + policy.lease;
            let observer = &*shared.observer;
            // What was taken over stood already.
            if reservation.fence().count() == 1 {
                stored(observer, exchange, StoredStep::Made);
            }
            let mut held = Held { store, observer, exchange, reservation, safe_until };
            let ran = held.while_renewing(attempt::run(call, policy)).await;
            firstwrite_core::crash_point!("handler-ended");
            let ((response, ended), left) = held.conclude(ran).await;
            lead.end(ended);
            reply.answered(response);
            if let Some(left) = left {
                left.withdraw(store).await;
            }
            return;
        }
        Ok(Reserved::Refused(verdict, found)) => Ended::stands(verdict, Some(&found)),
        Err(error) => {
            tracing::error!(%error, record_id = %request.id, "a key could not be reserved");
            if error.certainty() == Certainty::Indeterminate {
                let (id, fence) = (request.id, Fence::first(nonce));
                left = Some(Left { id, fence, until: asked_at + policy.lease });
            }
            Ended::StoreFailed(error.kind())
        }
    };
    lead.end(ended.clone());
    reply.refused(ended, call);
    if let Some(left) = left {
        left.withdraw(store).await;
    }
}

impl Left {
    /// Frees the key when the store is back, for as long as the lease blocks it: the caller was told to try again.
    /// Goes on when the caller has its answer.
    async fn withdraw(self, store: &dyn Store) {
        let (record_id, mut pause) = (self.id, PAUSE_MIN);
        while Instant::now() + pause < self.until {
            sleep(pause).await;
            match protocol::withdraw(store, self.id, self.fence).await {
                Ok(()) => return,
                Err(error) => tracing::debug!(%error, %record_id, "a key is still not free"),
            }
            pause = (pause * 2).min(PAUSE_MAX);
        }
        tracing::error!(%record_id, "a key under which nothing was run is left to its lease");
    }
}

impl Held<'_> {
    /// Does `work`, renewing the lease at a third of its length meanwhile.
    async fn while_renewing<T>(&mut self, work: impl Future<Output = T>) -> T {
        let renewing = async {
            let third = self.reservation.lease_for() / 3;
            let mut renewal = interval_at(Instant::now() + third, third);
            renewal.set_missed_tick_behavior(MissedTickBehavior::Delay);
            loop {
                let asked_at = renewal.tick().await;
                match protocol::renew(self.store, &mut self.reservation).await {
                    Ok(Renewed::Held) => self.safe_until = asked_at + self.reservation.lease_for(),
                    Ok(Renewed::Lost) => {
                        tracing::warn!(record_id = %self.reservation.id(), "the lease was lost");
                        return;
                    }
                    Err(error) => {
                        let record_id = self.reservation.id();
                        tracing::warn!(%error, %record_id, "a lease could not be renewed");
                    }
                }
            }
        };
        let mut renewing = std::pin::pin!(renewing);
        let mut work = std::pin::pin!(work);
        tokio::select! {
            biased;
            done = &mut work => done,
            // The handler cannot be stopped; whether it was too late, its completion will find out.
            () = &mut renewing => work.await,
        }
    }

    async fn conclude(self, ran: Ran) -> (Concluded, Option<Left>) {
        let policy = &self.exchange.policy;
        let concluded = match ran {
            Ran::Kept(parts, body) => {
                let outcome = attempt::outcome(parts.status, &parts.headers, body.clone(), policy);
                let answer = Response::from_parts(parts, ResponseBody::whole(body));
                self.complete(outcome, answer).await
            }
            Ran::TooLarge(answer) => {
                let outcome = attempt::tombstone(answer.status(), answer.headers(), policy);
                self.complete(outcome, answer).await
            }
            Ran::NotKept(answer) => return ((answer, Ended::Open), self.release().await),
            Ran::Lost => match policy.on_lost_answer {
                OnLostAnswer::Uncertain => self.mark_uncertain().await,
                OnLostAnswer::Resend => {
                    let answer = respond::failed(StatusCode::BAD_GATEWAY);
                    return ((answer, Ended::Open), self.release().await);
                }
            },
        };
        (concluded, None)
    }

    /// Writes the outcome down; only then is it answered with.
    async fn complete(self, outcome: Outcome, mut answer: Response<ResponseBody>) -> Concluded {
        let Self { store, observer, exchange, mut reservation, safe_until } = self;
        let (record_id, fence) = (reservation.id(), reservation.fence());
        let retention = exchange.policy.retention();
        let mut pause = PAUSE_MIN;
        loop {
            let completing = protocol::complete(store, reservation, outcome.clone(), retention);
            match completing.await {
                Ok(Completed::Kept { retained_until }) => {
                    stored(observer, exchange, StoredStep::Kept(outcome.byte_count()));
                    respond::stamp(answer.headers_mut(), retained_until);
                    let verdict = Verdict::Replay { outcome, retained_until };
                    return (answer, Ended::Stands { verdict, stored: None });
                }
                Ok(Completed::Late(found)) => {
                    return late(observer, exchange, fence, found.as_deref());
                }
                Err(undone) => {
                    let error = &undone.error;
                    tracing::error!(%error, %record_id, "an outcome could not be written");
                    if Instant::now() + pause >= safe_until {
                        // The record is left to its lease: nobody may claim to know how it ended.
                        let unknown = Rejection::outcome_unknown_now();
                        return (respond::rejection(&unknown), Ended::Open);
                    }
                    sleep(pause).await;
                    pause = (pause * 2).min(PAUSE_MAX);
                    reservation = undone.reservation;
                }
            }
        }
    }

    /// Frees the key; what is left of it if that failed.
    async fn release(self) -> Option<Left> {
        let (id, fence) = (self.reservation.id(), self.reservation.fence());
        match protocol::release(self.store, self.reservation).await {
            Ok(()) => {
                stored(self.observer, self.exchange, StoredStep::Freed);
                None
            }
            Err(error) => {
                tracing::error!(%error, record_id = %id, "a key could not be freed; it is tried again");
                Some(Left { id, fence, until: self.safe_until })
            }
        }
    }

    async fn mark_uncertain(self) -> Concluded {
        let (record_id, fence) = (self.reservation.id(), self.reservation.fence());
        match protocol::mark_uncertain(self.store, self.reservation).await {
            Ok(Marked::Late(found)) => {
                return late(self.observer, self.exchange, fence, found.as_deref());
            }
            Ok(Marked::Uncertain) => {
                tracing::error!(%record_id, "nobody knows how an attempt ended; it waits for proof");
            }
            Err(error) => {
                tracing::error!(%error, %record_id, "a record could not be marked; its lease ends it");
            }
        }
        let answer = respond::rejection(&Rejection::outcome_unknown_now());
        (answer, Ended::Stands { verdict: Verdict::Uncertain, stored: None })
    }
}

/// Tells what became of the exchange's record.
fn stored(observer: &dyn Observer, exchange: &Exchange, step: StoredStep) {
    let Request { tenant, id, .. } = &*exchange.request;
    observer.stored(&Stored { tenant, id: *id, step });
}

/// Answers from what stands where this attempt wanted to write.
fn late(
    observer: &dyn Observer,
    exchange: &Exchange,
    fence: Fence,
    found: Option<&Found>,
) -> Concluded {
    let record_id = exchange.request.id;
    // Whoever did the work wrote the outcome down itself, with its effect: that is the first answer.
    if let Some(Found { record, .. }) = found
        && record.fence == fence
        && let State::Completed { outcome, retained_until, .. } = &record.state
    {
        tracing::debug!(%record_id, "the attempt was completed by whoever ran it");
        stored(observer, exchange, StoredStep::Kept(outcome.byte_count()));
        let (outcome, retained_until) = (outcome.clone(), *retained_until);
        let answer = respond::first(&outcome, retained_until);
        let verdict = Verdict::Replay { outcome, retained_until };
        return (answer, Ended::Stands { verdict, stored: None });
    }
    tracing::warn!(%record_id, "an attempt ended after it had lost its key");
    let verdict = judge(found, &exchange.request, &exchange.policy);
    // Whoever follows asks the store what stands there.
    (respond::verdict(&verdict, &exchange.policy, Vec::new()), Ended::Open)
}
