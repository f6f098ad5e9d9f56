//! The scripts: each is one atomic step at the server.

use std::array;

/// A step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Script {
    Insert,
    Swap,
    Get,
    Due,
    Reap,
    Greet,
    Raise,
    Clear,
    Note,
}

/// A step with what it works on.
#[derive(Clone, Debug)]
pub(super) struct Call {
    pub(super) script: Script,
    /// All of one shard.
    pub(super) keys: Vec<Vec<u8>>,
    pub(super) args: Vec<Vec<u8>>,
}

pub(super) const COUNT: usize = 9;

const CLOCK: &str = include_str!("scripts/clock.lua");
/// Where tests bring their own time, it comes last.
const CLOCK_OF_TESTS: &str = "local now = tonumber(ARGV[#ARGV])\n";
const DEADLINES: &str = include_str!("scripts/deadlines.lua");

const STEPS: [&str; COUNT] = [
    include_str!("scripts/insert.lua"),
    include_str!("scripts/swap.lua"),
    include_str!("scripts/get.lua"),
    include_str!("scripts/due.lua"),
    include_str!("scripts/reap.lua"),
    include_str!("scripts/greet.lua"),
    include_str!("scripts/raise.lua"),
    include_str!("scripts/clear.lua"),
    include_str!("scripts/note.lua"),
];

impl Script {
    pub(super) fn place(self) -> usize {
        self as usize
    }

    /// Whether it only reads.
    pub(super) fn is_read(self) -> bool {
        matches!(self, Self::Get | Self::Due)
    }
}

/// The text of every script.
pub(super) fn texts(has_own_clock: bool) -> [String; COUNT] {
    let clock = if has_own_clock { CLOCK_OF_TESTS } else { CLOCK };
    array::from_fn(|place| format!("{clock}{DEADLINES}{}", STEPS[place]))
}
