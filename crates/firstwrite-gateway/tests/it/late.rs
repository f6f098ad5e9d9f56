//! Attempts whose lease ends before their call to the API has begun.

use std::time::Duration;

use firstwrite::{Key, Policy, Store as _, Tenant};
use firstwrite_core::RecordId;
use firstwrite_gateway::{Calling, Rules};
use tokio::time::timeout;

use crate::client::{Client, ask, post};
use crate::gateway::{policy, rules};
use crate::scrape::Watched;
use crate::upstream::{Script, Upstream, answer};
use crate::wire::read_head;

/// The call that takes the only room there is ends after this, and later than a lease.
const SILENT_FOR: Duration = Duration::from_millis(1500);

/// Far longer than freeing a key takes.
const PATIENCE: Duration = Duration::from_secs(30);

fn narrow(upstreams: &[&Upstream]) -> Rules {
    let usual = rules(upstreams);
    let calling =
        Calling { idle_for_max: SILENT_FOR, upstream_connections_max: 2, ..usual.calling.clone() };
    Rules { calling, operations: policy(Policy::default().lease(Policy::LEASE_MIN)), ..usual }
}

#[tokio::test]
async fn a_lease_that_ends_before_the_call_is_a_503_and_the_key_is_free() {
    let upstream = Upstream::start().await;
    // It is too large to be kept: its attempt has ended, and its call goes on.
    let endless = "HTTP/1.1 201 Created\r\ncontent-length: 99999999999\r\n\r\n";
    upstream.does(Script::AnswerEarly(endless.to_owned()));
    let watched = Watched::start(narrow(&[&upstream])).await;
    let (gateway, store) = (&watched.gateway, &watched.store);
    let mut first = Client::connect(gateway.address()).await;
    first.send(&post("first", "{}")).await;
    assert_eq!(read_head(&mut first.0).await.unwrap().unwrap().status(), 201);
    let mut second = Client::connect(gateway.address()).await;
    second.send(&post("second", "{}")).await;
    let id = RecordId::of(&Tenant::new("anonymous").unwrap(), &Key::new("second").unwrap());
    while store.get(id).await.unwrap().is_none() {
        tokio::task::yield_now().await;
    }
    // Its lease is not renewed any more, and it waits for room until the first one's call ends.
    store.goes_away();
    let late = second.read().await.unwrap();
    assert_eq!((late.status(), late.code().as_str()), (503, "overloaded"), "{late:?}");
    assert!(late.header("retry-after").is_some());
    assert_eq!(upstream.seen().len(), 1, "nothing was sent for it");
    store.comes_back();
    upstream.does(Script::Answer(answer("201 Created", "", "made")));
    let freed = async {
        loop {
            let retry = ask(gateway.address(), &post("second", "{}")).await;
            if retry.status() != 409 {
                return retry;
            }
        }
    };
    let retry = timeout(PATIENCE, freed).await.expect("the key is freed");
    assert_eq!((retry.status(), retry.text().as_str()), (201, "made"), "{retry:?}");
}
