//! Other people's code on the writer: it commits with the record or not at all, and whatever it
//! does, its neighbours in the batch are not harmed.

use firstwrite_core::protocol::{Atomic, atomic};
use firstwrite_core::{
    Body, Certainty, Conclusion, Message, Store, StoreError, StoreErrorKind, Timestamp, Transacted,
    TransactionalStore, Verdict, Write,
};
use firstwrite_store::SqliteTx;
use http::StatusCode;

use crate::group_commit::in_one_batch;
use crate::shop::{Shop, answer, completed, id_of, policy, request, tenant};

type Handler = (&'static str, fn(&mut SqliteTx<'_>) -> Handled);
type Handled = Result<http::Response<bytes::Bytes>, String>;
type Answer = Result<Atomic<String>, StoreError>;

/// Runs `work` atomically under `key`.
async fn run(
    store: firstwrite_store::SqliteStore,
    key: &'static str,
    work: impl FnOnce(&mut SqliteTx<'_>) -> Handled + Send + 'static,
) -> Answer {
    atomic(&store, request(key), policy(), 7, work).await
}

fn order(tx: &SqliteTx<'_>, name: &str) {
    tx.prepare_cached("INSERT INTO orders VALUES (?1)").unwrap().execute([name]).unwrap();
}

fn message(step: &str) -> Message {
    let key = firstwrite_core::Key::new("k").unwrap();
    Message::new(&tenant(), &key, step, "mailer", "{}".into()).unwrap()
}

#[tokio::test]
async fn rows_messages_and_record_are_one_commit_and_a_retry_replays() {
    let shop = Shop::open();
    shop.make_orders_table().await;
    let before = shop.store.commit_count();
    let work = |tx: &mut SqliteTx<'_>| {
        order(tx, "first");
        assert_eq!(tx.now(), Timestamp::from_millis(1_000_000));
        tx.enqueue(&message("receipt").delayed_by(std::time::Duration::from_secs(1))).unwrap();
        tx.enqueue(&message("invoice").ordered_by("customer-1")).unwrap();
        Ok(answer(StatusCode::CREATED, "{\"order\":1}"))
    };
    let first = run(shop.store.clone(), "k", work).await.unwrap();
    assert!(matches!(first, Atomic::Kept { .. }), "{first:?}");
    assert_eq!(shop.store.commit_count() - before, 1);
    let retry = run(shop.store.clone(), "k", |_tx| panic!("ran twice")).await.unwrap();
    let Atomic::Refused(Verdict::Replay { outcome, .. }, _) = retry else { panic!("{retry:?}") };
    assert_eq!(outcome.body, Body::Bytes("{\"order\":1}".into()));
    assert_eq!(shop.orders().await, ["first"]);
    let messages = "SELECT name || ' ' || derived_key || ' ' || destination || ' ' || content_type
                        || ' ' || coalesce(ordering_key, '-') || ' ' || not_before || ' ' || created_at
                    FROM firstwrite_messages JOIN firstwrite_tenants USING (tenant) ORDER BY message";
    assert_eq!(
        shop.column(messages).await,
        [
            "acme k:receipt mailer application/json - 1001000 1000000",
            "acme k:invoice mailer application/json customer-1 1000000 1000000"
        ]
    );
}

#[tokio::test]
async fn a_refused_request_keeps_its_answer_and_none_of_its_rows() {
    let shop = Shop::open();
    shop.make_orders_table().await;
    let work = |tx: &mut SqliteTx<'_>| {
        order(tx, "refused");
        tx.enqueue(&message("receipt")).unwrap();
        Ok(answer(StatusCode::UNPROCESSABLE_ENTITY, "no"))
    };
    assert!(matches!(run(shop.store.clone(), "k", work).await, Ok(Atomic::Kept { .. })));
    assert!(shop.orders().await.is_empty());
    assert!(shop.column("SELECT derived_key FROM firstwrite_messages").await.is_empty());
    assert!(shop.store.get(id_of("k")).await.unwrap().is_some());
}

#[tokio::test]
async fn a_server_error_leaves_nothing_and_the_retry_runs() {
    let shop = Shop::open();
    shop.make_orders_table().await;
    let failing = |tx: &mut SqliteTx<'_>| {
        order(tx, "failed");
        Ok(answer(StatusCode::BAD_GATEWAY, "later"))
    };
    assert!(matches!(run(shop.store.clone(), "k", failing).await, Ok(Atomic::RolledBack(_))));
    let giving_up = |tx: &mut SqliteTx<'_>| {
        order(tx, "gave up");
        Err("no".to_owned())
    };
    assert!(matches!(run(shop.store.clone(), "k", giving_up).await, Ok(Atomic::Failed(_))));
    assert_eq!(shop.store.get(id_of("k")).await.unwrap(), None);
    let good = |tx: &mut SqliteTx<'_>| {
        order(tx, "good");
        Ok(answer(StatusCode::CREATED, "{}"))
    };
    assert!(matches!(run(shop.store.clone(), "k", good).await, Ok(Atomic::Kept { .. })));
    assert_eq!(shop.orders().await, ["good"]);
}

fn good_and_bad_handlers() -> Vec<Handler> {
    vec![
        ("good-1", |tx| {
            order(tx, "good-1");
            Ok(answer(StatusCode::CREATED, "1"))
        }),
        ("panics", |tx| {
            order(tx, "panics");
            panic!("a handler's bug");
        }),
        ("fails", |tx| {
            order(tx, "fails");
            tx.execute("INSERT INTO orders VALUES ('good-1')", []).map_err(|e| e.to_string())?;
            Ok(answer(StatusCode::CREATED, "3"))
        }),
        ("commits", |tx| {
            order(tx, "commits");
            drop(tx.execute_batch("COMMIT"));
            Ok(answer(StatusCode::CREATED, "4"))
        }),
        ("rolls", |tx| {
            order(tx, "rolls back");
            drop(tx.execute_batch("ROLLBACK"));
            Ok(answer(StatusCode::CREATED, "5"))
        }),
        ("releases", |tx| {
            order(tx, "releases");
            drop(tx.execute_batch("RELEASE firstwrite_closure"));
            Ok(answer(StatusCode::CREATED, "6"))
        }),
        ("savepoint", |tx| {
            tx.execute_batch("SAVEPOINT mine; INSERT INTO orders VALUES ('undone')").unwrap();
            tx.execute_batch("ROLLBACK TO mine; RELEASE mine").unwrap();
            order(tx, "own savepoint");
            Ok(answer(StatusCode::CREATED, "7"))
        }),
        ("good-2", |tx| {
            order(tx, "good-2");
            Ok(answer(StatusCode::CREATED, "8"))
        }),
    ]
}

#[tokio::test]
async fn in_one_batch_each_closure_fails_alone() {
    let shop = Shop::open();
    shop.make_orders_table().await;
    let asked =
        good_and_bad_handlers().into_iter().map(|(key, work)| run(shop.store.clone(), key, work));
    let answers = in_one_batch(&shop.store, asked.collect()).await;
    let told: Vec<String> = answers
        .iter()
        .map(|answer| match answer {
            Ok(Atomic::Kept { response, .. }) => format!("kept {:?}", response.body()),
            Ok(Atomic::Failed(_)) => "failed".to_owned(),
            Ok(other) => panic!("{other:?}"),
            Err(error) => {
                assert_eq!(error.certainty(), Certainty::Definite);
                format!("{:?}", error.kind())
            }
        })
        .collect();
    assert_eq!(
        told,
        [
            "kept b\"1\"",
            "Panicked",
            "failed",
            "Unsupported",
            "Unsupported",
            "Unsupported",
            "kept b\"7\"",
            "kept b\"8\""
        ]
    );
    assert_eq!(shop.orders().await, ["good-1", "good-2", "own savepoint"]);
    for key in ["panics", "fails", "commits", "rolls", "releases"] {
        assert_eq!(shop.store.get(id_of(key)).await.unwrap(), None, "{key}");
    }
}

#[tokio::test]
async fn a_statement_that_rolls_the_whole_batch_back_fails_it_and_commits_nothing_of_it() {
    let shop = Shop::open();
    shop.make_orders_table().await;
    let handlers: Vec<Handler> = vec![
        ("before", |tx| {
            order(tx, "before");
            Ok(answer(StatusCode::CREATED, "1"))
        }),
        ("culprit", |tx| {
            order(tx, "culprit");
            // Ends the transaction, and goes on as if nothing had happened: these rows must not
            // become durable by themselves.
            drop(tx.execute("INSERT OR ROLLBACK INTO orders VALUES ('culprit')", []));
            drop(tx.execute("INSERT INTO orders VALUES ('stray')", []));
            drop(tx.execute_batch("SAVEPOINT a; INSERT INTO orders VALUES ('stray 2'); RELEASE a"));
            Ok(answer(StatusCode::CREATED, "2"))
        }),
        ("after", |tx| {
            order(tx, "after");
            Ok(answer(StatusCode::CREATED, "3"))
        }),
    ];
    let asked = handlers.into_iter().map(|(key, work)| run(shop.store.clone(), key, work));
    let answers = in_one_batch(&shop.store, asked.collect()).await;
    let kinds: Vec<_> = answers
        .iter()
        .map(|answer| answer.as_ref().err().map(|error| (error.kind(), error.certainty())))
        .collect();
    assert_eq!(
        kinds,
        [
            Some((StoreErrorKind::Unavailable, Certainty::Definite)),
            Some((StoreErrorKind::Unsupported, Certainty::Definite)),
            None
        ]
    );
    assert_eq!(shop.orders().await, ["after"]);
    assert_eq!(shop.store.get(id_of("before")).await.unwrap(), None);
    assert!(shop.store.get(id_of("after")).await.unwrap().is_some());
}

#[tokio::test]
async fn a_commit_that_a_deferred_constraint_refuses_fails_its_batch_and_no_other() {
    let shop = Shop::open();
    let tables = "CREATE TABLE customers (name TEXT PRIMARY KEY);
                  CREATE TABLE orders (name TEXT PRIMARY KEY REFERENCES customers
                                       DEFERRABLE INITIALLY DEFERRED)";
    shop.store.write(move |connection| connection.execute_batch(tables)).await.unwrap();
    let handlers: Vec<Handler> = vec![
        ("innocent", |_tx| Ok(answer(StatusCode::CREATED, "1"))),
        ("culprit", |tx| {
            order(tx, "of nobody");
            Ok(answer(StatusCode::CREATED, "2"))
        }),
    ];
    let asked = handlers.into_iter().map(|(key, work)| run(shop.store.clone(), key, work));
    for told in in_one_batch(&shop.store, asked.collect()).await {
        let error = told.unwrap_err();
        assert_eq!(error.kind(), StoreErrorKind::Unavailable, "{error}");
        assert_eq!(error.certainty(), Certainty::Definite);
    }
    assert_eq!(shop.store.get(id_of("innocent")).await.unwrap(), None);
    let again = run(shop.store.clone(), "innocent", |_tx| Ok(answer(StatusCode::CREATED, "1")));
    assert!(matches!(again.await, Ok(Atomic::Kept { .. })), "the store goes on");
    assert!(shop.orders().await.is_empty());
}

#[tokio::test]
async fn a_savepoint_opened_after_a_roll_back_does_not_hide_it() {
    let shop = Shop::open();
    shop.make_orders_table().await;
    let error = shop
        .store
        .write(|connection| {
            connection.execute("INSERT INTO orders VALUES ('a')", [])?;
            drop(connection.execute("INSERT OR ROLLBACK INTO orders VALUES ('a')", []));
            connection.execute_batch("SAVEPOINT b; INSERT INTO orders VALUES ('stray')")
        })
        .await
        .unwrap_err();
    assert_eq!(error.certainty(), Certainty::Definite);
    assert!(shop.orders().await.is_empty());
    shop.store.insert(&completed("k", "{}")).await.expect("the store goes on");
}

#[tokio::test]
async fn a_duplicate_in_the_same_batch_replays() {
    let shop = Shop::open();
    shop.make_orders_table().await;
    let work = |tx: &mut SqliteTx<'_>| {
        order(tx, "once");
        Ok(answer(StatusCode::CREATED, "{}"))
    };
    let asked = (0..10).map(|_| run(shop.store.clone(), "k", work)).collect();
    let answers = in_one_batch(&shop.store, asked).await;
    let kept = answers.iter().filter(|answer| matches!(answer, Ok(Atomic::Kept { .. })));
    assert_eq!(kept.count(), 1);
    let replayed = answers
        .iter()
        .filter(|answer| matches!(answer, Ok(Atomic::Refused(Verdict::Replay { .. }, _))));
    assert_eq!(replayed.count(), 9);
    assert_eq!(shop.orders().await, ["once"]);
}

#[tokio::test]
async fn the_arbiter_stands_before_the_work_begins() {
    let shop = Shop::open();
    let draft = completed("k", "mine");
    let id = draft.id;
    let transacted = shop
        .store
        .transact(id, move |tx, found| {
            assert!(found.is_none());
            let rival = "INSERT INTO firstwrite_ids (id, record) VALUES (?1, 1)";
            let refused = tx.execute(rival, [id.as_bytes()]).is_err();
            Conclusion { write: Write::All(Box::new(draft)), answer: refused }
        })
        .await;
    assert!(matches!(transacted, Ok(Transacted::Done(true, _))), "{transacted:?}");
    // And it is taken back when nothing is concluded.
    let nothing = |_tx: &mut SqliteTx<'_>, _found| Conclusion { write: Write::Nothing, answer: () };
    shop.store.transact(id_of("other"), nothing).await.unwrap();
    assert_eq!(shop.column("SELECT count(*) || '' FROM firstwrite_ids").await, ["1"]);
}

#[tokio::test]
async fn work_that_concludes_nothing_still_answers() {
    let shop = Shop::open();
    shop.make_orders_table().await;
    let transacted = shop
        .store
        .transact(id_of("k"), |tx, _found| {
            order(tx, "looked");
            Conclusion { write: Write::Nothing, answer: tx.is_autocommit() }
        })
        .await
        .unwrap();
    assert!(matches!(transacted, Transacted::Done(false, _)), "{transacted:?}");
    assert!(shop.orders().await.is_empty());
}

#[tokio::test]
async fn a_draft_for_another_record_is_refused() {
    let shop = Shop::open();
    let work = |_tx: &mut SqliteTx<'_>, _found| Conclusion {
        write: Write::All(Box::new(completed("other", "{}"))),
        answer: (),
    };
    let error = shop.store.transact(id_of("k"), work).await.unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::Unsupported);
    assert_eq!(shop.store.get(id_of("other")).await.unwrap(), None);
}

#[tokio::test]
async fn a_step_is_enqueued_once_in_a_transaction() {
    let shop = Shop::open();
    let work = |tx: &mut SqliteTx<'_>| {
        tx.enqueue(&message("receipt")).unwrap();
        let error = tx.enqueue(&message("receipt")).unwrap_err();
        assert!(!error.to_string().contains("k:receipt"), "no key in {error}");
        Err(error.to_string())
    };
    let failed = run(shop.store.clone(), "k", work).await.unwrap();
    let Atomic::Failed(text) = failed else { panic!("{failed:?}") };
    assert!(text.contains("the step was enqueued before"), "{text}");
    assert!(shop.column("SELECT derived_key FROM firstwrite_messages").await.is_empty());
}

#[tokio::test]
async fn a_tenant_first_met_in_work_that_was_undone_is_met_again() {
    let shop = Shop::open();
    let work = |tx: &mut SqliteTx<'_>| {
        tx.enqueue(&message("receipt")).unwrap();
        Err("undone".to_owned())
    };
    run(shop.store.clone(), "k", work).await.unwrap();
    let work = |tx: &mut SqliteTx<'_>| {
        tx.enqueue(&message("receipt")).unwrap();
        Ok(answer(StatusCode::CREATED, "{}"))
    };
    run(shop.store.clone(), "k", work).await.unwrap();
    let named = "SELECT name FROM firstwrite_messages JOIN firstwrite_tenants USING (tenant)";
    assert_eq!(shop.column(named).await, ["acme"]);
    assert_eq!(shop.store.get(id_of("k")).await.unwrap().unwrap().record.tenant, tenant());
}

#[tokio::test]
async fn a_panicking_query_does_not_take_its_reader_along() {
    let shop = Shop::open_with(|options| options.readers = 1);
    for _ in 0..5 {
        let error = shop.store.read::<()>(|_connection| panic!("a bug")).await.unwrap_err();
        assert_eq!(error.kind(), StoreErrorKind::Panicked);
    }
    assert!(shop.column("SELECT name FROM firstwrite_tenants").await.is_empty());
}
