//! A cluster of three servers on loopback: the suite, slots that move, and a server that is lost.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use firstwrite_core::{
    Certainty, Draft, Fence, Guard, Inserted, Query, State, Store as _, StoreError, StoreErrorKind,
    Swapped,
};
use firstwrite_store::RedisStore;
use redis::Value;
use tokio::time::Instant;

use crate::conformance::{conforms, histories_are_explained};
use crate::own::{Own, SAFE, free_port};
use crate::subject::{created, done, reserved};

const READY_WITHIN: Duration = Duration::from_mins(1);
const SLOTS: u16 = 16_384;

pub(crate) struct Cluster {
    pub(crate) nodes: Vec<Own>,
}

impl Cluster {
    pub(crate) async fn start(count: u16) -> Option<Self> {
        let mut nodes = Vec::new();
        for _ in 0..count {
            let bus = free_port().to_string();
            let mut arguments = SAFE.to_vec();
            arguments.extend([
                "--cluster-enabled",
                "yes",
                "--cluster-port",
                &bus,
                "--cluster-node-timeout",
                "10000",
            ]);
            nodes.push((Own::start(&arguments).await?, bus));
        }
        let share = SLOTS.div_ceil(count);
        for (place, (node, _)) in (0..count).zip(&nodes) {
            let (first, last) = (place * share, ((place + 1) * share).min(SLOTS) - 1);
            node.tell(&["CLUSTER", "ADDSLOTSRANGE", &first.to_string(), &last.to_string()]).await;
            node.tell(&["CLUSTER", "SET-CONFIG-EPOCH", &(place + 1).to_string()]).await;
        }
        let (first, first_bus) = &nodes[0];
        for (node, _) in &nodes[1..] {
            node.tell(&["CLUSTER", "MEET", "127.0.0.1", &first.port.to_string(), first_bus]).await;
        }
        let cluster = Self { nodes: nodes.into_iter().map(|(node, _)| node).collect() };
        cluster.wait_until_ready().await;
        Some(cluster)
    }

    /// Until every server knows where every slot is.
    async fn wait_until_ready(&self) {
        let started = Instant::now();
        let mut tick = tokio::time::interval(Duration::from_millis(50));
        for node in &self.nodes {
            loop {
                let info: String = redis::cmd("CLUSTER")
                    .arg("INFO")
                    .query_async(&mut node.client().await)
                    .await
                    .unwrap();
                let says = |text: &str| info.lines().any(|line| line.trim() == text);
                if says("cluster_state:ok")
                    && says(&format!("cluster_known_nodes:{}", self.nodes.len()))
                {
                    break;
                }
                assert!(started.elapsed() < READY_WITHIN, "the cluster is not ready:\n{info}");
                tick.tick().await;
            }
        }
    }

    /// Any of them leads to all.
    pub(crate) fn url(&self) -> String {
        self.nodes[1].url()
    }

    async fn id(&self, node: usize) -> String {
        redis::cmd("CLUSTER")
            .arg("MYID")
            .query_async(&mut self.nodes[node].client().await)
            .await
            .unwrap()
    }

    /// Moves a slot with all its keys, in small steps, as the tools of operators do.
    async fn move_slot(&self, slot: u16, from: usize, to: usize) {
        let (slot, ids) = (slot.to_string(), [self.id(from).await, self.id(to).await]);
        self.nodes[to].tell(&["CLUSTER", "SETSLOT", &slot, "IMPORTING", &ids[0]]).await;
        self.nodes[from].tell(&["CLUSTER", "SETSLOT", &slot, "MIGRATING", &ids[1]]).await;
        let port = self.nodes[to].port.to_string();
        loop {
            let keys = self.nodes[from].tell(&["CLUSTER", "GETKEYSINSLOT", &slot, "3"]).await;
            let keys: Vec<String> = redis::from_redis_value(keys).unwrap();
            if keys.is_empty() {
                break;
            }
            let mut words = vec!["MIGRATE", "127.0.0.1", &port, "", "0", "5000", "KEYS"];
            words.extend(keys.iter().map(String::as_str));
            self.nodes[from].tell(&words).await;
        }
        for node in [to, from] {
            self.nodes[node].tell(&["CLUSTER", "SETSLOT", &slot, "NODE", &ids[1]]).await;
        }
    }

    async fn owner(&self, slot: u16) -> usize {
        let Value::Array(ranges) = self.nodes[0].tell(&["CLUSTER", "SLOTS"]).await else {
            panic!("slots")
        };
        for range in ranges {
            let Value::Array(parts) = range else { panic!("a range") };
            let [Value::Int(first), Value::Int(last), Value::Array(node), ..] = &parts[..] else {
                panic!("a range")
            };
            if (*first..=*last).contains(&i64::from(slot)) {
                let Value::Int(port) = node[1] else { panic!("a port") };
                return self.nodes.iter().position(|node| i64::from(node.port) == port).unwrap();
            }
        }
        panic!("a slot without a server");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cluster_of_three_conforms_and_its_histories_are_explained() {
    let Some(cluster) = Cluster::start(3).await else { return };
    conforms("redis-cluster", &cluster.url()).await;
    histories_are_explained(&cluster.url()).await;
    let found = firstwrite_store::doctor::redis(&created(&cluster.url()).await).await.unwrap();
    let servers = found.iter().filter(|finding| finding.code == "server-version").count();
    assert_eq!(servers, 3, "every server is looked at: {found:?}");
}

/// Writes keys of its own until it is stopped, and replays the newest of all. Returns what was acknowledged.
async fn write_and_replay(
    store: RedisStore,
    name: char,
    newest: Arc<Mutex<Option<Draft>>>,
    is_over: Arc<AtomicBool>,
    count: Arc<AtomicUsize>,
) -> Vec<(String, Fence)> {
    let away =
        |error: &StoreError| assert_eq!(error.kind(), StoreErrorKind::Unavailable, "{error}");
    let mut acknowledged = Vec::new();
    let numbers = (1..).take_while(|_| !is_over.load(Ordering::Relaxed));
    for number in numbers {
        let (key, fence) = (format!("{name}-{number}"), Fence::first(number));
        let draft = reserved(&key, fence);
        match store.insert(&draft).await {
            Ok(Inserted::Done(_)) => {}
            Ok(Inserted::Stands(found)) => panic!("{key} is {found:?} before it was used"),
            Err(error) => {
                away(&error);
                continue;
            }
        }
        match store.swap(draft.id, Guard::Owner(fence), done(), None).await {
            Ok(Swapped::Done(_)) => {
                acknowledged.push((key, fence));
                count.fetch_add(1, Ordering::Relaxed);
            }
            Ok(Swapped::Moved(found)) => panic!("{key} moved: {found:?}"),
            Err(error) => away(&error),
        }
        let others = newest.lock().unwrap().replace(draft);
        if let Some(draft) = others {
            match store.insert(&draft).await {
                Ok(Inserted::Stands(_)) => {}
                Ok(Inserted::Done(_)) => panic!("an acknowledged key is gone"),
                Err(error) => away(&error),
            }
        }
    }
    acknowledged
}

/// Slots move to and fro under the writes of two processes: what was acknowledged is found where it went, and no
/// loss is reported.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn slots_move_and_the_records_in_them_are_found() {
    let Some(cluster) = Cluster::start(3).await else { return };
    let store = created(&cluster.url()).await;
    let count = Arc::new(AtomicUsize::new(0));
    let (newest, is_over) = (Arc::default(), Arc::new(AtomicBool::new(false)));
    let mut writing = Vec::new();
    for name in ['a', 'b'] {
        let writer = RedisStore::connect(&cluster.url()).await.unwrap();
        let (newest, is_over) = (Arc::clone(&newest), Arc::clone(&is_over));
        let writes = write_and_replay(writer, name, newest, is_over, Arc::clone(&count));
        writing.push(tokio::spawn(writes));
    }
    for shard in (0..24_u8).chain(0..8) {
        let key = format!("{{firstwrite:{shard:02x}}}");
        let slot: u16 =
            redis::from_redis_value(cluster.nodes[0].tell(&["CLUSTER", "KEYSLOT", &key]).await)
                .unwrap();
        let from = cluster.owner(slot).await;
        cluster.move_slot(slot, from, (from + 1) % 3).await;
        store.list(&Query::lapsed(1)).await.unwrap();
    }
    // And on, where everything is elsewhere.
    let (moved, started) = (count.load(Ordering::Relaxed), Instant::now());
    while count.load(Ordering::Relaxed) < moved + 200 {
        assert!(started.elapsed() < READY_WITHIN, "nothing is written after slots moved");
        tokio::task::yield_now().await;
    }
    is_over.store(true, Ordering::Relaxed);
    let mut acknowledged = Vec::new();
    for writes in writing {
        acknowledged.extend(writes.await.unwrap());
    }
    println!("{moved} keys while slots moved, {} in all", acknowledged.len());
    assert!(moved > 10, "{moved}");
    for (key, fence) in &acknowledged {
        let found = store.get(reserved(key, *fence).id).await.unwrap();
        let found = found.unwrap_or_else(|| panic!("{key} was acknowledged and is gone"));
        assert!(
            matches!(found.record.state, State::Completed { .. }) && found.record.fence == *fence,
            "{key}"
        );
    }
    assert!(store.history_losses().await.unwrap().is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cluster_that_lost_a_server_refuses_and_goes_on_when_it_is_back() {
    let Some(mut cluster) = Cluster::start(3).await else { return };
    let store = created(&cluster.url()).await;
    let drafts: Vec<_> =
        (1..=100).map(|number| reserved(&format!("k-{number}"), Fence::first(number))).collect();
    for draft in &drafts {
        assert!(matches!(store.insert(draft).await, Ok(Inserted::Done(_))));
    }
    cluster.nodes[2].kill();
    let mut refused = 0;
    for number in 200..260 {
        if let Err(error) =
            store.insert(&reserved(&format!("k-{number}"), Fence::first(number))).await
        {
            assert_eq!(error.kind(), StoreErrorKind::Unavailable, "{error}");
            refused += usize::from(error.certainty() == Certainty::Definite);
        }
    }
    assert!(refused > 0, "a third of the keys have no server");
    cluster.nodes[2].restart().await;
    cluster.wait_until_ready().await;
    for draft in &drafts {
        let started = Instant::now();
        loop {
            match store.insert(draft).await {
                Ok(Inserted::Stands(found)) => {
                    assert_eq!(found.record.fence, draft.fence);
                    break;
                }
                Ok(Inserted::Done(_)) => panic!("an acknowledged key is gone"),
                Err(error) => {
                    assert_eq!(error.kind(), StoreErrorKind::Unavailable, "{error}");
                    assert!(started.elapsed() < READY_WITHIN, "{error}");
                }
            }
            tokio::task::yield_now().await;
        }
    }
    assert!(store.history_losses().await.unwrap().is_empty());
}
