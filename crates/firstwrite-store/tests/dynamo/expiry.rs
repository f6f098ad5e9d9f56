//! What the service may delete by itself, and when.

use std::time::Duration;

use firstwrite_core::{
    Change, Draft, DraftState, Fence, Guard, Policy, Store as _, StoreErrorKind,
};
use firstwrite_store::aws_sdk_dynamodb::types::AttributeValue;
use firstwrite_testkit::Subject as _;

use crate::emulator::{Tables, on_each};
use crate::subject::{DynamoSubject, completed, done, reserved};

/// All items of a record's table under this key, of which there is one.
async fn expires(tables: &Tables, subject: &DynamoSubject, draft: &Draft) -> Option<i64> {
    let table = subject.url.split(['?', ':']).nth(1).unwrap();
    let items = tables.admin.scan().table_name(table).send().await.unwrap().items.unwrap();
    let key = AttributeValue::S(draft.key.as_str().to_owned());
    let item = items.iter().find(|item| item.get("key") == Some(&key)).unwrap();
    item.get("expires").map(|at| at.as_n().unwrap().parse().unwrap())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_what_is_completed_may_be_deleted_and_not_before_its_time() {
    on_each(async |tables| {
        let subject = DynamoSubject::new(&tables).await;
        let (store, fence) = (subject.dynamo(), Fence::first(1));
        let draft = reserved("k", fence);
        store.insert(&draft).await.unwrap();
        assert_eq!(expires(&tables, &subject, &draft).await, None, "reserved");
        store.swap(draft.id, Guard::Owner(fence), Change::MARK_UNCERTAIN, None).await.unwrap();
        assert_eq!(expires(&tables, &subject, &draft).await, None, "uncertain");
        store.swap(draft.id, Guard::Owner(fence), done(), None).await.unwrap();
        let policy = Policy::default();
        let kept_until = store.now().await.unwrap().plus(policy.retention + policy.slack);
        let at = expires(&tables, &subject, &draft).await.expect("completed");
        assert!(at * 1000 > kept_until.as_millis(), "{at} s, kept until {kept_until}");
        assert!(at * 1000 < kept_until.plus(Duration::from_hours(2)).as_millis());

        // The key runs anew: what stood there would have been deleted, what stands now must not.
        subject.advance(policy.retention).await;
        let seen = store.get(draft.id).await.unwrap().unwrap().record.seen();
        let again = reserved("k", fence.next(2));
        let change = Change::TakeOver(Box::new(again.clone()));
        store.swap(draft.id, Guard::Seen(seen), change, None).await.unwrap();
        assert_eq!(expires(&tables, &subject, &again).await, None, "taken over");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_answer_that_stands_in_for_another_is_never_deleted() {
    on_each(async |tables| {
        let subject = DynamoSubject::new(&tables).await;
        let mut draft = completed("k", Fence::first(1), 10);
        if let DraftState::Completed { outcome, .. } = &mut draft.state {
            *outcome = outcome.clone().interim();
        }
        subject.dynamo().insert(&draft).await.unwrap();
        assert_eq!(expires(&tables, &subject, &draft).await, None);
    })
    .await;
}

/// The service deletes days late: what is past its time is judged by us, whatever stands.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_the_service_has_not_deleted_yet_answers_no_longer() {
    on_each(async |tables| {
        let subject = DynamoSubject::new(&tables).await;
        let draft = completed("k", Fence::first(1), 10);
        let store = subject.dynamo();
        store.insert(&draft).await.unwrap();
        let policy = Policy::default();
        subject.advance(policy.retention + policy.slack).await;
        let found = store.get(draft.id).await.unwrap().unwrap();
        let request = firstwrite_core::Request {
            id: draft.id,
            tenant: draft.tenant.clone(),
            key: draft.key.clone(),
            operation: draft.operation.clone(),
            fingerprint: draft.fingerprint.clone(),
        };
        let verdict = firstwrite_core::judge(Some(&found), &request);
        assert!(matches!(verdict, firstwrite_core::Verdict::TakeOver { .. }), "{verdict:?}");
        assert_eq!(store.reap(10).await.unwrap(), 1);
        assert!(store.get(draft.id).await.unwrap().is_none());
        assert_eq!(store.reap(10).await.map_err(|error| error.kind()), Ok::<_, StoreErrorKind>(0));
    })
    .await;
}
