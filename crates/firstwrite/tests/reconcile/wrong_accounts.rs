//! Each account of the testkit's library in front of a real store and a real provider, whose ledger is the
//! truth: a payment that was made is never made again, whatever the account says.

use firstwrite::reconcile::{Contradiction, Made, Paging, Report, Source};
use firstwrite_core::outbox::MessageState;
use firstwrite_provider::{Chance, Payment};
use firstwrite_testkit::accounts::{Account, Entry, Status};

use crate::fake_accounts::{Served, csv, http};
use crate::stand::{Faults, HOUR, Stand, settings, timestamp};

/// A payment that was made and lost its answer, and one that was not made, between two that both know.
async fn in_doubt() -> Stand {
    let stand = Stand::sqlite().await;
    stand.witness("before").await;
    stand.ask("paid", 500).await.unwrap();
    stand.deliver(Faults { lose_answers: Chance::Always, ..Faults::default() }).await;
    stand.ask("unpaid", 700).await.unwrap();
    stand.deliver(Faults { fail_before_effect: Chance::Always, ..Faults::default() }).await;
    stand.advance(3 * HOUR).await;
    stand.witness("after").await;
    stand.advance(3 * HOUR).await;
    stand
}

fn ledger(stand: &Stand) -> Vec<Entry> {
    let entry = |payment: Payment| Entry {
        id: payment.id,
        key: payment.idempotency_key.unwrap(),
        amount: payment.amount,
        at: timestamp(payment.created_at),
        status: Status::Paid,
    };
    stand.provider.payments().into_iter().map(entry).collect()
}

/// Runs, sends what is sent again, and says how often each was paid.
async fn run_and_send(stand: &Stand, source: &dyn Source) -> (Report, usize, usize) {
    let mut settings = settings();
    settings.messages.as_mut().unwrap().currency = None;
    let report = stand.run(source, &settings).await;
    stand.deliver(Faults::default()).await;
    let paid = |key: &str| {
        let prefix = format!("{key}:charge:");
        ledger(stand).iter().filter(|entry| entry.key.starts_with(&prefix)).count()
    };
    let (first, second) = (paid("paid"), paid("unpaid"));
    (report, first, second)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_paid_is_not_paid_again_whatever_the_account_says() {
    let served = Served::start().await;
    for account in Account::ALL {
        for is_export in [false, true] {
            let stand = in_doubt().await;
            let (ledger, now) = (ledger(&stand), stand.store.now().await.unwrap());
            served.set(account, &ledger, now);
            let paging = Paging::Next("/next".parse().unwrap());
            let source: Box<dyn Source> = if is_export {
                Box::new(csv(account, &ledger, now, Made::All))
            } else {
                Box::new(http(&served, paging, Made::All))
            };
            let (report, paid, unpaid) = run_and_send(&stand, &*source).await;
            assert_eq!(paid, 1, "{account:?}: {report:?}");
            assert!(unpaid <= 1, "{account:?}");
            let is_settled = stand.state("paid").await == MessageState::Delivered;
            assert_eq!(is_settled, report.delivered == 1, "{account:?}");
            if account == Account::Whole {
                assert_eq!((report.delivered, report.resent, unpaid), (1, 1, 1), "{report:?}");
            }
            if matches!(account, Account::OtherMerchant | Account::Empty) {
                assert_eq!(report.contradictions, [Contradiction::MissingThere], "{report:?}");
                // The other merchant has a payment of one's amount, under a key that is not known to be ours.
                let in_doubt = report.classes.unproven + report.classes.likely;
                assert_eq!((in_doubt, report.resent), (2, 0), "{report:?}");
            }
        }
    }
}
