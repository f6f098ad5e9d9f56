//! TLS to a real server: what is verified, and what is refused.

use firstwrite_store::{OpenError, PostgresOptions, PostgresStore};

use crate::server::{Way, client, on_database};

/// Connects with `parameters` at the end of the address; whether it then speaks TLS.
async fn speaks_tls(url: &str, parameters: &str) -> Result<bool, OpenError> {
    let store = PostgresStore::connect(&format!("{url}?{parameters}")).await?;
    let connection = store.pool().get().await.unwrap();
    let sql = "SELECT ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid()";
    Ok(connection.query_one(sql, &[]).await.unwrap().get(0))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_is_verified_by_its_certificate_and_name() {
    on_database(Way::Direct, &[], async |database| {
        let url = &database.url;
        PostgresStore::migrate(url, PostgresOptions::default()).await.unwrap();
        // The certificate is its own authority.
        let authority = tempfile::NamedTempFile::new().unwrap();
        let read = "SELECT pg_read_file('server.crt')";
        let certificate: String = client(url).await.query_one(read, &[]).await.unwrap().get(0);
        std::fs::write(authority.path(), certificate).unwrap();
        let verified = format!("sslmode=require&sslrootcert={}", authority.path().display());

        assert!(speaks_tls(url, &verified).await.unwrap());
        assert!(speaks_tls(url, "sslmode=prefer").await.unwrap());
        assert!(!speaks_tls(url, "sslmode=disable").await.unwrap());

        let stranger = speaks_tls(url, "sslmode=require").await.unwrap_err().to_string();
        assert!(
            stranger.contains("cannot be used") && stranger.contains("certificate"),
            "{stranger}"
        );
        let elsewhere = url.replace("127.0.0.1", "db.example");
        let misnamed = speaks_tls(&elsewhere, &format!("hostaddr=127.0.0.1&{verified}")).await;
        let misnamed = misnamed.unwrap_err().to_string();
        assert!(
            misnamed.contains("cannot be used") && misnamed.contains("certificate"),
            "{misnamed}"
        );

        std::fs::write(authority.path(), PostgresStore::dump(&"keys".parse().unwrap())).unwrap();
        let nonsense = speaks_tls(url, &verified).await.unwrap_err().to_string();
        assert!(nonsense.contains("sslrootcert"), "{nonsense}");
    })
    .await;
}
