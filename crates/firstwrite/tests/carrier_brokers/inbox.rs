//! The example that consumes from NATS, run against the server.

#[expect(dead_code, reason = "its main is for people")]
#[path = "../../examples/inbox_nats.rs"]
mod inbox_nats;

use crate::server;

#[tokio::test]
async fn every_event_takes_effect_once_however_often_it_is_delivered() {
    let Some(url) = server("nats") else { return };
    let folder = tempfile::tempdir().unwrap();
    let seen = inbox_nats::run(&url, &folder.path().join("ledger.db")).await.unwrap();
    assert_eq!((seen.rows, seen.deliveries - seen.again), (10, 10), "{seen:?}");
    assert!(seen.again >= 3, "{seen:?}");
}
