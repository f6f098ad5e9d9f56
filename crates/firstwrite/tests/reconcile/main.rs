//! Reconciliation against a provider that keeps books of its own, by HTTP and by CSV, over SQLite and,
//! where a server is named, PostgreSQL.

#![expect(clippy::unwrap_used, reason = "in a test, what cannot be had ends the test")]

mod accounts;
mod doubts;
mod fake_accounts;
mod pages;
mod plants;
mod probe_property;
mod property;
mod refusals;
mod requests;
mod stand;
mod wrong_accounts;

/// Makes a scenario a test over each store.
macro_rules! over_each_store {
    ($scenario:ident) => {
        mod $scenario {
            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn over_sqlite() {
                super::$scenario(&crate::stand::Stand::sqlite().await).await;
            }

            #[cfg(feature = "postgres")]
            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn over_postgres() {
                crate::stand::on_postgres(async |stand| super::$scenario(&stand).await).await;
            }
        }
    };
}
use over_each_store;
