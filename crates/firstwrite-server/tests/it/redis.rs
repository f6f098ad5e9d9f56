//! The commands on Redis, which has no transactions, no messages and no tables.

use crate::process::{Folder, stderr, stdout};

#[test]
fn operators_are_told_what_there_is_and_what_there_is_not() {
    let Some(folder) = Folder::on_redis() else { return };
    let store = folder.store();
    let migrated = folder.run(&["migrate", "--store", store]);
    assert!(
        migrated.status.success() && stdout(&migrated) == "created the store, version 1\n",
        "{}",
        stdout(&migrated)
    );
    let refused = folder.run(&["migrate", "--store", store, "--schema", "other"]);
    assert!(
        !refused.status.success() && stderr(&refused).contains("prefix=NAME"),
        "{}",
        stderr(&refused)
    );
    let outbox = folder.run(&["outbox", "status", "--store", store]);
    assert!(!outbox.status.success(), "{}", stdout(&outbox));
    assert!(stderr(&outbox).contains("postgres"), "the next step is named: {}", stderr(&outbox));
    assert_eq!(stderr(&outbox).trim_end().lines().count(), 1, "{}", stderr(&outbox));
    let doctor = folder.run(&["doctor", "--store", store]);
    assert!(doctor.status.success(), "{}{}", stdout(&doctor), stderr(&doctor));
    assert!(stdout(&doctor).contains("server-version"), "{}", stdout(&doctor));
    let cleared =
        folder.run(&["doctor", "--store", store, "--clear-history-loss", "--reason", "looked"]);
    assert!(
        stdout(&cleared).contains("history losses cleared: 0"),
        "{}{}",
        stdout(&cleared),
        stderr(&cleared)
    );
    let standby = folder.run(&["doctor", "--store", store, "--expect-standby", "a"]);
    assert!(stderr(&standby).contains("PostgreSQL"), "{}", stderr(&standby));
}
