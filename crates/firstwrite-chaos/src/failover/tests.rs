//! Both checks against a stand-in: one that is right, and several that are not.

use super::*;
use crate::clients::ledger::Fault;
use crate::clients::stand_in::{Habit, StandIn};

impl Site for StandIn {
    fn start(&mut self) -> anyhow::Result<SocketAddr> {
        self.listen()
    }

    fn hold_back(&mut self) -> anyhow::Result<()> {
        self.cut_off();
        Ok(())
    }

    fn fail_over(&mut self) -> anyhow::Result<SocketAddr> {
        self.die();
        self.listen()
    }

    fn restore(&mut self) -> anyhow::Result<()> {
        Ok(())
    }

    fn clear_history_loss(&mut self) -> anyhow::Result<()> {
        StandIn::clear_history_loss(self);
        Ok(())
    }
}

fn report(habit: Habit) -> Report {
    let work_for = (Duration::from_millis(20), Duration::from_millis(40));
    let keys_last_for = Duration::from_millis(100);
    let plan =
        Plan { work_for, keys_last_for, key_count_max: 2000, seed: 7, ..Plan::of(2, Build::Debug) };
    fail_over_again_and_again(&mut StandIn::new(habit), &plan).unwrap()
}

#[test]
fn a_pair_that_loses_nothing_passes() {
    let report = report(Habit::Right);
    report.judge().unwrap_or_else(|error| panic!("{error}\n{report}"));
}

#[test]
fn an_acknowledged_key_that_the_standby_never_got_is_found() {
    let report = report(Habit::LosesTail);
    assert!(report.count(Fault::Lost) > 0, "{report}");
    assert!(report.judge().is_err());
}

/// The questions that are answered no, for a stand-in that is cut off and loses what it does not have.
fn behind(habit: Habit) -> String {
    let findings = behind::fail_over(&mut StandIn::new(habit), 7, Duration::ZERO).unwrap();
    assert_eq!(findings.judge().is_ok(), !findings.to_string().contains("NO"), "{findings}");
    let text = findings.to_string();
    let questions = text.lines().filter(|line| line.contains(" NO "));
    questions.map(|line| line.split("  ").next().unwrap_or(line)).collect::<Vec<_>>().join("; ")
}

#[test]
fn a_service_that_doubts_what_it_cannot_know_passes() {
    assert_eq!(behind(Habit::Doubts), "");
}

#[test]
fn a_service_that_runs_unknown_keys_after_a_loss_is_found() {
    assert_eq!(
        behind(Habit::LosesTail),
        "keys nobody has sent are in doubt; keys whose history is lost are in doubt; \
         only keys that survived are paid"
    );
}

#[test]
fn a_service_that_doubts_what_it_knows_is_found() {
    assert_eq!(behind(Habit::DoubtsAll), "keys that survived replay");
}

#[test]
fn a_doubt_that_cannot_be_cleared_is_found() {
    assert_eq!(
        behind(Habit::DoubtsForEver),
        "once cleared, new keys run; each of these keys is paid once"
    );
}
