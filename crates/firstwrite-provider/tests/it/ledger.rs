//! The ledger: what a restart, a crash or another reader finds.

use std::fs::{self, OpenOptions};
use std::io::Write as _;

use firstwrite_provider::{Behaviour, ErrorKind, Ledger, Options, Provider};

use crate::client::{get, pay};
use crate::stand::Stand;

#[tokio::test]
async fn a_restart_keeps_payments_and_their_keys() {
    let stand = Stand::new(Behaviour::default()).await;
    let first = pay("k-1", 500).send(stand.address()).await;
    pay("k-2", 600).send(stand.address()).await;
    let before = stand.provider.payments();
    let stand = stand.restart().await;
    assert_eq!(stand.provider.payments(), before);
    let again = pay("k-1", 500).send(stand.address()).await;
    assert_eq!(again.body, first.body);
    assert_eq!(pay("k-1", 501).send(stand.address()).await.status, 422);
    assert_eq!(pay("k-3", 700).send(stand.address()).await.id(), "pay_00000003");
}

#[tokio::test]
async fn another_process_reads_the_ledger_while_it_is_in_use() {
    let stand = Stand::new(Behaviour::default()).await;
    for number in 0..3 {
        pay(&format!("k-{number}"), 500).send(stand.address()).await;
        // What was answered is in the file.
        let ledger = Ledger::read(stand.ledger()).unwrap();
        assert_eq!(ledger.payments(), stand.provider.payments());
        assert_eq!(ledger.payments().len(), number + 1);
        assert_eq!(ledger.reported(), stand.provider.reported());
    }
}

#[tokio::test]
async fn a_torn_last_line_is_dropped_and_written_over() {
    let stand = Stand::new(Behaviour::default()).await;
    pay("k-1", 500).send(stand.address()).await;
    let path = stand.ledger();
    let (folder, options) = stand.stop().await;
    let whole = fs::read(&path).unwrap();
    // As a crash in the middle of writing the second line leaves it, at every length.
    let second = String::from_utf8(whole.clone()).unwrap().replace("00000001", "00000002");
    for cut in [1, second.len() / 2, second.len() - 1] {
        fs::write(&path, &whole).unwrap();
        let mut file = OpenOptions::new().append(true).open(&path).unwrap();
        file.write_all(&second.as_bytes()[..cut]).unwrap();
        let read = Ledger::read(&path).unwrap();
        assert_eq!((read.payments().len(), read.torn_bytes()), (1, cut as u64));
        let provider = Provider::start(options.clone()).await.unwrap();
        let made = pay("k-2", 600).send(provider.address()).await;
        assert_eq!(made.id(), "pay_00000002");
        provider.stop().await;
        let read = Ledger::read(&path).unwrap();
        assert_eq!((read.payments().len(), read.torn_bytes()), (2, 0));
    }
    drop(folder);
}

#[tokio::test]
async fn a_ledger_that_makes_no_sense_is_not_used() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("ledger.jsonl");
    let endless = "x".repeat(20_000);
    for text in ["nonsense\n", "{\"entry\":\"removed\",\"id\":\"pay_00000001\"}\n", &endless] {
        fs::write(&path, text).unwrap();
        let refused = Provider::start(Options::new(&path)).await.unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Corrupt, "{refused}");
        assert!(refused.to_string().contains("line 1"), "{refused}");
        assert_eq!(fs::read_to_string(&path).unwrap(), text, "nothing of it is lost");
    }
    let nowhere = Ledger::read(folder.path().join("nowhere")).unwrap_err();
    assert_eq!(nowhere.kind(), ErrorKind::Ledger);
}

/// The ledger holds payments.
#[cfg(unix)]
#[tokio::test]
async fn a_new_ledger_is_for_its_owner_alone() {
    use std::os::unix::fs::PermissionsExt as _;

    let stand = Stand::new(Behaviour::default()).await;
    pay("k-1", 500).send(stand.address()).await;
    let mode = fs::metadata(stand.ledger()).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600, "{mode:o}");
}

#[tokio::test]
async fn two_providers_do_not_share_a_ledger() {
    let stand = Stand::new(Behaviour::default()).await;
    let refused = Provider::start(Options::new(stand.ledger())).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::InUse);
}

#[tokio::test]
async fn a_full_ledger_says_so_and_goes_on_answering() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("ledger.jsonl");
    let options = Options { payments_max: 2, ..Options::new(&path) };
    let provider = Provider::start(options).await.unwrap();
    let first = pay("k-1", 500).send(provider.address()).await;
    pay("k-2", 500).send(provider.address()).await;
    let full = pay("k-3", 500).send(provider.address()).await;
    assert_eq!((full.status, &full.json()["code"]), (507, &"ledger-full".into()));
    assert_eq!(pay("k-1", 500).send(provider.address()).await.body, first.body);
    assert_eq!(get("/v1/payments/pay_00000002").send(provider.address()).await.status, 200);
    provider.stop().await;
    let small = Options { payments_max: 1, ..Options::new(&path) };
    assert_eq!(Provider::start(small).await.unwrap_err().kind(), ErrorKind::Full);
}
