//! The same handler with `sqlx`, unprotected and in firstwrite's atomic mode. `sqlx` waits for the
//! answer to every statement.

use std::sync::Arc;

use firstwrite_core::Policy;
use firstwrite_core::protocol;
use firstwrite_store::SqlxPostgresStore;
use firstwrite_store::sqlx::postgres::PgPoolOptions;
use firstwrite_store::sqlx::{AssertSqlSafe, PgConnection, PgPool, query, query_scalar};

use crate::held::{begin, kept};
use crate::rounds;
use crate::shop::{Order, Shop};

pub(crate) async fn open(size: usize) -> PgPool {
    PgPoolOptions::new()
        .max_connections(u32::try_from(size).expect("a small number"))
        // As the other pools: a connection is not asked whether it is there before it is used.
        .test_before_acquire(false)
        .connect(&rounds::address())
        .await
        .expect("the pool opens")
}

/// b with `sqlx`.
pub(crate) async fn message(pool: PgPool, shop: Arc<Shop>) {
    let order = Order::new();
    let mut tx = pool.begin().await.expect("a transaction");
    let id = insert_order(&mut tx, &shop, &order).await;
    let payload = order.payload(id);
    query(AssertSqlSafe(shop.message.as_str()))
        .bind("warehouse")
        .bind(&payload[..])
        .execute(&mut *tx)
        .await
        .expect("a message is written");
    tx.commit().await.expect("a commit");
    std::hint::black_box(order.response(id));
    shop.count_served();
}

/// e: as the layer runs it.
pub(crate) async fn atomic(store: SqlxPostgresStore, policy: Arc<Policy>, shop: Arc<Shop>) {
    let request = Arc::new(shop.request());
    let mut held = begin(&store, &request, &policy).await;
    let order = Order::new();
    let id = insert_order(&mut held, &shop, &order).await;
    held.enqueue(&order.message(&request, id)).expect("a message is taken");
    kept(&shop, protocol::conclude(&store, held, order.response(id)).await);
}

async fn insert_order(connection: &mut PgConnection, shop: &Shop, order: &Order) -> i64 {
    query_scalar(AssertSqlSafe(shop.order.as_str()))
        .bind(&order.customer)
        .bind(order.amount)
        .fetch_one(connection)
        .await
        .expect("an order is written")
}
