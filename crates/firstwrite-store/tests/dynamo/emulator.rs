//! Emulators to test on, and tables of its own for each test.

use std::env;
use std::panic::resume_unwind;
use std::sync::atomic::{AtomicU64, Ordering};

use firstwrite_store::aws_sdk_dynamodb::config::{BehaviorVersion, Credentials, Region};
use firstwrite_store::aws_sdk_dynamodb::{Client, Config};
use firstwrite_store::{DynamoOptions, DynamoStore};

/// Where a test runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Which {
    Ministack,
    /// A second opinion, only where it is named.
    Moto,
}

/// Tables that one test has to itself: all whose names begin alike.
#[derive(Clone, Debug)]
pub(crate) struct Tables {
    pub(crate) endpoint: String,
    prefix: String,
    pub(crate) admin: Client,
}

impl Tables {
    /// The address of a table that is not there yet.
    pub(crate) fn url(&self) -> String {
        static SEQUENCE: AtomicU64 = AtomicU64::new(0);
        let sequence = SEQUENCE.fetch_add(1, Ordering::Relaxed);
        // Few shards: an emulator takes longer than the service to say that one is empty.
        let Self { endpoint, prefix, .. } = self;
        format!("dynamodb:{prefix}.{sequence}?endpoint={endpoint}&shards=3")
    }

    /// The address of a table that is there.
    pub(crate) async fn made(&self) -> String {
        let url = self.url();
        DynamoStore::migrate(&url, DynamoOptions::default()).await.unwrap();
        url
    }

    /// A table for handlers' own items.
    pub(crate) fn business(&self) -> String {
        format!("{}.business", self.prefix)
    }
}

/// Runs `test` with tables of its own, and deletes them, however it ends.
///
/// Skipped where no emulator is named, unless everything is required.
pub(crate) async fn on_tables<F, T>(which: Which, test: F)
where
    F: FnOnce(Tables) -> T,
    T: Future<Output = ()> + Send + 'static,
{
    let Some(endpoint) = address(which) else { return };
    let prefix = format!("firstwrite-{:016x}", fastrand::u64(..));
    let admin = client(&endpoint);
    let ended =
        tokio::spawn(test(Tables { endpoint, prefix: prefix.clone(), admin: admin.clone() }));
    let ended = ended.await;
    let mut after = None;
    loop {
        let page = admin.list_tables().set_exclusive_start_table_name(after).send().await.unwrap();
        for table in page.table_names().iter().filter(|table| table.starts_with(&prefix)) {
            admin.delete_table().table_name(table).send().await.unwrap();
        }
        after = page.last_evaluated_table_name;
        if after.is_none() {
            break;
        }
    }
    if let Err(failed) = ended {
        resume_unwind(failed.into_panic());
    }
}

/// Runs `test` on every emulator.
pub(crate) async fn on_each<F, T>(test: F)
where
    F: Fn(Tables) -> T,
    T: Future<Output = ()> + Send + 'static,
{
    for which in [Which::Ministack, Which::Moto] {
        on_tables(which, &test).await;
    }
}

/// A client outside any store.
fn client(endpoint: &str) -> Client {
    let config = Config::builder()
        .behavior_version(BehaviorVersion::latest())
        .endpoint_url(endpoint)
        .region(Region::new("us-east-1"))
        .http_client(aws_smithy_http_client::Builder::new().build_http())
        .credentials_provider(Credentials::new("admin", "admin", None, None, "test"))
        .build();
    Client::from_conf(config)
}

fn address(which: Which) -> Option<String> {
    let (variable, is_costly) = match which {
        Which::Ministack => ("FIRSTWRITE_TEST_DYNAMODB", false),
        // Part of full runs only.
        Which::Moto => ("FIRSTWRITE_TEST_DYNAMODB_MOTO", true),
    };
    let address = env::var(variable).ok();
    if address.is_none() {
        let is_required = env::var("FIRSTWRITE_TEST_REQUIRE").is_ok_and(|value| value == "all");
        let must_run = is_required && !is_costly;
        assert!(!must_run, "{variable} is not set and everything is required");
        println!("skipped: {which:?} ({variable} is not set)");
    }
    address
}
