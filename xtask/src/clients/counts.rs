//! Reads the counts of suites in other languages from what they print.

use super::{BINARY, FIREFOX, PEERS};
use crate::steps::Counts;

/// Recognises a test that is skipped since something that only the long form has is not there: servers of others, or
/// Firefox, as in `skipped 'FIRSTWRITE_PEERS is not set'`.
pub(super) fn is_excused(line: &str) -> bool {
    [PEERS, BINARY, FIREFOX].iter().any(|name| line.contains(&format!("{name} is not set")))
}

/// Reads a line of Node's closing table: `# pass 12`, or `ℹ pass 12` on a terminal.
pub(super) fn node_counts(line: &str, counts: &mut Counts) {
    let Some(words) = line.strip_prefix("# ").or_else(|| line.strip_prefix("ℹ ")) else { return };
    let Some((name, number)) = words.split_once(' ') else { return };
    let Ok(number) = number.parse::<u64>() else { return };
    match name {
        "pass" => counts.passed += number,
        "fail" | "cancelled" => counts.failed += number,
        "skipped" | "todo" => counts.ignored += number,
        _ => {}
    }
}

/// Reads the last two lines of unittest: `Ran 12 tests in 1.2s`, and `OK (skipped=1)` or `FAILED (failures=1, errors=2)`.
pub(super) fn python_counts(line: &str, counts: &mut Counts) {
    if let Some(ran) = line.strip_prefix("Ran ") {
        counts.passed = ran.split(' ').next().and_then(|ran| ran.parse().ok()).unwrap_or(0);
        return;
    }
    if !line.starts_with("OK (") && !line.starts_with("FAILED (") {
        return;
    }
    let parts = line.split_once('(').map_or("", |(_, parts)| parts.trim_end_matches(')'));
    for (name, number) in parts.split(", ").filter_map(|part| part.split_once('=')) {
        let number = number.parse::<u64>().unwrap_or(0);
        let kind = if name == "skipped" { &mut counts.ignored } else { &mut counts.failed };
        *kind += number;
        counts.passed = counts.passed.saturating_sub(number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(lines: &[&str], read: fn(&str, &mut Counts)) -> (u64, u64, u64) {
        let mut counts = Counts::default();
        for line in lines {
            read(line, &mut counts);
        }
        (counts.passed, counts.failed, counts.ignored)
    }

    #[test]
    fn the_closing_lines_of_node_are_read() {
        let lines = ["# tests 9", "# pass 5", "# fail 2", "# cancelled 1", "# skipped 1", "ok 1"];
        assert_eq!(read(&lines, node_counts), (5, 3, 1));
        assert_eq!(read(&["ℹ pass 4", "ℹ fail 0", "# passed 3 tests"], node_counts), (4, 0, 0));
    }

    #[test]
    fn the_closing_lines_of_unittest_are_read() {
        assert_eq!(read(&["Ran 12 tests in 0.4s", "", "OK"], python_counts), (12, 0, 0));
        let lines = ["Ran 12 tests in 0.4s", "FAILED (failures=1, errors=2, skipped=3)"];
        assert_eq!(read(&lines, python_counts), (6, 3, 3));
        assert_eq!(read(&["Ran 2 tests in 1s", "OK (skipped=1)"], python_counts), (1, 0, 1));
        assert_eq!(read(&["Running 3 things"], python_counts), (0, 0, 0));
    }

    #[test]
    fn a_test_that_lacks_what_only_the_long_form_has_is_told_from_others() {
        assert!(is_excused("test_idemkit ... skipped 'FIRSTWRITE_PEERS is not set'"));
        assert!(is_excused("ok 3 - localstripe # SKIP FIRSTWRITE_BINARY is not set"));
        assert!(is_excused("ok 3 - Firefox # SKIP FIRSTWRITE_TEST_FIREFOX is not set"));
        assert!(!is_excused("ok 3 - a browser # SKIP FIRSTWRITE_TEST_CHROMIUM is not set"));
    }
}
