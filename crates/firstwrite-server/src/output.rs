//! The only place that prints. Data goes to standard output, everything else to standard error;
//! nothing is told by colour alone, since there is none.

use std::fmt::{self, Write as _};
use std::io::{self, BufRead as _, IsTerminal as _, Read as _, Write as _};

use anyhow::Context as _;
use clap::ValueEnum;
use serde::Serialize;

mod fit;
mod progress;

pub(crate) use progress::Progress;

/// Format in which data is printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// For people.
    Table,
    /// One JSON document.
    Json,
}

/// Rows under headings, each column as wide as its widest cell; on a terminal, as narrow as it takes for lines not
/// to be broken.
#[derive(Debug)]
pub(crate) struct Table<const COLUMNS: usize> {
    rows: Vec<[String; COLUMNS]>,
}

/// Blanks between two columns.
const BETWEEN: usize = 2;

/// Returns true if a person is at the terminal to answer a question.
pub(crate) fn can_ask() -> bool {
    io::stdin().is_terminal() && io::stderr().is_terminal()
}

/// Asks the person at the terminal; anything but a yes is a no.
pub(crate) fn ask(question: &str) -> anyhow::Result<bool> {
    let mut stderr = io::stderr().lock();
    write!(stderr, "{question} [y/N] ").and_then(|()| stderr.flush()).context("cannot ask")?;
    let mut answer = String::new();
    // A line has an end; what has none is no answer.
    io::stdin().lock().take(ANSWER_BYTES_MAX).read_line(&mut answer).context("cannot read")?;
    Ok(matches!(answer.trim().to_ascii_lowercase().as_str(), "y" | "yes"))
}

/// Longer than any way to say yes.
const ANSWER_BYTES_MAX: u64 = 64;

/// Prints data and flushes it at once, so that a reader that waits for a line need not wait for a full buffer.
///
/// A reader that closes the pipe early (`| head`) is no failure.
pub(crate) fn data(text: &str) -> anyhow::Result<()> {
    let mut stdout = io::stdout().lock();
    match stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        written => written.context("cannot write to standard output"),
    }
}

/// Prints one JSON document.
pub(crate) fn document(document: &impl Serialize) -> anyhow::Result<()> {
    let mut text = serde_json::to_string_pretty(document).context("cannot write JSON")?;
    text.push('\n');
    data(&text)
}

/// Prints a remark that is not data.
pub(crate) fn note(text: &str) {
    complain(text);
}

/// Prints why a command failed.
pub(crate) fn error(text: &str) {
    complain(&format!("error: {text}"));
}

/// The text with everything escaped that could move a terminal's cursor or hide other text.
pub(crate) fn printable(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for character in text.chars() {
        // Marks that turn the direction of writing make one text look like another.
        let turns = matches!(character, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}')
            || matches!(character, '\u{2066}'..='\u{2069}');
        if character.is_control() || turns {
            shown.extend(character.escape_default());
        } else {
            shown.push(character);
        }
    }
    shown
}

impl<const COLUMNS: usize> Table<COLUMNS> {
    pub(crate) fn new(headings: [&str; COLUMNS]) -> Self {
        Self { rows: vec![headings.map(str::to_owned)] }
    }

    pub(crate) fn row(&mut self, cells: [String; COLUMNS]) {
        self.rows.push(cells.map(|cell| printable(&cell)));
    }
}

impl<const COLUMNS: usize> Table<COLUMNS> {
    /// The table in lines of at most `line_max` characters, as far as its headings allow.
    fn lines(&self, line_max: Option<usize>) -> String {
        let mut widths = [0; COLUMNS];
        for row in &self.rows {
            for (width, cell) in widths.iter_mut().zip(row) {
                *width = (*width).max(cell.chars().count());
            }
        }
        if let (Some(line_max), Some(headings)) = (line_max, self.rows.first()) {
            fit::narrow(&mut widths, headings, line_max.saturating_sub(BETWEEN * (COLUMNS - 1)));
        }
        let mut lines = String::new();
        for row in &self.rows {
            let mut line = String::new();
            for (width, cell) in widths.iter().zip(row) {
                let cell = fit::cut(cell, *width);
                write!(line, "{cell:width$}{:BETWEEN$}", "").expect("writing to a string");
            }
            writeln!(lines, "{}", line.trim_end()).expect("writing to a string");
        }
        lines
    }
}

impl<const COLUMNS: usize> fmt::Display for Table<COLUMNS> {
    /// Whole where a program reads, cut where a person does.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.lines(fit::line_max()))
    }
}

fn complain(text: &str) {
    // If standard error is closed, the failure cannot be reported anywhere.
    drop(writeln!(io::stderr().lock(), "{text}"));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_line_up_and_lines_do_not_trail() {
        let mut table = Table::new(["KEY", "STATE"]);
        table.row(["order-1".to_owned(), "completed".to_owned()]);
        table.row(["ü".to_owned(), String::new()]);
        assert_eq!(table.to_string(), "KEY      STATE\norder-1  completed\nü\n");
    }

    #[test]
    fn a_wide_table_is_cut_where_it_is_widest_and_headings_stay() {
        let mut table = Table::new(["KEY", "STATE", "AGE"]);
        table.row(["k".repeat(255), "completed".to_owned(), "3d".to_owned()]);
        table.row(["order-1".to_owned(), "completed".to_owned(), "1h".to_owned()]);
        let lines = table.lines(Some(40));
        assert!(lines.lines().all(|line| line.chars().count() <= 40), "{lines}");
        assert!(lines.contains("order-1"), "{lines}");
        assert!(lines.contains("k…  completed  3d"), "{lines}");
        assert!(table.lines(None).contains(&"k".repeat(255)));
        let narrow = table.lines(Some(1));
        assert!(narrow.starts_with("KEY  STATE  AGE\n"), "{narrow}");
    }

    #[test]
    fn nothing_printed_can_drive_a_terminal() {
        assert_eq!(printable("a\u{1b}[2Jb\nc\u{202e}d"), "a\\u{1b}[2Jb\\nc\\u{202e}d");
        assert_eq!(printable("plain ü"), "plain ü");
    }
}
