//! Messages that a service may leave behind, and the commands that look at them.

use std::process::Output;
use std::time::Duration;

use bytes::Bytes;
use firstwrite_core::outbox::{
    Answers, Cause, ClaimRequest, ClaimedMessage, Delivery, Ending, Next, Outbox, Settlement,
    protocol,
};
use firstwrite_core::{KeptHeaders, Key, Message, Outcome, Tenant};
use serde_json::Value;

use crate::open_records::{document, with_store};
use crate::process::{Folder, firstwrite};

/// Runs `firstwrite outbox …` on the folder's store.
pub(crate) fn outbox(folder: &Folder, arguments: &[&str]) -> Output {
    let command = &mut firstwrite(folder);
    command.args(["outbox", "--store", folder.store()]).args(arguments).output().unwrap()
}

pub(crate) fn outbox_json(folder: &Folder, arguments: &[&str]) -> Value {
    document(&outbox(folder, &[arguments, &["--format", "json"]].concat()))
}

/// A message to `destination`, of acme's.
pub(crate) fn message(key: &str, destination: &str) -> Message {
    let (tenant, key) = (Tenant::new("acme").unwrap(), Key::new(key).unwrap());
    let payload = Bytes::from_static(br#"{"amount":4990,"currency":"EUR"}"#);
    Message::new(&tenant, &key, "charge", destination, payload).unwrap()
}

/// What is to become of a message.
#[derive(Clone, Copy)]
pub(crate) enum Fate {
    Waiting,
    Unknown,
    /// With this status.
    Dead(u16),
    /// A worker has it.
    Sending,
}

/// Writes messages to `provider`, and lets each come to its fate.
pub(crate) fn leave_messages(folder: &Folder, fates: &[(&str, Fate)]) {
    let messages: Vec<_> =
        fates.iter().map(|(key, fate)| (message(key, "provider"), *fate)).collect();
    leave(folder, &messages);
}

/// Writes these messages, one after the other.
pub(crate) fn leave(folder: &Folder, messages: &[(Message, Fate)]) {
    with_store(folder, async |store| {
        let outbox = store.outbox().unwrap();
        for (message, fate) in messages {
            outbox.enqueue(message).await.unwrap();
            if !matches!(fate, Fate::Waiting) {
                let claimed_message = claim(outbox, message).await;
                settle(outbox, &claimed_message, *fate).await;
            }
        }
    });
}

/// A message on which the client's answer waits.
pub(crate) fn awaited(key: &str) -> Message {
    let answer = |status, body: &'static str| {
        Outcome::new(status, KeptHeaders::default(), Bytes::from_static(body.as_bytes()))
    };
    message(key, "provider").answering(Answers {
        delivered: answer(axum::http::StatusCode::CREATED, r#"{"provider":"{provider_id}"}"#),
        refused: answer(axum::http::StatusCode::PAYMENT_REQUIRED, "{}"),
    })
}

async fn claim(outbox: &dyn Outbox, message: &Message) -> ClaimedMessage {
    let request = ClaimRequest {
        destination: message.destination().to_owned(),
        count_max: 100,
        lease_for: Duration::from_hours(1),
    };
    let claimed = outbox.claim(&[request], 7).await.unwrap();
    let mut claimed_messages = claimed.messages.into_iter();
    claimed_messages
        .find(|claimed_message| claimed_message.derived_key == message.derived_key())
        .unwrap()
}

async fn settle(outbox: &dyn Outbox, claimed_message: &ClaimedMessage, fate: Fate) {
    let (delivery, next) = match fate {
        Fate::Waiting | Fate::Sending => return,
        Fate::Unknown => {
            (Delivery::new(Ending::Unknown, "the answer was lost"), Next::Unknown("nobody knows"))
        }
        Fate::Dead(status) => {
            let delivery = Delivery::new(Ending::Refused, format!("refused with {status}"));
            (delivery.with_status(status), Next::Dead(Cause::Refused))
        }
    };
    let claim = claimed_message.claim();
    let settlement = Settlement { claim, delivery: Some(delivery), next, answer: None };
    protocol::settle(outbox, &[], &[settlement]).await.unwrap();
}
