//! The only place that prints. Data goes to standard output, everything else to standard error;
//! nothing is told by colour alone, since there is none.

use std::fmt::{self, Write as _};
use std::io::{self, Write as _};

use anyhow::Context as _;
use clap::ValueEnum;
use serde::Serialize;

mod progress;

pub(crate) use progress::Progress;

/// How data is printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// For people.
    Table,
    /// One JSON document.
    Json,
}

/// Rows under headings, each column as wide as its widest cell.
#[derive(Debug)]
pub(crate) struct Table<const COLUMNS: usize> {
    rows: Vec<[String; COLUMNS]>,
}

/// Prints data and hands it on at once: whoever waits for a line must not wait for a full buffer.
///
/// A reader that has seen enough (`| head`) is no failure.
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

impl<const COLUMNS: usize> fmt::Display for Table<COLUMNS> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut widths = [0; COLUMNS];
        for row in &self.rows {
            for (width, cell) in widths.iter_mut().zip(row) {
                *width = (*width).max(cell.chars().count());
            }
        }
        for row in &self.rows {
            let mut line = String::new();
            for (width, cell) in widths.iter().zip(row) {
                write!(line, "{cell:width$}  ")?;
            }
            writeln!(f, "{}", line.trim_end())?;
        }
        Ok(())
    }
}

fn complain(text: &str) {
    // Nobody is left to be told that standard error is closed.
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
    fn nothing_printed_can_drive_a_terminal() {
        assert_eq!(printable("a\u{1b}[2Jb\nc\u{202e}d"), "a\\u{1b}[2Jb\\nc\\u{202e}d");
        assert_eq!(printable("plain ü"), "plain ü");
    }
}
