//! A disk that is full: one clear error, nothing sent, nothing lost.
//!
//! The kernel plays it by the limit of a process on the size of files (`ulimit -f`): a write beyond it fails as one on
//! a full disk does.

use std::process::{Command, Output};

use firstwrite_client::State;

use crate::bed::bed;
use crate::victim::{Kind, Payment, Task};

/// Far more than the first pages of a database and its index of the log, 32 KiB.
const KIBIBYTES_MAX: usize = 256;

/// Runs a victim that cannot make files larger than `KIBIBYTES_MAX`.
fn run_limited(task: &Task) -> Output {
    let victim = task.command();
    // The signal that comes with the limit is ignored, so that the write fails; the unit is 512 bytes.
    let script = format!("trap '' XFSZ; ulimit -f {}; exec \"$0\" \"$@\"", KIBIBYTES_MAX * 2);
    let mut command = Command::new("sh");
    command.args(["-c", &script]).arg(victim.get_program()).args(victim.get_args());
    for (name, value) in victim.get_envs() {
        command.env(name, value.unwrap());
    }
    command.output().unwrap()
}

fn task(folder: &std::path::Path, storage: Kind, name: &str, padding: usize) -> Task {
    Task {
        url: bed().payments(),
        folder: folder.to_owned(),
        storage,
        intents: vec![Payment { name: name.to_owned(), amount: 100 }],
        dies_at: None,
        acknowledges: true,
        padding,
    }
}

/// Asserts that a victim ended with one line about its intent.
fn assert_refused(output: &Output, name: &str) {
    let told = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success(), "{told}");
    let line = told.lines().find(|line| line.starts_with(name)).unwrap_or_else(|| panic!("{told}"));
    assert!(
        line.contains("writing the intent") && line.contains("the storage cannot be used"),
        "{line}"
    );
}

#[tokio::test]
async fn an_intent_that_does_not_fit_is_not_opened_and_others_go_on() {
    for storage in [Kind::File, Kind::Sqlite] {
        let folder = tempfile::tempdir().unwrap();
        let name = format!("disk/open/{storage:?}");
        let large = task(folder.path(), storage, &name, KIBIBYTES_MAX * 1024);
        assert_refused(&run_limited(&large), &name);
        assert!(bed().log(&name).await.is_empty(), "nothing was sent");
        assert!(large.builder().build().list().await.unwrap().is_empty(), "nothing stands");

        let small = task(folder.path(), storage, &format!("{name}/small"), 0);
        assert!(run_limited(&small).status.success());
        assert_eq!(bed().effects(&name).await.into_values().collect::<Vec<_>>(), [1]);
    }
}

#[tokio::test]
async fn an_attempt_that_cannot_be_marked_is_not_begun_and_the_intent_stands() {
    for storage in [Kind::File, Kind::Sqlite] {
        let folder = tempfile::tempdir().unwrap();
        let name = format!("disk/mark/{storage:?}");
        let large = task(folder.path(), storage, &name, KIBIBYTES_MAX * 1024);
        // Opened while there was room.
        let dies = Task { dies_at: Some(("opened".to_owned(), 1)), ..large.clone() };
        assert!(!dies.command().status().unwrap().success());
        assert_refused(&run_limited(&large), &name);
        assert!(bed().log(&name).await.is_empty(), "nothing was sent");
        let client = large.builder().build();
        let stands = client.find(&name).await.unwrap().unwrap().snapshot().await.unwrap();
        assert_eq!((stands.state, stands.is_in_doubt), (State::Open, false));
        drop(client);

        // There is room again.
        assert!(large.command().status().unwrap().success());
        assert_eq!(large.results(), [(name.clone(), "done".to_owned())]);
        assert_eq!(bed().effects(&name).await.into_values().collect::<Vec<_>>(), [1]);
    }
}

#[test]
fn processes_that_start_together_open_one_storage() {
    for round in 0..20 {
        for storage in [Kind::File, Kind::Sqlite] {
            let folder = tempfile::tempdir().unwrap();
            let mut task = task(folder.path(), storage, "", 0);
            task.intents.clear();
            let victims: Vec<_> = (0..4).map(|_| task.command().spawn().unwrap()).collect();
            for victim in victims {
                let status = victim.wait_with_output().unwrap().status;
                assert!(status.success(), "{storage:?}, round {round}: {status}");
            }
        }
    }
}
