//! What must hold however a victim died.

use firstwrite_core::StateKind;

use crate::places::Facts;
use crate::task::{Answer, Role, Run};

/// What happened under one key: a victim, its retry after the lease, and one more.
#[derive(Debug)]
pub(crate) struct Story {
    pub(crate) role: Role,
    pub(crate) victim: Run,
    pub(crate) at_death: Facts,
    pub(crate) retry: Answer,
    pub(crate) again: Answer,
    pub(crate) in_the_end: Facts,
}

/// What is wrong with a story, if anything.
pub(crate) fn judge(story: &Story) -> Result<(), String> {
    let Story { role, victim, at_death, retry, again, in_the_end } = story;
    must(again == retry, "a third request gets another answer than the second")?;
    if let Some(answer) = &victim.answer {
        must(answer == retry, "an answer was given, and the retry gets another one")?;
    }
    if at_death.state == Some(StateKind::Completed) {
        must(in_the_end.effects == at_death.effects, "a completed request ran again")?;
        must(retry.status == 201, "the outcome was recorded and is not replayed")?;
    }
    match role {
        Role::Atomic => atomic(at_death, retry, in_the_end),
        Role::Uncertain => uncertain(at_death, retry, in_the_end),
        Role::Resend => resend(retry, in_the_end),
        Role::Prepare | Role::Worker | Role::Enqueue | Role::Deliver => {
            Err("there is no request".to_owned())
        }
    }
}

/// All or nothing, and in the end all, once.
fn atomic(at_death: &Facts, retry: &Answer, in_the_end: &Facts) -> Result<(), String> {
    let is_completed = at_death.state == Some(StateKind::Completed);
    let parts = [at_death.rows == 1, at_death.messages == 1, is_completed];
    must(parts == [is_completed; 3], "a part of a transaction stands without the rest")?;
    must(retry.status == 201, "the retry of an atomic request did not succeed")?;
    must(in_the_end.rows == 1, "there is not exactly one row")?;
    must(in_the_end.messages == 1, "there is not exactly one message")
}

/// At most once, and nobody is told what is not known.
fn uncertain(at_death: &Facts, retry: &Answer, in_the_end: &Facts) -> Result<(), String> {
    must(in_the_end.effects <= 1, "the effect happened twice")?;
    match at_death.state {
        // Judged above.
        Some(StateKind::Completed) => Ok(()),
        Some(StateKind::Reserved | StateKind::Uncertain) => {
            must(retry.is_unknown(), "nobody knows how it ended, and yet the retry is told")?;
            must(in_the_end.effects == at_death.effects, "a retry ran what may have happened")
        }
        None => {
            must(at_death.effects == 0, "the effect came before the reservation")?;
            must(
                retry.status == 201,
                "nothing stood under the key, and yet the retry was refused",
            )?;
            must(in_the_end.effects == 1, "the retry answered and did nothing")
        }
    }
}

/// Never stuck, and once for whoever recognises the key.
fn resend(retry: &Answer, in_the_end: &Facts) -> Result<(), String> {
    must(retry.status == 201, "the key is stuck")?;
    must(in_the_end.distinct_effects == 1, "the effect is not the same under every attempt")
}

fn must(holds: bool, otherwise: &str) -> Result<(), String> {
    if holds { Ok(()) } else { Err(otherwise.to_owned()) }
}
