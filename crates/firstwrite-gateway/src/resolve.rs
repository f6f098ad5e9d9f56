//! Uncertain records whose operations have a probe are asked about, until somebody knows.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use firstwrite_core::protocol::{self, Force, Settled, Settlement};
use firstwrite_core::{AuditEntry, Query, Record, RecordId, StateKind, Store, StoreError};
use tokio::time::{Instant, MissedTickBehavior, interval};

use crate::operations::Operations;
use crate::probe::{self, Found};
use crate::upstream::Upstreams;

/// How often uncertain records are looked for.
const LOOK_EVERY: Duration = Duration::from_secs(5);
/// How often the same one is asked about.
const ASK_EVERY: Duration = Duration::from_secs(30);
/// Asked about in one turn: each is a call to somebody else.
const ASKED_MAX: usize = 50;
/// More than that wait for a person anyway.
const REMEMBERED_MAX: usize = 10_000;

/// Who asks.
pub(crate) struct Resolver {
    store: Arc<dyn Store>,
    operations: Arc<Operations>,
    upstreams: Arc<Upstreams>,
    asked: HashMap<RecordId, Instant>,
    after: Option<RecordId>,
}

impl Resolver {
    pub(crate) fn new(
        store: Arc<dyn Store>,
        operations: Arc<Operations>,
        upstreams: Arc<Upstreams>,
    ) -> Self {
        Self { store, operations, upstreams, asked: HashMap::new(), after: None }
    }

    /// Asks again and again, if there is anybody to ask.
    pub(crate) async fn run(mut self) {
        if !self.operations.has_probes() {
            return;
        }
        let mut turn = interval(LOOK_EVERY);
        turn.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            turn.tick().await;
            if let Err(error) = self.turn().await {
                tracing::warn!(%error, "uncertain records could not be looked at");
            }
        }
    }

    /// Looks at a page of uncertain records; how many were settled.
    pub(crate) async fn turn(&mut self) -> Result<usize, StoreError> {
        let query = Query {
            tenant: None,
            state: Some(StateKind::Uncertain),
            after: self.after,
            limit: Query::LIMIT_MAX,
        };
        let page = self.store.list(&query).await?;
        self.after = page.next;
        self.asked.retain(|_, asked_at| asked_at.elapsed() < ASK_EVERY);
        let (mut asked, mut settled) = (0, 0);
        for record in &page.records {
            if asked == ASKED_MAX || self.asked.len() >= REMEMBERED_MAX {
                break;
            }
            if self.asked.contains_key(&record.id) {
                continue;
            }
            let operations = Arc::clone(&self.operations);
            let Some(probe) = &operations.care(&record.operation).probe else { continue };
            asked += 1;
            self.asked.insert(record.id, Instant::now());
            let found = probe.ask(&self.upstreams, &record.tenant, &record.key).await;
            let is_old = page.now.since(record.created_at) >= probe.grace();
            settled += usize::from(self.settle(record, found, is_old).await?);
        }
        Ok(settled)
    }

    async fn settle(
        &self,
        record: &Record,
        found: Found,
        is_old: bool,
    ) -> Result<bool, StoreError> {
        let record_id = record.id;
        let policy = self.operations.policy(&record.operation).unwrap_or_default();
        let (settlement, reason) = match found {
            Found::Happened(answer) => {
                let (parts, body) = *answer;
                let outcome = probe::outcome(&parts, body, &policy);
                let retention = policy.retention();
                (Settlement::Happened { outcome, retention }, "the probe found what it made")
            }
            Found::Nothing if is_old => {
                (Settlement::NotHappened, "the probe found nothing, long after")
            }
            Found::Nothing => return Ok(false),
            Found::Silence(why) => {
                tracing::warn!(%record_id, why, "a probe did not say");
                return Ok(false);
            }
        };
        let entry = AuditEntry {
            actor: "gateway".to_owned(),
            action: "settle".to_owned(),
            reason: reason.to_owned(),
        };
        let settled = protocol::settle(&*self.store, record, settlement, Force::No, &entry).await?;
        tracing::info!(%record_id, ?settled, reason, "an uncertain record was asked about");
        Ok(settled == Settled::Done)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use firstwrite::core::protocol::Reserved;
    use firstwrite::core::{Fingerprint, FingerprintRules, MemoryStore, Parts, Request, State};
    use firstwrite::{Key, Policy, Tenant, memory_store};
    use http::{HeaderMap, Method};
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpListener;

    use super::*;
    use crate::operations::Care;
    use crate::probe::{Probe, ProbeSettings};
    use crate::upstream::{Calling, Target};

    /// Gives the same answer to everybody.
    async fn says(answer: &'static str) -> (Target, Arc<AtomicUsize>) {
        let asked = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&asked);
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let target = Target::new(&format!("http://{}", listener.local_addr().unwrap())).unwrap();
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                count.fetch_add(1, Ordering::SeqCst);
                let mut asked = [0; 4096];
                assert!(stream.read(&mut asked).await.unwrap() > 0);
                stream.write_all(answer.as_bytes()).await.unwrap();
            }
        });
        (target, asked)
    }

    /// An uncertain record, and who asks about it.
    async fn uncertain(
        answer: &'static str,
        grace: Duration,
    ) -> (Arc<MemoryStore>, RecordId, Resolver, Arc<AtomicUsize>) {
        let store = Arc::new(memory_store());
        let (tenant, key) = (Tenant::new("acme").unwrap(), Key::new("k").unwrap());
        let id = RecordId::of(&tenant, &key);
        let parts = Parts {
            method: &Method::POST,
            authority: "a",
            path: "/pay",
            query: None,
            headers: &HeaderMap::new(),
            body: b"{}",
        };
        let fingerprint = Fingerprint::of(&parts, &FingerprintRules::default(), None, &id);
        let request = Request { id, tenant, key, operation: "POST /pay".into(), fingerprint };
        let reserved = protocol::reserve(&*store, &request, &Policy::default(), 1).await.unwrap();
        let Reserved::Granted(reservation) = reserved else { panic!("{reserved:?}") };
        protocol::mark_uncertain(&*store, reservation).await.unwrap();
        let settings = ProbeSettings {
            url: "/made/{key}".to_owned(),
            headers: Vec::new(),
            status: None,
            list: None,
            grace,
        };
        let probe = Some(Arc::new(Probe::new(settings, &Calling::default()).unwrap()));
        let care = Care { probe, ..Care::default() };
        let operations = Arc::new(Operations::new(Policy::default(), care));
        let (target, asked) = says(answer).await;
        let upstreams = Arc::new(Upstreams::new(&[target], Calling::default()).unwrap());
        let shared: Arc<dyn Store> = store.clone();
        (store, id, Resolver::new(shared, operations, upstreams), asked)
    }

    #[tokio::test]
    async fn what_is_found_completes_the_record_with_an_audit_entry() {
        let answer = "HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nmade";
        let (store, id, mut resolver, _asked) = uncertain(answer, Duration::from_hours(1)).await;
        assert_eq!(resolver.turn().await.unwrap(), 1);
        let state = store.get(id).await.unwrap().unwrap().record.state;
        assert!(matches!(state, State::Completed { .. }), "{state:?}");
        assert_eq!(store.audits(id).await.unwrap()[0].entry.actor, "gateway");
    }

    #[tokio::test]
    async fn a_no_frees_the_key_only_when_nothing_can_be_under_way() {
        let answer = "HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n";
        let (store, id, mut resolver, _asked) = uncertain(answer, Duration::from_hours(1)).await;
        assert_eq!(resolver.turn().await.unwrap(), 0);
        assert_eq!(store.get(id).await.unwrap().unwrap().record.state, State::Uncertain);
        let (store, id, mut resolver, _asked) = uncertain(answer, Duration::ZERO).await;
        assert_eq!(resolver.turn().await.unwrap(), 1);
        assert!(store.get(id).await.unwrap().is_none());
    }

    #[tokio::test]
    async fn silence_settles_nothing_and_is_not_asked_again_at_once() {
        let answer = "HTTP/1.1 503 Service Unavailable\r\ncontent-length: 0\r\n\r\n";
        let (store, id, mut resolver, asked) = uncertain(answer, Duration::ZERO).await;
        for _ in 0..3 {
            assert_eq!(resolver.turn().await.unwrap(), 0);
        }
        assert_eq!(asked.load(Ordering::SeqCst), 1);
        assert_eq!(store.get(id).await.unwrap().unwrap().record.state, State::Uncertain);
    }
}
