//! Rows that something spoiled. Torn pages are in `tests/client/damage.rs`.

use std::fs;

use http::Request;
use serde_json::json;

use super::*;
use crate::Client;
use crate::transport::{Failure, Reply, Transport};

const URL: &str = "https://api.example/payments";

/// Nothing is sent here.
struct Unused;

impl Transport for Unused {
    fn send(&self, request: Request<Bytes>, _: usize) -> BoxFuture<'_, Result<Reply, Failure>> {
        panic!("{} was asked", request.uri())
    }
}

fn client(path: &Path) -> Client {
    Client::builder(SqliteStorage::open(path).unwrap(), Unused).build()
}

#[tokio::test]
async fn a_damaged_row_is_named_left_where_it_is_and_the_others_go_on() {
    const SPOILT: [&str; 6] = [
        "document = zeroblob(100)",
        "document = 'a text'",
        "document = x''",
        "document = substr(document, 1, length(document) - 1)",
        "revision = 'soon'",
        "revision = -5",
    ];
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.db");
    for name in ["a", "b"] {
        client(&path).intent(name).post_json(URL, &json!({"amount": 4990})).open().await.unwrap();
    }
    let whole = fs::read(&path).unwrap();
    for spoilt in SPOILT {
        fs::write(&path, &whole).unwrap();
        let sql = format!("UPDATE firstwrite_intents SET {spoilt} WHERE name = 'a'");
        assert_eq!(Connection::open(&path).unwrap().execute(&sql, []).unwrap(), 1);
        let before = fs::read(&path).unwrap();
        let client = client(&path);
        let again = client.intent("a").post_json(URL, &json!({"amount": 4990})).open().await;
        for error in [client.find("a").await.unwrap_err(), again.unwrap_err()] {
            let told = error.to_string();
            assert!(told.contains("\"a\"") && told.contains("left as it is"), "{spoilt}: {told}");
        }
        let list = client.list().await.unwrap();
        assert_eq!((list.len(), list.iter().filter(|entry| entry.is_err()).count()), (2, 1));
        assert!(client.find("b").await.unwrap().is_some(), "{spoilt}");
        drop(client);
        assert!(fs::read(&path).unwrap() == before, "{spoilt}: the file was changed");
    }
}
