//! Promises of the outbox, and situations that must be reachable for the promises to mean anything.

use std::sync::atomic::{AtomicU64, Ordering};

use firstwrite_core::outbox::MessageState;
use stateright::Property;

use super::Delivering;
use super::world::{History, Told, World, Written};

pub(super) const ONE_EFFECT: &str = "one effect";
pub(super) const ROLLED_BACK: &str = "what was rolled back has no effect";
pub(super) const REFUSED_IS_TRUE: &str = "what is refused or dead has no effect";
pub(super) const DELIVERED_IS_TRUE: &str = "what is delivered has its effect";
pub(super) const TOLD_IS_TRUE: &str = "what the client is told is true";
pub(super) const ANSWERED_ONCE: &str = "an interim answer is replaced once";
pub(super) const DOUBT_KEPT: &str = "a doubt is kept until there is proof";
pub(super) const NOTHING_LOST: &str = "what was committed is delivered, refused, dead or held";

/// Steps after which a message must have ended when nothing goes wrong any more.
const CALM_STEPS_MAX: u8 = 80;

pub(super) fn properties() -> Vec<Property<Delivering>> {
    vec![
        Property::always(ONE_EFFECT, |_, world: &World| world.destination.effects <= 1),
        Property::always(ROLLED_BACK, |_, world: &World| {
            world.written != Written::RolledBack || world.destination.effects == 0
        }),
        Property::always(REFUSED_IS_TRUE, |_, world: &World| {
            let is_refused =
                matches!(world.message.state, MessageState::Refused | MessageState::Dead);
            // What is missing may have put a dead letter back, so it is doubted.
            let is_doubted = match world.history {
                History::Whole | History::Copied(_) => false,
                History::Lost => world.message.state == MessageState::Dead,
                History::Cleared => world.message.maybe_sent_at.is_some(),
            };
            !is_refused || is_doubted || world.destination.effects == 0
        }),
        Property::always(DELIVERED_IS_TRUE, |_, world: &World| {
            world.message.state != MessageState::Delivered || world.destination.effects > 0
        }),
        Property::always(TOLD_IS_TRUE, |_, world: &World| match world.told {
            Told::Nothing | Told::Interim => true,
            Told::Delivered => world.destination.effects > 0,
            Told::Refused => world.destination.effects == 0,
        }),
        Property::always(ANSWERED_ONCE, |_, world: &World| world.replaced <= 1),
        Property::always(DOUBT_KEPT, |_, world: &World| {
            world.destination.effects == 0
                || world.has_receipt
                || world.history == History::Lost
                || world.message.maybe_sent_at.is_some()
                // Its claim says so when it runs out; dropping is giving up on knowing.
                || matches!(
                    world.message.state,
                    MessageState::Sending | MessageState::Delivered | MessageState::Dropped
                )
        }),
        Property::always(NOTHING_LOST, |_, world: &World| {
            world.calm_steps <= CALM_STEPS_MAX && !world.is_stuck()
        }),
    ]
}

/// Situations that the exploration has reached: a model that never reaches them proves nothing.
#[derive(Debug, Default)]
pub(super) struct Sights(AtomicU64);

/// Something that must be possible in the real design.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sight {
    Crashed,
    RolledBack,
    GivenUp,
    ArrivedLate,
    ResentInWindow,
    HeldAfterWindow,
    ProbeSaidYes,
    ProbeSaidNo,
    NotEnoughLease,
    RefusedAtOnce,
    RefusedInDoubt,
    RefusedByKey,
    NotThereInDoubt,
    LateSettlementRefused,
    LateReceiptKept,
    ReceiptSettled,
    Exhausted,
    Redriven,
    Trial,
    SettledDelivered,
    SettledAbsent,
    SettledRefused,
    WordRefused,
    Dropped,
    ToldDelivered,
    ToldRefused,
    EndedInCalm,
    MarkedAfterLoss,
}

impl Sight {
    const ALL: [Self; 28] = [
        Self::Crashed,
        Self::RolledBack,
        Self::GivenUp,
        Self::ArrivedLate,
        Self::ResentInWindow,
        Self::HeldAfterWindow,
        Self::ProbeSaidYes,
        Self::ProbeSaidNo,
        Self::NotEnoughLease,
        Self::RefusedAtOnce,
        Self::RefusedInDoubt,
        Self::RefusedByKey,
        Self::NotThereInDoubt,
        Self::LateSettlementRefused,
        Self::LateReceiptKept,
        Self::ReceiptSettled,
        Self::Exhausted,
        Self::Redriven,
        Self::Trial,
        Self::SettledDelivered,
        Self::SettledAbsent,
        Self::SettledRefused,
        Self::WordRefused,
        Self::Dropped,
        Self::ToldDelivered,
        Self::ToldRefused,
        Self::EndedInCalm,
        Self::MarkedAfterLoss,
    ];
}

impl Sights {
    pub(super) fn note(&self, sight: Sight) {
        self.0.fetch_or(1 << (sight as u32), Ordering::Relaxed);
    }

    pub(super) fn note_told(&self, told: Told) {
        match told {
            Told::Delivered => self.note(Sight::ToldDelivered),
            Told::Refused => self.note(Sight::ToldRefused),
            Told::Nothing | Told::Interim => {}
        }
    }

    /// Returns the situations that were not reached.
    pub(super) fn missing(&self) -> Vec<String> {
        let seen = self.0.load(Ordering::Relaxed);
        let missing = Sight::ALL.iter().filter(|sight| seen & (1 << (**sight as u32)) == 0);
        missing.map(|sight| format!("{sight:?}")).collect()
    }
}
