//! The whole check against a stand-in for the demo: one that is right, and several that are not.

use super::*;
use crate::clients::ledger::{Fault, KeyId, Tenant};
use crate::clients::stand_in::{Habit, StandIn};
use crate::http::Client;

impl Victim for StandIn {
    fn start(&mut self) -> anyhow::Result<SocketAddr> {
        self.listen()
    }

    fn wait_until_ready(&mut self) -> anyhow::Result<()> {
        Ok(())
    }

    fn kill(&mut self) -> anyhow::Result<()> {
        self.die();
        Ok(())
    }
}

fn report(habit: Habit) -> Report {
    let plan = Plan {
        live_for: (Duration::from_millis(20), Duration::from_millis(60)),
        key_count_max: 60,
        keys_last_for: Duration::ZERO,
        seed: 7,
        told_max: Duration::ZERO,
        ..Plan::of(Scene::Sqlite, 4, Build::Debug)
    };
    crash(&mut StandIn::new(habit), &plan, None).unwrap()
}

#[test]
fn a_server_that_is_right_passes() {
    let report = report(Habit::Right);
    report.judge().unwrap_or_else(|error| panic!("{error}\n{report}"));
}

#[test]
fn two_payments_for_one_key_are_found() {
    let report = report(Habit::PaysTwice);
    assert!(report.count(Fault::Duplicate) > 0, "{report}");
    assert!(report.judge().is_err());
}

#[test]
fn a_payment_that_a_client_was_told_of_and_is_gone_is_found() {
    let report = report(Habit::LosesPayments);
    assert!(report.count(Fault::Lost) > 0, "{report}");
    assert!(report.judge().is_err());
}

#[test]
fn a_payment_that_stays_pending_is_found() {
    let report = report(Habit::LeavesPending);
    assert!(report.count(Fault::Pending) > 0, "{report}");
    assert!(report.judge().is_err());
}

#[test]
fn an_answer_that_changes_is_found() {
    let report = report(Habit::ChangesAnswers);
    assert!(report.count(Fault::Changed) > 0, "{report}");
    assert!(report.judge().is_err());
}

#[test]
fn a_key_shared_by_two_tenants_is_found() {
    let report = report(Habit::MixesTenants);
    assert!(report.count(Fault::Lost) > 0, "{report}");
    assert!(report.judge().is_err());
}

#[test]
fn a_loss_that_was_made_to_happen_must_be_seen() {
    let report = report(Habit::LosesTail);
    assert!(report.judge().is_err());
    assert!(report.judge_loss().unwrap() > 0, "{report}");
    let lossless = self::report(Habit::Right);
    assert!(lossless.judge_loss().is_err(), "a control in which nothing is lost controls nothing");
}

#[test]
fn what_is_killed_is_chosen_by_words() {
    let scene = |line: &str| {
        Scene::of(&mut Args::new(line.split_whitespace().map(str::to_owned).collect()))
    };
    assert_eq!(scene("").unwrap(), Scene::Sqlite);
    assert_eq!(scene("--store postgres").unwrap(), Scene::Postgres);
    assert_eq!(scene("--store postgres --victim server").unwrap(), Scene::PostgresServer);
    assert_eq!(
        scene("--store postgres --victim server --unsafe-commit").unwrap(),
        Scene::Forgetful
    );
    assert_eq!(scene("--store postgres --unsafe-commit").unwrap(), Scene::Forgetful);
    assert_eq!(scene("--store mariadb").unwrap(), Scene::MariaDb);
    assert_eq!(scene("--store mariadb --victim server").unwrap(), Scene::MariaDbServer);
    assert_eq!(scene("--store mariadb --unsafe-commit").unwrap(), Scene::MariaDbForgetful);
    assert_eq!(scene("--store mariadb --victim node").unwrap(), Scene::GaleraNode);
    for wrong in [
        "--store oracle",
        "--victim server",
        "--unsafe-commit",
        "--victim me",
        "--victim node",
        "--store postgres --victim node",
        "--store mariadb --victim node --unsafe-commit",
        "--store mariadb --victim demo --unsafe-commit",
    ] {
        assert!(scene(wrong).unwrap_err().is::<Usage>(), "{wrong}");
    }
}

#[test]
fn a_key_that_never_settles_is_found() {
    let ledger = Ledger::new(7, 1, Duration::ZERO);
    let mut stand_in = StandIn::new(Habit::NeverSettles);
    let address = stand_in.listen().unwrap();
    let id = KeyId { tenant: Tenant::Acme, key: "cus_1".to_owned() };
    assert!(ledger.open(&id));
    let gave_up = load::retry_all(address, &ledger, Deadline::after(Duration::ZERO));
    assert!(gave_up.is_err(), "a round without time cannot end well");
    let mut client = Client::new(address, load::ANSWER_MAX);
    load::settle(&mut client, &id, &ledger, Duration::from_millis(20));
    stand_in.die();
    let report = ledger.report(1, 0.0);
    assert_eq!(report.count(Fault::Missing), 1, "{report}");
}
