//! What is asked often is found by an index: nothing that a worker does grows with what was delivered.

use super::enqueue;
use crate::shop::Shop;

/// How `SQLite` finds the rows of `sql`, one step a line.
async fn plan(sql: &'static str) -> Vec<String> {
    let shop = Shop::open();
    enqueue(&shop.store, &["k"]).await;
    let explain = format!("EXPLAIN QUERY PLAN {sql}");
    shop.store
        .read(move |connection| {
            connection.prepare(&explain)?.query_map([], |row| row.get(3))?.collect()
        })
        .await
        .unwrap()
}

#[tokio::test]
async fn what_workers_and_operators_ask_is_one_range_of_an_index() {
    for (sql, index) in [
        (
            "SELECT * FROM firstwrite_pending p WHERE p.destination = 'a' AND p.due_at <= 5
             ORDER BY p.due_at, p.message LIMIT 9",
            "USING INDEX firstwrite_pending_due (destination=? AND due_at<?)",
        ),
        (
            "SELECT message FROM firstwrite_pending
             WHERE destination = 'a' AND ordering_key = 'b' ORDER BY message LIMIT 1",
            "USING COVERING INDEX firstwrite_pending_order (destination=? AND ordering_key=?)",
        ),
        (
            "SELECT message FROM firstwrite_pending
             WHERE state = 3 AND state >= 2 AND message > 5 ORDER BY message",
            "USING COVERING INDEX firstwrite_pending_stuck (state=? AND message>?)",
        ),
        (
            "SELECT 1 FROM firstwrite_pending WHERE id = x'00'",
            "USING COVERING INDEX firstwrite_pending_of (id=?)",
        ),
        (
            "SELECT min(message) FROM firstwrite_pending WHERE ordering_key IS NOT NULL
             GROUP BY destination, ordering_key",
            "USING COVERING INDEX firstwrite_pending_order",
        ),
    ] {
        let plan = plan(sql).await;
        assert_eq!(plan.len(), 1, "no sorting and no second look: {plan:?}");
        assert!(plan[0].contains(index), "{plan:?}");
    }
}
