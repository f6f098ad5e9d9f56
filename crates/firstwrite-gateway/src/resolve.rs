//! Asks the probes of operations about uncertain records until each is settled.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use firstwrite_core::protocol::{self, Force, Settled, Settlement};
use firstwrite_core::{
    AuditEntry, Query, Record, RecordId, State, StateFilter, Store, StoreError, Timestamp,
};
use futures_util::future::join_all;
use tokio::time::{Instant, MissedTickBehavior, interval};

use crate::operations::Operations;
use crate::probe::{self, Found, Probe};
use crate::upstream::Upstreams;

/// Interval at which uncertain records are looked for.
const LOOK_EVERY: Duration = Duration::from_secs(5);
/// Interval at which the same record is asked about.
const ASK_EVERY: Duration = Duration::from_secs(30);
/// Number of records per operation to ask about in one turn: each is a call to another server.
const ASKED_MAX: usize = 50;
/// Number of records per operation to ask about at the same time.
const ASKED_AT_ONCE: usize = 8;
/// More than that wait for a person anyway.
const REMEMBERED_MAX: usize = 10_000;
/// Maximum number of records watched for their grace. The others wait until one of these is settled.
const WATCHED_MAX: usize = 100_000;

/// Background task that asks probes.
pub(crate) struct Resolver {
    store: Arc<dyn Store>,
    operations: Arc<Operations>,
    upstreams: Arc<Upstreams>,
    /// Time from which each record may be asked about again.
    asked: HashMap<RecordId, Instant>,
    /// Uncertain records of the last walk over all pages.
    watched: HashMap<RecordId, Watched>,
    /// Uncertain records of the walk under way, which replace `watched` at its end.
    walk: HashMap<RecordId, Watched>,
    /// Record of each operation that was asked about last: the next turn goes on behind it.
    last_asked: HashMap<String, RecordId>,
    after: Option<RecordId>,
}

/// An uncertain record that this process has seen.
#[derive(Clone, Copy)]
struct Watched {
    /// Tells this attempt from a later one under the same key.
    since: Timestamp,
    first_seen_at: Instant,
}

/// An uncertain record with a probe.
struct Doubt {
    record: Record,
    probe: Arc<Probe>,
    /// Time that has certainly passed since the attempt was given up.
    given_up_for: Duration,
}

/// The records of one operation that may be asked about.
struct Group<'a> {
    probe: Arc<Probe>,
    open: Vec<Open<'a>>,
}

struct Open<'a> {
    record: &'a Record,
    /// Time for which a "no" proves nothing yet.
    early_for: Duration,
}

/// Result of asking about one operation.
#[derive(Default)]
struct Asked {
    /// Time from which each record may be asked about again, in the order of asking.
    again: Vec<(RecordId, Instant)>,
    settled: usize,
    error: Option<StoreError>,
}

impl Group<'_> {
    fn new(probe: &Arc<Probe>) -> Self {
        Self { probe: Arc::clone(probe), open: Vec::new() }
    }

    /// Puts those behind `last` first, so that all have their turn where the probe seldom answers.
    fn go_on_after(&mut self, last: Option<&RecordId>) {
        let Some(last) = last else { return };
        let next = self.open.partition_point(|open| open.record.id <= *last);
        self.open.rotate_left(next);
    }
}

impl Open<'_> {
    fn again_in(&self) -> Duration {
        if self.early_for.is_zero() { ASK_EVERY } else { self.early_for.min(ASK_EVERY) }
    }
}

impl Resolver {
    pub(crate) fn new(
        store: Arc<dyn Store>,
        operations: Arc<Operations>,
        upstreams: Arc<Upstreams>,
    ) -> Self {
        Self {
            store,
            operations,
            upstreams,
            asked: HashMap::new(),
            watched: HashMap::new(),
            walk: HashMap::new(),
            last_asked: HashMap::new(),
            after: None,
        }
    }

    /// Asks again and again, if any operation has a probe.
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
    ///
    /// Every operation is asked about beside the others: a probe that hangs holds up its own records alone.
    pub(crate) async fn turn(&mut self) -> Result<usize, StoreError> {
        let doubts = self.look().await?;
        self.asked.retain(|_, again_at| Instant::now() < *again_at);
        let mut groups: HashMap<&str, Group<'_>> = HashMap::new();
        for Doubt { record, probe, given_up_for } in &doubts {
            if self.asked.contains_key(&record.id) {
                continue;
            }
            // The others have one probe, whatever clients call them.
            let is_named = self.operations.is_named(&record.operation);
            let name = if is_named { &*record.operation } else { "" };
            let group = groups.entry(name).or_insert_with(|| Group::new(probe));
            // A "no" that comes too early is asked for again as soon as it counts.
            let early_for = probe.grace().saturating_sub(*given_up_for);
            group.open.push(Open { record, early_for });
        }
        let asking = groups.into_iter().map(|(operation, mut group)| {
            group.go_on_after(self.last_asked.get(operation));
            let this = &*self;
            async move { (operation, this.ask_in_turn(group).await) }
        });
        let ended = join_all(asking).await;
        let mut settled = 0;
        let mut failed = None;
        for (operation, Asked { again, settled: count, error }) in ended {
            settled += count;
            failed = failed.or(error);
            if let Some((last, _)) = again.last() {
                self.last_asked.insert(operation.to_owned(), *last);
            }
            let room = REMEMBERED_MAX.saturating_sub(self.asked.len());
            self.asked.extend(again.into_iter().take(room));
        }
        failed.map_or(Ok(settled), Err)
    }

    /// Reads the next page of uncertain records.
    ///
    /// The store's clock alone does not say how long ago an attempt was given up: it may have been set
    /// ahead, over a restart too, or be that of another machine. So the time counts that this process has
    /// itself seen pass, where that is less.
    async fn look(&mut self) -> Result<Vec<Doubt>, StoreError> {
        let query = Query {
            tenant: None,
            state: Some(StateFilter::Uncertain),
            after: self.after,
            limit: Query::LIMIT_MAX,
        };
        let page = self.store.list(&query).await?;
        self.after = page.next;
        let now = Instant::now();
        let mut doubts = Vec::new();
        for record in page.records {
            let State::Uncertain { since } = record.state else { continue };
            let Some(probe) = self.operations.probe_of(&record).cloned() else { continue };
            let known = self.watched.get(&record.id).filter(|watched| watched.since == since);
            let watched = known.copied().unwrap_or(Watched { since, first_seen_at: now });
            if self.walk.len() < WATCHED_MAX {
                self.walk.insert(record.id, watched);
            }
            let watched_for = now.duration_since(watched.first_seen_at);
            let given_up_for = page.now.since(since).min(watched_for);
            doubts.push(Doubt { record, probe, given_up_for });
        }
        if self.after.is_none() {
            self.watched = std::mem::take(&mut self.walk);
        }
        Ok(doubts)
    }

    /// Asks about the records of one operation, a few at a time, until the probe does not answer.
    async fn ask_in_turn(&self, group: Group<'_>) -> Asked {
        let mut asked = Asked::default();
        for some in group.open.chunks(ASKED_AT_ONCE) {
            let asking = some.iter().map(|open| async {
                let found = self.found(open.record, &group.probe).await;
                let is_silent = matches!(found, Found::Silence(_));
                (is_silent, self.settle(open.record, found, open.early_for.is_zero()).await)
            });
            let answers = join_all(asking).await;
            let now = Instant::now();
            asked.again.extend(some.iter().map(|open| (open.record.id, now + open.again_in())));
            let mut is_silent = false;
            for (was_silent, settled) in answers {
                is_silent |= was_silent;
                match settled {
                    Ok(is_settled) => asked.settled += usize::from(is_settled),
                    Err(error) => asked.error = Some(error),
                }
            }
            if is_silent || asked.error.is_some() || asked.again.len() >= ASKED_MAX {
                break;
            }
        }
        asked
    }

    async fn found(&self, record: &Record, probe: &Probe) -> Found {
        let named = (&record.tenant, &record.key);
        probe.ask(&self.upstreams, named, record.created_at).await
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
                (Settlement::Happened { outcome }, "the probe found what it made")
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
    use std::sync::atomic::{AtomicI64, AtomicUsize, Ordering};

    use firstwrite::{Key, Policy, ProbeForm, Tenant};
    use firstwrite_core::protocol::Reserved;
    use firstwrite_core::{
        Fingerprint, FingerprintRules, MemoryStore, Parts, Request, State, StateKind, Timestamp,
    };
    use http::{HeaderMap, Method, StatusCode};
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpListener;

    use super::*;
    use crate::operations::OperationExtras;
    use crate::probe::{Probe, ProbeSettings};
    use crate::upstream::{Calling, Target};

    /// Serves the same answer to every request.
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

    /// Time between giving up the attempt and asking the probe.
    const JUST_ENOUGH: Duration = Duration::from_mins(5);

    /// Returns the state of a record; `None` if the key is free, with a note for clients that poll.
    async fn state(store: &MemoryStore, id: RecordId) -> Option<StateKind> {
        let state = store.get(id).await.unwrap().expect("a record or a note stands").record.state;
        let is_note =
            matches!(&state, State::Completed { outcome, .. } if outcome.is_release_note());
        (!is_note).then(|| state.kind())
    }

    /// A store whose clock the test turns.
    struct World {
        store: Arc<MemoryStore>,
        clock: Arc<AtomicI64>,
    }

    impl World {
        fn new() -> Self {
            let clock = Arc::new(AtomicI64::new(0));
            let millis = Arc::clone(&clock);
            let store = Arc::new(MemoryStore::new(move || {
                Timestamp::from_millis(millis.load(Ordering::SeqCst))
            }));
            Self { store, clock }
        }

        fn pass(&self, span: Duration) {
            let millis = i64::try_from(span.as_millis()).unwrap();
            self.clock.fetch_add(millis, Ordering::SeqCst);
        }

        /// A record that was made an hour before its attempt was given up.
        async fn uncertain(&self, key: &str, operation: &str, by: &Operations) -> RecordId {
            let (tenant, key) = (Tenant::new("acme").unwrap(), Key::new(key).unwrap());
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
            let request = Request { id, tenant, key, operation: operation.into(), fingerprint };
            let store = &*self.store;
            let policy = by.policy(operation).unwrap();
            let reserved = protocol::reserve(store, &request, &policy, 1).await.unwrap();
            let Reserved::Granted(reservation) = reserved else { panic!("{reserved:?}") };
            self.pass(Duration::from_hours(1));
            protocol::mark_uncertain(store, reservation, "no answer").await.unwrap();
            id
        }
    }

    fn asking(url: &str, grace: Duration) -> OperationExtras {
        let absent_statuses = vec![StatusCode::NOT_FOUND];
        asking_for(url, ProbeForm { absent_statuses, ..ProbeForm::default() }, grace)
    }

    fn asking_for(url: &str, form: ProbeForm, grace: Duration) -> OperationExtras {
        let (url, headers, status) = (url.to_owned(), Vec::new(), None);
        let settings = ProbeSettings { url, headers, status, form, grace };
        let probe = Some(Arc::new(Probe::new(settings, &Calling::default()).unwrap()));
        OperationExtras { probe, ..OperationExtras::default() }
    }

    /// Operations of the API at `service`.
    fn operations_at(service: &str, extras: OperationExtras) -> Operations {
        Operations::new(Policy::default(), extras).asked_at(service)
    }

    fn operations(extras: OperationExtras) -> Operations {
        operations_at("api", extras)
    }

    /// One such record, and who has watched it for as long and asks about it.
    async fn uncertain(
        answer: &'static str,
        grace: Duration,
    ) -> (Arc<MemoryStore>, RecordId, Resolver, Arc<AtomicUsize>) {
        let world = World::new();
        let operations = operations(asking("/made/{key}", grace));
        let id = world.uncertain("k", "POST /pay", &operations).await;
        world.pass(JUST_ENOUGH);
        let (target, asked) = says(answer).await;
        let upstreams = Arc::new(Upstreams::new(&[target], Calling::default()).unwrap());
        let shared: Arc<dyn Store> = world.store.clone();
        let mut resolver = Resolver::new(shared, Arc::new(operations), upstreams);
        resolver.look().await.unwrap();
        watch_for(JUST_ENOUGH).await;
        (world.store, id, resolver, asked)
    }

    /// Lets time pass for this process, and none for the store.
    async fn watch_for(span: Duration) {
        tokio::time::pause();
        tokio::time::advance(span).await;
        tokio::time::resume();
    }

    const NOT_FOUND: &str = "HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n";

    /// Another API's gateway, a gateway that had no probe, one that asked in another way, and an application
    /// that reserves by itself may all use the same store and the same name of an operation.
    #[tokio::test]
    async fn a_probe_settles_only_what_was_reserved_with_it() {
        let world = World::new();
        let here = Arc::new(operations(asking("/made/{key}", JUST_ENOUGH)));
        let others = [
            operations_at("another-api", asking("/made/{key}", JUST_ENOUGH)),
            operations(asking("/orders/{key}", JUST_ENOUGH)),
            operations(OperationExtras::default()),
        ];
        for (number, by) in others.iter().enumerate() {
            world.uncertain(&format!("theirs-{number}"), "POST /pay", by).await;
        }
        let own = world.uncertain("own", "POST /pay", &here).await;
        world.pass(JUST_ENOUGH);
        let (target, asked) = says(NOT_FOUND).await;
        let upstreams = Arc::new(Upstreams::new(&[target], Calling::default()).unwrap());
        let shared: Arc<dyn Store> = world.store.clone();
        let mut resolver = Resolver::new(shared, here, upstreams);
        resolver.look().await.unwrap();
        watch_for(JUST_ENOUGH).await;
        assert_eq!(resolver.turn().await.unwrap(), 1);
        assert_eq!((asked.load(Ordering::SeqCst), state(&world.store, own).await), (1, None));
    }

    const SILENT: &str = "HTTP/1.1 503 Service Unavailable\r\ncontent-length: 0\r\n\r\n";

    #[tokio::test]
    async fn a_probe_that_does_not_answer_holds_up_its_own_records_alone() {
        let world = World::new();
        let (silent, asked) = says(SILENT).await;
        let (telling, _asked) = says(NOT_FOUND).await;
        let operations = Operations::new(Policy::default(), asking("/made/{key}", JUST_ENOUGH));
        let url = format!("{telling}/made/{{key}}");
        let extras = asking(&url, JUST_ENOUGH);
        let operations = operations.protected(Method::POST, "/refund", Policy::default(), extras);
        let operations = operations.asked_at("api");
        for number in 0..20 {
            world.uncertain(&format!("silent-{number}"), "POST /pay", &operations).await;
        }
        let mut told = Vec::new();
        for number in 0..10 {
            let key = format!("told-{number}");
            told.push(world.uncertain(&key, "POST /refund", &operations).await);
        }
        world.pass(JUST_ENOUGH);
        let upstreams = Arc::new(Upstreams::new(&[silent], Calling::default()).unwrap());
        let shared: Arc<dyn Store> = world.store.clone();
        let mut resolver = Resolver::new(shared, Arc::new(operations), upstreams);
        resolver.look().await.unwrap();
        watch_for(JUST_ENOUGH).await;
        assert_eq!(resolver.turn().await.unwrap(), told.len());
        assert_eq!(asked.load(Ordering::SeqCst), ASKED_AT_ONCE);
        // All of them have their turn, also when the first could be asked about again by then.
        for count in [2 * ASKED_AT_ONCE, 3 * ASKED_AT_ONCE] {
            resolver.asked.clear();
            resolver.turn().await.unwrap();
            assert_eq!(asked.load(Ordering::SeqCst), count);
        }
        let firsts = resolver.asked.len();
        assert_eq!(
            firsts, ASKED_AT_ONCE,
            "four that were never asked about, and the first four again"
        );
    }

    #[tokio::test]
    async fn what_is_found_completes_the_record_with_an_audit_entry() {
        let answer = "HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nmade";
        let (store, id, mut resolver, _asked) = uncertain(answer, Duration::from_hours(1)).await;
        assert_eq!(resolver.turn().await.unwrap(), 1);
        let state = store.get(id).await.unwrap().unwrap().record.state;
        assert!(matches!(state, State::Completed { .. }), "{state:?}");
        assert_eq!(store.audits(id).await.unwrap()[1].entry.actor, "gateway");
    }

    #[tokio::test]
    async fn a_no_frees_the_key_only_when_nothing_can_be_under_way() {
        let answer = "HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n";
        let (store, id, mut resolver, _asked) = uncertain(answer, Duration::from_hours(1)).await;
        assert_eq!(resolver.turn().await.unwrap(), 0);
        assert_eq!(state(&store, id).await, Some(StateKind::Uncertain));
        let (store, id, mut resolver, _asked) = uncertain(answer, JUST_ENOUGH).await;
        assert_eq!(resolver.turn().await.unwrap(), 1);
        assert_eq!(state(&store, id).await, None);
    }

    /// The store's clock may have been set ahead, or be that of another machine.
    #[tokio::test]
    async fn a_no_counts_only_when_this_process_has_seen_the_grace_pass() {
        let (world, operation) = (World::new(), "POST /pay");
        let operations = Arc::new(operations(asking("/made/{key}", JUST_ENOUGH)));
        let id = world.uncertain("k", operation, &operations).await;
        world.pass(Duration::from_hours(3));
        let (target, asked) = says(NOT_FOUND).await;
        let upstreams = Arc::new(Upstreams::new(&[target], Calling::default()).unwrap());
        let shared: Arc<dyn Store> = world.store.clone();
        let mut resolver = Resolver::new(shared, Arc::clone(&operations), upstreams);
        assert_eq!(resolver.turn().await.unwrap(), 0, "hours by that clock, seen just now");
        watch_for(Duration::from_mins(4)).await;
        assert_eq!(resolver.turn().await.unwrap(), 0);
        assert_eq!(asked.load(Ordering::SeqCst), 2, "a yes would have counted");
        watch_for(Duration::from_mins(1)).await;
        assert_eq!(resolver.turn().await.unwrap(), 1);
        assert_eq!(state(&world.store, id).await, None);
        // Another attempt under the same key is watched anew.
        world.uncertain("k", operation, &operations).await;
        world.pass(Duration::from_hours(3));
        assert_eq!(resolver.turn().await.unwrap(), 0);
        watch_for(JUST_ENOUGH).await;
        assert_eq!(resolver.turn().await.unwrap(), 1);
    }

    #[tokio::test]
    async fn what_is_no_longer_uncertain_is_no_longer_watched() {
        let (store, id, mut resolver, _asked) = uncertain(SILENT, JUST_ENOUGH).await;
        resolver.turn().await.unwrap();
        assert!(resolver.watched.contains_key(&id));
        let record = store.get(id).await.unwrap().unwrap().record;
        let audit = AuditEntry::uncertain("a test");
        protocol::settle(&*store, &record, Settlement::NotHappened, Force::Yes, &audit)
            .await
            .unwrap();
        resolver.turn().await.unwrap();
        assert!(resolver.watched.is_empty());
    }

    /// A list that is not there, a part of one, and a list that can be read in two ways are no proof.
    #[tokio::test]
    async fn of_a_list_only_a_whole_answer_is_a_no() {
        let pointer = |text: &str| Some(text.parse().unwrap());
        let form = |empty_is_absent| ProbeForm {
            list: pointer("/data"),
            key: pointer("/key"),
            empty_is_absent,
            ..ProbeForm::default()
        };
        for (answer, settled) in [
            ("404 Not Found\r\ncontent-length: 0\r\n\r\n", 0),
            ("410 Gone\r\ncontent-length: 0\r\n\r\n", 0),
            ("202 Accepted\r\ncontent-length: 11\r\n\r\n{\"data\":[]}", 0),
            ("206 Partial Content\r\ncontent-length: 11\r\n\r\n{\"data\":[]}", 0),
            ("200 OK\r\ncontent-length: 22\r\n\r\n{\"data\":[1],\"data\":[]}", 0),
            ("200 OK\r\ncontent-length: 11\r\n\r\n{\"data\":[]}", 1),
        ] {
            let answer = &*format!("HTTP/1.1 {answer}").leak();
            assert_eq!(settled_by(form(true), answer).await, settled, "{answer}");
        }
        // With the token of another account every list is empty.
        let empty = "HTTP/1.1 200 OK\r\ncontent-length: 11\r\n\r\n{\"data\":[]}";
        assert_eq!(settled_by(form(false), empty).await, 0);
    }

    /// The number of records that a probe of this form settles by this answer.
    async fn settled_by(form: ProbeForm, answer: &'static str) -> usize {
        let world = World::new();
        let extras = asking_for("/made?key={key}", form, JUST_ENOUGH);
        let operations = Arc::new(operations(extras));
        world.uncertain("k", "POST /pay", &operations).await;
        world.pass(JUST_ENOUGH);
        let (target, _asked) = says(answer).await;
        let upstreams = Arc::new(Upstreams::new(&[target], Calling::default()).unwrap());
        let mut resolver = Resolver::new(world.store, operations, upstreams);
        resolver.look().await.unwrap();
        watch_for(JUST_ENOUGH).await;
        resolver.turn().await.unwrap()
    }

    #[tokio::test]
    async fn silence_settles_nothing_and_is_not_asked_again_at_once() {
        let (store, id, mut resolver, asked) = uncertain(SILENT, JUST_ENOUGH).await;
        for _ in 0..3 {
            assert_eq!(resolver.turn().await.unwrap(), 0);
        }
        assert_eq!(asked.load(Ordering::SeqCst), 1);
        assert_eq!(state(&store, id).await, Some(StateKind::Uncertain));
    }
}
