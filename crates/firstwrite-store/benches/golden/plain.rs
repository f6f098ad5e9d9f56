//! Handlers without firstwrite, as a good engineer writes them with `tokio-postgres`: pooled
//! connections, prepared statements, and no waiting where nothing is decided.

use std::sync::Arc;

use deadpool_postgres::{Manager, ManagerConfig, Pool, RecyclingMethod};
use futures_util::future::{join, join3};

use crate::rounds;
use crate::shop::{Order, Shop, uuid};

/// A pool as the store's own is.
pub(crate) fn pool(size: usize) -> Pool {
    let config = rounds::address().parse().expect("an address");
    let recycling = ManagerConfig { recycling_method: RecyclingMethod::Fast };
    let manager = Manager::from_config(config, tokio_postgres::NoTls, recycling);
    Pool::builder(manager).max_size(size).build().expect("a pool")
}

/// a: a business row.
pub(crate) async fn row(pool: Pool, shop: Arc<Shop>) {
    let order = Order::new();
    let client = pool.get().await.expect("a connection");
    client.batch_execute("BEGIN").await.expect("a transaction");
    let id = shop.insert_order(&client, &order).await;
    client.batch_execute("COMMIT").await.expect("a commit");
    answer(&shop, &order, id);
}

/// b: a business row and a message; the message and `COMMIT` are sent together.
pub(crate) async fn message(pool: Pool, shop: Arc<Shop>) {
    let order = Order::new();
    let client = pool.get().await.expect("a connection");
    let message = client.prepare_cached(&shop.message).await.expect("a statement");
    client.batch_execute("BEGIN").await.expect("a transaction");
    let id = shop.insert_order(&client, &order).await;
    let payload = order.payload(id);
    let (sent, committed) = join(
        client.execute(&message, &[&"warehouse", &&payload[..]]),
        client.batch_execute("COMMIT"),
    )
    .await;
    sent.expect("a message is written");
    committed.expect("a commit");
    answer(&shop, &order, id);
}

/// b': `BEGIN` is not waited for either, which few applications do.
pub(crate) async fn flights(pool: Pool, shop: Arc<Shop>) {
    let order = Order::new();
    let client = pool.get().await.expect("a connection");
    let message = client.prepare_cached(&shop.message).await.expect("a statement");
    client.prepare_cached(&shop.order).await.expect("a statement");
    let (begun, id) = join(client.batch_execute("BEGIN"), shop.insert_order(&client, &order)).await;
    begun.expect("a transaction");
    let payload = order.payload(id);
    let (sent, committed) = join(
        client.execute(&message, &[&"warehouse", &&payload[..]]),
        client.batch_execute("COMMIT"),
    )
    .await;
    sent.expect("a message is written");
    committed.expect("a commit");
    answer(&shop, &order, id);
}

/// c: the key is committed as started, then completed with the rows.
pub(crate) async fn two_phases(pool: Pool, shop: Arc<Shop>) {
    let (order, key) = (Order::new(), uuid());
    let client = pool.get().await.expect("a connection");
    let reserve = client.prepare_cached(&shop.reserve).await.expect("a statement");
    let complete = client.prepare_cached(&shop.complete).await.expect("a statement");
    let message = client.prepare_cached(&shop.message).await.expect("a statement");
    let count = client.execute(&reserve, &[&shop.tenant(), &key]).await.expect("a key is written");
    assert_eq!(count, 1, "a fresh key");
    client.batch_execute("BEGIN").await.expect("a transaction");
    let id = shop.insert_order(&client, &order).await;
    let (payload, response) = (order.payload(id), order.response(id));
    let (sent, completed, committed) = join3(
        client.execute(&message, &[&"warehouse", &&payload[..]]),
        client.execute(&complete, &[&shop.tenant(), &key, &&response.body()[..]]),
        client.batch_execute("COMMIT"),
    )
    .await;
    sent.expect("a message is written");
    assert_eq!(completed.expect("a key is completed"), 1, "the key is there");
    committed.expect("a commit");
    shop.count_served();
}

/// The answer is made in every variant; here nobody keeps it.
fn answer(shop: &Shop, order: &Order, id: i64) {
    std::hint::black_box(order.response(id));
    shop.count_served();
}
