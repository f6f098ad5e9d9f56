//! Other customers: their payments stand in both books, before and after those in doubt. An absence needs such
//! neighbours to be a proof.

use std::time::Duration;

use firstwrite_core::outbox::{
    MessageQuery, Outbox as _, Receipt, Resolution, protocol, wire_key, wire_key_of,
};
use firstwrite_core::{AuditEntry, Fence, Key, Message, Request, Store as _};
use firstwrite_testkit::sample;
use tokio::time::sleep;

use crate::cast::{self, OPERATION, STEP};
use crate::front::{DESTINATION, MESSAGE_STEP, payload};
use crate::stage::Stage;
use crate::store::now;
use crate::terms::Path;

/// So long before the history the first customers came.
const EARLIER: Duration = Duration::from_hours(1);

/// The customers of the hour before the history, and payments of earlier lives of its keys.
pub(crate) fn come_before(stage: &Stage) {
    let world = stage.world();
    world.jump_clocks(-millis(EARLIER));
    for number in 0..3 {
        let has_come = world.state().account_rng.u8(..4) > 0;
        if has_come {
            buy(stage, number, true);
        }
        world.jump_clocks(millis(EARLIER / 3));
    }
    for at in 0..world.terms().key_count {
        let has_lived = world.state().account_rng.u8(..5) == 0;
        if has_lived {
            world.paid_in_an_earlier_life(&cast::wire_key(world.terms().path, at));
        }
    }
}

/// Customers come until the history closes.
pub(crate) async fn come(stage: Stage) {
    let world = stage.world().clone();
    for number in 3.. {
        let pause = world.state().account_rng.u64(1000..30_000);
        sleep(Duration::from_millis(pause)).await;
        let (is_over, is_easy) = {
            let mut state = world.state();
            (state.is_closing || state.log.violation.is_some(), state.account_rng.bool())
        };
        if is_over {
            return;
        }
        buy(&stage, number, is_easy);
    }
}

/// A customer buys. `is_easy`: all goes well at once; else a worker has to deliver the message.
fn buy(stage: &Stage, number: u32, is_easy: bool) {
    let (world, memory) = (stage.world(), stage.memory());
    let path = world.terms().path;
    // Longer than what an account leaves of a key that it cuts, and not in small letters alone.
    let key = Key::new(&format!("Order-{number}-of-another-customer"));
    let key = key.expect("a key is made of visible characters");
    let tenant = cast::tenant(path);
    if path == Path::Atomic {
        let derived_key = format!("{}:{MESSAGE_STEP}", key.as_str());
        let message = Message::new(&tenant, &key, MESSAGE_STEP, DESTINATION, payload(key.as_str()));
        let message = message.expect("the names of step and destination are short");
        let wire = wire_key(&derived_key, message.record());
        now(memory.enqueue(&message));
        if !is_easy {
            let has_lived = world.state().account_rng.u8(..5) == 0;
            if has_lived {
                world.paid_in_an_earlier_life(&wire);
            }
            return;
        }
        let query =
            MessageQuery { derived_key: Some(derived_key), limit: 1, ..MessageQuery::default() };
        let page = now(protocol::messages(memory, &query));
        let provider_id = world.pay(None, &wire, 0);
        world.state().ledger.deliveries.entry(wire).or_default().effects += 1;
        for message in page.messages {
            let receipt = Receipt { provider_id: Some(provider_id.clone()) };
            let delivered = Resolution::Delivered { receipt, answer: None };
            let unclaimed = Fence::from_u64(0);
            now(protocol::resolve(memory, message.number, unclaimed, &delivered, &audit()));
        }
        return;
    }
    let request = Request { operation: OPERATION.into(), ..sample::request(&tenant, &key, 0) };
    let wire = wire_key_of(request.id, &key, STEP).expect("the step's name is short");
    let id = world.pay(None, &wire, 0);
    let outcome = sample::outcome(201, &format!("{{\"payment\":\"{id}\"}}"));
    let policy = world.terms().policy(0);
    now(memory.insert(&sample::completed(&request, &policy, Fence::first(0), outcome)));
}

fn audit() -> AuditEntry {
    sample::audit("the provider's receipt")
}

fn millis(duration: Duration) -> i64 {
    i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)
}
