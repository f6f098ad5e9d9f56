//! Tables that fit on a terminal.

use std::borrow::Cow;
use std::io::{self, IsTerminal as _};

use rustix::termios::tcgetwinsize;

/// Character that replaces omitted text.
const ELLIPSIS: char = '…';

/// Returns the longest line that fits, if standard output is a terminal.
pub(super) fn line_max() -> Option<usize> {
    let stdout = io::stdout();
    if !stdout.is_terminal() {
        return None;
    }
    let columns = tcgetwinsize(&stdout).ok()?.ws_col;
    // A terminal that does not know its size says zero.
    (columns > 0).then_some(usize::from(columns))
}

/// Takes from the widest columns until all of them fit into `room`, and from none what its heading needs.
pub(super) fn narrow(widths: &mut [usize], headings: &[String], room: usize) {
    let least: Vec<usize> = headings.iter().map(|heading| heading.chars().count()).collect();
    while widths.iter().sum::<usize>() > room {
        let can_give = |place: &usize| widths[*place] > least[*place];
        let widest = (0..widths.len()).filter(can_give).max_by_key(|place| widths[*place]);
        let Some(widest) = widest else { return };
        widths[widest] -= 1;
    }
}

/// The text, or as much of it as `width` has room for.
pub(super) fn cut(text: &str, width: usize) -> Cow<'_, str> {
    if text.chars().count() <= width {
        return Cow::Borrowed(text);
    }
    let mut kept: String = text.chars().take(width.saturating_sub(1)).collect();
    kept.push(ELLIPSIS);
    Cow::Owned(kept)
}
