//! The worker of a history, and the provider that it delivers to.

use std::sync::Arc;
use std::time::Duration;

use firstwrite::worker::{Deliver, Destination};
use firstwrite_core::BoxFuture;
use firstwrite_core::outbox::{
    Carrier, ClaimedMessage, Delivery, Ending, MessageQuery, MessageState, Probed, Receipt, Terms,
    protocol,
};
use tokio::time::{Instant, sleep};

use crate::client::is_final_answer;
use crate::defects::Defect;
use crate::events::Event;
use crate::front::DESTINATION;
use crate::ledger::Kept;
use crate::stage::Stage;
use crate::store::{SimStore, now};
use crate::world::{Process, World};

/// Carries messages to the provider, for one process.
#[derive(Debug)]
struct ToProvider(Process);

/// Delivers until the history ends; killed now and then, and started anew.
pub(crate) async fn work(stage: Stage) {
    let world = stage.world().clone();
    loop {
        let store = stage.store();
        let process = store.process.clone();
        let deliver = deliver(store);
        let lives_for = if world.terms().kills { 2000 + world.draw(20_000) } else { u64::MAX / 2 };
        let dies_at = Instant::now() + Duration::from_millis(lives_for);
        while Instant::now() < dies_at || world.state().is_healed {
            let turn = async {
                let (Ok(_) | Err(_)) = deliver.run_once().await;
                world.passes(100, 1500).await;
                process.gate().await;
            };
            let until = if world.state().is_healed {
                Instant::now() + Duration::from_hours(1)
            } else {
                dies_at
            };
            tokio::select! {
                biased;
                () = turn => {}
                () = tokio::time::sleep_until(until) => {}
            }
            if world.state().log.violation.is_some() {
                return;
            }
        }
        process.kill();
    }
}

fn deliver(store: SimStore) -> Deliver {
    let carrier = Arc::new(ToProvider(store.process.clone()));
    let terms = terms(store.process.world());
    let destination = Destination::new(DESTINATION, terms, carrier);
    Deliver::new(Arc::new(store), vec![destination]).expect("the store keeps messages")
}

/// Returns the terms that the destination declares.
pub(crate) fn terms(world: &World) -> Terms {
    let dedupe_for =
        if world.terms().provider_dedupes { Duration::from_hours(1) } else { Duration::ZERO };
    Terms {
        timeout: Duration::from_secs(2),
        dedupe_for,
        can_be_asked: world.terms().provider_can_be_asked,
        delivery_count_max: 5,
        pause_first: Duration::from_millis(200),
        pause_max: Duration::from_secs(2),
        ..Terms::default()
    }
}

/// Course of a delivery, drawn in advance.
struct Script {
    works_for: Duration,
    acts: bool,
    says: Says,
}

enum Says {
    Delivered,
    Refused,
    /// Something else says so: a login, a router.
    NotThere(u16),
    NotNow,
    Nothing,
}

impl Script {
    fn draw(world: &World) -> Self {
        let mut state = world.state();
        let is_bad = state.rng.u8(..100) < world.terms().upstream_faults && !state.is_healed;
        let rng = &mut state.rng;
        let mut script = Self {
            works_for: Duration::from_millis(rng.u64(0..300)),
            acts: true,
            says: Says::Delivered,
        };
        if !is_bad {
            return script;
        }
        match rng.u8(..6) {
            0 => script.works_for = Duration::from_millis(rng.u64(0..4000)),
            1 => script.says = Says::Nothing,
            2 => (script.acts, script.says) = (false, Says::Nothing),
            3 => {
                let status = [401, 403, 404, 422][rng.usize(..4)];
                let says = if status == 422 { Says::Refused } else { Says::NotThere(status) };
                (script.acts, script.says) = (false, says);
            }
            _ => (script.acts, script.says) = (false, Says::NotNow),
        }
        script
    }
}

impl Carrier for ToProvider {
    fn carry<'a>(&'a self, claimed_message: &'a ClaimedMessage) -> BoxFuture<'a, Delivery> {
        let (process, world) = (self.0.clone(), self.0.world().clone());
        let (wire, number) = (claimed_message.wire_key(), claimed_message.number);
        Box::pin(async move {
            if !world.is_alive(process.number) {
                return std::future::pending().await;
            }
            let script = Script::draw(&world);
            world.note(Event::Carried, || format!("{number:?} by process {}", process.number));
            let provider = world.clone();
            let doing = tokio::spawn(async move { provide(&provider, &wire, script).await });
            let (says, provider_id) = doing.await.unwrap_or((Says::Nothing, None));
            world.hop().await;
            process.gate().await;
            match says {
                Says::Delivered => {
                    Delivery::new(Ending::Delivered(Receipt { provider_id }), "taken")
                        .with_status(201)
                }
                Says::Refused => {
                    world.note(Event::DeliveryRefused, || format!("{number:?}"));
                    Delivery::new(Ending::Refused, "refused").with_status(422)
                }
                Says::NotThere(status) => {
                    world.note(Event::NotThere, || format!("{number:?}: {status}"));
                    let is_confused = world.has(Defect::NotThereIsRefused);
                    let ending = if is_confused { Ending::Refused } else { Ending::NotThere };
                    Delivery::new(ending, "not there").with_status(status)
                }
                Says::NotNow => Delivery::new(Ending::Retry, "not now").with_status(503),
                Says::Nothing => {
                    world.note(Event::DeliveryLost, || format!("{number:?}"));
                    Delivery::new(Ending::Unknown, "the answer was lost")
                }
            }
        })
    }

    fn probe<'a>(&'a self, claimed_message: &'a ClaimedMessage) -> Option<BoxFuture<'a, Probed>> {
        let (process, world) = (self.0.clone(), self.0.world().clone());
        let wire = claimed_message.wire_key();
        world.terms().provider_can_be_asked.then(|| -> BoxFuture<'a, Probed> {
            Box::pin(async move {
                world.hop().await;
                let book = world.state().ledger.deliveries.get(&wire).cloned().unwrap_or_default();
                let probed = if book.effects > 0 {
                    Probed::Happened(Receipt { provider_id: book.id })
                } else if book.under_way > 0 {
                    Probed::Silent("still at work".to_owned())
                } else {
                    Probed::NotHappened
                };
                world.hop().await;
                process.gate().await;
                probed
            })
        })
    }
}

/// Carries out a delivery at the provider, whether or not the sender still waits. Returns the provider's answer and
/// its id for the effect.
async fn provide(world: &World, wire: &str, script: Script) -> (Says, Option<String>) {
    let began = Instant::now();
    let reaches = !matches!(script.says, Says::NotThere(_));
    let is_new = {
        let mut state = world.state();
        let book = state.ledger.deliveries.entry(wire.to_owned()).or_default();
        book.under_way += 1;
        book.was_refused |= matches!(script.says, Says::Refused);
        book.was_put_off |= matches!(script.says, Says::NotNow);
        book.effects == 0
    };
    let pending = if reaches && is_new { world.take_up(wire) } else { None };
    sleep(script.works_for).await;
    let id = if script.acts { act(world, wire, began, pending) } else { None };
    if id.is_none() && reaches {
        world.decline(pending, wire);
    }
    let mut state = world.state();
    let book = state.ledger.deliveries.entry(wire.to_owned()).or_default();
    book.under_way -= 1;
    (script.says, book.id.clone())
}

/// Carries out a message at the provider, once if the provider recognises repetitions. Returns the provider's id for
/// the effect, or `None` for a repetition.
fn act(world: &World, wire: &str, began: Instant, pending: Option<usize>) -> Option<String> {
    let dedupes = world.terms().provider_dedupes;
    let book = world.state().ledger.deliveries.get(wire).cloned().unwrap_or_default();
    let is_repetition = book.effects > 0;
    if is_repetition {
        world.note(Event::CarriedTwice, || wire.to_owned());
        if dedupes {
            return None;
        }
        world.violation(|| format!("the message {wire} had its effect twice"));
    }
    if book.absent_since.is_some_and(|since| began < since) {
        world.violation(|| {
            format!("the message {wire} had its effect after a reconciliation had not found it")
        });
    }
    let id = world.pay(pending, wire, 0);
    let mut state = world.state();
    let book = state.ledger.deliveries.entry(wire.to_owned()).or_default();
    book.effects += 1;
    book.id = Some(id.clone());
    Some(id)
}

/// Checks at the end that every message has arrived or is visibly unknown, and that every final answer is true.
pub(crate) async fn check(stage: &Stage) {
    let world = stage.world();
    sleep(Duration::from_mins(5)).await;
    let query = MessageQuery {
        destination: None,
        state: None,
        tenant: None,
        problem: None,
        derived_key: None,
        record: None,
        after: None,
        limit: 100,
    };
    let page = now(protocol::messages(stage.memory(), &query));
    for message in page.messages {
        let wire = firstwrite_core::outbox::wire_key(&message.derived_key, message.record);
        let book = world.state().ledger.deliveries.get(&wire).cloned().unwrap_or_default();
        let arrived = book.effects > 0;
        let wrong = match message.state {
            MessageState::Delivered => !arrived,
            MessageState::Refused => arrived || !book.was_refused,
            MessageState::Dead => arrived || !(book.was_refused || book.was_put_off),
            MessageState::Waiting | MessageState::Sending => true,
            MessageState::Unknown => {
                world.note(Event::MessageUnknown, || wire.clone());
                false
            }
            MessageState::Dropped => false,
        };
        if wrong {
            world.violation(|| {
                format!(
                    "the message {wire} is {:?}, and the provider's word: arrived is {arrived}, refused is {}",
                    message.state, book.was_refused
                )
            });
        }
        let Some(key) = world.state().ledger.key_of(message.record) else { continue };
        let last = world.state().ledger.keys[key].kept.last().cloned();
        if let Some((_, Kept { body, .. })) = last
            && let Some(paid) = is_final_answer(world, &body)
            && paid != arrived
        {
            world.violation(|| {
                format!("key {key} says paid: {paid}, and the message arrived: {arrived}")
            });
        }
    }
}
