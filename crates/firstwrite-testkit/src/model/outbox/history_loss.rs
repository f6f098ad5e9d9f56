//! An older copy of the store is put back; the loss is noticed, and an operator clears it.

use std::time::Duration;

use firstwrite_core::RecordId;
use firstwrite_core::outbox::{
    Becomes, MessageNumber, MessageView, Move, MoveGuard, after_history_loss,
};

use super::promises::Sight;
use super::time::at;
use super::world::{Copied, History, World, Written};
use super::{Delivering, OutboxAction, OutboxDesign};
use crate::sample;

impl Delivering {
    /// Adds the next step of a loss, if there is one.
    pub(super) fn losing(&self, world: &World, actions: &mut Vec<OutboxAction>) {
        if !self.limits.may_lose_history || world.written != Written::Committed {
            return;
        }
        match world.history {
            History::Whole if !world.message.state.is_final() => actions.push(OutboxAction::Copy),
            History::Copied(_) => actions.push(OutboxAction::PutBack),
            History::Lost => actions.push(OutboxAction::ClearLoss),
            History::Whole | History::Cleared => {}
        }
    }

    pub(super) fn copy(world: &mut World) {
        let &mut World { message, has_receipt, told, replaced, .. } = world;
        world.history = History::Copied(Copied { message, has_receipt, told, replaced });
    }

    /// The store is as it was when the copy was made. Workers, deliveries under way and the destination go on.
    pub(super) fn put_back(world: &mut World) {
        let History::Copied(copied) = world.history else { return };
        let Copied { message, has_receipt, told, replaced } = copied;
        (world.message, world.has_receipt) = (message, has_receipt);
        (world.told, world.replaced) = (told, replaced);
        world.look = None;
        world.history = History::Lost;
    }

    /// Marks the message, and clears the loss.
    pub(super) fn clear_loss(&self, world: &mut World) {
        world.history = History::Cleared;
        if self.design == OutboxDesign::LossLeavesNoDoubt || world.message.state.is_final() {
            return;
        }
        let step = self.mark(world);
        if world.message.holds(step.guard, at(world.now)) {
            let before = world.message.state;
            world.message.take(&step.becomes, at(world.now));
            if self.design == OutboxDesign::LossMarkLeavesClaim {
                world.message.state = before;
            }
            self.sights.note(Sight::MarkedAfterLoss);
        }
    }

    /// The move of production, or the design's mistake.
    fn mark(&self, world: &World) -> Move {
        let mut step = after_history_loss(&view(world), &sample::audit("compared"));
        if let (Becomes::MaybeSent(draft), MoveGuard::Unsettled(fence)) =
            (&mut step.becomes, step.guard)
        {
            let rests = self.design != OutboxDesign::LossMarkWithoutRest;
            draft.rest_for = if rests { self.terms(world).lease_for() } else { Duration::ZERO };
            if self.design == OutboxDesign::LossMarkLeavesClaim {
                draft.fence = fence;
            }
        }
        step
    }
}

/// The message as an operator's command reads it.
pub(super) fn view(world: &World) -> MessageView {
    let tenant = sample::tenant("acme");
    MessageView {
        number: MessageNumber(1),
        record: RecordId::of(&tenant, &sample::key("order-1")),
        tenant,
        derived_key: "order-1:charge".to_owned(),
        destination: "provider".to_owned(),
        ordering_key: None,
        created_at: at(0),
        state: world.message.state,
        fence: world.message.worn(),
        due_at: None,
        delivery_count: world.message.delivery_count,
        maybe_sent_at: world.message.maybe_sent_at,
        handled_at: world.message.claimed_at,
        status: None,
        problem: None,
        receipt: None,
        payload_bytes: 0,
    }
}
