//! Parameters of a history, drawn once from its seed before anything happens.

use std::time::Duration;

use firstwrite_core::{OnConflict, OnLostAnswer, OnServerError, Policy};

/// Which path the requests of a history take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Path {
    /// The layer around a handler that calls an upstream.
    Library,
    /// The gateway in front of an upstream.
    Gateway,
    /// The gateway in front of an application that completes its key in its own transaction.
    Sql,
    /// The layer around a handler in atomic mode, and a worker that delivers what it enqueues.
    Atomic,
}

/// The terms of one history. Few features at a time: a history in which everything goes wrong at once rarely comes
/// far enough to break anything.
#[derive(Clone, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "a set of independent features, read by name")]
pub(crate) struct Terms {
    pub(crate) path: Path,
    /// Of each process: two builds or two files may differ.
    pub(crate) leases: [Duration; 2],
    pub(crate) waits: [Option<Duration>; 2],
    pub(crate) answer_within: Duration,
    pub(crate) on_lost_answer: [OnLostAnswer; 2],
    /// Time after giving up from which a probe's "no" is believed, if there is a probe.
    pub(crate) probe_graces: [Option<Duration>; 2],
    /// True if every server error counts as a lost answer, false if only those of an inner proxy do.
    pub(crate) errors_are_lost: [bool; 2],
    /// Time for which an outcome is kept: longer than a history, apart from clock jumps.
    pub(crate) retentions: [Duration; 2],
    /// The longest time between the beginning of a call and its effect.
    pub(crate) late_max: Duration,
    /// Time after an outcome became unknown from which an operator believes that nothing happened.
    pub(crate) operator_grace: Duration,
    /// Percentage of steps to the store that go wrong.
    pub(crate) store_faults: u8,
    /// Percentage of calls and deliveries that go wrong.
    pub(crate) upstream_faults: u8,
    pub(crate) pauses: bool,
    pub(crate) kills: bool,
    pub(crate) outages: bool,
    pub(crate) clock_steps: bool,
    pub(crate) retention_jumps: bool,
    pub(crate) operators: bool,
    pub(crate) early_answers: bool,
    pub(crate) key_count: usize,
    pub(crate) client_count: usize,
    /// True if the destination of messages recognises repetitions.
    pub(crate) provider_dedupes: bool,
    /// True if it can be asked about a message.
    pub(crate) provider_can_be_asked: bool,
    /// True if the provider's accounts are compared with the store.
    pub(crate) reconciles: bool,
    /// True if an older copy of the store is put back.
    pub(crate) loses_history: bool,
}

/// The retention that most processes have.
pub(crate) const RETENTION: Duration = Duration::from_hours(24);
/// More than the steps of the store's clock come to in a history.
pub(crate) const CLOCK_STEPS_MAX: Duration = Duration::from_secs(20);
/// The longest a call to the store takes before its driver gives up.
pub(crate) const STORE_LIMIT: Duration = Duration::from_secs(2);

impl Terms {
    #[expect(
        clippy::too_many_lines,
        reason = "a table: each setting in the order in which it is drawn"
    )]
    pub(crate) fn draw(rng: &mut fastrand::Rng) -> Self {
        let path = match rng.u8(..8) {
            0..3 => Path::Library,
            3..6 => Path::Gateway,
            6 => Path::Sql,
            _ => Path::Atomic,
        };
        let leases = std::array::from_fn(|_| Duration::from_millis(rng.u64(3000..6000)));
        let is_calling = matches!(path, Path::Library | Path::Gateway);
        let answer_within = Duration::from_millis(rng.u64(1000..5000));
        // A second file that says the same, or one that was changed.
        let differ = rng.u8(..4) == 0;
        let on_lost_answer = drawn(rng, differ, |rng| {
            let may_resend = is_calling || path == Path::Sql;
            let resends = (may_resend && rng.u8(..4) == 0) || path == Path::Atomic;
            if resends { OnLostAnswer::Resend } else { OnLostAnswer::Uncertain }
        });
        let probe_graces = drawn(rng, differ, |rng| {
            (path == Path::Gateway && rng.bool())
                .then(|| answer_within + Duration::from_millis(rng.u64(500..8000)))
        });
        let errors_are_lost = drawn(rng, differ, |rng| rng.u8(..4) == 0);
        let clock_steps = rng.u8(..5) == 0;
        let given_up_after = answer_within.min(leases[0]).min(leases[1]);
        let late_max = match probe_graces.into_iter().flatten().min() {
            // A step of the clock gives a call up earlier, by as much as it has lasted.
            Some(grace) if clock_steps => grace,
            Some(grace) => given_up_after + grace,
            None => Duration::from_secs(6),
        };
        let late_max = late_max.saturating_sub(Duration::from_millis(300));
        let [calm, busy] = [3, 12];
        let waits = std::array::from_fn(|_| {
            (rng.u8(..3) == 0).then(|| Duration::from_millis(rng.u64(500..8000)))
        });
        let has_probe = probe_graces.iter().any(Option::is_some);
        let retention_jumps = rng.u8(..6) == 0 && !has_probe && path != Path::Atomic;
        let retentions = drawn(rng, differ && retention_jumps, |rng| {
            let hours = [RETENTION.as_secs() / 3600, 8, 72][rng.usize(..3)];
            if differ { Duration::from_hours(hours) } else { RETENTION }
        });
        Self {
            path,
            leases,
            waits,
            answer_within,
            on_lost_answer,
            probe_graces,
            errors_are_lost,
            retentions,
            late_max,
            operator_grace: late_max + Duration::from_secs(9),
            store_faults: match rng.u8(..3) {
                0 => 0,
                1 => calm,
                _ => busy,
            },
            upstream_faults: match rng.u8(..3) {
                0 => 5,
                1 => 30,
                _ => 60,
            },
            pauses: rng.bool(),
            kills: rng.u8(..3) == 0,
            outages: rng.u8(..3) == 0,
            clock_steps,
            retention_jumps,
            operators: rng.bool(),
            early_answers: rng.u8(..3) == 0,
            key_count: rng.usize(1..=2),
            client_count: rng.usize(2..=4),
            provider_dedupes: rng.bool(),
            provider_can_be_asked: rng.bool(),
            reconciles: false,
            loses_history: false,
        }
    }

    /// The policy of a process.
    pub(crate) fn policy(&self, slot: usize) -> Policy {
        Policy::default()
            .lease(self.leases[slot])
            .retention(self.retentions[slot])
            .on_conflict(self.waits[slot].map_or(OnConflict::Reject, OnConflict::Wait))
            .on_lost_answer(self.on_lost_answer[slot])
            .on_server_error(if self.errors_are_lost[slot] {
                OnServerError::Lost
            } else {
                OnServerError::Release
            })
    }

    /// Returns true if the upstream recognises repetitions, as it must where a resend is declared safe. An application
    /// that completes in its own transaction recognises none: the fence shuts out what is late.
    pub(crate) fn upstream_honours_keys(&self) -> bool {
        self.path != Path::Sql && self.on_lost_answer.contains(&OnLostAnswer::Resend)
    }

    /// Returns true if a process has a probe.
    pub(crate) fn has_probe(&self) -> bool {
        self.probe_graces.iter().any(Option::is_some)
    }
}

/// Draws a setting for each process: the same for both, unless they differ.
fn drawn<T: Copy>(
    rng: &mut fastrand::Rng,
    differ: bool,
    draw: impl Fn(&mut fastrand::Rng) -> T,
) -> [T; 2] {
    let first = draw(rng);
    [first, if differ { draw(rng) } else { first }]
}
