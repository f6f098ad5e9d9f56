//! Lines of the log that requests could repeat.

use std::io;
use std::sync::{Arc, Mutex};

use firstwrite_gateway::{Gateway, Listening};
use tracing_subscriber::fmt::MakeWriter;

use crate::client::{ask, post};
use crate::gateway::{anywhere, away_store, rules};
use crate::upstream::Upstream;

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
