//! Parses the output of `cargo test` into one row per suite.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::steps::{Counts, Row};

/// Reads the lines of a test run one by one.
#[derive(Debug)]
pub(crate) struct SuiteReader<'a> {
    /// Display names of the test programs, by file name.
    names: &'a BTreeMap<String, String>,
    rows: Vec<Row>,
    /// True if the result of the suite at the end of `rows` was read.
    is_told: bool,
    noteworthy: Vec<String>,
}

/// From cargo's build messages: the file name of each test program, and what a person calls it.
pub(crate) fn names_of_programs(messages: &str) -> BTreeMap<String, String> {
    messages
        .lines()
        .filter_map(|line| serde_json::from_str::<Value>(line).ok())
        .filter_map(|message| {
            let program = file_name(message["executable"].as_str()?).to_owned();
            let folder = message["manifest_path"].as_str()?.strip_suffix("/Cargo.toml")?;
            let (package, target) = (file_name(folder), message["target"]["name"].as_str()?);
            let kind = message["target"]["kind"][0].as_str()?;
            let part = match kind {
                "lib" => "unit".to_owned(),
                "bin" => "unit (program)".to_owned(),
                other => format!("{other} {target}"),
            };
            Some((program, format!("{package}: {part}")))
        })
        .collect()
}

impl<'a> SuiteReader<'a> {
    pub(crate) fn new(names: &'a BTreeMap<String, String>) -> Self {
        Self { names, rows: Vec::new(), is_told: true, noteworthy: Vec::new() }
    }

    pub(crate) fn line(&mut self, line: &str) {
        let words = line.trim_start();
        if let Some(what) = words.strip_prefix("Running ").filter(|what| what.ends_with(')')) {
            self.open(self.name_of(what));
        } else if let Some(krate) = words.strip_prefix("Doc-tests ") {
            self.open(format!("{}: doc tests", krate.replace('_', "-")));
        } else if let Some(result) = line.strip_prefix("test result: ") {
            self.tell(result);
        } else if let Some(test) = line.strip_prefix("test ") {
            let is_noteworthy = test.ends_with("... FAILED") || test.contains("... ignored");
            if is_noteworthy && let Some(row) = self.rows.last() {
                self.noteworthy.push(format!("{}: {test}", row.name));
            }
        }
    }

    /// The rows, and the tests that failed or were ignored by name.
    pub(crate) fn finish(mut self) -> (Vec<Row>, Vec<String>) {
        self.close();
        (self.rows, self.noteworthy)
    }

    fn open(&mut self, name: String) {
        self.close();
        self.rows.push(Row { name, counts: Counts::default(), seconds: Some(0.0) });
        self.is_told = false;
    }

    /// A suite that ended without a result was killed or aborted: that is a failure.
    fn close(&mut self) {
        if !self.is_told
            && let Some(row) = self.rows.last_mut()
        {
            row.counts.failed += 1;
            self.noteworthy.push(format!("{}: ended without a result", row.name));
        }
        self.is_told = true;
    }

    /// Doc tests tell several results, one per way they were compiled: they add up.
    fn tell(&mut self, result: &str) {
        let Some(row) = self.rows.last_mut() else { return };
        self.is_told = true;
        for part in result.split(['.', ';']).map(str::trim) {
            let Some((number, word)) = part.split_once(' ') else { continue };
            let Ok(number) = number.parse::<u64>() else { continue };
            match word {
                "passed" => row.counts.passed += number,
                "failed" => row.counts.failed += number,
                "ignored" => row.counts.ignored += number,
                _ => {}
            }
        }
        let told = result.rsplit_once("finished in ").map(|(_, time)| time.trim_end_matches('s'));
        let told: f64 = told.and_then(|text| text.parse().ok()).unwrap_or_default();
        row.seconds = row.seconds.map(|seconds| seconds + told);
    }

    /// `unittests src/lib.rs (target/debug/deps/firstwrite_core-0123abcd)`
    fn name_of(&self, what: &str) -> String {
        let (source, program) = what.rsplit_once(" (").unwrap_or((what, ""));
        match self.names.get(file_name(program.trim_end_matches(')'))) {
            Some(name) => name.clone(),
            None => source.to_owned(),
        }
    }
}

fn file_name(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    const RUN: &str = "\
   Compiling firstwrite-core v0.1.0
     Running unittests src/lib.rs (target/debug/deps/firstwrite_core-0a1b)

running 3 tests
test key::tests::a ... ok
test key::tests::b ... FAILED
test key::tests::c ... ignored, too slow

test result: FAILED. 1 passed; 1 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.25s

     Running tests/it/main.rs (target/debug/deps/it-9f9f)

running 1 test
   Doc-tests firstwrite_core

test result: ok. 2 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.50s

test result: ok. 1 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 1.00s
";

    fn rows(names: &BTreeMap<String, String>) -> (Vec<Row>, Vec<String>) {
        let mut reader = SuiteReader::new(names);
        RUN.lines().for_each(|line| reader.line(line));
        reader.finish()
    }

    #[test]
    fn each_suite_is_counted() {
        let (rows, noteworthy) = rows(&BTreeMap::new());
        let counts: Vec<Counts> = rows.iter().map(|row| row.counts).collect();
        assert_eq!(counts[0], Counts { passed: 1, failed: 1, ignored: 1 });
        assert_eq!(counts[1], Counts { passed: 0, failed: 1, ignored: 0 }, "it told no result");
        assert_eq!(counts[2], Counts { passed: 3, failed: 0, ignored: 0 });
        assert_eq!(rows[2].seconds, Some(1.5));
        assert_eq!(noteworthy.len(), 3, "{noteworthy:?}");
    }

    #[test]
    fn suites_are_called_by_their_crate() {
        let messages = r#"{"reason":"compiler-artifact","manifest_path":"/r/crates/firstwrite-core/Cargo.toml","target":{"kind":["test"],"name":"it"},"executable":"/t/debug/deps/it-9f9f"}
{"reason":"compiler-artifact","manifest_path":"/r/crates/firstwrite-core/Cargo.toml","target":{"kind":["lib"],"name":"x"},"executable":null}"#;
        let names = names_of_programs(messages);
        assert_eq!(names.len(), 1);
        let (rows, _) = rows(&names);
        assert_eq!(rows[0].name, "unittests src/lib.rs");
        assert_eq!(rows[1].name, "firstwrite-core: test it");
        assert_eq!(rows[2].name, "firstwrite-core: doc tests");
    }
}
