//! The scripts: each is one atomic step at the server.

use std::array;

use super::command_args::CommandArgs;

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
