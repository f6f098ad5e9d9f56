//! Lists that misbehave, and limits.

use std::collections::VecDeque;
use std::sync::Mutex;

use bytes::Bytes;
use firstwrite::reconcile::{
    Flaw, Progress, Source, SourceError, SourcePage, StatedExtent, Window, reconcile_once,
};
use firstwrite_core::reconcile::Theirs;
use firstwrite_core::{BoxFuture, Timestamp};
use firstwrite_provider::Chance;

use crate::stand::{Faults, HOUR, Stand, settings};

/// Gives pages as they were put in.
#[derive(Debug, Default)]
struct Scripted(Mutex<VecDeque<Page>>);

impl Source for Scripted {
    fn pull<'a>(
        &'a self,
        _window: Window,
        _cursor: Option<&'a str>,
    ) -> BoxFuture<'a, Result<SourcePage, SourceError>> {
        let page = self.0.lock().unwrap().pop_front().unwrap_or_else(|| Ok(SourcePage::default()));
        Box::pin(async move { page })
    }
}

type Page = Result<SourcePage, SourceError>;

async fn flaw_of(
    stand: &Stand,
    pages: Vec<Page>,
    settings: &firstwrite::reconcile::Settings,
) -> Option<String> {
    let source = Scripted(Mutex::new(pages.into()));
    let report = stand.run(&source, settings).await;
    assert_eq!(report.is_complete, report.flaws.is_empty());
    report.flaws.first().map(ToString::to_string)
}

/// A payment of another system.
fn entry(id: &str) -> Theirs {
    Theirs {
        provider_id: id.to_owned(),
        key: Some(format!("other-{id}")),
        amount: None,
        currency: None,
        at: Timestamp::from_millis(0),
        is_made: true,
        raw: Bytes::new(),
    }
}

#[tokio::test]
async fn what_makes_an_account_incomplete_is_told() {
    let stand = Stand::sqlite().await;
    stand.ask("order-1", 500).await.unwrap();
    let mut settings = settings();
    settings.limits.pages_max = 3;
    let page = |next: Option<&str>| -> Page {
        Ok(SourcePage { next: next.map(str::to_owned), ..SourcePage::default() })
    };
    let check = async |pages, told: Option<&str>| {
        let flaw = flaw_of(&stand, pages, &settings).await;
        assert_eq!(flaw.is_some(), told.is_some(), "{flaw:?}");
        if let (Some(flaw), Some(told)) = (flaw, told) {
            assert!(flaw.contains(told), "{flaw}");
        }
    };
    check(vec![page(Some("a")), page(Some("b")), page(None)], None).await;
    check(vec![page(Some("a")), page(Some("a"))], Some("page 2: the page after it has come")).await;
    let stating = |items, pages, passed_over| -> Page {
        let stated = StatedExtent { items, pages };
        Ok(SourcePage { stated, passed_over, ..SourcePage::default() })
    };
    check(vec![stating(0, 1, 0)], None).await;
    check(vec![stating(0, 2, 0)], Some("page 1: the account states more")).await;
    check(vec![stating(2, 1, 1)], Some("page 1: the account states more")).await;
    check(vec![page(Some("a")), stating(2, 2, 2)], None).await;
    check(vec![page(Some("a")), page(Some("b")), page(Some("c"))], Some("more pages")).await;
    // A provider that ignores its cursor, or a cache in front of it.
    let items = |ids: &[&str], next: Option<&str>| -> Page {
        let entries = ids.iter().map(|id| entry(id)).collect();
        Ok(SourcePage { entries, next: next.map(str::to_owned), ..SourcePage::default() })
    };
    let shifted = vec![items(&["1", "2"], Some("a")), items(&["2", "3"], None)];
    check(shifted, None).await;
    let repeated = vec![items(&["1", "2"], Some("a")), items(&["1", "2"], None)];
    check(repeated, Some("page 2: it repeats entries")).await;
    let broken = || Err(SourceError::new("in a test"));
    check(vec![page(Some("a")), broken()], Some("page 2: in a test")).await;
    let shaky = || Err(SourceError::transient("in a test"));
    check(vec![shaky(), shaky(), shaky(), shaky(), page(None)], None).await;
    check(vec![shaky(), shaky(), shaky(), shaky(), shaky()], Some("page 1: in a test")).await;
    let flaws = vec![Flaw::new("item 3", "is odd")];
    let odd = Ok(SourcePage { flaws, ..SourcePage::default() });
    check(vec![odd], Some("page 1, item 3: is odd")).await;
}

/// A mistyped name matches nothing, and a run that compared nothing must not count as the first one.
#[tokio::test]
async fn a_destination_without_any_message_is_told_and_makes_no_first_run() {
    let stand = Stand::sqlite().await;
    stand.witness("order-1").await;
    stand.advance(3 * HOUR).await;
    let mut settings = settings();
    settings.apply_first_run = false;
    let findings = firstwrite_core::findings::Findings::of(&*stand.store).unwrap();
    for (destination, is_known) in [("provder", false), ("provider", true)] {
        destination.clone_into(&mut settings.messages.as_mut().unwrap().destination);
        let report = stand.run(&*stand.http(), &settings).await;
        assert_eq!(report.is_complete, is_known, "{report:?}");
        assert_eq!(report.flaws.iter().any(|flaw| flaw.detail.contains(destination)), !is_known);
        assert_eq!(findings.last_run("payments").await.unwrap().is_some(), is_known);
    }
}

#[tokio::test]
async fn addresses_that_are_not_public_are_not_asked_unless_allowed() {
    let stand = Stand::sqlite().await;
    let url = format!("{}/v1/payments", stand.provider.url());
    let items = firstwrite::reconcile::HttpItems::new(
        "/data".parse().unwrap(),
        "/id".parse().unwrap(),
        "/created_at".parse().unwrap(),
        firstwrite::reconcile::Made::All,
    );
    let paging = firstwrite::reconcile::Paging::SinglePage;
    let source = firstwrite::reconcile::HttpList::new(&url, items, paging).build().unwrap();
    let mut settings = settings();
    settings.limits.tries_max = 1;
    let report = stand.run(&source, &settings).await;
    assert!(report.flaws[0].detail.contains("loopback"), "{:?}", report.flaws);
    assert_eq!(stand.provider.requests().list, 0);
}

#[tokio::test]
async fn a_long_page_is_cut_off_and_a_slow_one_given_up() {
    let stand = Stand::sqlite().await;
    for number in 0..20 {
        stand.ask(&format!("order-{number}"), 500).await.unwrap();
    }
    stand.deliver(Faults::default()).await;
    let mut settings = settings();
    settings.limits.tries_max = 1;
    let short = stand.http_list().page_bytes_max(100).build().unwrap();
    let report = stand.run(&short, &settings).await;
    assert!(report.flaws[0].detail.contains("longer than"), "{:?}", report.flaws);
    let hangs = Faults { outage: firstwrite_provider::Outage::HangUp, ..Faults::default() };
    stand.provider.behave(hangs).unwrap();
    let report = stand.run(&*stand.http(), &settings).await;
    assert_eq!((report.is_complete, report.flaws.len()), (false, 1));
    stand.provider.behave(Faults { fail_lookups: Chance::Never, ..Faults::default() }).unwrap();
    assert!(stand.run(&*stand.http(), &settings).await.is_complete);
}

#[tokio::test]
async fn progress_is_told_from_page_to_page() {
    let stand = Stand::sqlite().await;
    for number in 0..20 {
        stand.ask(&format!("order-{number}"), 500).await.unwrap();
    }
    stand.deliver(Faults::default()).await;
    stand.advance(3 * HOUR).await;
    let mut told = Vec::new();
    let window = stand.window().await;
    let settings = settings();
    let source = stand.http();
    let mut note = |progress: Progress| told.push(progress);
    reconcile_once(&*stand.store, &*source, &settings, window, &mut note).await.unwrap();
    let pages: Vec<_> = told
        .iter()
        .filter_map(|progress| match progress {
            Progress::Pulling(read) => Some((read.pages, read.theirs)),
            Progress::Reading(_) | Progress::Compared(_) | Progress::Acting { .. } | _ => None,
        })
        .collect();
    assert_eq!(pages, [(1, 7), (2, 14), (3, 20)]);
    assert!(told.contains(&Progress::Compared(20)), "{told:?}");
}
