//! What a run of the suite showed of a store, written down for the table of guarantees.

use std::collections::BTreeMap;
use std::{env, fs};

use super::Report;

/// Where runs leave what they showed: a folder that is there.
const FOLDER: &str = "FIRSTWRITE_TEST_SHOWN";

impl Report {
    /// Writes down what was shown of `store` on `server`, as `store.json` in the folder that
    /// `FIRSTWRITE_TEST_SHOWN` names; does nothing where it names none.
    ///
    /// For runs in which no case failed: what is not written down is missed by whoever gathers it.
    pub fn keep(&self, store: &str, server: &str) {
        let Ok(folder) = env::var(FOLDER) else { return };
        let path = format!("{folder}/{store}.json");
        fs::write(&path, self.shown(store, server)).unwrap_or_else(|error| {
            panic!("{FOLDER} names a folder that can be written, but {path}: {error}")
        });
    }

    /// One JSON document. Names are plain words; of the server's version, only what needs no escaping stays.
    fn shown(&self, store: &str, server: &str) -> String {
        let is_plain = |c: &char| (c.is_ascii_graphic() && !matches!(c, '"' | '\\')) || *c == ' ';
        let server: String = server.chars().filter(is_plain).collect();
        let claims = [
            ("transactions", self.claims.transactions),
            ("outbox", self.claims.outbox),
            ("durable", self.claims.durable),
            ("server_time", self.claims.server_time),
        ];
        let claims: Vec<String> =
            claims.iter().filter(|(_, is)| *is).map(|(name, _)| format!("\"{name}\"")).collect();
        format!(
            "{{\"store\": \"{store}\", \"server\": \"{server}\", \"claims\": [{}], \
             \"shown\": {}, \"unclaimed\": {}}}\n",
            claims.join(", "),
            by_subject(&self.passed),
            by_subject(&self.skipped)
        )
    }
}

/// How many cases there are of each subject.
fn by_subject(names: &[&str]) -> String {
    let mut counts = BTreeMap::<&str, usize>::new();
    for name in names {
        let subject = name.split('/').next().unwrap_or(name);
        *counts.entry(subject).or_default() += 1;
    }
    let members: Vec<String> =
        counts.iter().map(|(subject, count)| format!("\"{subject}\": {count}")).collect();
    format!("{{{}}}", members.join(", "))
}

#[cfg(test)]
mod tests {
    use firstwrite_core::Capabilities;

    use super::*;

    #[test]
    fn claims_and_counts_are_written_by_subject() {
        let report = Report {
            passed: vec!["insert/a", "insert/b", "durable/c"],
            skipped: vec!["outbox/d"],
            claims: Capabilities { durable: true, ..Capabilities::default() },
            ..Report::default()
        };
        assert_eq!(
            report.shown("redis", "Redis \"7\"\n"),
            "{\"store\": \"redis\", \"server\": \"Redis 7\", \"claims\": [\"durable\"], \
             \"shown\": {\"durable\": 1, \"insert\": 2}, \"unclaimed\": {\"outbox\": 1}}\n"
        );
    }
}
