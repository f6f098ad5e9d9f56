//! The same handler in firstwrite's atomic mode, with the store's own connections.

use std::convert::Infallible;
use std::sync::Arc;

use bytes::Bytes;
use deadpool_postgres::ClientWrapper;
use firstwrite_core::protocol::{self, Atomic, AtomicStart, OpenAttempt};
use firstwrite_core::{
    AsyncTransactionalStore, BeginResult, Draft, DraftState, Fence, Outcome, Policy, Request,
    StoreError, Transacted, Write,
};
use firstwrite_store::{PipelinedBegin, PostgresStore};
use futures_util::FutureExt as _;
use http::Response;

use crate::shop::{Order, Shop};

/// d: as the layer runs it.
pub(crate) async fn atomic(store: PostgresStore, policy: Arc<Policy>, shop: Arc<Shop>) {
    let request = Arc::new(shop.request());
    let mut held = begin(&store, &request, &policy).await;
    let order = Order::new();
    let id = shop.insert_order(&held, &order).await;
    held.enqueue(&order.message(&request, id)).expect("a message is taken");
    kept(&shop, protocol::conclude(&store, held, order.response(id)).await);
}

/// d': the order is inserted in the first flight. The protocol has no word for that, so the draft is
/// made here.
pub(crate) async fn ahead(store: PostgresStore, policy: Arc<Policy>, shop: Arc<Shop>) {
    let (request, order) = (shop.request(), Order::new());
    let first = async |client: &ClientWrapper| -> Result<i64, tokio_postgres::Error> {
        let statement = client.prepare_cached(&shop.order).await?;
        client.query_one(&statement, &[&order.customer, &order.amount]).await?.try_get(0)
    };
    let PipelinedBegin { begun: BeginResult::Open(mut tx, None), first: Some(Ok(id)) } =
        store.begin_ahead(request.id, first).await.expect("a transaction")
    else {
        panic!("a fresh key may run");
    };
    tx.enqueue(&order.message(&request, id)).expect("a message is taken");
    let response = order.response(id);
    let draft = Box::new(draft(request, &policy, &response));
    match store.conclude(tx, Write::All(draft)).await {
        Ok(Transacted::Done((), _)) => shop.count_served(),
        other => panic!("a fresh key is kept: {other:?}"),
    }
}

/// d": the order is sent and not waited for; what comes behind it on the connection is refused if it
/// fails, and so is the commit. Message and answer cannot name the order then.
pub(crate) async fn flight(store: PostgresStore, policy: Arc<Policy>, shop: Arc<Shop>) {
    let request = Arc::new(shop.request());
    let mut held = begin(&store, &request, &policy).await;
    let order = Order::new();
    let statement = held.prepare_cached(&shop.order).await.expect("a statement");
    // Polled once it is sent; the driver drops what comes back to nobody.
    let early = held.execute(&statement, &[&order.customer, &order.amount]).now_or_never();
    assert!(early.is_none_or(|sent| sent.is_ok()), "an order is sent");
    held.enqueue(&order.message(&request, 0)).expect("a message is taken");
    kept(&shop, protocol::conclude(&store, held, order.response(0)).await);
}

/// Begins the transaction of a fresh key.
pub(crate) async fn begin<S: AsyncTransactionalStore>(
    store: &S,
    request: &Arc<Request>,
    policy: &Arc<Policy>,
) -> OpenAttempt<S::Tx> {
    let (request, policy) = (Arc::clone(request), Arc::clone(policy));
    match protocol::begin(store, request, policy, fastrand::u64(..)).await.expect("a transaction") {
        AtomicStart::Run(held) => held,
        AtomicStart::Refused(verdict, _) => panic!("a fresh key may run: {verdict:?}"),
    }
}

pub(crate) fn kept(shop: &Shop, ended: Result<Atomic<Infallible>, StoreError>) {
    match ended {
        Ok(Atomic::Kept { response, .. }) => drop(std::hint::black_box(response)),
        other => panic!("a fresh key is kept: {other:?}"),
    }
    shop.count_served();
}

fn draft(request: Request, policy: &Policy, response: &Response<Bytes>) -> Draft {
    let headers = policy.kept_headers.keep(response.headers());
    let outcome = Outcome::new(response.status(), headers, response.body().clone());
    Draft {
        id: request.id,
        tenant: request.tenant,
        key: request.key,
        operation: request.operation,
        fingerprint: request.fingerprint,
        fence: Fence::first(fastrand::u64(..)),
        on_lost_answer: policy.on_lost_answer,
        retention: policy.record_retention(),
        state: DraftState::Completed { outcome },
    }
}
