//! Two gateways, as processes, on one database: a dump that is put back under them is noticed by the one that did not
//! write the key that is asked for, before the key runs again.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::Seek as _;
use std::process::{Command, Stdio};

use crate::process::Folder;
use crate::scene::{Scene, pay, said};

#[test]
fn two_gateways_on_postgres_notice_a_dump() {
    let Some(folder) = Folder::on_postgres() else { return };
    let url = folder.store();
    // A dump is noticed that is older than the last sweep of each process, which raises a count of its own.
    let sweeps = || -> BTreeSet<String> {
        let mut dump = Command::new("pg_dump");
        dump.args(["--data-only", "--table=firstwrite.history", url]);
        let told = String::from_utf8(dump.output().unwrap().stdout).unwrap();
        told.lines().filter(|line| line.contains('\t')).map(str::to_owned).collect()
    };
    let both_swept = || {
        let before = sweeps();
        let is_aged = (0..1_000).any(|_| {
            let after = sweeps();
            after.len() == 2 && after.is_disjoint(&before)
        });
        assert!(is_aged, "both sweep every five seconds: {before:?}");
    };
    let programs = || {
        let mut dump = Command::new("pg_dump");
        dump.args(["--clean", "--if-exists", url]);
        let mut put_back = Command::new("psql");
        put_back.args(["--quiet", "--no-psqlrc", "--set=ON_ERROR_STOP=1", url]);
        (dump, put_back)
    };
    two_gateways_notice_a_dump(&folder, programs, both_swept);
}

#[test]
fn two_gateways_on_mariadb_notice_a_dump() {
    let Some(folder) = Folder::on_mariadb() else { return };
    let (server, _) = folder.store().rsplit_once('/').unwrap();
    let port = format!("--port={}", server.rsplit_once(':').unwrap().1);
    let program = |name: &str| {
        let mut command = Command::new(name);
        command.args(["--no-defaults", "--protocol=tcp", "--host=127.0.0.1", "--user=root"]);
        command.args([&*port, folder.database().name()]);
        command
    };
    let programs = || (program("mariadb-dump"), program("mariadb"));
    two_gateways_notice_a_dump(&folder, programs, || ());
}

/// `programs` makes a dump, and puts one back; `aged` returns when a dump is old enough.
fn two_gateways_notice_a_dump(
    folder: &Folder,
    programs: impl Fn() -> (Command, Command),
    aged: impl Fn(),
) {
    let scene = Scene::new(folder, "");
    let (one, other) = (scene.gateway(), scene.gateway());
    let first = one.answer(&pay("first"));
    assert_eq!(first.status, 201);
    let (mut dump, mut put_back) = programs();
    let mut file = tempfile::tempfile().unwrap();
    assert!(dump.stdout(copy(&file)).status().unwrap().success());
    aged();
    // Both have written since.
    for (gateway, key) in [(&one, "of-one"), (&other, "of-the-other")] {
        assert_eq!(gateway.answer(&pay(key)).status, 201);
    }
    file.rewind().unwrap();
    assert!(put_back.stdin(copy(&file)).stdout(Stdio::null()).status().unwrap().success());
    for (gateway, key) in [(&other, "of-one"), (&one, "of-the-other"), (&one, "of-one")] {
        let refused = gateway.answer(&pay(key));
        assert_eq!(refused.status, 409, "{key}: {refused:?}");
        assert_eq!(refused.problem(), "outcome-unknown");
        assert_eq!(scene.effects_of(key).len(), 1, "{key} ran twice");
    }
    for gateway in [&one, &other] {
        assert_eq!(said(&gateway.answer(&pay("first"))), said(&first), "what is there answers");
    }
}

fn copy(file: &File) -> Stdio {
    file.try_clone().unwrap().into()
}
