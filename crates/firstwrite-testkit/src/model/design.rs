//! Designs of the protocol: the real ones, and the known-bad ones that the model must refute.

use firstwrite_core::OnLostAnswer;

/// A way to build the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Design {
    /// Effect and record in one commit.
    Atomic,
    /// Reserved first, and uncertain when the answer is lost: the gateway's default. A 500 releases.
    ReservedUncertain,
    /// The same where the operation says `on_server_error = "lost"`: a 500 leaves doubt.
    ReservedLost,
    /// The same with a probe that is asked before a 500 releases and when the record is uncertain.
    ReservedProbe,
    /// Reserved first, taken over when lapsed, in front of an upstream that honours the key.
    ReservedResend,
    /// Reserved by the gateway; the application commits its rows and the outcome in one transaction.
    ApplicationCompletes,
    /// Known bad: look whether the key is free, then write.
    CheckThenInsert,
    /// Known bad: a lease, and writes that compare no fence.
    LeaseWithoutFence,
    /// Known bad: a fence, and a remote effect that is simply run again.
    FenceWithoutUncertain,
    /// Known bad: fences that begin again at the same number in each life of a key.
    FenceWithoutNonce,
    /// Known bad: one commit for effect and record, but the client is answered before it.
    ReplyBeforeRecord,
    /// Known bad: a reservation that no lease ends.
    ReservationWithoutLease,
    /// Known bad: a 502 or 504 frees the key, though the effect may have happened.
    GatewayErrorReleases,
    /// Known bad: a 500 frees the key although the operation says `on_server_error = "lost"`.
    ServerErrorReleases,
    /// Known bad: duplicates that waited for an attempt that a 500 released run by themselves.
    FollowersRun,
    /// Known bad: `complete` in an application's transaction succeeds when its outcome stands already.
    CompletesTwice,
    /// Known bad: a call begins although the lease of its reservation may have ended.
    CallAfterLease,
    /// Known bad: grace counts from the record's creation, not from giving up.
    GraceFromCreation,
    /// Known bad: a withdrawal names the fence of an insert, whatever was written.
    WithdrawsFirstFence,
    /// Known bad: an attempt that is refused forgets that its reservation may have been written.
    ForgetsRefusedWrite,
    /// Known bad: an owner gives its outcome up when its lease ends before the store is back.
    OutcomeThrownAway,
    /// Known bad: a lost commit is looked for in a snapshot from before it.
    AsksOldSnapshot,
}

/// No key gets two effects within one retention.
pub(super) const ONE_EFFECT: &str = "one effect";
/// Every answer to one key within one retention is the first.
pub(super) const EQUAL_REPLIES: &str = "equal replies";
/// A client that is told that nothing was run can believe it.
pub(super) const TRUE_REFUSALS: &str = "true refusals";
/// A key is left to a person only where no living process can know what happened.
pub(super) const NO_NEEDLESS_DOUBT: &str = "no needless doubt";
/// Once the store is up and all attempts and keepers have finished, a retry gets an answer or runs.
pub(super) const NOT_BLOCKED: &str = "no key is blocked for ever";

/// Rules in which designs differ.
#[derive(Clone, Copy, Debug)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "independent switches, each one rule of a design"
)]
pub(super) struct Rules {
    pub(super) mode: Mode,
    pub(super) on_lost_answer: OnLostAnswer,
    /// The upstream recognises a repetition of the same key.
    pub(super) honours_key: bool,
    /// Effect of a 500 on the key.
    pub(super) on_server_error: OnServerError,
    /// The operation promises that a retry after a 500 runs afresh: only then are
    /// effects of released attempts admitted.
    pub(super) admits_rerun: bool,
    /// A 502, 504 or 408 counts as a lost answer.
    pub(super) gateway_error_is_lost: bool,
    pub(super) followers: Followers,
    /// A write compares and changes the fence.
    pub(super) fences: bool,
    /// Each attempt's fence is its own.
    pub(super) nonces: bool,
    /// A reservation lapses when it is not renewed.
    pub(super) leases: bool,
    /// A call begins only while its lease holds.
    pub(super) checks_lease: bool,
    /// Operators and probes look only when a call that was given up has landed or never will.
    pub(super) waits_for_grace: bool,
    /// A withdrawal names every fence that may have been written.
    pub(super) withdraws_all: bool,
    /// A reservation that may have been written is withdrawn when its attempt is refused.
    pub(super) withdraws_refused: bool,
    /// An owner goes on completing after its lease.
    pub(super) completes_late: bool,
    /// A repeated `complete` is told that its outcome stands already, and rolls back.
    pub(super) refuses_second_complete: bool,
    /// A lost commit is looked for in a new snapshot.
    pub(super) looks_again: bool,
}

/// Way in which a design runs a handler.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mode {
    /// Effect and record in one commit.
    Atomic,
    /// Reservation, call, completion.
    Reserved,
    /// Reservation, then one commit for effect and completion.
    Application,
}

/// Treatment of the key when the upstream answers with a 500.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OnServerError {
    Release,
    /// Asks the probe first: what it finds keeps the doubt.
    AskThenRelease,
    Lost,
}

/// Behaviour of duplicates while an attempt holds the key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Followers {
    /// They are refused at once.
    Refused,
    /// They wait, and get the answer of the attempt whatever it is.
    Answered,
    /// They wait, and run when the key is free.
    Run,
}

impl Design {
    /// Every design.
    pub const ALL: [Self; 22] = [
        Self::Atomic,
        Self::ReservedUncertain,
        Self::ReservedLost,
        Self::ReservedProbe,
        Self::ReservedResend,
        Self::ApplicationCompletes,
        Self::CheckThenInsert,
        Self::LeaseWithoutFence,
        Self::FenceWithoutUncertain,
        Self::FenceWithoutNonce,
        Self::ReplyBeforeRecord,
        Self::ReservationWithoutLease,
        Self::GatewayErrorReleases,
        Self::ServerErrorReleases,
        Self::FollowersRun,
        Self::CompletesTwice,
        Self::CallAfterLease,
        Self::GraceFromCreation,
        Self::WithdrawsFirstFence,
        Self::ForgetsRefusedWrite,
        Self::OutcomeThrownAway,
        Self::AsksOldSnapshot,
    ];

    /// The promises that a known-bad design must be seen to break; nothing for a real one.
    pub fn must_break(self) -> &'static [&'static str] {
        match self {
            Self::Atomic
            | Self::ReservedUncertain
            | Self::ReservedLost
            | Self::ReservedProbe
            | Self::ReservedResend
            | Self::ApplicationCompletes => &[],
            Self::CheckThenInsert | Self::LeaseWithoutFence => &[ONE_EFFECT, EQUAL_REPLIES],
            // The fence keeps the replies equal; it does not reach the remote system.
            Self::FenceWithoutUncertain
            | Self::FenceWithoutNonce
            | Self::GatewayErrorReleases
            | Self::ServerErrorReleases
            | Self::FollowersRun
            | Self::CompletesTwice
            | Self::CallAfterLease
            | Self::GraceFromCreation => &[ONE_EFFECT],
            Self::ReplyBeforeRecord => &[EQUAL_REPLIES],
            Self::ReservationWithoutLease => &[NOT_BLOCKED],
            Self::WithdrawsFirstFence | Self::ForgetsRefusedWrite | Self::OutcomeThrownAway => {
                &[NO_NEEDLESS_DOUBT]
            }
            Self::AsksOldSnapshot => &[TRUE_REFUSALS],
        }
    }

    /// Returns true if the design must hold; the others must be refuted.
    pub fn is_real(self) -> bool {
        self.must_break().is_empty()
    }

    /// Returns the rules of this design.
    pub(super) fn rules(self) -> Rules {
        let real = Rules {
            mode: Mode::Reserved,
            on_lost_answer: OnLostAnswer::Uncertain,
            honours_key: false,
            on_server_error: OnServerError::Release,
            admits_rerun: true,
            gateway_error_is_lost: true,
            followers: Followers::Refused,
            fences: true,
            nonces: true,
            leases: true,
            checks_lease: true,
            waits_for_grace: true,
            withdraws_all: true,
            withdraws_refused: true,
            completes_late: true,
            refuses_second_complete: true,
            looks_again: true,
        };
        let resend = Rules { on_lost_answer: OnLostAnswer::Resend, ..real };
        let lost = Rules { on_server_error: OnServerError::Lost, admits_rerun: false, ..real };
        match self {
            Self::Atomic | Self::ReplyBeforeRecord => Rules { mode: Mode::Atomic, ..real },
            Self::ReservedUncertain => Rules { followers: Followers::Answered, ..real },
            Self::ReservedLost => lost,
            Self::ReservedProbe => Rules { on_server_error: OnServerError::AskThenRelease, ..real },
            Self::ReservedResend => Rules { honours_key: true, ..resend },
            Self::ApplicationCompletes => Rules { mode: Mode::Application, ..real },
            Self::CheckThenInsert => real,
            Self::LeaseWithoutFence => Rules { fences: false, ..resend },
            Self::FenceWithoutUncertain => resend,
            Self::FenceWithoutNonce => Rules { nonces: false, ..real },
            Self::ReservationWithoutLease => Rules { leases: false, ..real },
            Self::GatewayErrorReleases => Rules { gateway_error_is_lost: false, ..real },
            Self::ServerErrorReleases => Rules { admits_rerun: false, ..real },
            Self::FollowersRun => Rules { followers: Followers::Run, ..real },
            Self::CompletesTwice => {
                Rules { mode: Mode::Application, refuses_second_complete: false, ..real }
            }
            Self::CallAfterLease => Rules { checks_lease: false, ..real },
            Self::GraceFromCreation => Rules { waits_for_grace: false, ..real },
            Self::WithdrawsFirstFence => Rules { withdraws_all: false, ..real },
            Self::ForgetsRefusedWrite => Rules { withdraws_refused: false, ..real },
            Self::OutcomeThrownAway => Rules { completes_late: false, ..real },
            Self::AsksOldSnapshot => Rules { mode: Mode::Atomic, looks_again: false, ..real },
        }
    }
}
