//! Facts about each store: the results of the conformance suite, and hand-written statements.

use std::collections::BTreeMap;

use anyhow::Context as _;
use serde::{Deserialize, Serialize};

/// Written by `cargo xtask guarantees`, and compared by every `cargo xtask test`.
const SHOWN: &str = include_str!("shown.json");
/// Written by hand.
const STATED: &str = include_str!("stated.toml");

/// A kind of promise: which claim it needs, if any, and which subjects of the suite show it.
pub(super) struct Promise {
    pub(super) name: &'static str,
    pub(super) heading: &'static str,
    claim: Option<&'static str>,
    subjects: &'static [&'static str],
    /// Text for a store that does not make the claim.
    pub(super) otherwise: &'static str,
}

pub(super) const PROMISES: [Promise; 7] = [
    Promise {
        name: "one winner per key, and a late owner changes nothing",
        heading: "ONE WINNER",
        claim: None,
        subjects: &["fence", "insert", "lease", "protocol", "round_trip", "settle", "swap"],
        otherwise: "no",
    },
    Promise {
        name: "a lost acknowledgement is found out about",
        heading: "LOST ANSWER",
        claim: None,
        subjects: &["indeterminate"],
        otherwise: "no",
    },
    Promise {
        name: "atomic handlers: rows and outcome in one commit",
        heading: "ATOMIC",
        claim: Some("transactions"),
        subjects: &["transaction"],
        otherwise: "no",
    },
    Promise {
        name: "outbox: messages in the same commit, and findings",
        heading: "OUTBOX",
        claim: Some("outbox"),
        subjects: &["documents", "findings", "outbox"],
        otherwise: "no",
    },
    Promise {
        name: "durable at acknowledgement, and there after a restart",
        heading: "DURABLE",
        claim: Some("durable"),
        subjects: &["durable"],
        otherwise: "no",
    },
    Promise {
        name: "one clock for all who use the store",
        heading: "ONE CLOCK",
        claim: Some("server_time"),
        subjects: &["clock_skew"],
        otherwise: "hosts'",
    },
    Promise {
        name: "expiry after retention, and not before",
        heading: "EXPIRY",
        claim: None,
        subjects: &["retention"],
        otherwise: "no",
    },
];

/// Result of one run of the suite on one store.
#[derive(Debug, Deserialize)]
pub(super) struct Shown {
    store: String,
    /// Server that it ran on.
    pub(super) server: String,
    pub(super) claims: Vec<String>,
    /// Number of cases that passed, by subject.
    #[serde(rename = "shown")]
    cases: BTreeMap<String, u64>,
    /// Number of cases that did not apply, by subject.
    pub(super) unclaimed: BTreeMap<String, u64>,
}

/// Facts about one store that are written by hand.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Stated {
    pub(super) id: String,
    pub(super) name: String,
    /// Scheme of its addresses; `None` if it has no address.
    pub(super) scheme: Option<String>,
    pub(super) docs: String,
    pub(super) meant_for: String,
    pub(super) killed: Statement,
    pub(super) power: Statement,
    pub(super) fail_over: Statement,
    pub(super) put_back: Statement,
    pub(super) limits: Limits,
}

#[derive(Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Statement {
    /// For a cell of the table.
    pub(super) word: String,
    pub(super) text: String,
    /// The test or the command that shows it.
    pub(super) by: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Limits {
    pub(super) texts: Vec<String>,
}

/// One store.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) stated: Stated,
    pub(super) shown: Shown,
}

#[derive(Debug, Deserialize)]
struct Stating {
    store: Vec<Stated>,
}

/// All stores, in the order in which they are stated.
pub(super) fn entries() -> anyhow::Result<Vec<Entry>> {
    let stated: Stating = toml::from_str(STATED).context("stated.toml")?;
    let mut shown: Vec<Shown> = serde_json::from_str(SHOWN).context("shown.json")?;
    let mut entries = Vec::new();
    for stated in stated.store {
        let at = shown.iter().position(|shown| shown.store == stated.id);
        let at = at.with_context(|| format!("nothing was shown of `{}`", stated.id))?;
        entries.push(Entry { stated, shown: shown.swap_remove(at) });
    }
    match shown.first() {
        None => Ok(entries),
        Some(shown) => anyhow::bail!("nothing is stated of `{}`", shown.store),
    }
}

impl Entry {
    /// Returns true if the binary can open it.
    pub(super) fn is_compiled_in(&self) -> bool {
        self.stated.scheme.as_deref().is_some_and(firstwrite_store::is_compiled_in)
    }

    /// Returns the number of cases that show the promise; `None` if the store does not claim it.
    pub(super) fn shows(&self, promise: &Promise) -> Option<u64> {
        let is_claimed = promise
            .claim
            .is_none_or(|needed| self.shown.claims.iter().any(|claim| claim == needed));
        let cases = promise.subjects.iter().filter_map(|subject| self.shown.cases.get(*subject));
        let cases: u64 = cases.sum();
        (is_claimed && cases > 0).then_some(cases)
    }

    /// Returns the statements about what the suite cannot measure, by name.
    pub(super) fn statements(&self) -> [(&'static str, &Statement); 4] {
        [
            ("the server is killed", &self.stated.killed),
            ("the power is cut", &self.stated.power),
            ("a fail-over", &self.stated.fail_over),
            ("an older copy is put back", &self.stated.put_back),
        ]
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use super::*;

    fn root() -> &'static Path {
        Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
    }

    #[test]
    fn both_files_speak_of_the_same_stores_and_every_subject_belongs_to_a_promise_or_to_listings() {
        for entry in entries().unwrap() {
            for subject in entry.shown.cases.keys() {
                let is_known = PROMISES.iter().any(|one| one.subjects.contains(&&**subject));
                assert!(is_known || ["listing", "usage"].contains(&&**subject), "{subject}");
            }
        }
    }

    /// An operator who trusts the word does not look for what was lost.
    #[test]
    fn a_loss_is_called_noticed_only_where_a_test_shows_it() {
        for entry in entries().unwrap() {
            for (name, Statement { word, by, .. }) in entry.statements() {
                let is_noticed = word == "noticed" || word.ends_with(", noticed");
                let is_tested = by.as_ref().is_some_and(|by| by.contains("::"));
                assert!(!is_noticed || is_tested, "{}: {name}", entry.stated.id);
            }
        }
    }

    #[test]
    fn what_a_statement_names_is_there() {
        for entry in entries().unwrap() {
            assert!(root().join(&entry.stated.docs).is_file(), "{}", entry.stated.docs);
            for by in entry.statements().iter().filter_map(|(_, one)| one.by.as_deref()) {
                let Some((file, test)) = by.split_once("::") else {
                    assert!(by.starts_with("cargo xtask "), "{by} is neither a test nor a command");
                    continue;
                };
                let text = fs::read_to_string(root().join(file)).unwrap_or_default();
                assert!(text.contains(&format!("async fn {test}()")), "there is no test {by}");
            }
        }
    }
}
