//! A transaction whose connection is lost, whose handler vanishes, or whose commit fails.

use firstwrite_core::{Certainty, Fence, Write};

use super::unacknowledged::{terminate, unlocked, waits_for};
use super::{Handlers, Shop, at_work, begin, done, outcome, with_each_driver};

/// Ends every backend but the test's own.
const CUT: &str = "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity
                   WHERE datname = current_database() AND pid <> pg_backend_pid()";

async fn a_connection_lost_at_any_step_leaves_nothing_stuck<S: Handlers>(shop: Shop) {
    let store = S::open(&shop.subject).await;
    for step in ["begun", "at work", "record only", "dropped"] {
        let tx = match step {
            "begun" => begin(&store, "k").await.0,
            _ => at_work(&shop, &store, "k").await,
        };
        shop.run(CUT).await;
        match step {
            "dropped" => drop(tx),
            "record only" => {
                let write = Write::RecordOnly(outcome("k", Fence::first(1)));
                store.conclude(tx, write).await.unwrap_err();
            }
            _ => {
                let write = Write::All(outcome("k", Fence::first(1)));
                store.conclude(tx, write).await.unwrap_err();
            }
        }
        assert_eq!(shop.counts().await, [0, 0, 0], "{step}");
        let other = S::open(&shop.subject).await;
        let (tx, found) = begin(&other, "k").await;
        assert!(found.is_none(), "{step}");
        done(other.conclude(tx, Write::Nothing).await);
    }
}

async fn a_dropped_transaction_is_rolled_back_and_its_key_is_free_at_once<S: Handlers>(shop: Shop) {
    let store = S::open(&shop.subject).await;
    for _ in 0..20 {
        drop(at_work(&shop, &store, "k").await);
    }
    let tx = at_work(&shop, &store, "k").await;
    done(store.conclude(tx, Write::All(outcome("k", Fence::first(1)))).await);
    assert_eq!(shop.counts().await, [1, 1, 1]);
}

/// A trigger that fires while the server commits a row.
pub(super) fn at_commit(shop: &Shop, does: &str) -> String {
    let schema = shop.schema();
    format!(
        "CREATE FUNCTION {schema}.at_commit() RETURNS trigger LANGUAGE plpgsql AS
             $$ BEGIN {does}; RETURN NULL; END $$;
         CREATE CONSTRAINT TRIGGER at_commit AFTER INSERT ON {schema}.rows
             DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION {schema}.at_commit()"
    )
}

async fn a_commit_that_the_server_refuses_keeps_nothing_and_says_so<S: Handlers>(shop: Shop) {
    let store = S::open(&shop.subject).await;
    shop.run(&at_commit(&shop, "RAISE 'no' USING ERRCODE = 'foreign_key_violation'")).await;
    let tx = at_work(&shop, &store, "k").await;
    let error = store.conclude(tx, Write::All(outcome("k", Fence::first(1)))).await.unwrap_err();
    assert_eq!(error.certainty(), Certainty::Definite, "{error}");
    assert_eq!(shop.counts().await, [0, 0, 0]);
    unlocked(&shop).await;
    drop(begin(&store, "k").await);
}

async fn a_connection_lost_while_committing_is_told_as_unknown<S: Handlers>(shop: Shop) {
    let store = S::open(&shop.subject).await;
    let tx = at_work(&shop, &store, "warm").await;
    done(store.conclude(tx, Write::All(outcome("warm", Fence::first(1)))).await);
    shop.run(&at_commit(&shop, "PERFORM pg_advisory_xact_lock(42)")).await;
    shop.run("SELECT pg_advisory_lock(42)").await;
    let tx = at_work(&shop, &store, "k").await;
    let write = Write::All(outcome("k", Fence::first(1)));
    let cut = async {
        let committing = waits_for(&shop, 42).await;
        terminate(&shop, committing).await;
    };
    let (concluded, ()) = tokio::join!(store.conclude(tx, write), cut);
    assert_eq!(concluded.unwrap_err().certainty(), Certainty::Indeterminate);
    assert_eq!(shop.counts().await, [1, 1, 1]);
}

with_each_driver!(
    a_connection_lost_at_any_step_leaves_nothing_stuck,
    a_dropped_transaction_is_rolled_back_and_its_key_is_free_at_once,
    a_commit_that_the_server_refuses_keeps_nothing_and_says_so,
    a_connection_lost_while_committing_is_told_as_unknown,
);
