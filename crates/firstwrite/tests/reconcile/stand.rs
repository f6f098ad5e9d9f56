//! A store, a provider and one clock for both.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use firstwrite::carrier::http::HttpDestination;
use firstwrite::reconcile::{
    CsvColumns, CsvExport, HttpItems, HttpList, Limits, Made, MessageScope, Paging, Report,
    Settings, Source, Window, reconcile_once,
};
use firstwrite::store::{MissingFile, SqliteOptions, SqliteStore};
use firstwrite::worker::{Deliver, Destination};
use firstwrite::{Store, Tenant, Timestamp};
use firstwrite_core::outbox::{MessageQuery, MessageState, MessageView, Terms, protocol};
use firstwrite_core::{Key, Message, StoreError};
use firstwrite_provider::{Behaviour, ManualClock, Moment, Options, Provider};
use http_body_util::BodyExt as _;
use tempfile::TempDir;

/// What is under test, and what the other side knows.
pub(crate) struct Stand {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) provider: Arc<Provider>,
    clock: ManualClock,
    turn: Turn,
    folder: TempDir,
}

/// How the store's clock follows the provider's.
enum Turn {
    /// It is the same.
    Shared,
    #[cfg(feature = "postgres")]
    Server(firstwrite::store::tokio_postgres::Client),
}

/// What the provider has a fault of.
pub(crate) type Faults = Behaviour;

pub(crate) const HOUR: Duration = Duration::from_hours(1);

fn noon() -> Moment {
    "2026-03-01T12:00:00Z".parse().unwrap()
}

impl Stand {
    async fn new(store: impl FnOnce(&TempDir, &ManualClock) -> Arc<dyn Store>, turn: Turn) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let clock = ManualClock::at(noon());
        let ledger = folder.path().join("ledger.jsonl");
        let options = Options { seed: 7, clock: clock.clock(), ..Options::new(ledger) };
        let provider = Arc::new(Provider::start(options).await.unwrap());
        let store = store(&folder, &clock);
        Self { store, provider, clock, turn, folder }
    }

    pub(crate) async fn sqlite() -> Self {
        let open = |folder: &TempDir, clock: &ManualClock| -> Arc<dyn Store> {
            let clock = clock.clock();
            let now = move || timestamp(clock.now());
            let mut options = SqliteOptions::default();
            options.clock = Some(Arc::new(now));
            options.missing_file = MissingFile::Create;
            Arc::new(SqliteStore::open_with(folder.path().join("store.db"), options).unwrap())
        };
        Self::new(open, Turn::Shared).await
    }

    /// Lets time pass for everybody.
    pub(crate) async fn advance(&self, by: Duration) {
        self.clock.advance(by);
        match &self.turn {
            Turn::Shared => {}
            #[cfg(feature = "postgres")]
            Turn::Server(client) => {
                let millis = by.as_millis();
                let sql =
                    format!("UPDATE test_clock SET at = at + {millis} * interval '1 millisecond'");
                client.batch_execute(&sql).await.unwrap();
                self.store.now().await.unwrap();
            }
        }
    }

    /// Everything from the first noon's day to now, this very moment included.
    pub(crate) async fn window(&self) -> Window {
        let from = timestamp(noon().minus(Duration::from_hours(24)));
        Window { from, until: self.store.now().await.unwrap().plus(Duration::from_millis(1)) }
    }

    pub(crate) fn http_list(&self) -> HttpList {
        let url = format!(
            "{}/v1/payments?from={{from}}&until={{until}}&limit=7&after={{cursor}}",
            self.provider.url()
        );
        let items = HttpItems {
            key: Some("/idempotency_key".parse().unwrap()),
            amount: Some("/amount".parse().unwrap()),
            currency: Some("/currency".parse().unwrap()),
            ..HttpItems::new(
                "/data".parse().unwrap(),
                "/id".parse().unwrap(),
                "/created_at".parse().unwrap(),
                Made::All,
            )
        };
        HttpList::new(&url, items, Paging::Next("/next".parse().unwrap()))
            .allow_network("127.0.0.0/8".parse().unwrap())
    }

    /// The provider's account by HTTP, seven to a page.
    pub(crate) fn http(&self) -> Box<dyn Source> {
        Box::new(self.http_list().build().unwrap())
    }

    /// The provider's account as a file of CSV, as of now; `spoil` may change its text.
    pub(crate) async fn csv(&self, spoil: impl Fn(String) -> String) -> Box<dyn Source> {
        Box::new(self.csv_export(spoil).await)
    }

    /// The same, to be set further.
    pub(crate) async fn csv_export(&self, spoil: impl Fn(String) -> String) -> CsvExport {
        let text = get(&format!("{}/v1/payments.csv", self.provider.url())).await;
        let path = self.folder.path().join("payments.csv");
        std::fs::write(&path, spoil(text)).unwrap();
        let columns = CsvColumns {
            key: Some("idempotency_key".to_owned()),
            amount: Some("amount".to_owned()),
            currency: Some("currency".to_owned()),
            ..CsvColumns::new("id", "created_at", Made::All)
        };
        CsvExport::file(path, columns)
    }

    pub(crate) async fn run(&self, source: &dyn Source, settings: &Settings) -> Report {
        let window = self.window().await;
        reconcile_once(&*self.store, source, settings, window, &mut |_| {}).await.unwrap()
    }

    /// Writes a message that asks for a payment.
    pub(crate) async fn ask(&self, key: &str, amount: u64) -> Result<(), StoreError> {
        self.store.outbox().unwrap().enqueue(&payment(key, amount)).await
    }

    /// Delivers what is due, to a provider that behaves so.
    pub(crate) async fn deliver(&self, faults: Faults) {
        self.provider.behave(faults).unwrap();
        let carrier = HttpDestination::new(&format!("{}/v1/payments", self.provider.url()))
            .provider_id("/id".parse().unwrap())
            .allow_network("127.0.0.0/8".parse().unwrap())
            .build()
            .unwrap();
        let destination = Destination::new("provider", Terms::default(), Arc::new(carrier));
        let deliver = Deliver::new(Arc::clone(&self.store), vec![destination]).unwrap();
        deliver.run_until_idle().await.unwrap();
        self.provider.behave(Faults::default()).unwrap();
    }

    /// Makes a payment that both books have, and lets the tolerance for clocks that differ pass: between two such,
    /// an absence can be proven.
    pub(crate) async fn witness(&self, key: &str) {
        self.ask(key, 10).await.unwrap();
        self.deliver(Faults::default()).await;
        assert_eq!(self.state(key).await, MessageState::Delivered);
        self.advance(settings().rules.tolerance + Duration::from_millis(1)).await;
    }

    /// Takes the file of the store away under it: what was acknowledged is missing.
    pub(crate) fn lose_history(&self) {
        std::fs::remove_file(self.folder.path().join("store.db")).unwrap();
    }

    /// Every message.
    pub(crate) async fn messages(&self) -> Vec<MessageView> {
        let query = MessageQuery { limit: 1000, ..MessageQuery::default() };
        protocol::messages(self.store.outbox().unwrap(), &query).await.unwrap().messages
    }

    /// The message of a key.
    pub(crate) async fn message(&self, key: &str) -> MessageView {
        let key = format!("{key}:charge");
        self.messages().await.into_iter().find(|message| message.derived_key == key).unwrap()
    }

    pub(crate) async fn state(&self, key: &str) -> MessageState {
        self.message(key).await.state
    }

    /// What the provider calls the payment of a key, of those it reports.
    pub(crate) fn id_of(&self, key: &str) -> String {
        let prefix = format!("{key}:charge:");
        let reported = self.provider.reported();
        let is_it = |key: &Option<String>| key.as_ref().is_some_and(|key| key.starts_with(&prefix));
        reported.iter().find(|payment| is_it(&payment.idempotency_key)).unwrap().id.clone()
    }
}

/// The settings of a provider that pays cents.
pub(crate) fn settings() -> Settings {
    let mut settings = Settings::new("payments", "provider");
    settings.messages = Some(MessageScope {
        destination: "provider".to_owned(),
        steps: Vec::new(),
        amount: Some("/amount".parse().unwrap()),
        currency: Some("/currency".parse().unwrap()),
    });
    settings.apply_first_run = true;
    settings.limits = Limits { pause_first: Duration::from_millis(1), ..Limits::default() };
    settings
}

pub(crate) fn tenant() -> Tenant {
    Tenant::new("acme").unwrap()
}

pub(crate) fn payment(key: &str, amount: u64) -> Message {
    let payload = format!(r#"{{"amount":{amount},"currency":"EUR","reference":"order"}}"#);
    let key = Key::new(key).unwrap();
    Message::new(&tenant(), &key, "charge", "provider", Bytes::from(payload)).unwrap()
}

pub(crate) fn timestamp(moment: Moment) -> Timestamp {
    Timestamp::from_millis(i64::try_from(moment.as_millis()).unwrap())
}

/// Kind and subject of what was found, in order.
pub(crate) fn found(report: &Report) -> Vec<(&'static str, String)> {
    let mut found: Vec<_> =
        report.found.iter().map(|found| (found.kind.as_str(), found.subject.clone())).collect();
    found.sort();
    found
}

/// The body of an answer.
async fn get(url: &str) -> String {
    let uri: http::Uri = url.parse().unwrap();
    let authority = uri.authority().unwrap().as_str();
    let stream = tokio::net::TcpStream::connect(authority).await.unwrap();
    let io = hyper_util::rt::TokioIo::new(stream);
    let (mut sender, connection) = hyper::client::conn::http1::handshake(io).await.unwrap();
    tokio::spawn(connection);
    let request = http::Request::get(uri.path())
        .header("host", authority)
        .body(http_body_util::Empty::<Bytes>::new())
        .unwrap();
    let body = sender.send_request(request).await.unwrap().into_body();
    String::from_utf8(body.collect().await.unwrap().to_bytes().to_vec()).unwrap()
}

/// Runs `test` over a database of its own, and drops it however the test ends. Skipped where no server is
/// named, unless everything is required.
#[cfg(feature = "postgres")]
#[expect(clippy::print_stdout, reason = "what was skipped is named")]
pub(crate) async fn on_postgres<T>(test: impl FnOnce(Stand) -> T)
where
    T: Future<Output = ()> + Send + 'static,
{
    use firstwrite::store::tokio_postgres::{Client, NoTls, connect};
    use firstwrite::store::{PostgresOptions, PostgresStore};

    const ADDRESS: &str = "FIRSTWRITE_TEST_POSTGRES";
    async fn client(url: &str) -> Client {
        let (client, connection) = connect(url, NoTls).await.unwrap();
        tokio::spawn(async move { drop(connection.await) });
        client
    }
    let Ok(server) = std::env::var(ADDRESS) else {
        let is_required =
            std::env::var("FIRSTWRITE_TEST_REQUIRE").is_ok_and(|value| value == "all");
        assert!(!is_required, "{ADDRESS} is not set and everything is required");
        println!("skipped: postgres ({ADDRESS} is not set)");
        return;
    };
    let name = format!("firstwrite_reconcile_{:016x}", fastrand::u64(..));
    let admin = client(&server).await;
    admin.batch_execute(&format!("CREATE DATABASE {name}")).await.unwrap();
    let url = format!("{}/{name}", server.rsplit_once('/').unwrap().0);
    PostgresStore::migrate(&url, PostgresOptions::default()).await.unwrap();
    let turn = client(&url).await;
    let stopped = format!(
        "SET search_path = firstwrite;
         CREATE TABLE test_clock (at timestamptz NOT NULL);
         INSERT INTO test_clock VALUES ('{}');
         CREATE OR REPLACE FUNCTION firstwrite.now() RETURNS timestamptz LANGUAGE sql VOLATILE
             AS 'SELECT at FROM firstwrite.test_clock'",
        noon()
    );
    turn.batch_execute(&stopped).await.unwrap();
    let store: Arc<dyn Store> = Arc::new(PostgresStore::connect(&url).await.unwrap());
    let stand = Stand::new(|_, _| store, Turn::Server(turn)).await;
    let ended = tokio::spawn(test(stand)).await;
    admin.batch_execute(&format!("DROP DATABASE {name} WITH (FORCE)")).await.unwrap();
    if let Err(failed) = ended {
        std::panic::resume_unwind(failed.into_panic());
    }
}
