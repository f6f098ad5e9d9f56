//! Progress of a long command, on standard error.

use std::io::{self, IsTerminal as _, Write as _};
use std::time::Duration;

use tokio::time::Instant;

/// A line that is written over again and again on a terminal, and a line now and then in a log.
#[derive(Debug)]
pub(crate) struct Progress {
    what: &'static str,
    total: usize,
    began_at: Instant,
    /// Time at which progress was last shown.
    shown_at: Option<Instant>,
    is_terminal: bool,
    /// Length of the line on the terminal.
    width: usize,
}

/// As often as an eye can follow.
const TERMINAL_EVERY: Duration = Duration::from_millis(100);
/// A log should not be full of it.
const LOG_EVERY: Duration = Duration::from_secs(5);

impl Progress {
    /// Counts `what` up to `total`; 0 means that the total is unknown.
    pub(crate) fn new(what: &'static str, total: usize) -> Self {
        let (began_at, is_terminal) = (Instant::now(), io::stderr().is_terminal());
        Self { what, total, began_at, shown_at: None, is_terminal, width: 0 }
    }

    /// Counts up to about `total` from now on, for commands that do not know the total at the start.
    pub(crate) fn expect(&mut self, total: usize) {
        self.total = total;
    }

    /// Shows that `count` are done, unless that was just shown.
    pub(crate) fn show(&mut self, count: usize) {
        let every = if self.is_terminal { TERMINAL_EVERY } else { LOG_EVERY };
        let since = self.shown_at.unwrap_or(self.began_at);
        let is_first = self.shown_at.is_none() && self.is_terminal;
        if !is_first && since.elapsed() < every {
            return;
        }
        self.shown_at = Some(Instant::now());
        let line = line(self.what, count, self.total, self.began_at.elapsed());
        // If standard error is closed, the failure cannot be reported anywhere.
        if self.is_terminal {
            let line = format!("{}{line}", bar(count, self.total));
            let width = self.width.max(line.chars().count());
            drop(write!(io::stderr().lock(), "\r{line:width$}"));
            self.width = width;
        } else {
            drop(writeln!(io::stderr().lock(), "{line}"));
        }
    }

    /// Clears the terminal's line for what follows.
    pub(crate) fn end(self) {
        if self.width > 0 {
            drop(write!(io::stderr().lock(), "\r{:1$}\r", "", self.width));
        }
    }
}

/// As wide as leaves room for the words on a narrow terminal.
const BAR_WIDTH: usize = 20;

fn bar(count: usize, total: usize) -> String {
    let Some(full) = (count.min(total) * BAR_WIDTH).checked_div(total) else {
        return String::new();
    };
    format!("[{}{}] ", "#".repeat(full), "-".repeat(BAR_WIDTH - full))
}

fn line(what: &str, count: usize, total: usize, elapsed: Duration) -> String {
    if total == 0 {
        return format!("{what}: {count}");
    }
    let left = total.saturating_sub(count);
    let percent = (count.min(total) * 100).checked_div(total).unwrap_or(100);
    let line = format!("{what}: {count} of {total}, {percent} %");
    let Ok(count) = u32::try_from(count) else { return line };
    let Some(each) = elapsed.checked_div(count) else { return line };
    let left = each.saturating_mul(u32::try_from(left).unwrap_or(u32::MAX)).as_secs();
    if left == 0 { line } else { format!("{line}, about {left} s left") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bar_fills_up() {
        assert_eq!(bar(0, 10), "[--------------------] ");
        assert_eq!(bar(5, 10), "[##########----------] ");
        assert_eq!(bar(12, 10), "[####################] ");
        assert_eq!(bar(3, 0), "", "nobody knows how many there are");
    }

    #[test]
    fn a_line_says_how_far_and_how_long() {
        let told =
            |count, total, seconds| line("put back", count, total, Duration::from_secs(seconds));
        assert_eq!(told(0, 10, 0), "put back: 0 of 10, 0 %");
        assert_eq!(told(5, 10, 10), "put back: 5 of 10, 50 %, about 10 s left");
        assert_eq!(told(10, 10, 20), "put back: 10 of 10, 100 %");
        assert_eq!(told(12, 10, 20), "put back: 12 of 10, 100 %");
        assert_eq!(told(0, 0, 0), "put back: 0");
    }
}
