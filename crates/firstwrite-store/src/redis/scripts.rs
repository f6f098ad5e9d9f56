//! The scripts: each is one atomic step at the server.

use std::array;

/// A step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Script {
    Moves,
    Get,
    Ids,
    Due,
    Reap,
    VerifyHistory,
    Raise,
    Clear,
    Create,
}

/// A step with its keys and arguments.
#[derive(Clone, Debug)]
pub(super) struct Call {
    pub(super) script: Script,
    /// Keys of one shard, unless one server has all shards.
    pub(super) keys: CommandArgs,
    pub(super) args: CommandArgs,
}

pub(super) const COUNT: usize = 9;

const CLOCK: &str = include_str!("scripts/clock.lua");
/// Clock of tests: the time comes as the last argument.
const CLOCK_OF_TESTS: &str = "local now = tonumber(ARGV[#ARGV])\n";
const DEADLINES: &str = include_str!("scripts/deadlines.lua");
const MARK: &str = include_str!("scripts/mark.lua");
const NEWS: &str = include_str!("scripts/journal.lua");

/// Source parts of each script, after the clock.
const STEPS: [&[&str]; COUNT] = [
    &[DEADLINES, MARK, NEWS, include_str!("scripts/moves.lua")],
    &[include_str!("scripts/get.lua")],
    &[include_str!("scripts/ids.lua")],
    &[DEADLINES, include_str!("scripts/due.lua")],
    &[DEADLINES, NEWS, include_str!("scripts/reap.lua")],
    &[MARK, include_str!("scripts/verify_history.lua")],
    &[DEADLINES, MARK, include_str!("scripts/raise.lua")],
    &[DEADLINES, MARK, include_str!("scripts/clear.lua")],
    &[include_str!("scripts/create.lua")],
];

impl Script {
    pub(super) fn place(self) -> usize {
        self as usize
    }

    /// Returns true if the store waits for replicas and disks after this script. A check is not awaited,
    /// since no caller relies on what it writes.
    pub(super) fn is_waited_for(self) -> bool {
        !matches!(self, Self::Get | Self::Ids | Self::Due | Self::VerifyHistory)
    }
}

/// The text of every script.
pub(super) fn texts(has_own_clock: bool) -> [String; COUNT] {
    let clock = if has_own_clock { CLOCK_OF_TESTS } else { CLOCK };
    array::from_fn(|place| format!("{clock}{}", STEPS[place].concat()))
}

/// Arguments of a command, stored contiguously.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct CommandArgs {
    bytes: Vec<u8>,
    /// End offset of each argument.
    ends: Vec<usize>,
}

impl CommandArgs {
    pub(super) fn with_capacity(args: usize, bytes: usize) -> Self {
        Self { bytes: Vec::with_capacity(bytes), ends: Vec::with_capacity(args) }
    }

    pub(super) fn push(&mut self, word: impl AsRef<[u8]>) {
        self.bytes.extend_from_slice(word.as_ref());
        self.ends.push(self.bytes.len());
    }

    pub(super) fn append(&mut self, other: &Self) {
        let start = self.bytes.len();
        self.bytes.extend_from_slice(&other.bytes);
        self.ends.extend(other.ends.iter().map(|end| start + end));
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &[u8]> {
        let starts = std::iter::once(0).chain(self.ends.iter().copied());
        starts.zip(&self.ends).map(|(start, end)| &self.bytes[start..*end])
    }

    pub(super) fn len(&self) -> usize {
        self.ends.len()
    }

    /// Total size of the arguments.
    pub(super) fn bytes(&self) -> usize {
        self.bytes.len()
    }
}

impl<W: AsRef<[u8]>> FromIterator<W> for CommandArgs {
    fn from_iter<I: IntoIterator<Item = W>>(args: I) -> Self {
        let mut all = Self::default();
        args.into_iter().for_each(|word| all.push(word));
        all
    }
}

impl<W: AsRef<[u8]>, const N: usize> From<[W; N]> for CommandArgs {
    fn from(args: [W; N]) -> Self {
        args.into_iter().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_come_back_as_they_were_put() {
        let mut args = CommandArgs::from(["a", "", "bc"]);
        args.append(&CommandArgs::from(["", "d"]));
        args.push(b"e");
        let all: Vec<&[u8]> = args.iter().collect();
        assert_eq!(all, [&b"a"[..], b"", b"bc", b"", b"d", b"e"]);
        assert_eq!((args.len(), args.bytes()), (6, 5));
    }
}
