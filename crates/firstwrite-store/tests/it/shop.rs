//! Things to store: requests, drafts and outcomes of a small shop.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use firstwrite_core::{
    BodyForm, Draft, DraftState, Fence, Fingerprint, KeptHeaders, Key, OnLostAnswer, Outcome,
    PartDigests, Policy, RecordId, Request, Retention, Tenant, Timestamp,
};
use firstwrite_store::{MissingFile, SqliteOptions, SqliteStore};
use http::{HeaderName, HeaderValue, Response, StatusCode};
use tempfile::TempDir;

pub(crate) const LEASE: Duration = Duration::from_secs(30);
pub(crate) const RETENTION: Retention = Retention {
    replay_for: Duration::from_secs(100),
    linger_for: Duration::from_secs(10),
    refuses_spent: false,
};

/// A store in a folder of its own, with a clock that only the test moves.
pub(crate) struct Shop {
    pub(crate) store: SqliteStore,
    pub(crate) folder: TempDir,
    pub(crate) clock: Arc<AtomicI64>,
}

impl Shop {
    pub(crate) fn open() -> Self {
        Self::open_with(|_options| {})
    }

    pub(crate) fn open_with(set: impl FnOnce(&mut SqliteOptions)) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let clock = Arc::new(AtomicI64::new(1_000_000));
        let mut options = options(&clock);
        options.missing_file = MissingFile::Create;
        set(&mut options);
        let store = SqliteStore::open_with(folder.path().join("shop.db"), options).unwrap();
        Self { store, folder, clock }
    }

    pub(crate) fn path(&self) -> std::path::PathBuf {
        self.folder.path().join("shop.db")
    }

    pub(crate) fn pass(&self, duration: Duration) {
        self.clock.fetch_add(i64::try_from(duration.as_millis()).unwrap(), Ordering::SeqCst);
    }

    pub(crate) async fn make_orders_table(&self) {
        let sql = "CREATE TABLE orders (name TEXT PRIMARY KEY)";
        self.store.write(move |connection| connection.execute_batch(sql)).await.unwrap();
    }

    pub(crate) async fn orders(&self) -> Vec<String> {
        self.column("SELECT name FROM orders ORDER BY name").await
    }

    pub(crate) async fn column(&self, sql: &'static str) -> Vec<String> {
        self.store
            .read(move |connection| {
                connection.prepare(sql)?.query_map([], |row| row.get(0))?.collect()
            })
            .await
            .unwrap()
    }
}

pub(crate) fn options(clock: &Arc<AtomicI64>) -> SqliteOptions {
    let clock = Arc::clone(clock);
    let mut options = SqliteOptions::default();
    options.clock = Some(Arc::new(move || Timestamp::from_millis(clock.load(Ordering::SeqCst))));
    options
}

pub(crate) fn tenant() -> Tenant {
    Tenant::new("acme").unwrap()
}

pub(crate) fn id_of(key: &str) -> RecordId {
    RecordId::of(&tenant(), &Key::new(key).unwrap())
}

pub(crate) fn outcome(body: &str) -> Outcome {
    let json =
        (HeaderName::from_static("content-type"), HeaderValue::from_static("application/json"));
    let place = (HeaderName::from_static("location"), HeaderValue::from_static("/orders/1"));
    let headers = KeptHeaders::from_pairs(vec![json, place]);
    Outcome::new(StatusCode::CREATED, headers, Bytes::copy_from_slice(body.as_bytes()))
}

pub(crate) fn reserved(key: &str) -> Draft {
    draft_of(&tenant(), key, DraftState::reserved(LEASE))
}

pub(crate) fn completed(key: &str, body: &str) -> Draft {
    let state = DraftState::Completed { outcome: outcome(body) };
    draft_of(&tenant(), key, state)
}

pub(crate) fn draft_of(tenant: &Tenant, key: &str, state: DraftState) -> Draft {
    let key = Key::new(key).unwrap();
    let digests = PartDigests::from_bytes(&[7; 16]).unwrap();
    Draft {
        id: RecordId::of(tenant, &key),
        tenant: tenant.clone(),
        key,
        operation: "POST /orders".into(),
        fingerprint: Fingerprint::from_stored(1, BodyForm::Canonical, [42; 32], digests),
        fence: Fence::first(5),
        on_lost_answer: OnLostAnswer::Uncertain,
        retention: RETENTION,
        state,
    }
}

pub(crate) fn request(key: &str) -> Arc<Request> {
    let Draft { id, tenant, key, operation, fingerprint, .. } = reserved(key);
    Arc::new(Request { id, tenant, key, operation, fingerprint })
}

pub(crate) fn policy() -> Arc<Policy> {
    Arc::new(Policy::default())
}

pub(crate) fn answer(status: StatusCode, body: &'static str) -> Response<Bytes> {
    let response = Response::builder().status(status).header("content-type", "application/json");
    response.body(Bytes::from_static(body.as_bytes())).unwrap()
}
