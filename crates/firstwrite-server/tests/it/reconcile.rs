//! `firstwrite reconcile`, from outside, against the provider's own list and its export.

use std::fs;
use std::process::{Command, Output};

use serde_json::{Value, json};

use crate::http::{Response, get, post};
use crate::messages::{Fate, leave_messages, outbox_json};
use crate::open_records::document;
use crate::process::{Demo, Folder, firstwrite, stderr, stdout};

/// A demo's store after six payments, and the provider that made them.
pub(crate) struct Books {
    pub(crate) folder: Folder,
    provider: Demo,
    /// The provider's ids, by payment.
    ids: Vec<String>,
}

impl Books {
    pub(crate) fn new() -> Self {
        let folder = Folder::new();
        let provider = folder.provider(&[]);
        let demo = folder.demo(&["--provider", &format!("http://{}", provider.address)]);
        let mut ids = Vec::new();
        for number in 0..6 {
            let wanted = json!({"amount": 1000 + number, "currency": "EUR", "customer": "cus_1"});
            let request = post("/payments", &wanted.to_string()).acme().key(&format!("k-{number}"));
            let paid = demo.answer(&request);
            assert_eq!(paid.status, 201);
            ids.push(paid.json()["provider_id"].as_str().unwrap().to_owned());
        }
        demo.terminate();
        assert!(demo.end().success());
        let http = format!(
            "[reconcile.provider]\ndestination = 'provider'\namount = '/amount'\n\
             currency = '/currency'\ngrace = '1ms'\ntolerance = '0s'\n\
             csv = {{ id = 'id', key = 'idempotency_key', amount = 'amount', currency = 'currency', \
             at = 'created_at', made = 'all' }}\n\
             [reconcile.provider.http]\nmade = 'all'\n\
             url = 'http://{}/v1/payments?from={{from}}&until={{until}}&limit=4&after={{cursor}}'\n\
             list = '/data'\nid = '/id'\nkey = '/idempotency_key'\namount = '/amount'\n\
             currency = '/currency'\nat = '/created_at'\nnext = '/next'\n\
             allow_networks = ['127.0.0.0/8']\n",
            provider.address
        );
        fs::write(folder.path().join("firstwrite.toml"), http).unwrap();
        Self { folder, provider, ids }
    }

    fn plant(&self, plant: &Value) {
        let planted = self.provider.answer(&post("/control/plant", &plant.to_string()));
        assert!(planted.status < 300, "{}", planted.status);
    }

    fn reconcile(&self, arguments: &[&str]) -> Output {
        let mut command = firstwrite(&self.folder);
        command.args(["reconcile", "--config", "firstwrite.toml", "--store", self.folder.store()]);
        command.args(arguments).output().unwrap()
    }

    fn run(&self, arguments: &[&str]) -> (Option<i32>, Value) {
        self.look(&[arguments, &["--apply"]].concat())
    }

    /// A run without `--apply`.
    fn look(&self, arguments: &[&str]) -> (Option<i32>, Value) {
        let output = self.reconcile(&[&["run", "--format", "json"], arguments].concat());
        (output.status.code(), document(&output)["sources"][0].clone())
    }

    /// Pays under the wire key of a message that was left behind.
    fn pay(&self, key: &str) {
        let listed = outbox_json(&self.folder, &["list", "--key", &format!("{key}:charge")]);
        let record = listed["messages"][0]["record_id"].as_str().unwrap();
        let wire_key = format!("{key}:charge:{}", &record[..16]);
        let paid = post("/v1/payments", r#"{"amount":4990,"currency":"EUR"}"#).key(&wire_key);
        assert_eq!(self.provider.answer(&paid).status, 201);
    }

    fn state(&self, key: &str) -> String {
        let listed = outbox_json(&self.folder, &["list", "--key", &format!("{key}:charge")]);
        listed["messages"][0]["state"].as_str().unwrap().to_owned()
    }

    pub(crate) fn export(&self) {
        let export = self.provider.answer(&get("/v1/payments.csv"));
        fs::write(self.folder.path().join("export.csv"), whole(&export)).unwrap();
    }

    fn settings(&self) -> String {
        fs::read_to_string(self.folder.path().join("firstwrite.toml")).unwrap()
    }

    fn configure(&self, settings: &str) {
        fs::write(self.folder.path().join("firstwrite.toml"), settings).unwrap();
    }
}

fn kinds(run: &Value) -> Vec<(String, String)> {
    let found = run["findings"].as_array().unwrap().iter();
    let mut kinds: Vec<_> = found
        .map(|found| {
            let text = |name: &str| found[name].as_str().unwrap().to_owned();
            (text("kind"), text("subject"))
        })
        .collect();
    kinds.sort();
    kinds
}

#[test]
fn books_that_agree_give_no_finding() {
    let books = Books::new();
    let (code, run) = books.run(&[]);
    assert_eq!(run["classes"]["matched"], 6, "{run:#}");
    assert_eq!(kinds(&run), []);
    assert_eq!((code, run["is_complete"].as_bool()), (Some(0), Some(true)));
    assert_eq!(run["read"]["pages"], 2);
}

#[test]
fn every_planted_discrepancy_is_found_and_nothing_else() {
    let books = Books::new();
    books.plant(&json!({"plant": "remove", "id": books.ids[0]}));
    books.plant(&json!({"plant": "duplicate", "id": books.ids[1]}));
    books.plant(&json!({"plant": "change_amount", "id": books.ids[2], "amount": 7}));
    books.plant(&json!({"plant": "add_foreign", "amount": 5, "currency": "EUR"}));
    let (code, dry) = books.look(&["--dry-run"]);
    assert_eq!(code, Some(7));
    let (code, run) = books.run(&[]);
    assert_eq!(code, Some(7), "{run:#}");
    assert_eq!(kinds(&dry), kinds(&run), "looking first shows the same");
    let found: Vec<String> = kinds(&run).into_iter().map(|(kind, _)| kind).collect();
    assert_eq!(found, ["differs", "duplicate", "missing_here", "missing_there"], "{run:#}");
    assert_eq!(run["classes"]["matched"], 3);
    // A second run knows them; a person deals with them, one after the other.
    let (_, again) = books.run(&["--from", "2020-01-01T00:00:00Z"]);
    assert_eq!(kinds(&again), kinds(&run));
    let listed = document(&books.reconcile(&["findings", "--format", "json"]));
    let numbers: Vec<i64> = listed["findings"]
        .as_array()
        .unwrap()
        .iter()
        .map(|f| f["number"].as_i64().unwrap())
        .collect();
    assert_eq!(numbers.len(), 4, "{listed:#}");
    let first = numbers[0].to_string();
    let assigned = books.reconcile(&["assign", &first, "--to", "billing", "--reason", "theirs"]);
    assert!(assigned.status.success(), "{}", stderr(&assigned));
    for number in &numbers {
        let word = ["resolve", &number.to_string(), "--accepted", "--reason", "planted by a test"];
        let resolved = books.reconcile(&word);
        assert!(resolved.status.success(), "{}", stderr(&resolved));
        assert_eq!(books.reconcile(&word).status.code(), Some(3), "closed only once");
    }
    let shown = stdout(&books.reconcile(&["findings", &first]));
    assert!(shown.contains("billing") && shown.contains("planted by a test"), "{shown}");
    let left = document(&books.reconcile(&["findings", "--format", "json"]));
    assert_eq!(left["findings"], json!([]));
    let (code, quiet) = books.run(&["--from", "2020-01-01T00:00:00Z"]);
    assert_eq!((code, kinds(&quiet).len()), (Some(0), 4), "accepted ones stay closed");
}

#[test]
fn what_nobody_knew_is_settled_by_what_the_provider_has() {
    let books = Books::new();
    leave_messages(&books.folder, &[("lost", Fate::Unknown), ("never", Fate::Unknown)]);
    books.pay("lost");
    // The first run shows what it would do, and does nothing.
    let (code, first) = books.look(&[]);
    assert_eq!((code, first["is_dry"].as_bool()), (Some(0), Some(true)), "{first:#}");
    assert_eq!(first["preview"]["delivered"], 1, "{first:#}");
    assert_eq!(first["preview"]["named"][0]["action"], "deliver");
    assert_eq!(books.state("lost"), "unknown");
    let (code, run) = books.run(&[]);
    assert_eq!((code, kinds(&run).len()), (Some(0), 0), "{run:#}");
    // The provider's account has no entry after the other one, so that it may end before it.
    assert_eq!((run["delivered"].as_i64(), run["resent"].as_i64()), (Some(1), Some(0)));
    assert_eq!(
        (books.state("lost").as_str(), books.state("never").as_str()),
        ("delivered", "unknown")
    );
    // Once it was applied, a run needs no word.
    let (_, next) = books.look(&[]);
    assert_eq!(
        (next["is_dry"].as_bool(), next["classes"]["late"].as_i64()),
        (Some(false), Some(1))
    );
    leave_messages(&books.folder, &[("later", Fate::Unknown)]);
    books.pay("later");
    let (_, last) = books.look(&[]);
    assert_eq!(
        (last["delivered"].as_i64(), last["resent"].as_i64()),
        (Some(1), Some(1)),
        "{last:#}"
    );
    assert_eq!(books.state("never"), "waiting");
}

/// A list that is paged in another way than the file says is not whole, and the file must say one.
#[test]
fn a_list_says_how_it_is_paged_and_what_was_made() {
    let books = Books::new();
    leave_messages(&books.folder, &[("never", Fate::Unknown)]);
    let good = books.settings();
    let paging = "next = '/next'\n";
    let made = "[reconcile.provider.http]\nmade = 'all'\n";
    let by_status = |is: &str, not: &str| {
        let status = format!("made = {{ status = '/status', is = [{is}], not = [{not}] }}");
        made.replace("made = 'all'", &status)
    };
    for (from, to, words) in [
        (paging, String::new(), "how the list is paged"),
        (paging, format!("{paging}single_page = true\n"), "how the list is paged"),
        (made, "[reconcile.provider.http]\n".to_owned(), "made"),
        (made, by_status("", "'failed'"), "at least one"),
        (made, by_status("'paid'", "'paid'"), "at least one"),
    ] {
        assert!(good.contains(from), "{good}");
        books.configure(&good.replace(from, &to));
        let refused = books.reconcile(&["run"]);
        assert_eq!(refused.status.code(), Some(2), "{to}");
        assert!(stderr(&refused).contains(words), "{}", stderr(&refused));
    }
    let run_with = |from: &str, to: &str| {
        books.configure(&good.replace(from, to));
        let (_, run) = books.run(&[]);
        assert_eq!((run["resent"].as_i64(), books.state("never")), (Some(0), "unknown".to_owned()));
        run
    };
    // A page that does not say where the next one is, as with a list in another form.
    let run = run_with(paging, "next = '/no_such_member'\n");
    assert_eq!(run["is_complete"], false, "{run:#}");
    // Entries with a status that the file does not name are not decided.
    let run = run_with(made, &by_status("'paid'", "'failed'"));
    assert_eq!(run["classes"]["matched"], 0, "{run:#}");
    // In other units, everything differs.
    let run = run_with("grace = '1ms'", "grace = '1ms'\namount_power = -2");
    assert_eq!(run["classes"]["differs"], 6, "{run:#}");
    assert_eq!(run["contradictions"].as_array().unwrap().len(), 1, "{run:#}");
}

/// The body of an answer that may come in chunks.
fn whole(response: &Response) -> Vec<u8> {
    if response.header("transfer-encoding") != Some("chunked") {
        return response.body.clone();
    }
    let (mut left, mut whole) = (&response.body[..], Vec::new());
    while let Some(end) = left.windows(2).position(|pair| pair == b"\r\n") {
        let size = std::str::from_utf8(&left[..end]).unwrap();
        let size = usize::from_str_radix(size, 16).unwrap();
        if size == 0 {
            break;
        }
        whole.extend_from_slice(&left[end + 2..end + 2 + size]);
        left = &left[end + 4 + size..];
    }
    whole
}

#[test]
fn an_export_serves_as_well() {
    let books = Books::new();
    books.plant(&json!({"plant": "duplicate", "id": books.ids[1]}));
    books.export();
    let (code, run) = books.run(&["provider", "--csv", "export.csv"]);
    assert_eq!(code, Some(7), "{run:#}");
    assert_eq!(run["classes"]["matched"], 5);
    assert_eq!(kinds(&run)[0].0, "duplicate");
    // Every run over an export is a dry one unless it is applied.
    let (_, again) = books.look(&["provider", "--csv", "export.csv"]);
    assert_eq!(again["is_dry"], true);
}

/// An export of before a message was sent proves nothing of it.
#[test]
fn an_export_reaches_to_its_newest_match_or_to_what_is_stated() {
    let books = Books::new();
    books.export();
    leave_messages(&books.folder, &[("paid", Fate::Unknown), ("never", Fate::Unknown)]);
    books.pay("paid");
    let (_, run) = books.run(&["provider", "--csv", "export.csv"]);
    assert_eq!(
        (run["resent"].as_i64(), run["classes"]["late"].as_i64()),
        (Some(0), Some(2)),
        "{run:#}"
    );
    assert_eq!(books.state("paid"), "unknown");
    books.export();
    let (_, run) =
        books.run(&["provider", "--csv", "export.csv", "--until", "2999-01-01T00:00:00Z"]);
    assert_eq!((run["delivered"].as_i64(), run["resent"].as_i64()), (Some(1), Some(0)), "{run:#}");
    let (_, run) = books.run(&["provider", "--csv", "export.csv", "--until", &now()]);
    assert_eq!(run["resent"].as_i64(), Some(1), "{run:#}");
}

/// After everything that was sent so far, and not in the future.
fn now() -> String {
    let mut command = Command::new("date");
    let output = command.args(["-u", "+%FT%T.%3NZ"]).output().unwrap();
    stdout(&output).trim().to_owned()
}

#[test]
fn what_is_asked_for_wrongly_is_refused_in_one_line() {
    let books = Books::new();
    for (arguments, words) in [
        (&["run", "nobody"][..], "no source is called"),
        (&["run", "--csv", "a.csv"], "name it"),
        (&["run", "--from", "yesterday"], "2026-01-31"),
        (&["resolve", "x", "--fixed", "--reason", "a"], "known by its number"),
    ] {
        let refused = books.reconcile(arguments);
        assert_eq!(refused.status.code(), Some(2), "{arguments:?}");
        assert!(stderr(&refused).contains(words), "{}", stderr(&refused));
    }
    let absent = books.reconcile(&["resolve", "99", "--fixed", "--reason", "a"]);
    assert_eq!(absent.status.code(), Some(3));
    let both = books.reconcile(&["run", "--apply", "--dry-run"]);
    assert_eq!(both.status.code(), Some(2));
    let missing = books.reconcile(&["run", "provider", "--csv", "none.csv"]);
    assert_eq!(missing.status.code(), Some(1), "{}", stdout(&missing));
}
