//! Writes the results of a run of the suite to a file, for the table of guarantees.

use std::collections::BTreeMap;
use std::{env, fs};

use super::Report;

/// Environment variable that names an existing folder for the results of runs.
const FOLDER: &str = "FIRSTWRITE_TEST_SHOWN";

impl Report {
    /// Writes the results for `store` on `server` to `store.json` in the folder that `FIRSTWRITE_TEST_SHOWN`
    /// names; does nothing if it is unset.
    ///
    /// Call it only if no case failed: `cargo xtask` reports a store of the table without a file.
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

/// Counts the cases of each subject, as a JSON object.
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
