//! Steps of a task: each with a name, a time and an outcome, and a table at the end.

use firstwrite_chaos::clock::Stopwatch;

/// Number of checks by result.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    pub(crate) passed: u64,
    pub(crate) failed: u64,
    pub(crate) ignored: u64,
}

/// One line of the table.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Row {
    pub(crate) name: String,
    pub(crate) counts: Counts,
    /// Those of the whole step, where a suite does not tell its own.
    pub(crate) seconds: Option<f64>,
}

/// The steps of one task, in the order they ran.
#[derive(Debug, Default)]
pub(crate) struct Steps {
    pub(crate) rows: Vec<Row>,
    /// Problems found, one line each.
    pub(crate) problems: Vec<String>,
    /// Steps that did not run, each with its reason.
    pub(crate) skipped: Vec<(String, String)>,
}

impl Counts {
    pub(crate) const PASSED: Self = Self { passed: 1, failed: 0, ignored: 0 };
    pub(crate) const FAILED: Self = Self { passed: 0, failed: 1, ignored: 0 };

    pub(crate) fn add(&mut self, other: Self) {
        self.passed += other.passed;
        self.failed += other.failed;
        self.ignored += other.ignored;
    }
}

impl Row {
    pub(crate) fn new(name: &str, counts: Counts) -> Self {
        Self { name: name.to_owned(), counts, seconds: None }
    }
}

impl Steps {
    /// Runs one step that either works or does not; it counts as one check.
    pub(crate) fn check(&mut self, name: &str, step: impl FnOnce() -> anyhow::Result<()>) -> bool {
        self.measure(name, || step().map(|()| vec![Row::new(name, Counts::PASSED)]))
    }

    /// Runs one step that consists of several suites, each with its own counts and seconds.
    ///
    /// The step adds one row per suite; a suite without seconds gets those of the step. Returns whether
    /// the step could be run at all.
    pub(crate) fn measure(
        &mut self,
        name: &str,
        step: impl FnOnce() -> anyhow::Result<Vec<Row>>,
    ) -> bool {
        println!("\n==> {name}");
        let watch = Stopwatch::start();
        let outcome = step();
        let seconds = watch.seconds();
        match outcome {
            Ok(suites) => {
                let failed: u64 = suites.iter().map(|row| row.counts.failed).sum();
                let word = if failed == 0 { "done" } else { "FAILED" };
                println!("==> {name}: {word} in {seconds:.1} s");
                self.rows.extend(suites.into_iter().map(|mut row| {
                    row.seconds.get_or_insert(seconds);
                    row
                }));
                true
            }
            Err(error) => {
                println!("==> {name}: FAILED in {seconds:.1} s: {error:#}");
                self.problems.push(format!("{name}: {error:#}"));
                self.rows.push(Row { seconds: Some(seconds), ..Row::new(name, Counts::FAILED) });
                false
            }
        }
    }

    /// Says that a step is not run, and why.
    pub(crate) fn skip(&mut self, name: &str, reason: &str) {
        println!("\n==> {name}: skipped, {reason}");
        self.skipped.push((name.to_owned(), reason.to_owned()));
    }

    pub(crate) fn totals(&self) -> Counts {
        let mut totals = Counts::default();
        for row in &self.rows {
            totals.add(row.counts);
        }
        totals
    }

    pub(crate) fn table(&self) -> String {
        let width = self.rows.iter().map(|row| row.name.chars().count()).max().unwrap_or(0).max(5);
        let mut lines = vec![
            format!("{:<width$} | passed | failed | ignored | seconds", "suite"),
            format!("{:-<width$}-|--------|--------|---------|--------", ""),
        ];
        for Row { name, counts: Counts { passed, failed, ignored }, seconds } in &self.rows {
            let seconds = seconds.unwrap_or_default();
            lines.push(format!(
                "{name:<width$} | {passed:>6} | {failed:>6} | {ignored:>7} | {seconds:>7.1}"
            ));
        }
        lines.join("\n")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_that_fails_counts_and_is_named() {
        let mut steps = Steps::default();
        assert!(steps.check("good", || Ok(())));
        assert!(!steps.check("bad", || anyhow::bail!("out of paper")));
        assert_eq!(steps.totals(), Counts { passed: 1, failed: 1, ignored: 0 });
        assert_eq!(steps.problems, ["bad: out of paper"]);
        assert!(steps.table().contains("bad   |      0 |      1 |       0 |"), "{}", steps.table());
    }
}
