//! The mistakes that can be planted in an outbox.

use std::time::Duration;

use firstwrite_core::outbox::{
    Becomes, ClaimRequest, ClaimStatus, Claimed, DestinationChange, DestinationView, HistoryRow,
    Kept, MessageNumber, MessageState, MessageStory, Move, MoveGuard, Outbox, PauseChange,
    PendingDraft, Scan, ScanPage, Scanned,
};
use firstwrite_core::{BoxFuture, Message, StoreError, Timestamp};

use super::{Defect, DefectiveStore};

impl DefectiveStore {
    fn spoil_claimed(&self, claimed: &mut Claimed) {
        for claimed_message in &mut claimed.messages {
            if self.has(Defect::LapseForgotten) {
                (claimed_message.maybe_sent_at, claimed_message.lapse_count) = (None, 0);
            }
            if self.has(Defect::ReceiptForgotten) {
                claimed_message.receipt = None;
            }
        }
    }

    /// The guard that a store would check which does not compare fences.
    async fn spoilt_guard(&self, step: &Move) -> Result<MoveGuard, StoreError> {
        let is_spoilt = match step.guard {
            MoveGuard::Claimed(_) => self.has(Defect::SettleIgnoresFence),
            MoveGuard::Idle(_) => self.has(Defect::ResolveIgnoresFence),
            MoveGuard::Dead(_) | MoveGuard::Unsettled(_) => false,
        };
        let story = if is_spoilt { self.memory().message(step.number).await? } else { None };
        let Some(story) = story else { return Ok(step.guard) };
        Ok(match step.guard {
            MoveGuard::Claimed(_) => MoveGuard::Claimed(story.message.fence),
            MoveGuard::Idle(_) => MoveGuard::Idle(story.message.fence),
            MoveGuard::Dead(_) => MoveGuard::Dead(story.message.fence),
            MoveGuard::Unsettled(_) => MoveGuard::Unsettled(story.message.fence),
        })
    }

    fn spoil(&self, step: &mut Move) {
        let is_settlement = matches!(step.guard, MoveGuard::Claimed(_));
        if self.has(Defect::RefusedIsDead) && is_refused(step) && is_settlement {
            step.becomes = Becomes::Pending(PendingDraft {
                state: MessageState::Dead,
                due_in: Duration::ZERO,
                fence: step.guard.fence(),
                delivery_count: 0,
                lapse_count: 0,
                maybe_sent_at: None,
                problem: None,
            });
        }
        let is_redrive = matches!(step.guard, MoveGuard::Dead(_));
        if let Becomes::Pending(draft) = &mut step.becomes {
            if self.has(Defect::RedriveWithoutRest) && is_redrive {
                draft.due_in = Duration::ZERO;
            }
            if self.has(Defect::UnknownComesBack) && draft.state == MessageState::Unknown {
                (draft.state, draft.maybe_sent_at) = (MessageState::Waiting, None);
            }
            if self.has(Defect::DoubtForgotten) && is_settlement {
                draft.maybe_sent_at = None;
            }
        }
        let guarded = step.guard.fence();
        if let Becomes::MaybeSent(draft) = &mut step.becomes {
            if self.has(Defect::MarkLeavesClaim) {
                draft.fence = guarded;
            }
            if self.has(Defect::MarkWithoutRest) {
                draft.rest_for = Duration::ZERO;
            }
            if self.has(Defect::MarkIsYoung) {
                draft.maybe_sent_at = draft.maybe_sent_at.plus(Duration::from_secs(1));
            }
        }
        if self.has(Defect::InterimForEver) && is_settlement {
            step.answer = None;
        }
        if let Some(row) = &mut step.history {
            if self.has(Defect::RowIgnoresGuard) && row.kept == Kept::WithMove {
                row.kept = Kept::Always;
            }
            if self.has(Defect::FoundIsNotTold) && row.kept == Kept::IfNew {
                step.history = None;
            }
        }
    }
}

fn is_refused(step: &Move) -> bool {
    step.becomes == Becomes::Settled(MessageState::Refused)
}

impl Outbox for DefectiveStore {
    fn enqueue<'a>(&'a self, message: &'a Message) -> BoxFuture<'a, Result<(), StoreError>> {
        Box::pin(async move {
            let message = if self.has(Defect::OrderIgnored) {
                let plain = Message::new(
                    message.tenant(),
                    &crate::sample::key(message.derived_key().split(':').next().unwrap_or("k")),
                    "step",
                    message.destination(),
                    message.payload().clone(),
                );
                plain.map_or_else(|_| message.clone(), |plain| plain.delayed_by(message.delay()))
            } else {
                message.clone()
            };
            self.memory().enqueue(&message).await
        })
    }

    fn claim<'a>(
        &'a self,
        requests: &'a [ClaimRequest],
        nonce: u64,
    ) -> BoxFuture<'a, Result<Claimed, StoreError>> {
        Box::pin(async move {
            let mut requests = requests.to_vec();
            for request in &mut requests {
                if self.has(Defect::ClaimWithoutLease) {
                    request.lease_for = Duration::ZERO;
                }
                if self.has(Defect::ClaimTakesTooMany) {
                    request.count_max += 1;
                }
            }
            let mut claimed = self.memory().claim(&requests, nonce).await?;
            self.spoil_claimed(&mut claimed);
            Ok(claimed)
        })
    }

    fn apply<'a>(
        &'a self,
        receipts: &'a [HistoryRow],
        moves: &'a [Move],
    ) -> BoxFuture<'a, Result<Vec<ClaimStatus>, StoreError>> {
        Box::pin(async move {
            let mut spoilt = moves.to_vec();
            for step in &mut spoilt {
                step.guard = self.spoilt_guard(step).await?;
                if self.has(Defect::SuccessorWithoutRest)
                    && let Becomes::MaybeSent(draft) = &mut step.becomes
                    && let Some(story) = self.memory().message(step.number).await?
                    && story.message.state == MessageState::Waiting
                    && story.message.due_at.is_none()
                {
                    draft.rest_for = Duration::ZERO;
                }
                self.spoil(step);
            }
            self.memory().apply(receipts, &spoilt).await
        })
    }

    fn put_destination<'a>(
        &'a self,
        destination: &'a str,
        change: &'a DestinationChange,
    ) -> BoxFuture<'a, Result<(), StoreError>> {
        Box::pin(async move {
            let mut change = change.clone();
            if self.has(Defect::BreakerIgnored) {
                change.opening = None;
            }
            let without_audit = match &change.pause {
                Some(PauseChange::Paused(_)) => self.has(Defect::PauseWithoutAudit),
                Some(PauseChange::Resumed) => self.has(Defect::ResumeWithoutAudit),
                None => false,
            };
            change.audit = change.audit.filter(|_| !without_audit);
            self.memory().put_destination(destination, &change).await
        })
    }

    fn destinations(&self) -> BoxFuture<'_, Result<Vec<DestinationView>, StoreError>> {
        Box::pin(async move { self.memory().destinations().await })
    }

    fn message(
        &self,
        number: MessageNumber,
    ) -> BoxFuture<'_, Result<Option<MessageStory>, StoreError>> {
        Box::pin(async move { self.memory().message(number).await })
    }

    fn scan<'a>(&'a self, scan: &'a Scan) -> BoxFuture<'a, Result<ScanPage, StoreError>> {
        Box::pin(async move {
            let mut scan = scan.clone();
            if self.has(Defect::ScanIgnoresLimit) {
                scan.limit = Scan::LIMIT_MAX;
            }
            let mut page = self.memory().scan(&scan).await?;
            if self.has(Defect::ScanSkipsLast) && page.next.is_some() {
                page.messages.pop();
            }
            for Scanned { view, .. } in &mut page.messages {
                if self.has(Defect::HandledAtFirst) {
                    view.handled_at = view.handled_at.map(|_| view.created_at);
                }
                if self.has(Defect::WrittenAtForgotten) {
                    view.created_at = Timestamp::EPOCH;
                }
            }
            Ok(page)
        })
    }

    fn upkeep(&self, kept_for: Duration, limit: usize) -> BoxFuture<'_, Result<usize, StoreError>> {
        Box::pin(async move {
            let early = self.has(Defect::MessagesDeletedEarly);
            let kept_for = if early { Duration::ZERO } else { kept_for };
            self.memory().upkeep(kept_for, limit).await
        })
    }

    fn wait_for_work(&self) -> BoxFuture<'_, ()> {
        Box::pin(std::future::pending())
    }
}
