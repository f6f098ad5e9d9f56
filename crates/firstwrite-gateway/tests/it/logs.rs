//! Lines of the log that requests could repeat.

use std::io;
use std::sync::{Arc, Mutex};

use firstwrite_gateway::{Gateway, Listening, Operations, Rules};
use tracing_subscriber::fmt::MakeWriter;

use crate::client::{ask, post};
use crate::gateway::{anywhere, away_store, rules};
use crate::upstream::{Script, Upstream, answer};

/// What is written on this thread.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl MakeWriter<'_> for Log {
    type Writer = Self;

    fn make_writer(&self) -> Self {
        self.clone()
    }
}

fn written(log: &Log) -> String {
    String::from_utf8(log.0.lock().unwrap().clone()).unwrap()
}

/// Paths that a stranger made up would use up the names.
#[tokio::test]
async fn paths_without_protection_are_named_where_the_api_has_them() {
    let log = Log::default();
    let lines = tracing_subscriber::fmt().with_writer(log.clone()).with_ansi(false);
    let lines = lines.with_max_level(tracing_subscriber::filter::LevelFilter::INFO).finish();
    let _here = tracing::subscriber::set_default(lines);
    let upstream = Upstream::start().await;
    let listening = Listening { threads: 0, ..anywhere() };
    let operations = Arc::new(Operations::only_named());
    let rules = Rules { operations, ..rules(&[&upstream]) };
    let gateway = Gateway::start(away_store(), &listening, rules).await.unwrap();
    let word =
        |number: u8| String::from_utf8(vec![b'a' + number / 26, b'a' + number % 26]).unwrap();
    let post = async |path: &str| {
        let request = format!("POST {path} HTTP/1.1\r\nhost: a\r\ncontent-length: 0\r\n\r\n");
        ask(gateway.address(), &request).await.status()
    };
    for status in ["404 Not Found", "405 Method Not Allowed"] {
        upstream.does(Script::Answer(answer(status, "", "")));
        for number in 0..120 {
            post(&format!("/made-up/{}", word(number))).await;
        }
    }
    upstream.does(Script::Answer(answer("201 Created", "", "")));
    for path in ["/v1/orders/17/items", "/v1/orders/18/items", "/v2/orders/18/items"] {
        assert_eq!(post(path).await, 201);
    }
    let named = "passed through unprotected: a retry of it may happen twice";
    assert_eq!(written(&log).matches(named).count(), 2, "{}", written(&log));
    for path in ["/v1/orders/17/items", "/v2/orders/18/items"] {
        assert!(written(&log).contains(path), "{path}");
    }
    for number in 0..120 {
        assert_eq!(post(&format!("/{}", word(number))).await, 201);
    }
    assert_eq!(written(&log).matches(named).count(), 100);
    let beyond: Vec<String> = written(&log)
        .lines()
        .filter(|line| line.contains("not named"))
        .map(str::to_owned)
        .collect();
    assert_eq!(beyond.len(), 2, "{beyond:?}");
    assert!(beyond[0].contains("count=1") && beyond[1].contains("count=10"), "{beyond:?}");
}

/// Each request has its failure while the store is away, and a stranger's requests would fill a disk.
#[tokio::test]
async fn a_store_that_is_away_is_said_seldom() {
    const REQUESTS: usize = 50;
    let log = Log::default();
    let lines = tracing_subscriber::fmt().with_writer(log.clone()).with_ansi(false);
    let lines = lines.with_max_level(tracing_subscriber::filter::LevelFilter::INFO).finish();
    let _here = tracing::subscriber::set_default(lines);
    let upstream = Upstream::start().await;
    let store = away_store();
    let listening = Listening { threads: 0, ..anywhere() };
    let gateway = Gateway::start(store.clone(), &listening, rules(&[&upstream])).await.unwrap();
    store.goes_away();
    let known = "authorization: Bearer a\r\n";
    for number in 0..REQUESTS {
        let key = format!("k{number}");
        assert_eq!(ask(gateway.address(), &post(&key, "{}")).await.status(), 503);
        let status =
            format!("GET /.firstwrite/operations/{key} HTTP/1.1\r\nhost: a\r\n{known}\r\n");
        assert_eq!(ask(gateway.address(), &status).await.status(), 503);
    }
    let log = String::from_utf8(log.0.lock().unwrap().clone()).unwrap();
    let errors: Vec<&str> = log.lines().filter(|line| line.contains("ERROR")).collect();
    assert!((2..10).contains(&errors.len()), "{} lines, such as {:?}", errors.len(), errors[0]);
    assert!(errors.iter().any(|line| line.contains("record_id")), "{errors:?}");
}
