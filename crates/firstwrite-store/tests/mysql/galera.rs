//! A Galera cluster of three nodes on loopback: one writer passes everything, also through the loss of nodes.

mod cluster;

use std::time::Duration;

use firstwrite_core::{Fence, Guard, Inserted, State, Store as _, StoreErrorKind, Swapped};
use firstwrite_store::doctor::{self, Severity};
use firstwrite_store::mysql_async::prelude::Queryable as _;
use firstwrite_store::{MysqlOptions, MysqlStore};
use tokio::time::Instant;

use crate::conformance::{conforms, histories_are_explained};
use crate::server::{Database, client, in_database};
use crate::subject::{done, reserved};
use cluster::Cluster;

/// A cluster stops for about six seconds when it loses a node; a loaded machine takes its time on top.
const BACK_WITHIN: Duration = Duration::from_mins(2);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_writer_of_a_cluster_keeps_every_promise_through_the_loss_of_nodes() {
    let Some(mut cluster) = Cluster::start(3).await else { return };
    let mut admin = client(&cluster.url(0)).await;
    for name in ["suite", "histories", "rivals", "losses"] {
        admin.query_drop(format!("CREATE DATABASE {name}")).await.unwrap();
    }
    let database = |name| Database { url: in_database(&cluster.url(0), name) };
    conforms("galera", database("suite")).await;
    histories_are_explained(database("histories")).await;
    rivals_on_two_nodes(&cluster).await;
    nodes_are_lost(&mut cluster).await;
}

/// Two nodes that write one key at once: nobody promises that only one of them wins, and now and then the cluster
/// confirms a commit that it undid. The doctor warns of it, and a store that was told so reports a loss.
async fn rivals_on_two_nodes(cluster: &Cluster) {
    let urls = [0, 1].map(|node| in_database(&cluster.url(node), "rivals"));
    MysqlStore::migrate(&urls[0], MysqlOptions::default()).await.unwrap();
    let one = MysqlStore::connect(&urls[0]).await.unwrap();
    let other = MysqlStore::connect(&urls[1]).await.unwrap();
    let before = doctor::mysql(&one, Duration::from_mins(5)).await.unwrap();
    assert!(before.iter().any(|finding| finding.code == "cluster"), "{before:?}");
    for round in 0..100 {
        let key = format!("k-{round}");
        let (first, second) = (reserved(&key, Fence::first(1)), reserved(&key, Fence::first(2)));
        let (first, second) = tokio::join!(one.insert(&first), other.insert(&second));
        let won =
            [&first, &second].iter().filter(|ended| matches!(ended, Ok(Inserted::Done(_)))).count();
        let is_history_lost = [&first, &second].iter().any(
            |ended| matches!(ended, Err(error) if error.kind() == StoreErrorKind::HistoryLost),
        );
        if is_history_lost {
            break;
        }
        assert!(won > 0, "{first:?} {second:?}");
        for ended in [first, second] {
            // Undone at its commit, the loser tries again and meets the winner.
            match ended {
                Ok(_) => {}
                Err(error) => assert_eq!(error.kind(), StoreErrorKind::Unavailable, "{error}"),
            }
        }
    }
    let mut warned = false;
    for store in [&one, &other] {
        let found = doctor::mysql(store, Duration::from_mins(5)).await.unwrap();
        warned |= found
            .iter()
            .filter(|one| one.severity == Severity::Unsafe)
            .any(|one| matches!(one.code, "several-writers" | "history-lost"));
    }
    assert!(warned, "a hundred races on two nodes, and nobody is warned of several writers");
}

/// A store that knows all three nodes: first another than the writer is lost, then the writer itself.
async fn nodes_are_lost(cluster: &mut Cluster) {
    let url = in_database(&cluster.urls(), "losses");
    MysqlStore::migrate(&url, MysqlOptions::default()).await.unwrap();
    let store = MysqlStore::connect(&url).await.unwrap();
    let mut acknowledged = Vec::new();
    for (phase, lost) in [("all", None), ("two", Some(2))] {
        if let Some(node) = lost {
            cluster.kill(node);
        }
        write_many(&store, phase, &mut acknowledged).await;
    }
    // Two of three can lose none of themselves by force: the third comes back first.
    cluster.restart(2).await;
    cluster.kill(0);
    write_many(&store, "next-writer", &mut acknowledged).await;
    assert!(acknowledged.len() > 100, "{}", acknowledged.len());
    for (key, fence) in acknowledged {
        let found = store.get(reserved(&key, fence).id).await.unwrap();
        let found = found.unwrap_or_else(|| panic!("{key} was acknowledged and is gone"));
        assert_eq!(found.record.fence, fence, "{key} was run twice");
        assert!(matches!(found.record.state, State::Completed { .. }), "{key}");
    }
}

/// Reserves and completes keys as a service does, until forty in a row have gone well.
async fn write_many(store: &MysqlStore, phase: &str, acknowledged: &mut Vec<(String, Fence)>) {
    let (started, mut in_a_row, mut at) = (Instant::now(), 0, 0);
    let mut tick = tokio::time::interval(Duration::from_millis(50));
    while in_a_row < 40 {
        assert!(started.elapsed() < BACK_WITHIN, "{phase}: the cluster does not come back");
        at += 1;
        let (key, fence) = (format!("{phase}-{at}"), Fence::first(at));
        let draft = reserved(&key, fence);
        let ended = match store.insert(&draft).await {
            Ok(Inserted::Done(_)) => {
                let swapped = store.swap(draft.id, Guard::Owner(fence), done(), None).await;
                matches!(swapped, Ok(Swapped::Done(_)))
            }
            Ok(Inserted::Stands(found)) => panic!("{phase}: {key} is {found:?} before it was used"),
            Err(_) => false,
        };
        if ended {
            acknowledged.push((key, fence));
            in_a_row += 1;
        } else {
            in_a_row = 0;
            // A node that is not ready says so at once; asking it without a pause helps nobody.
            tick.tick().await;
        }
    }
    println!("{phase}: {at} keys in {:.1} s", started.elapsed().as_secs_f64());
}
