//! Where victims work: an SQLite file, a schema of a PostgreSQL server or a database of a MariaDB server; and
//! what they left there.

mod mariadb;

use std::collections::BTreeSet;
use std::env;
use std::fmt;
use std::fs;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, OnceLock};

use firstwrite::store::tokio_postgres::{Client, NoTls, connect};
use firstwrite::store::{
    Access, MissingFile, PostgresStore, SchemaName, SqliteOptions, SqliteStore, open,
};
use firstwrite::{Key, Tenant};
use firstwrite_core::{Record, RecordId, State, StateKind};
use tempfile::TempDir;
use tokio::runtime::{Builder, Runtime};

use crate::cases::{Mode, Wrong, tell};
use crate::task::{BEGAN_AT, LISTING, Passed};
use crate::victim::TENANT;
pub(crate) use mariadb::set_clock;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Backend {
    Sqlite,
    Postgres,
    MariaDb,
}

/// The address of a server, as every suite takes it.
const ADDRESS: &str = "FIRSTWRITE_TEST_POSTGRES";

/// Stores that are servers, and where their addresses are.
pub(crate) const SERVERS: [(Backend, &str); 2] =
    [(Backend::Postgres, ADDRESS), (Backend::MariaDb, mariadb::ADDRESS)];

/// What all cases share; made when the first of them needs it.
#[derive(Debug, Default)]
pub(crate) struct Ground {
    template: OnceLock<TempDir>,
    database: OnceLock<Arc<Database>>,
    mariadb: OnceLock<Arc<mariadb::Server>>,
    /// What victims of each kind pass, learnt from one that lives.
    passed: Mutex<Vec<Learnt>>,
}

/// What a victim of one kind passes, once somebody has asked.
#[derive(Clone, Debug)]
struct Learnt {
    of: (Backend, Mode),
    passed: Arc<OnceLock<Passed>>,
}

/// A database for this run, and a connection outside any store.
struct Database {
    runtime: Runtime,
    admin: Client,
    server: String,
    name: String,
    url: String,
    schema: String,
}

/// What one case has to itself.
#[derive(Debug)]
pub(crate) struct Place {
    /// Also holds the effects outside the store.
    folder: TempDir,
    /// The store's address.
    pub(crate) store: String,
    behind: Behind,
}

/// What a store's address leads to.
#[derive(Debug)]
enum Behind {
    File,
    Schema(Arc<Database>),
    Tables(mariadb::Tables),
}

/// What victims have done under one key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Facts {
    pub(crate) rows: i64,
    pub(crate) messages: i64,
    /// How often something happened outside the store …
    pub(crate) effects: usize,
    /// … and how often for one who recognises repetitions.
    pub(crate) distinct_effects: usize,
    pub(crate) state: Option<StateKind>,
}

/// Whether there is a server; without one, the cases on it are skipped unless everything is required.
pub(crate) fn has_server(variable: &str) -> Result<bool, String> {
    if env::var(variable).is_ok() {
        return Ok(true);
    }
    if env::var("FIRSTWRITE_TEST_REQUIRE").is_ok_and(|value| value == "all") {
        return Err(format!("{variable} is not set and everything is required"));
    }
    Ok(false)
}

impl Ground {
    /// A place for requests.
    pub(crate) fn place(&self, backend: Backend) -> Place {
        let folder = tempfile::tempdir().unwrap();
        match backend {
            Backend::Sqlite => {
                let file = folder.path().join("shop.db");
                let template = self.template.get_or_init(template).path().join("shop.db");
                fs::copy(template, &file).unwrap();
                let store = format!("sqlite:{}", file.display());
                Place { folder, store, behind: Behind::File }
            }
            Backend::Postgres => {
                let database = Arc::clone(self.database.get_or_init(Database::make));
                let store = format!("{}?schema={}", database.url, database.schema);
                Place { folder, store, behind: Behind::Schema(database) }
            }
            Backend::MariaDb => {
                let server = self.mariadb.get_or_init(mariadb::Server::connect);
                let tables = mariadb::Tables::take(server);
                Place { folder, store: tables.url(), behind: Behind::Tables(tables) }
            }
        }
    }

    /// A place where nobody else's records are.
    pub(crate) fn private_place(&self, backend: Backend) -> Place {
        let mut place = self.place(backend);
        if let Behind::Schema(database) = &place.behind {
            let schema = database.runtime.block_on(make_schema(&database.admin));
            place.store = format!("{}?schema={schema}", database.url);
        }
        place
    }

    /// How often a victim that does not die passes each point.
    pub(crate) fn passed(&self, backend: Backend, mode: Mode) -> Passed {
        let of = (backend, mode);
        let learnt = {
            let mut all = self.passed.lock().unwrap();
            if all.iter().all(|learnt| learnt.of != of) {
                all.push(Learnt { of, passed: Arc::default() });
            }
            all.iter().find(|learnt| learnt.of == of).cloned().unwrap()
        };
        let ask = || tell(self, backend, mode, LISTING, Wrong::default()).victim.passed;
        learnt.passed.get_or_init(ask).clone()
    }

    /// Removes what cannot remove itself.
    pub(crate) fn clear(&self) {
        if let Some(mariadb) = self.mariadb.get() {
            mariadb.clear();
        }
        let Some(database) = self.database.get() else { return };
        let Database { runtime, server, name, .. } = &**database;
        runtime.block_on(async {
            let drop = format!("DROP DATABASE {name} WITH (FORCE)");
            client(server).await.batch_execute(&drop).await.unwrap();
        });
    }
}

/// A file with all tables and no rows.
fn template() -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    // Not later than the victims: a file's time never goes back.
    let mut options = SqliteOptions::default();
    options.missing_file = MissingFile::Create;
    options.clock = Some(Arc::new(|| BEGAN_AT));
    let store = SqliteStore::open_with(folder.path().join("shop.db"), options).unwrap();
    let table = "CREATE TABLE payments (id INTEGER PRIMARY KEY, key TEXT NOT NULL)";
    block_on(async {
        store.write(move |connection| connection.execute_batch(table)).await.unwrap();
        store.close().await;
    });
    folder
}

impl Database {
    fn make() -> Arc<Self> {
        let mut runtime = Builder::new_multi_thread();
        let runtime = runtime.worker_threads(1).enable_all().build().unwrap();
        let server = env::var(ADDRESS).unwrap();
        let name = format!("firstwrite_points_{:016x}", fastrand::u64(..));
        let url = format!("{}/{name}", server.rsplit_once('/').unwrap().0);
        let (admin, schema) = runtime.block_on(async {
            let make = format!("CREATE DATABASE {name}");
            client(&server).await.batch_execute(&make).await.unwrap();
            let admin = client(&url).await;
            let schema = make_schema(&admin).await;
            (admin, schema)
        });
        Arc::new(Self { runtime, admin, server, name, url, schema })
    }
}

impl fmt::Debug for Database {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Database").field("name", &self.name).finish_non_exhaustive()
    }
}

/// Makes tables whose clock is what each connection says it is.
async fn make_schema(admin: &Client) -> String {
    let name = format!("s_{:016x}", fastrand::u64(..));
    admin.batch_execute(&PostgresStore::dump(&SchemaName::new(&name).unwrap())).await.unwrap();
    let ours = format!(
        "CREATE TABLE {name}.payments (
             id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, key text NOT NULL);
         CREATE OR REPLACE FUNCTION {name}.now() RETURNS timestamptz LANGUAGE sql VOLATILE
             AS 'SELECT to_timestamp(coalesce(current_setting(''test.now'', true), ''0'')::bigint / 1000)'"
    );
    admin.batch_execute(&ours).await.unwrap();
    name
}

/// Returns true if nothing but a note of a release stands: the key is free.
fn is_note(record: &Record) -> bool {
    matches!(&record.state, State::Completed { outcome, .. } if outcome.is_release_note())
}

impl Place {
    pub(crate) fn effects(&self) -> PathBuf {
        self.folder.path().join("effects")
    }

    /// Waits until nothing of a victim is left. A server may take a moment to notice that its client
    /// is gone, and undoes what was open only then.
    pub(crate) fn bury(&self, key: &str) {
        match &self.behind {
            Behind::File => {}
            Behind::Tables(tables) => tables.bury(),
            Behind::Schema(database) => {
                let end = "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity
                           WHERE application_name = $1";
                database.runtime.block_on(database.admin.query(end, &[&key])).unwrap();
            }
        }
    }

    pub(crate) fn facts(&self, key: &str) -> Facts {
        let effects = fs::read_to_string(self.effects()).unwrap_or_default();
        let effects: Vec<&str> = effects.lines().collect();
        let distinct: BTreeSet<&str> = effects.iter().copied().collect();
        let (rows, messages) = self.counts(key);
        Facts {
            rows,
            messages,
            effects: effects.len(),
            distinct_effects: distinct.len(),
            state: self
                .record(key)
                .filter(|record| !is_note(record))
                .map(|record| record.state.kind()),
        }
    }

    fn record(&self, key: &str) -> Option<Record> {
        let id = RecordId::of(&Tenant::new(TENANT).unwrap(), &Key::new(key).unwrap());
        block_on(async {
            let store = open(&self.store, Access::ReadOnly).await.unwrap();
            store.get(id).await.unwrap().map(|found| found.record)
        })
    }

    /// How each of `keys` stands.
    pub(crate) fn states(&self, keys: &[&str]) -> Vec<Option<StateKind>> {
        let tenant = Tenant::new(TENANT).unwrap();
        block_on(async {
            let store = open(&self.store, Access::ReadOnly).await.unwrap();
            let mut states = Vec::new();
            for key in keys {
                let id = RecordId::of(&tenant, &Key::new(key).unwrap());
                let found = store.get(id).await.unwrap();
                states.push(found.map(|found| found.record.state.kind()));
            }
            states
        })
    }

    /// How many rows and messages there are.
    fn counts(&self, key: &str) -> (i64, i64) {
        match &self.behind {
            Behind::File => self.counts_in_file(key),
            Behind::Tables(tables) => tables.counts(key),
            Behind::Schema(database) => {
                let (_, schema) = self.store.split_once("?schema=").unwrap();
                let count = format!(
                    "SELECT (SELECT count(*) FROM {schema}.payments WHERE key = $1),
                            (SELECT count(*) FROM {schema}.messages
                             WHERE starts_with(derived_key, $1))"
                );
                let row = database.runtime.block_on(database.admin.query_one(&count, &[&key]));
                let row = row.unwrap();
                (row.get(0), row.get(1))
            }
        }
    }

    fn counts_in_file(&self, key: &str) -> (i64, i64) {
        let path = self.store.strip_prefix("sqlite:").unwrap();
        let store = SqliteStore::open_read_only(path).unwrap();
        let count = "SELECT (SELECT count(*) FROM payments WHERE key = ?1),
                            (SELECT count(*) FROM firstwrite_messages)";
        let key = key.to_owned();
        let counted = store.read(move |connection| {
            connection.query_row(count, [key], |row| Ok((row.get(0)?, row.get(1)?)))
        });
        block_on(counted).unwrap()
    }
}

async fn client(url: &str) -> Client {
    let (client, connection) = connect(url, NoTls).await.unwrap();
    tokio::spawn(async move { drop(connection.await) });
    client
}

pub(crate) fn block_on<T>(work: impl Future<Output = T>) -> T {
    Builder::new_current_thread().enable_all().build().unwrap().block_on(work)
}
