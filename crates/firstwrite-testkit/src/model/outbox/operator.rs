//! Operators' actions: look, report the finding, redrive dead letters, wait.

use firstwrite_core::outbox::{
    MessageNumber, MessageState, Resolution, absence_shows_from, after_redrive, after_resolution,
};

use super::history_loss::view;
use super::promises::Sight;
use super::time::{at, patience};
use super::world::{Look, Told, World, receipt};
use super::{Delivering, OutboxDesign};
use crate::sample;

/// An operator's statement about a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Word {
    /// It arrived.
    Delivered,
    /// It did not arrive, and is to be sent again.
    NotDelivered,
    /// It did not arrive and never will.
    Refused,
    /// It is not to be delivered any more.
    Drop,
}

impl Delivering {
    /// Returns true if an operator looks at a message in this state.
    pub(super) fn is_looked_at(world: &World) -> bool {
        match world.message.state {
            MessageState::Unknown | MessageState::Dead => true,
            MessageState::Waiting => world.message.maybe_sent_at.is_some(),
            MessageState::Sending => world.message.lease_until <= at(world.now),
            MessageState::Delivered | MessageState::Refused | MessageState::Dropped => false,
        }
    }

    /// Reads the message, then the destination's ledger.
    pub(super) fn look(world: &mut World) {
        let message = &world.message;
        let shows_from =
            absence_shows_from(message.state, message.maybe_sent_at, message.claimed_at);
        world.look = Some(Look {
            fence: message.worn(),
            found: world.destination.effects > 0,
            is_early: shows_from.is_some_and(|from| at(world.now) < from),
        });
        world.spent.words += 1;
    }

    /// The words that are true of what was seen.
    pub(super) fn words(world: &World, look: Look) -> &'static [Word] {
        match (look.found, world.is_awaited) {
            (true, _) => &[Word::Delivered],
            (false, true) => &[Word::NotDelivered, Word::Refused],
            (false, false) => &[Word::NotDelivered, Word::Refused, Word::Drop],
        }
    }

    pub(super) fn say(&self, world: &mut World, word: Word) {
        let Some(look) = world.look.take() else { return };
        let (resolution, sight) = match word {
            Word::Delivered => {
                let delivered = Resolution::Delivered { receipt: receipt(), answer: None };
                (delivered, Sight::SettledDelivered)
            }
            Word::NotDelivered => (Resolution::NotDelivered, Sight::SettledAbsent),
            Word::Refused => (Resolution::Refused { answer: None }, Sight::SettledRefused),
            Word::Drop => (Resolution::Dropped, Sight::Dropped),
        };
        let says_absent = matches!(word, Word::NotDelivered | Word::Refused);
        if says_absent && look.is_early && self.design != OutboxDesign::WordTooEarly {
            self.sights.note(Sight::WordRefused);
            return;
        }
        let by = sample::audit("looked");
        let step = after_resolution(MessageNumber(1), look.fence, &resolution, &by);
        if !world.message.holds(step.guard, at(world.now)) {
            return;
        }
        world.message.take(&step.becomes, at(world.now));
        self.sights.note(sight);
        world.has_receipt |= word == Word::Delivered;
        if world.told == Told::Interim {
            match word {
                Word::Delivered => world.tell(Told::Delivered),
                Word::Refused => world.tell(Told::Refused),
                Word::NotDelivered | Word::Drop => {}
            }
        }
    }

    /// Returns true if a redrive takes the message.
    pub(super) fn is_redrivable(&self, world: &World) -> bool {
        match world.message.state {
            MessageState::Dead => true,
            MessageState::Unknown => self.design == OutboxDesign::RedrivesUnknown,
            MessageState::Waiting
            | MessageState::Sending
            | MessageState::Delivered
            | MessageState::Refused
            | MessageState::Dropped => false,
        }
    }

    pub(super) fn redrive(&self, world: &mut World) {
        if world.message.state == MessageState::Unknown {
            world.message.state = MessageState::Dead;
            world.message.maybe_sent_at = None;
        }
        if world.message.state == MessageState::Dead {
            let by = sample::audit("mended");
            let step = after_redrive(&view(world), at(world.now), &by);
            world.message.take(&step.becomes, at(world.now));
            self.sights.note(Sight::Redriven);
        }
        world.spent.redrives += 1;
    }

    /// Lets time pass until a missing effect counts as absent.
    pub(super) fn wait(world: &mut World) {
        world.now += patience();
        world.spent.waits += 1;
        world.destination.pass(world.now);
    }
}
