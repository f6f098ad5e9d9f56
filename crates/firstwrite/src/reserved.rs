//! The reserved mode: the reservation is committed first, the handler runs, the outcome is
//! committed after, guarded by the fence.

use std::sync::Arc;

use firstwrite_core::protocol::{self, Completed, Marked, Renewed, Reservation, Reserved};
use firstwrite_core::{
    AnswerMeaning, Effect, Fence, Found, OnLostAnswer, Outcome, Rejection, Request, State, Store,
    StoreErrorKind, Swapped, Verdict, judge,
};
use http::Response;
use tokio::time::{Instant, MissedTickBehavior, interval_at, sleep};

use crate::attempt::{self, Attempt, Ran, Reply};
use crate::body::ResponseBody;
use crate::coalesce::{Ended, Lead, ReleasedAnswer};
use crate::exchange::{AnswerWhen, Call, Exchange};
use crate::layer::Shared;
use crate::lease::LeaseWatch;
use crate::lines::{Lines, say};
use crate::observe::{Observer, RecordChange, RecordStep};
use crate::respond;
use crate::withdrawal::{Note, Pauses, Withdrawal};

/// A reservation whose handler runs in this process.
struct RunningReservation<'a> {
    store: &'a dyn Store,
    observer: &'a dyn Observer,
    lines: &'a Lines,
    exchange: &'a Exchange,
    reservation: Reservation,
    lease: LeaseWatch,
}

/// Result of an attempt: the caller's answer, the result for followers, and the reservation left to withdraw.
struct Concluded {
    answer: Response<ResponseBody>,
    ended: Ended,
    withdrawal: Option<Withdrawal>,
}

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
    let reserved = protocol::reserve(store, request, policy, fastrand::u64(..)).await;
    shared.observer.reserved(asked_at.elapsed());
    let mut withdrawal = None;
    let ended = match reserved {
        // A rival, a sweep or an operator may act on the end of the lease: an attempt that would begin
        // close to it does not begin at all.
        Ok(Reserved::Granted(reservation)) if asked_at.elapsed() >= policy.lease / 2 => {
            shared.lines.reserved_late(request.id);
            let mut unbegun =
                Withdrawal::unbegun(request.id, reservation.strays().to_vec(), policy);
            if !unbegun.strays.contains(&reservation.fence()) {
                unbegun.fences.push(reservation.fence());
            }
            withdrawal = Some(unbegun);
            Ended::StoreFailed(StoreErrorKind::Unavailable)
        }
        Ok(Reserved::Granted(reservation)) => {
            lead.owned();
            reply.accepted(exchange);
            let lease = LeaseWatch::until(asked_at + policy.lease);
            let attempt = Attempt::reserved(request, reservation.fence(), lease.clone());
            call.parts.extensions.insert(attempt);
            let (observer, lines) = (&*shared.observer, &*shared.lines);
            // What was taken over stood already.
            if reservation.fence().count() == 1 {
                stored(observer, exchange, RecordStep::Made);
            }
            let (fence, mut strays) = (reservation.fence(), reservation.strays().to_vec());
            let mut running =
                RunningReservation { store, observer, lines, exchange, reservation, lease };
            let work = attempt::run(call, exchange, lines);
            let ran = running.while_renewing(asked_at, work).await;
            firstwrite_core::crash_point!("handler-ended");
            let Concluded { answer, ended, withdrawal } = running.conclude(ran, &mut reply).await;
            // The attempt's own fence may be on an uncertain record, which stays. Where the key was released, an
            // earlier write under it that arrives now is nobody's.
            if !matches!(ended, Ended::Released(_)) {
                strays.retain(|stray| *stray != fence);
            }
            lead.end(ended);
            reply.answered(answer);
            let unbegun = || Withdrawal::unbegun(request.id, Vec::new(), policy);
            if let Some(withdrawal) = with_strays(withdrawal, strays, unbegun) {
                shared.withdraw(withdrawal, policy.lease).await;
            }
            return;
        }
        Ok(Reserved::Refused(verdict, found, may_stand)) => {
            if !may_stand.is_empty() {
                withdrawal = Some(Withdrawal::unbegun(request.id, may_stand, policy));
            }
            Ended::stands(verdict, Some(&found))
        }
        Err(unreserved) => {
            let error = unreserved.error;
            shared.lines.not_reserved(&error, request.id);
            if !unreserved.may_stand.is_empty() {
                withdrawal = Some(Withdrawal::unbegun(request.id, unreserved.may_stand, policy));
            }
            Ended::StoreFailed(error.kind())
        }
    };
    lead.end(ended.clone());
    reply.refused(ended, call);
    if let Some(withdrawal) = withdrawal {
        shared.withdraw(withdrawal, policy.lease).await;
    }
}

/// Adds fences that may still be written to what is withdrawn.
fn with_strays(
    withdrawal: Option<Withdrawal>,
    strays: Vec<Fence>,
    unbegun: impl FnOnce() -> Withdrawal,
) -> Option<Withdrawal> {
    if strays.is_empty() {
        return withdrawal;
    }
    let mut withdrawal = withdrawal.unwrap_or_else(unbegun);
    for stray in &strays {
        if !withdrawal.fences.contains(stray) {
            withdrawal.fences.push(*stray);
        }
    }
    withdrawal.strays.extend(strays);
    Some(withdrawal)
}

impl RunningReservation<'_> {
    /// Does `work`, renewing the lease at a third of its length meanwhile.
    async fn while_renewing<T>(&mut self, since: Instant, work: impl Future<Output = T>) -> T {
        let renewing = async {
            let third = self.reservation.lease_for() / 3;
            let mut renewal = interval_at(since + third, third);
            renewal.set_missed_tick_behavior(MissedTickBehavior::Delay);
            loop {
                renewal.tick().await;
                // Counted from before the store is asked, so never later than the store's own deadline.
                let asked_at = Instant::now();
                match protocol::renew(self.store, &mut self.reservation).await {
                    Ok(Renewed::Current) => {
                        self.lease.renew(asked_at + self.reservation.lease_for());
                    }
                    Ok(Renewed::Lost) => {
                        let record_id = self.reservation.id();
                        say!(self.lines.lease_lost, warn, %record_id, "the lease was lost");
                        self.lease.end();
                        return;
                    }
                    Err(error) => {
                        let record_id = self.reservation.id();
                        say!(self.lines.not_renewed, warn, %error, %record_id, "a lease could not be renewed");
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

    async fn conclude(self, ran: Ran, reply: &mut Reply) -> Concluded {
        let policy = &self.exchange.policy;
        match ran {
            Ran::Kept(parts, body) => {
                let outcome = attempt::outcome(parts.status, &parts.headers, body.clone(), policy);
                let answer = Response::from_parts(parts, ResponseBody::whole(body));
                self.complete(outcome, answer, reply).await
            }
            Ran::TooLarge(answer) => {
                let outcome = attempt::tombstone(answer.status(), answer.headers(), policy);
                self.complete(outcome, answer, reply).await
            }
            Ran::NotKept(mut answer) => {
                let said = answer.extensions().get::<Effect>().copied();
                let is_lost = policy.meaning(answer.status(), said) == AnswerMeaning::Lost;
                if is_lost {
                    respond::mark_in_doubt(answer.headers_mut());
                }
                match policy.on_lost_answer {
                    OnLostAnswer::Uncertain | OnLostAnswer::Ask(_) if is_lost => {
                        let why = format!(
                            "answered with {}, which does not say how it ended",
                            answer.status()
                        );
                        self.mark_uncertain(Some(answer), &why).await
                    }
                    OnLostAnswer::Uncertain | OnLostAnswer::Ask(_) | OnLostAnswer::Resend => {
                        self.release(answer).await
                    }
                }
            }
            Ran::Lost(why) => match policy.on_lost_answer {
                OnLostAnswer::Uncertain | OnLostAnswer::Ask(_) => {
                    self.mark_uncertain(None, &why).await
                }
                OnLostAnswer::Resend => {
                    let lost = Rejection::lost_and_sent_again().retry_after(policy.retry_after);
                    self.release(respond::rejection(&lost)).await
                }
            },
        }
    }

    /// Writes the outcome to the store; only then is it answered with.
    ///
    /// If the store does not take it before the lease ends, the caller is told that the outcome is unknown, and
    /// writing goes on in the background: the guard admits this attempt until another one owns the key. Until
    /// the writing ends, duplicates in this process find the attempt in progress.
    async fn complete(
        self,
        outcome: Outcome,
        mut answer: Response<ResponseBody>,
        reply: &mut Reply,
    ) -> Concluded {
        let Self { store, observer, lines, exchange, mut reservation, lease } = self;
        let (record_id, fence) = (reservation.id(), reservation.fence());
        let mut pauses = Pauses::new();
        let mut is_first = true;
        loop {
            match protocol::complete(store, reservation, outcome.clone()).await {
                Ok(Completed::Kept { retained_until }) => {
                    stored(observer, exchange, RecordStep::Kept(outcome.byte_count()));
                    respond::stamp(answer.headers_mut(), retained_until);
                    let verdict = Verdict::Replay { outcome, retained_until };
                    return Concluded::new(answer, Ended::Stands { verdict, stored: None });
                }
                Ok(Completed::Late(found)) => {
                    return late(observer, lines, exchange, fence, found.as_deref());
                }
                Err(undone) => {
                    let error = &undone.error;
                    if is_first {
                        lines.not_written(error, record_id);
                    }
                    is_first = false;
                    let unknown = || respond::rejection(&Rejection::outcome_unknown_now());
                    let Some(pause) = pauses.next() else {
                        say!(lines.given_up, error, %record_id, "an outcome was given up; it waits for proof");
                        return Concluded::new(unknown(), Ended::Open);
                    };
                    if lease.left() <= pause {
                        reply.answer(unknown());
                    }
                    sleep(pause).await;
                    reservation = undone.reservation;
                }
            }
        }
    }

    /// Frees the key. Duplicates that waited get the same answer.
    async fn release(self, answer: Response<ResponseBody>) -> Concluded {
        let (id, fence, exchange) =
            (self.reservation.id(), self.reservation.fence(), self.exchange);
        let policy = &exchange.policy;
        // A caller that was told to ask for the result later must learn that there is none.
        let is_owed = matches!(exchange.answer_when, AnswerWhen::Accepted);
        let note = Note::new(answer.status(), is_owed, policy);
        let withdrawal = match note.free(self.store, id, fence).await {
            // Another writer has settled the record or owns the key: its result is the answer, not this one.
            Ok(Swapped::Moved(Some(found))) if !is_note_of(&found, fence) => {
                return late(self.observer, self.lines, exchange, fence, Some(&found));
            }
            Ok(_) => {
                stored(self.observer, exchange, RecordStep::Freed);
                None
            }
            Err(error) => {
                say!(self.lines.freed_later, error, %error, record_id = %id, "a key could not be freed; it is tried again");
                Some(Withdrawal { id, fences: vec![fence], strays: Vec::new(), note })
            }
        };
        let shared = ReleasedAnswer::of(&answer, policy);
        Concluded { answer, ended: Ended::Released(Arc::new(shared)), withdrawal }
    }

    /// Leaves the record to proof. `answer` is what the handler said, if it said anything.
    async fn mark_uncertain(self, answer: Option<Response<ResponseBody>>, why: &str) -> Concluded {
        let (record_id, fence) = (self.reservation.id(), self.reservation.fence());
        match protocol::mark_uncertain(self.store, self.reservation, why).await {
            Ok(Marked::Late(found)) => {
                return late(self.observer, self.lines, self.exchange, fence, found.as_deref());
            }
            Ok(Marked::Uncertain) => {
                say!(self.lines.uncertain, error, %record_id, "nobody knows how an attempt ended; it waits for proof");
            }
            Err(error) => {
                say!(self.lines.not_marked, error, %error, %record_id, "a record could not be marked; its lease ends it");
            }
        }
        let answer =
            answer.unwrap_or_else(|| respond::rejection(&Rejection::outcome_unknown_now()));
        Concluded::new(answer, Ended::Stands { verdict: Verdict::Uncertain, stored: None })
    }
}

impl Concluded {
    fn new(answer: Response<ResponseBody>, ended: Ended) -> Self {
        Self { answer, ended, withdrawal: None }
    }
}

/// Returns true if the record found is this attempt's own note, whose acknowledgement was lost.
fn is_note_of(found: &Found, fence: Fence) -> bool {
    found.record.fence == fence
        && matches!(&found.record.state, State::Completed { outcome, .. } if outcome.is_release_note())
}

/// Tells what became of the exchange's record.
fn stored(observer: &dyn Observer, exchange: &Exchange, step: RecordStep) {
    let Request { tenant, id, .. } = &*exchange.request;
    observer.stored(&RecordChange { tenant, id: *id, step });
}

/// Answers from what stands where this attempt wanted to write.
fn late(
    observer: &dyn Observer,
    lines: &Lines,
    exchange: &Exchange,
    fence: Fence,
    found: Option<&Found>,
) -> Concluded {
    let record_id = exchange.request.id;
    // The handler or upstream recorded the outcome itself, with its effect: that is the first answer.
    if let Some(Found { record, .. }) = found
        && record.fence == fence
        && let State::Completed { outcome, retained_until, .. } = &record.state
        && !outcome.is_release_note()
    {
        tracing::debug!(%record_id, "the attempt was completed by whoever ran it");
        stored(observer, exchange, RecordStep::Kept(outcome.byte_count()));
        let (outcome, retained_until) = (outcome.clone(), *retained_until);
        let answer = respond::first(&outcome, Some(retained_until));
        let verdict = Verdict::Replay { outcome, retained_until };
        return Concluded::new(answer, Ended::Stands { verdict, stored: None });
    }
    say!(lines.ended_late, warn, %record_id, "an attempt ended after it had lost its key");
    let verdict = judge(found, &exchange.request);
    // Followers ask the store for the record.
    Concluded::new(respond::verdict(&verdict, &exchange.policy), Ended::Open)
}
