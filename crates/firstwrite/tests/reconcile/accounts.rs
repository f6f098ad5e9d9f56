//! Runs by the clock: nothing is judged too early, and nothing is forgotten.

use std::sync::Arc;
use std::time::Duration;

use firstwrite::Timestamp;
use firstwrite::reconcile::{Report, TimeForm, Window, reconcile_once};
use firstwrite::worker::{Account, Reconcile};
use firstwrite_core::findings::Findings;
use firstwrite_core::outbox::{MESSAGES_KEPT_FOR, MessageState};
use firstwrite_provider::{Chance, Foreign, Plant};

use crate::over_each_store;
use crate::stand::{Faults, HOUR, Stand, found, settings};

const DAY: Duration = Duration::from_hours(24);

fn reconcile(stand: &Stand) -> Reconcile {
    let source = Arc::new(stand.http_list().build().unwrap());
    let account = Account { settings: settings(), source };
    Reconcile::new(Arc::clone(&stand.store), vec![account]).unwrap()
}

/// A run that is due.
async fn run(reconcile: &Reconcile) -> Report {
    let (_, report) = reconcile.run_once().await.pop().unwrap();
    report.unwrap()
}

over_each_store!(what_is_young_is_late_and_looked_at_again);
async fn what_is_young_is_late_and_looked_at_again(stand: &Stand) {
    let reconcile = reconcile(stand);
    stand.advance(2 * DAY).await;
    stand.ask("order-1", 500).await.unwrap();
    stand.deliver(Faults::default()).await;
    stand.provider.plant(Plant::Remove { id: stand.id_of("order-1") }).await.unwrap();
    let foreign = Foreign {
        amount: 77,
        currency: "EUR".to_owned(),
        reference: None,
        idempotency_key: None,
        created_at: None,
    };
    stand.provider.plant(Plant::AddForeign(foreign)).await.unwrap();
    stand.advance(HOUR / 2).await;
    let report = run(&reconcile).await;
    assert_eq!((report.classes.late, report.found.len()), (2, 0), "{report:?}");
    assert!(reconcile.run_once().await.is_empty(), "once a day");
    stand.advance(DAY).await;
    let report = run(&reconcile).await;
    let kinds: Vec<_> = found(&report).into_iter().map(|(kind, _)| kind).collect();
    assert_eq!(kinds, ["missing_here", "missing_there"]);
    // It was looked at, and its time is past.
    stand.advance(DAY).await;
    let report = run(&reconcile).await;
    assert_eq!((report.classes.late, report.found.len()), (0, 0), "{report:?}");
}

over_each_store!(a_report_that_lags_behind_proves_nothing);
async fn a_report_that_lags_behind_proves_nothing(stand: &Stand) {
    stand.advance(2 * DAY).await;
    stand.ask("order-1", 500).await.unwrap();
    let lost = Faults { lose_answers: Chance::Always, ..Faults::default() };
    stand.deliver(lost).await;
    let lagging = Faults { report_lag: HOUR * 3 / 4, ..Faults::default() };
    stand.provider.behave(lagging).unwrap();
    let reconcile = reconcile(stand).every(HOUR / 4);
    for _ in 0..3 {
        let report = run(&reconcile).await;
        assert_eq!((report.classes.late, report.resent), (1, 0), "{report:?}");
        stand.advance(HOUR / 4).await;
    }
    assert_eq!(run(&reconcile).await.delivered, 1);
    assert_eq!(stand.provider.payments().len(), 1);
}

over_each_store!(a_message_that_waits_for_days_is_judged_in_the_end);
async fn a_message_that_waits_for_days_is_judged_in_the_end(stand: &Stand) {
    let reconcile = reconcile(stand);
    stand.advance(2 * DAY).await;
    stand.ask("order-1", 500).await.unwrap();
    for _ in 0..5 {
        let report = run(&reconcile).await;
        assert_eq!((report.classes.late, report.found.len()), (1, 0), "{report:?}");
        stand.advance(DAY).await;
    }
    stand.deliver(Faults::default()).await;
    assert_eq!(stand.state("order-1").await, MessageState::Delivered);
    stand.provider.plant(Plant::Remove { id: stand.id_of("order-1") }).await.unwrap();
    assert_eq!(run(&reconcile).await.classes.late, 1);
    stand.advance(DAY).await;
    let report = run(&reconcile).await;
    assert_eq!(report.classes.missing_there, 1, "{report:?}");
}

over_each_store!(what_is_in_doubt_is_looked_at_however_old_it_is);
async fn what_is_in_doubt_is_looked_at_however_old_it_is(stand: &Stand) {
    let reconcile = reconcile(stand);
    stand.advance(2 * DAY).await;
    stand.witness("before").await;
    stand.ask("order-1", 500).await.unwrap();
    let away = Faults { fail_before_effect: Chance::Always, ..Faults::default() };
    stand.deliver(away).await;
    assert_eq!(stand.state("order-1").await, MessageState::Unknown);
    // As if nobody had run for a week, and then one who knows nothing of it.
    let settings = settings();
    stand.advance(7 * DAY).await;
    let now = stand.store.now().await.unwrap();
    let run_now = firstwrite_core::findings::Run { at: now, until: now, again_from: now };
    Findings::of(&*stand.store).unwrap().ran(&settings.source, now, &run_now).await.unwrap();
    stand.advance(DAY).await;
    stand.witness("after").await;
    assert_eq!(run(&reconcile).await.resent, 1);
}

over_each_store!(a_doubt_older_than_what_is_kept_makes_no_false_findings);
async fn a_doubt_older_than_what_is_kept_makes_no_false_findings(stand: &Stand) {
    stand.advance(2 * DAY).await;
    for number in 0..5 {
        stand.witness(&format!("order-{number}")).await;
    }
    stand.ask("doubt", 500).await.unwrap();
    let away = Faults { fail_before_effect: Chance::Always, ..Faults::default() };
    stand.deliver(away).await;
    stand.advance(15 * DAY).await;
    let outbox = stand.store.outbox().unwrap();
    while outbox.upkeep(MESSAGES_KEPT_FOR, 1000).await.unwrap() > 0 {}
    assert_eq!(stand.messages().await.len(), 1, "deliveries are forgotten, and a doubt is not");
    let report = run(&reconcile(stand)).await;
    assert_eq!(report.read.theirs, 5, "{report:?}");
    assert_eq!((report.classes.missing_here, report.resent), (0, 0), "{report:?}");
}

over_each_store!(a_run_over_an_export_does_not_move_the_schedule);
/// An export is a copy of some moment: the next scheduled run looks at the same time again.
async fn a_run_over_an_export_does_not_move_the_schedule(stand: &Stand) {
    stand.advance(2 * DAY).await;
    stand.witness("order-1").await;
    stand.advance(3 * HOUR).await;
    let export = stand.csv(|text| text).await;
    let report = stand.run(&*export, &settings()).await;
    assert!(report.is_complete && report.classes.matched == 1, "{report:?}");
    let findings = Findings::of(&*stand.store).unwrap();
    assert_eq!(findings.last_run("payments").await.unwrap(), None);
}

over_each_store!(a_late_payment_of_an_old_message_is_known);
async fn a_late_payment_of_an_old_message_is_known(stand: &Stand) {
    stand.advance(2 * DAY).await;
    stand.ask("order-1", 500).await.unwrap();
    // Longer than our messages are read back: it is looked for by its key.
    stand.advance(10 * DAY).await;
    stand.deliver(Faults::default()).await;
    stand.advance(3 * HOUR).await;
    let until = stand.store.now().await.unwrap();
    let from = Timestamp::from_millis(until.as_millis() - 4 * 3_600_000);
    let window = Window { from, until };
    let (source, settings) = (stand.http(), settings());
    let report =
        reconcile_once(&*stand.store, &*source, &settings, window, &mut |_| {}).await.unwrap();
    assert_eq!((report.classes.matched, report.found.len()), (1, 0), "{report:?}");
}

over_each_store!(a_run_by_hand_leaves_no_gap_in_the_scheduled_ones);
async fn a_run_by_hand_leaves_no_gap_in_the_scheduled_ones(stand: &Stand) {
    let reconcile = reconcile(stand);
    stand.advance(2 * DAY).await;
    run(&reconcile).await;
    let findings = Findings::of(&*stand.store).unwrap();
    let last = findings.last_run("payments").await.unwrap();
    stand.advance(5 * DAY).await;
    let (source, settings, now) = (stand.http(), settings(), stand.store.now().await.unwrap());
    let before = |by: Duration| {
        Timestamp::from_millis(now.as_millis() - i64::try_from(by.as_millis()).unwrap())
    };
    // The last day alone, and a day that was looked at long ago.
    for (from, until) in [(before(DAY), now), (before(20 * DAY), before(10 * DAY))] {
        let window = Window { from, until };
        reconcile_once(&*stand.store, &*source, &settings, window, &mut |_| {}).await.unwrap();
        assert_eq!(findings.last_run("payments").await.unwrap(), last);
    }
    let window = Window { from: before(20 * DAY), until: now };
    reconcile_once(&*stand.store, &*source, &settings, window, &mut |_| {}).await.unwrap();
    assert_eq!(findings.last_run("payments").await.unwrap().unwrap().until, now);
}

over_each_store!(nothing_is_absent_beside_an_entry_of_the_future);
async fn nothing_is_absent_beside_an_entry_of_the_future(stand: &Stand) {
    stand.witness("before").await;
    stand.ask("order-1", 500).await.unwrap();
    stand.deliver(Faults { fail_before_effect: Chance::Always, ..Faults::default() }).await;
    stand.advance(3 * HOUR).await;
    stand.witness("after").await;
    stand.advance(3 * HOUR).await;
    let now = stand.store.now().await.unwrap();
    // Of another system; clocks may differ by the tolerance of five minutes.
    let with_row = |at: Timestamp| {
        let at = TimeForm::Rfc3339.write(at);
        move |text: String| format!("{text}pay_900,legacy-7,7,EUR,,{at}\n")
    };
    for ahead in [Duration::from_mins(6), DAY, 400 * DAY] {
        let source = stand.csv(with_row(now.plus(ahead))).await;
        let report = stand.run(&*source, &settings()).await;
        assert_eq!((report.is_complete, report.resent), (false, 0), "{ahead:?}: {report:?}");
        let flaw = report.flaws[0].to_string();
        assert_eq!(flaw, "payment pay_900: it is dated later than the moment of reading");
    }
    let source = stand.csv(with_row(now.plus(Duration::from_mins(4)))).await;
    let report = stand.run(&*source, &settings()).await;
    assert_eq!((report.is_complete, report.resent), (true, 1), "{report:?}");
}

/// The date is what tells the lives of a key apart.
#[tokio::test]
async fn an_entry_of_the_future_proves_nothing_of_its_own_key() {
    let stand = Stand::sqlite().await;
    stand.ask("order-1", 500).await.unwrap();
    stand.deliver(Faults { lose_answers: Chance::Always, ..Faults::default() }).await;
    let year = |text: String| text.replace(",2026-", ",2036-");
    let report = stand.run(&*stand.csv(year).await, &settings()).await;
    assert_eq!((report.delivered, report.classes.late), (0, 1), "{report:?}");
    assert_eq!(stand.run(&*stand.csv(|text| text).await, &settings()).await.delivered, 1);
}

#[tokio::test]
async fn an_export_that_is_stated_to_reach_into_the_future_proves_no_absence() {
    let stand = Stand::sqlite().await;
    stand.witness("before").await;
    stand.ask("order-1", 500).await.unwrap();
    stand.deliver(Faults { fail_before_effect: Chance::Always, ..Faults::default() }).await;
    stand.advance(3 * HOUR).await;
    let now = stand.store.now().await.unwrap();
    for (until, resent) in [(now.plus(DAY), 0), (now, 1)] {
        let source = stand.csv_export(|text| text).await.until(until);
        let report = stand.run(&source, &settings()).await;
        assert_eq!(report.resent, resent, "{report:?}");
        assert_eq!(report.is_complete, resent == 1, "{report:?}");
    }
}
