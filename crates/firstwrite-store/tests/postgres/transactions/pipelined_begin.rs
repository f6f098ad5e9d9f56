//! A first statement that is sent ahead runs if the key is free, and only then.

use firstwrite_core::{
    AsyncTransactionalStore as _, BeginResult, Fence, StateKind, Store as _, Write,
};
use firstwrite_store::deadpool_postgres::ClientWrapper;
use firstwrite_store::tokio_postgres::Error;
use firstwrite_store::{PipelinedBegin, PostgresStore};

use super::{Shop, at_work, done, id, on_shop, outcome, rival};

/// Begins with a statement that writes a row, and leaves a trace outside of the transaction if the
/// server runs it.
async fn ahead(shop: &Shop, store: &PostgresStore, key: &str) -> PipelinedBegin<i64> {
    let schema = shop.schema();
    let sql = format!(
        "INSERT INTO {schema}.rows SELECT '{key}', nextval('{schema}.test_runs')::text
         RETURNING value::bigint"
    );
    let first = async |client: &ClientWrapper| -> Result<i64, Error> {
        client.query_one(&sql, &[]).await?.try_get(0)
    };
    store.begin_ahead(id(key), first).await.unwrap()
}

/// How often the server ran the statement, committed or not.
async fn runs(shop: &Shop) -> i64 {
    let sql = "SELECT CASE WHEN is_called THEN last_value ELSE 0 END FROM test_runs";
    shop.subject.admin().query_one(sql, &[]).await.unwrap().get(0)
}

async fn on_counting_shop<T: Future<Output = ()> + Send + 'static>(
    test: impl FnOnce(Shop, PostgresStore) -> T + Send + 'static,
) {
    on_shop(|shop| async move {
        shop.run("CREATE SEQUENCE test_runs").await;
        let store = shop.subject.postgres();
        test(shop, store).await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn it_runs_where_the_key_is_free() {
    on_counting_shop(|shop, store| async move {
        let PipelinedBegin { begun: BeginResult::Open(tx, None), first: Some(Ok(1)) } =
            ahead(&shop, &store, "k").await
        else {
            panic!("the key is free")
        };
        done(store.conclude(tx, Write::All(outcome("k", Fence::first(1)))).await);
        assert_eq!(shop.counts().await, [1, 0, 1]);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn it_does_not_run_where_something_stands() {
    on_counting_shop(|shop, store| async move {
        store.insert(&outcome("done", Fence::first(1))).await.unwrap();
        shop.reserve("reserved").await;
        for (key, kind) in [("done", StateKind::Completed), ("reserved", StateKind::Reserved)] {
            let PipelinedBegin { begun: BeginResult::Open(tx, Some(found)), first: None } =
                ahead(&shop, &store, key).await
            else {
                panic!("{key} is not free")
            };
            assert_eq!(found.record.state.kind(), kind);
            done(store.conclude(tx, Write::Nothing).await);
        }
        assert_eq!(runs(&shop).await, 0, "the server did not run it");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn it_does_not_run_while_a_rival_works_or_history_is_in_doubt() {
    on_counting_shop(|shop, store| async move {
        let other = shop.subject.rival().await;
        let tx = at_work(&shop, &other, "k").await;
        let PipelinedBegin { begun: BeginResult::Busy, first: None } =
            ahead(&shop, &store, "k").await
        else {
            panic!("a rival is at work")
        };
        done(other.conclude(tx, Write::Nothing).await);
        shop.run("INSERT INTO history_losses (noticed_at, detail) VALUES (now(), 'lost')").await;
        let first = async |client: &ClientWrapper| client.simple_query("SELECT 1").await;
        store.begin_ahead(id("k"), first).await.map(drop).unwrap_err();
        assert_eq!(runs(&shop).await, 0, "the server did not run it");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn its_own_error_is_the_handlers_to_answer() {
    on_counting_shop(|shop, store| async move {
        shop.run("INSERT INTO rows VALUES ('k', 'taken')").await;
        let PipelinedBegin { begun: BeginResult::Open(tx, None), first: Some(Err(_taken)) } =
            ahead(&shop, &store, "k").await
        else {
            panic!("the statement fails by itself")
        };
        done(store.conclude(tx, Write::RecordOnly(outcome("k", Fence::first(1)))).await);
        assert_eq!(shop.counts().await, [1, 0, 1]);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_slips_in_behind_it_undoes_it() {
    on_counting_shop(|shop, store| async move {
        let PipelinedBegin { begun: BeginResult::Open(tx, None), first: Some(Ok(_)) } =
            ahead(&shop, &store, "k").await
        else {
            panic!("the key is free")
        };
        shop.reserve("k").await;
        rival(store.conclude(tx, Write::All(outcome("k", Fence::first(1)))).await);
        assert_eq!(shop.counts().await, [0, 0, 1]);
    })
    .await;
}
