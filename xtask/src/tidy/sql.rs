//! SQL lives in the store, and nowhere else.

use super::Finding;
use super::files::{File, Tree};

/// Path prefixes under which SQL is allowed, each with its reason.
const ROOMS: &[(&str, &str)] = &[
    ("crates/firstwrite-store/", "the room of SQL, with its tests and benches"),
    ("crates/firstwrite-demo/", "the demo is an application with its own business rows"),
    ("crates/firstwrite/tests/", "the tests play an application with its own business rows"),
    ("crates/firstwrite/benches/", "the benches play an application with its own business rows"),
    ("crates/firstwrite-gateway/benches/", "the bench plays the store that one writes by hand"),
    ("crates/firstwrite/examples/", "an example is an application with its own business rows"),
    (
        "clients/rust/src/storage/",
        "the client writes down its own intents in a file of its own, and shares nothing with the store",
    ),
    (
        "crates/firstwrite-wrappers/tests/cached/postgres.rs",
        "the test plays a server that lost a record",
    ),
    ("examples/", "an example is an application with its own business rows"),
    (
        "crates/firstwrite-chaos/src/postgres/",
        "a task asks a server about its replication, and about no table",
    ),
    ("xtask/src/tidy/sql.rs", "this rule has to name what it looks for"),
];

const REASON: &str = "a statement outside the store is a second place that knows the tables";

/// Start of a statement, and the text that must follow somewhere, so that a sentence is not mistaken for one.
const STATEMENTS: &[(&str, &str)] = &[
    ("SELECT ", ""),
    ("INSERT INTO ", ""),
    ("INSERT OR ", ""),
    ("UPDATE ", " SET "),
    ("DELETE FROM ", ""),
    ("CREATE TABLE ", ""),
    ("CREATE INDEX ", ""),
    ("CREATE UNIQUE INDEX ", ""),
    ("ALTER TABLE ", ""),
    ("DROP TABLE ", ""),
    ("PRAGMA ", ""),
];

pub(super) fn in_its_room(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in tree.files.iter().filter(|file| !is_allowed(file)) {
        if file.has_extension("sql") {
            let advice = "move the file into crates/firstwrite-store";
            findings.push(Finding::new(&file.path, 0, advice, REASON));
        }
        for (line, _) in
            file.rust.iter().flat_map(|rust| &rust.strings).filter(|(_, text)| is_sql(text))
        {
            let advice = "move the statement into crates/firstwrite-store";
            findings.push(Finding::new(&file.path, *line, advice, REASON));
        }
    }
    findings
}

fn is_allowed(file: &File) -> bool {
    ROOMS.iter().any(|(room, _)| file.path.starts_with(room))
}

/// In capitals at once; in small letters only with more evidence than an English sentence gives.
fn is_sql(text: &str) -> bool {
    let words: Vec<&str> = text.trim_start_matches('\\').split_whitespace().collect();
    let text = words.join(" ") + " ";
    let capitals = text.to_uppercase();
    let Some((begin, follow)) = STATEMENTS
        .iter()
        .find(|(begin, follow)| capitals.starts_with(begin) && capitals.contains(follow))
    else {
        return false;
    };
    let is_verb_alone = begin.trim().len() == capitals.trim().len();
    let is_shouted = text.starts_with(begin) && text.contains(follow);
    let is_sure =
        begin.matches(' ').count() > 1 || capitals.contains(" FROM ") || !follow.is_empty();
    !is_verb_alone && (is_shouted || is_sure)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statements_are_told_from_sentences() {
        for sql in [
            "SELECT 1",
            "\\\n  INSERT INTO t VALUES (1)",
            "update t set a = 1",
            "select a\n from t",
            "delete from t",
            "CREATE TABLE IF NOT EXISTS t (a)",
            "PRAGMA journal_mode = WAL",
        ] {
            assert!(is_sql(sql), "{sql}");
        }
        for sentence in ["select one of these", "Update the record", "SELECT", "create a table", ""]
        {
            assert!(!is_sql(sentence), "{sentence}");
        }
    }

    #[test]
    fn sql_outside_its_room_is_found() {
        let code = "//! x\nfn a() {\n    run(\"SELECT 1\");\n}\n// \"SELECT 2\"\n";
        let tree = Tree::of(&[
            ("crates/firstwrite/src/service.rs", code),
            ("crates/firstwrite-store/src/sqlite.rs", code),
            ("crates/firstwrite-demo/src/payments.rs", code),
            ("clients/rust/src/storage/sqlite.rs", code),
            ("deploy/schema.sql", "SELECT 1"),
        ]);
        let found: Vec<_> =
            in_its_room(&tree).into_iter().map(|finding| (finding.file, finding.line)).collect();
        let expected = [("crates/firstwrite/src/service.rs", 3), ("deploy/schema.sql", 0)];
        assert_eq!(found, expected.map(|(file, line)| (file.to_owned(), line)));
    }
}
