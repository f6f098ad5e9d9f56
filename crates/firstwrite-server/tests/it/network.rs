//! A store that can be taken away and given back.

use std::time::Duration;

use firstwrite_store::rusqlite::Connection;
use firstwrite_testkit::{Network, Proxy};
use tokio::runtime::Runtime;

use crate::process::Folder;

/// The network between a process and its database server.
pub(crate) struct Line {
    proxy: Proxy,
    url: String,
    /// It carries the bytes.
    _runtime: Runtime,
}

/// A folder's store, within reach or not.
pub(crate) enum Reach<'a> {
    /// A file: somebody else has it locked, or not.
    Sqlite(&'a Folder, Option<Connection>),
    /// A server: connections to it end at once, or not.
    Server(Line),
}

impl Line {
    pub(crate) fn to(url: &str) -> Self {
        let mut runtime = tokio::runtime::Builder::new_multi_thread();
        let runtime = runtime.worker_threads(1).enable_all().build().unwrap();
        if let Some((_, endpoint)) = url.split_once("endpoint=") {
            let endpoint = endpoint.split('&').next().unwrap();
            let proxy = runtime.block_on(Proxy::new(endpoint)).unwrap();
            let url = url.replace(endpoint, &proxy.url(endpoint));
            return Self { url, proxy, _runtime: runtime };
        }
        let proxy = runtime.block_on(Proxy::new(url)).unwrap();
        // What is encrypted, nobody in between can tell apart.
        let joint = if url.contains('?') { '&' } else { '?' };
        let url = match url.split_once(':') {
            // The scheme says whether it is encrypted.
            Some(("redis", _)) => proxy.url(url),
            _ => format!("{}{joint}sslmode=disable", proxy.url(url)),
        };
        Self { url, proxy, _runtime: runtime }
    }

    /// The server's address through here.
    pub(crate) fn url(&self) -> &str {
        &self.url
    }

    pub(crate) fn set(&self, network: Network) {
        self.proxy.set(network);
    }

    /// Ends all connections, as when every process of the server was killed; others can be made.
    pub(crate) fn end_all(&self) {
        self.take_down();
        self.set(Network::Up);
    }

    /// Ends all connections and lets none be made. Nothing that is said afterwards arrives.
    pub(crate) fn take_down(&self) {
        self.set(Network::Down);
        while self.proxy.open() > 0 {
            std::thread::yield_now();
        }
    }

    /// How many connections ended because of what was said on them.
    pub(crate) fn cut(&self) -> usize {
        self.proxy.cut()
    }
}

impl<'a> Reach<'a> {
    pub(crate) fn of(folder: &'a Folder) -> Self {
        if folder.store().starts_with("sqlite") {
            return Self::Sqlite(folder, None);
        }
        Self::Server(Line::to(folder.store()))
    }

    /// Where a gateway finds the store.
    pub(crate) fn url(&self) -> String {
        match self {
            Self::Sqlite(folder, _) => folder.store().to_owned(),
            Self::Server(line) => line.url().to_owned(),
        }
    }

    /// Nobody can write there from now on.
    pub(crate) fn take_away(&mut self) {
        match self {
            Self::Sqlite(folder, held) => {
                let path = folder.store().strip_prefix("sqlite:").unwrap();
                let connection = Connection::open(folder.path().join(path)).unwrap();
                connection.busy_timeout(Duration::from_secs(30)).unwrap();
                connection.execute_batch("BEGIN IMMEDIATE").unwrap();
                *held = Some(connection);
            }
            Self::Server(line) => line.take_down(),
        }
    }

    pub(crate) fn give_back(&mut self) {
        match self {
            Self::Sqlite(_, held) => *held = None,
            Self::Server(line) => line.set(Network::Up),
        }
    }
}
