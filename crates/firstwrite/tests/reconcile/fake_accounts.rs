//! Serves the testkit's accounts over HTTP, and as exports.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::extract::{Query, State};
use axum::routing::get;
use firstwrite::reconcile::{
    CsvColumns, CsvExport, HttpItems, HttpList, HttpListSource, Made, Paging, TimeForm,
};
use firstwrite::{Pointer, Timestamp};
use firstwrite_testkit::accounts::{Account, Asked, Entry};

/// A server of one account at a time.
pub(crate) struct Served {
    scene: Arc<Mutex<Scene>>,
    address: std::net::SocketAddr,
}

struct Scene {
    account: Account,
    ledger: Vec<Entry>,
    now: Timestamp,
}

impl Served {
    pub(crate) async fn start() -> Self {
        let scene = Scene { account: Account::Empty, ledger: Vec::new(), now: Timestamp::EPOCH };
        let scene = Arc::new(Mutex::new(scene));
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let app = Router::new().route("/", get(page)).with_state(Arc::clone(&scene));
        tokio::spawn(async move { axum::serve(listener, app).await });
        Self { scene, address }
    }

    /// Serves `account` over `ledger`, as of `now`.
    pub(crate) fn set(&self, account: Account, ledger: &[Entry], now: Timestamp) {
        *self.scene.lock().unwrap() = Scene { account, ledger: ledger.to_vec(), now };
    }
}

async fn page(
    State(scene): State<Arc<Mutex<Scene>>>,
    Query(query): Query<HashMap<String, String>>,
) -> String {
    let at = |name: &str| Timestamp::from_millis(query[name].parse().unwrap());
    let cursor = query.get("after").map(String::as_str);
    let scene = scene.lock().unwrap();
    let asked = Asked { from: at("from"), until: at("until"), cursor, now: scene.now };
    scene.account.page(&scene.ledger, &asked)
}

/// The served account as a list.
pub(crate) fn http(served: &Served, paging: Paging, made: Made<Pointer>) -> HttpListSource {
    let cursor = if paging == Paging::SinglePage { "" } else { "&after={cursor}" };
    let url = format!("http://{}/?from={{from}}&until={{until}}{cursor}", served.address);
    let at = |text: &str| -> Pointer { text.parse().unwrap() };
    let items = HttpItems {
        key: Some(at("/key")),
        amount: Some(at("/amount")),
        ..HttpItems::new(at("/data"), at("/id"), at("/at"), made)
    };
    let list = HttpList::new(&url, items, paging).times(TimeForm::UnixMillis);
    list.allow_network("127.0.0.0/8".parse().unwrap()).build().unwrap()
}

/// An account as an export.
pub(crate) fn csv(
    account: Account,
    ledger: &[Entry],
    now: Timestamp,
    made: Made<String>,
) -> CsvExport {
    let text = account.csv(ledger, now);
    let columns = CsvColumns {
        key: Some("key".to_owned()),
        amount: Some("amount".to_owned()),
        ..CsvColumns::new("id", "at", made)
    };
    let open =
        move || Ok(Box::new(std::io::Cursor::new(text.clone())) as Box<dyn std::io::Read + Send>);
    CsvExport::reader(open, columns).times(TimeForm::UnixMillis)
}
