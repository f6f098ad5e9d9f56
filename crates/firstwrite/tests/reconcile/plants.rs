//! Discrepancies are planted in the provider's books: every one is found, and nothing else.

use std::collections::BTreeSet;

use firstwrite::reconcile::Source;
use firstwrite_core::findings::{FindingQuery, Findings};
use firstwrite_core::outbox::MessageState;
use firstwrite_provider::{Foreign, Plant};

use crate::over_each_store;
use crate::stand::{Faults, HOUR, Stand, found, settings};

over_each_store!(by_http);
async fn by_http(stand: &Stand) {
    plant(stand).await.check(stand, &*stand.http()).await;
}

over_each_store!(by_csv);
async fn by_csv(stand: &Stand) {
    plant(stand).await.check(stand, &*stand.csv(|text| text).await).await;
}

/// What is to be found.
struct Planted {
    expected: BTreeSet<(&'static str, String)>,
    matched: usize,
}

const COUNT: u64 = 60;

/// Sixty payments, and three discrepancies of each kind.
async fn plant(stand: &Stand) -> Planted {
    for number in 0..COUNT {
        stand.ask(&format!("order-{number}"), 1000 + number).await.unwrap();
        if number % 10 == 0 {
            stand.advance(HOUR / 10).await;
        }
    }
    stand.deliver(Faults::default()).await;
    let mut expected = BTreeSet::new();
    let plant = async |plant| stand.provider.plant(plant).await.unwrap();
    for number in [3, 30, 57] {
        let message = stand.message(&format!("order-{number}")).await;
        assert_eq!(message.state, MessageState::Delivered);
        let subject = format!("message {}", message.number);
        plant(Plant::Remove { id: stand.id_of(&format!("order-{number}")) }).await;
        expected.insert(("missing_there", subject));
    }
    for number in [4, 31, 58] {
        let subject = format!("message {}", stand.message(&format!("order-{number}")).await.number);
        plant(Plant::Duplicate { id: stand.id_of(&format!("order-{number}")) }).await;
        expected.insert(("duplicate", subject));
    }
    for number in [5, 32, 59] {
        let subject = format!("message {}", stand.message(&format!("order-{number}")).await.number);
        let id = stand.id_of(&format!("order-{number}"));
        plant(Plant::ChangeAmount { id, amount: 999 }).await;
        expected.insert(("differs", subject));
    }
    // Without a key, with a stranger's, and with one that could be ours but is not; and of amounts that
    // were asked for, at times that were not.
    for key in [None, Some("a stranger's"), Some("order-3:charge:0123456789abcdef")] {
        let foreign = Foreign {
            amount: 1003,
            currency: "EUR".to_owned(),
            reference: None,
            idempotency_key: key.map(str::to_owned),
            created_at: None,
        };
        let payment = plant(Plant::AddForeign(foreign)).await;
        expected.insert(("missing_here", format!("payment {}", payment.id)));
    }
    stand.advance(3 * HOUR).await;
    Planted { expected, matched: usize::try_from(COUNT).unwrap() - 9 }
}

impl Planted {
    async fn check(self, stand: &Stand, source: &dyn Source) {
        let settings = settings();
        let expected: Vec<_> = self.expected.into_iter().collect();
        let report = stand.run(source, &settings).await;
        assert_eq!(found(&report), expected, "{report:?}");
        assert!(report.is_complete && report.flaws.is_empty(), "{report:?}");
        assert_eq!(report.classes.matched, self.matched);
        assert_eq!(report.classes.late + report.classes.absent + report.classes.likely, 0);
        assert_eq!((report.delivered, report.resent, report.moved), (0, 0, 0));
        assert_eq!((report.noted.new, report.noted.known), (12, 0));
        // The same again is the same, and nothing new.
        let report = stand.run(source, &settings).await;
        assert_eq!(found(&report), expected);
        assert_eq!((report.noted.new, report.noted.known), (0, 12));
        let findings = Findings::of(&*stand.store).unwrap();
        let query = FindingQuery { is_open: Some(true), limit: 100, ..FindingQuery::default() };
        let kept = findings.list(&query).await.unwrap().findings;
        let mut kept: Vec<_> = kept
            .iter()
            .map(|finding| (finding.found.kind.as_str(), finding.found.subject.clone()))
            .collect();
        kept.sort();
        assert_eq!(kept, expected);
    }
}
