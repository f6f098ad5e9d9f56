//! What is cleared away, and what stays.

use std::time::Duration;

use bytes::Bytes;
use firstwrite_core::outbox::{Outbox as _, Resolution, protocol};
use firstwrite_core::{AuditEntry, Fence, Message, Store as _};
use firstwrite_store::MysqlOptions;
use firstwrite_testkit::{Subject as _, sample};

use crate::server::on_each;
use crate::subject::{MysqlSubject, completed};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_record_stays_as_long_as_a_message_of_its_waits() {
    on_each(async |database| {
        let subject = MysqlSubject::new(&database, MysqlOptions::default()).await;
        let store = subject.mysql();
        for key in ["told", "quiet"] {
            store.insert(&completed(key, Fence::first(1), 10)).await.unwrap();
        }
        let (tenant, key) = (sample::tenant("shop"), sample::key("told"));
        let message =
            Message::new(&tenant, &key, "step", "mailer", Bytes::from_static(b"{}")).unwrap();
        store.enqueue(&message).await.unwrap();
        subject.advance(Duration::from_hours(24 * 365)).await;
        assert_eq!(store.reap(100).await.unwrap(), 1, "only the one without a message");
        assert!(store.get(message.record()).await.unwrap().is_some());
        let page = protocol::messages(&store, &firstwrite_core::outbox::MessageQuery::default())
            .await
            .unwrap();
        let by = AuditEntry {
            actor: "test".to_owned(),
            action: "drop".to_owned(),
            reason: "over".to_owned(),
        };
        let (number, seen) = (page.messages[0].number, page.messages[0].fence);
        protocol::resolve(&store, number, seen, &Resolution::Dropped, &by).await.unwrap();
        let mut reaped = 0;
        // The walk may have to begin anew.
        for _ in 0..2 {
            reaped += store.reap(100).await.unwrap();
        }
        assert_eq!(reaped, 1);
    })
    .await;
}
