//! TLS to a real server: what is verified, and what is refused.

use firstwrite_core::{Fence, Inserted, Store as _};
use firstwrite_store::RedisStore;

use crate::own::{Own, SAFE, free_port};
use crate::subject::{created, reserved};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_is_verified_by_its_certificate_and_name() {
    let folder = tempfile::tempdir().unwrap();
    // The certificate is its own authority.
    let made = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).unwrap();
    let (certificate, key) = (folder.path().join("cert.pem"), folder.path().join("key.pem"));
    std::fs::write(&certificate, made.cert.pem()).unwrap();
    std::fs::write(&key, made.signing_key.serialize_pem()).unwrap();
    let (certificate, key) = (certificate.to_str().unwrap(), key.to_str().unwrap());
    let port = free_port().to_string();
    let mut arguments = SAFE.to_vec();
    arguments.extend(["--tls-port", &port, "--tls-cert-file", certificate, "--tls-key-file", key]);
    arguments.extend(["--tls-auth-clients", "no"]);
    let Some(_own) = Own::start(&arguments).await else { return };
    let verified = format!("rediss://127.0.0.1:{port}?sslrootcert={certificate}");
    let store = created(&verified).await;
    assert!(matches!(store.insert(&reserved("k", Fence::first(1))).await, Ok(Inserted::Done(_))));
    for refused in [
        // Nobody vouches for it.
        format!("rediss://127.0.0.1:{port}"),
        // It is not who it says.
        format!("rediss://localhost:{port}?sslrootcert={certificate}"),
        // It does not speak plainly.
        format!("redis://127.0.0.1:{port}"),
    ] {
        let refusal = RedisStore::connect(&refused).await.unwrap_err().to_string();
        assert!(refusal.contains("cannot reach"), "{refusal}");
    }
    let missing = format!("rediss://127.0.0.1:{port}?sslrootcert=/nowhere.pem");
    let refusal = RedisStore::connect(&missing).await.unwrap_err().to_string();
    assert!(refusal.contains("sslrootcert"), "{refusal}");
}
