//! Carriers against real brokers; Kafka against its client's mock cluster, which is a test double.
#![expect(clippy::unwrap_used, reason = "what prepares a test may fail it")]

mod claimed_message;
mod inbox;
mod kafka;
mod nats;
mod rabbitmq;
mod redis_streams;

use std::env;
use std::net::TcpListener;
use std::time::Duration;

use firstwrite_core::outbox::{Delivery, Ending};

/// What a test waits for an answer that will not come; long enough for one that will.
const SHORT: Duration = Duration::from_secs(3);

/// The address of the server for `name`. Without one the test is skipped, unless everything is required.
#[expect(clippy::print_stdout, reason = "what was skipped is named")]
fn server(name: &str) -> Option<String> {
    let variable = format!("FIRSTWRITE_TEST_{}", name.to_uppercase());
    let address = env::var(&variable).ok();
    if address.is_none() {
        let is_required = env::var("FIRSTWRITE_TEST_REQUIRE").is_ok_and(|value| value == "all");
        assert!(!is_required, "{variable} is not set and everything is required");
        println!("skipped: {name} ({variable} is not set)");
    }
    address
}

/// An address at which nobody listens.
fn nobody() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap().to_string()
}

/// A name that no other test uses.
fn name(what: &str) -> String {
    format!("{what}-{:016x}", fastrand::u64(..))
}

/// The provider's id of a delivery that must have been good.
fn provider_id(delivery: Delivery) -> Option<String> {
    match delivery.ending {
        Ending::Delivered(receipt) => receipt.provider_id,
        Ending::Refused | Ending::Retry | Ending::Unknown | Ending::NotThere => {
            panic!("{delivery:?}")
        }
    }
}

/// Fails unless the delivery ended as `ending` and its detail contains `detail`.
fn check(delivery: &Delivery, ending: &Ending, detail: &str) {
    assert_eq!(&delivery.ending, ending, "{delivery:?}");
    assert!(delivery.detail.contains(detail), "{delivery:?}");
}
