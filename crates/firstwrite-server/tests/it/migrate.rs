//! Creating tables and bringing them up to date.

use crate::database::{on_dynamodb, on_postgres};
use crate::http::post;
use crate::payments::ORDER;
use crate::process::{Folder, firstwrite, stderr, stdout};

on_postgres! {
    tables_are_created_once,
    a_dump_touches_nothing_and_does_the_same,
    a_schema_can_have_another_name,
    a_role_may_use_the_tables_and_not_change_them,
    a_store_without_tables_says_what_to_do,
}

on_dynamodb! {
    a_table_is_created_once_and_looked_at,
}

fn a_table_is_created_once_and_looked_at(folder: &Folder) {
    let missing = complaint(folder, folder.store()).expect("there is no table yet");
    assert!(missing.contains("firstwrite migrate --store 'dynamodb:"), "{missing}");
    assert_eq!(migrate(folder, &[]), "created the table, version 1\n");
    assert_eq!(migrate(folder, &[]), "the table is at version 1; nothing to do\n");
    assert_eq!(complaint(folder, folder.store()), None);
    let wrong = folder.run(&["migrate", "--store", folder.store(), "--schema", "keys"]);
    assert_eq!(wrong.status.code(), Some(2), "{}", stderr(&wrong));
    let examined = folder.run(&["doctor", "--store", folder.store()]);
    assert_eq!(examined.status.code(), Some(0), "{}", stderr(&examined));
    let report = stdout(&examined);
    for code in ["emulator", "deletion-protection", "recovery"] {
        assert!(report.contains(&format!("note: {code}: ")), "{report}");
    }
}

/// Runs `firstwrite migrate …` on the folder's store, and returns what it said.
fn migrate(folder: &Folder, more: &[&str]) -> String {
    let command = &mut firstwrite(folder);
    let done = command.args(["migrate", "--store", folder.store()]).args(more).output().unwrap();
    assert_eq!(done.status.code(), Some(0), "{}", stderr(&done));
    stdout(&done)
}

/// What listing the keys complains about, if it does.
fn complaint(folder: &Folder, url: &str) -> Option<String> {
    let listed = folder.run(&["keys", "list", "--store", url]);
    (!listed.status.success()).then(|| stderr(&listed))
}

fn tables_are_created_once(folder: &Folder) {
    let first = migrate(folder, &[]);
    assert!(first.starts_with("created schema firstwrite, version "), "{first}");
    assert_eq!(complaint(folder, folder.store()), None);
    let again = migrate(folder, &[]);
    assert!(again.starts_with("schema firstwrite is at version "), "{again}");
    assert!(again.ends_with("; nothing to do\n"), "{again}");
}

fn a_dump_touches_nothing_and_does_the_same(folder: &Folder) {
    let sql = migrate(folder, &["--dump"]);
    let missing = complaint(folder, folder.store()).expect("the dump created something");
    assert!(missing.contains("firstwrite migrate"), "{missing}");
    folder.database().run(&[&sql]);
    assert!(migrate(folder, &[]).ends_with("; nothing to do\n"));
}

fn a_schema_can_have_another_name(folder: &Folder) {
    let created = migrate(folder, &["--schema", "keys"]);
    assert!(created.starts_with("created schema keys, version "), "{created}");
    assert_eq!(complaint(folder, &format!("{}?schema=keys", folder.store())), None);
    assert!(complaint(folder, folder.store()).is_some(), "the usual one was created too");
    let wrong = folder.run(&["migrate", "--store", folder.store(), "--schema", "Not Plain"]);
    assert_eq!(wrong.status.code(), Some(2));
    assert!(stderr(&wrong).starts_with("error: --schema: "), "{}", stderr(&wrong));
}

fn a_role_may_use_the_tables_and_not_change_them(folder: &Folder) {
    let database = folder.database();
    let role = format!("{}_app", database.name());
    database.run_outside(&[&format!("CREATE ROLE {role} LOGIN")]);
    let granted = migrate(folder, &["--grant-to", &role]);
    assert!(granted.ends_with(&format!("{role} may use it\n")), "{granted}");
    let (_, place) = folder.store().split_once('@').unwrap();
    let url = format!("postgres://{role}@{place}");
    assert_eq!(complaint(folder, &url), None);
    let worked = folder.run(&["worker", "--once", "--store", &url]);
    assert_eq!(worked.status.code(), Some(0), "{}", stderr(&worked));
    let refused = folder.run(&["migrate", "--store", &url, "--schema", "other"]);
    assert_eq!(refused.status.code(), Some(1), "it may create a schema");
    assert_eq!(stderr(&refused).lines().count(), 1, "{}", stderr(&refused));
    database.run(&[&format!("DROP OWNED BY {role}")]);
    database.run_outside(&[&format!("DROP ROLE {role}")]);
}

fn a_store_without_tables_says_what_to_do(folder: &Folder) {
    let complaint = complaint(folder, folder.store()).unwrap();
    assert_eq!(complaint.lines().count(), 1, "{complaint}");
    assert!(complaint.contains("firstwrite migrate"), "{complaint}");
    // The demo brings its own up to date.
    let demo = folder.demo(&[]);
    assert_eq!(demo.answer(&post("/payments", ORDER).acme().key("k")).status, 201);
}

#[test]
fn an_sqlite_file_is_created_when_asked_and_brings_itself_up_to_date() {
    let folder = Folder::new();
    assert!(migrate(&folder, &["--dump"]).contains("CREATE TABLE"));
    assert!(std::fs::read_dir(folder.path()).unwrap().next().is_none());
    let refused = folder.run(&["migrate", "--store", "sqlite:demo.db", "--grant-to", "app"]);
    assert_eq!(refused.status.code(), Some(2));
    assert_eq!(migrate(&folder, &[]), "created the file, version 1\n");
    assert_eq!(migrate(&folder, &[]), "the file is at version 1; nothing to do\n");
    assert_eq!(complaint(&folder, folder.store()), None);
}
