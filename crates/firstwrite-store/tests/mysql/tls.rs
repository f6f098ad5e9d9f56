//! TLS to a real server: what is verified, and what is refused.

use std::path::Path;

use firstwrite_core::{Fence, Inserted, Store as _};
use firstwrite_store::mysql_async::prelude::Queryable as _;
use firstwrite_store::{MysqlOptions, MysqlStore};

use crate::own::Own;
use crate::subject::reserved;

/// A certificate that is its own authority, and its key, as files that the server's user can read.
fn certificate(folder: &Path, name: &str, host: &str) -> (String, String) {
    let made = rcgen::generate_simple_self_signed([host.to_owned()]).unwrap();
    let write = |end: &str, text: String| {
        let path = folder.join(format!("{name}.{end}"));
        std::fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    };
    (write("crt", made.cert.pem()), write("key", made.signing_key.serialize_pem()))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_is_verified_by_its_certificate_and_name() {
    let mut files = None;
    let own = Own::start(|folder| {
        let (own, key) = certificate(folder, "server", "127.0.0.1");
        let (stranger, _) = certificate(folder, "stranger", "127.0.0.1");
        files = Some((own.clone(), stranger));
        vec![
            format!("--ssl-cert={own}"),
            format!("--ssl-key={key}"),
            "--require-secure-transport=ON".to_owned(),
        ]
    });
    let Some(own) = own.await else { return };
    let (certificate, stranger) = files.unwrap();
    let (url, port) = (own.url(), own.port());
    let verified = format!("{url}?sslmode=require&sslrootcert={certificate}");
    MysqlStore::migrate(&verified, MysqlOptions::default()).await.unwrap();
    let store = MysqlStore::connect(&verified).await.unwrap();
    assert!(matches!(store.insert(&reserved("k", Fence::first(1))).await, Ok(Inserted::Done(_))));
    let mut conn = store.own_pool().get_conn().await.unwrap();
    let cipher: Option<(String, String)> =
        conn.query_first("SHOW SESSION STATUS LIKE 'Ssl_cipher'").await.unwrap();
    assert!(!cipher.unwrap().1.is_empty(), "it is not encrypted");
    // Encrypted, and nobody is verified.
    MysqlStore::connect(&url).await.unwrap();
    for (refused, why) in [
        (format!("{url}?sslmode=require&sslrootcert={stranger}"), "another authority"),
        (format!("{url}?sslmode=require"), "nobody vouches for it"),
        (
            format!("mysql://root@localhost:{port}/shop?sslmode=require&sslrootcert={certificate}"),
            "it is not who it says",
        ),
        (format!("{url}?sslmode=disable"), "it does not speak plainly"),
    ] {
        let refusal = MysqlStore::connect(&refused).await.expect_err(why).to_string();
        assert!(refusal.contains("cannot be used"), "{why}: {refusal}");
    }
    let missing = format!("{url}?sslmode=require&sslrootcert=/nowhere.pem");
    let refusal = MysqlStore::connect(&missing).await.unwrap_err().to_string();
    assert!(refusal.contains("sslrootcert"), "{refusal}");
}

/// Whoever demands it is not talked out of it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_without_tls_is_refused_where_it_is_demanded() {
    let mut files = None;
    let own = Own::start(|folder| {
        files = Some(certificate(folder, "server", "127.0.0.1").0);
        vec!["--skip-ssl".to_owned()]
    });
    let Some(own) = own.await else { return };
    let url = own.url();
    MysqlStore::migrate(&url, MysqlOptions::default()).await.unwrap();
    for plain in [url.clone(), format!("{url}?sslmode=disable")] {
        MysqlStore::connect(&plain).await.unwrap();
    }
    let demanded = format!("{url}?sslmode=require&sslrootcert={}", files.unwrap());
    let refusal = MysqlStore::connect(&demanded).await.unwrap_err().to_string();
    assert!(refusal.contains("cannot be used"), "{refusal}");
}
