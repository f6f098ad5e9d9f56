//! The report of a run.

use firstwrite_core::findings::{NewFinding, Noted};
use firstwrite_core::reconcile::{Class, Contradiction, Subject, Verdict, Window};

use super::Flaw;

/// Report of what a run saw and did.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Report {
    /// The time of which the provider gave account.
    pub window: Window,
    /// True if everything was read and understood. If not, nothing was taken to be absent, and the next run
    /// looks at the same time again.
    pub is_complete: bool,
    /// The first parts that could not be read or understood.
    pub flaws: Vec<Flaw>,
    /// Number of pages and entries read.
    pub read: Read,
    /// Number of entries of each class.
    pub classes: ClassCounts,
    /// The reasons why absences of this run prove nothing.
    pub contradictions: Vec<Contradiction>,
    /// Preview of what the run would settle, if it is a dry run.
    pub preview: Preview,
    /// Messages that are delivered now, on the provider's word.
    pub delivered: usize,
    /// Messages that are sent again, because the provider does not have them.
    pub resent: usize,
    /// Uncertain requests that are completed now, on the provider's word.
    pub completed: usize,
    /// Uncertain requests whose keys are free, because the provider does not have them.
    pub freed: usize,
    /// Entries that changed by themselves before they could be settled.
    pub moved: usize,
    /// Findings that a person must look at.
    pub found: Vec<NewFinding>,
    /// Number of these that are new, known, open again, or closed already.
    pub noted: NotedCounts,
}

/// Preview of what a dry run would settle if it were applied.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Preview {
    /// Messages that would be delivered, on the provider's word.
    pub delivered: usize,
    /// Messages that would be sent again.
    pub resent: usize,
    /// Requests that would be completed, on the provider's word.
    pub completed: usize,
    /// Requests whose keys would be free.
    pub freed: usize,
    /// The first [`Preview::NAMED_MAX`] of them: what it is about, and the provider's id if it has one.
    pub named: Vec<(Subject, Option<String>)>,
}

impl Preview {
    /// More than a person reads.
    pub const NAMED_MAX: usize = 100;

    pub(super) fn add(&mut self, subject: Subject, provider_id: Option<&str>) {
        *match (subject, provider_id) {
            (Subject::Message(_), Some(_)) => &mut self.delivered,
            (Subject::Message(_), None) => &mut self.resent,
            (Subject::Record(_), Some(_)) => &mut self.completed,
            (Subject::Record(_), None) => &mut self.freed,
        } += 1;
        if self.named.len() < Self::NAMED_MAX {
            self.named.push((subject, provider_id.map(str::to_owned)));
        }
    }
}

/// Number of pages and entries read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Read {
    /// Pages of the source.
    pub pages: usize,
    /// Entries of the source.
    pub theirs: usize,
    /// Messages and requests of ours.
    pub ours: usize,
}

/// Progress of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Progress {
    /// The source is being read.
    Pulling(Read),
    /// Our own books are being read.
    Reading(Read),
    /// Everything is compared; holds the number of verdicts.
    Compared(usize),
    /// Verdicts are being acted on.
    Acting {
        /// Verdicts acted on.
        done: usize,
        /// All verdicts.
        of: usize,
    },
}

/// Number of entries of each class.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ClassCounts {
    /// Both have it, and agree.
    pub matched: usize,
    /// Both have it, and do not agree.
    pub differs: usize,
    /// The provider did more than once what was asked for once.
    pub duplicate: usize,
    /// It was not asked for here.
    pub missing_here: usize,
    /// It arrived, and is not there.
    pub missing_there: usize,
    /// It is unknown whether it arrived, and something like it is there.
    pub likely: usize,
    /// It is not there, and is not expected to be.
    pub absent: usize,
    /// It is not there, and the run proves no absence: the account contradicts it, the run reached a limit, or the
    /// store lost history.
    pub unproven: usize,
    /// It is too early to tell.
    pub late: usize,
}

/// Number of findings by what noting them did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct NotedCounts {
    /// Found for the first time.
    pub new: usize,
    /// Open already.
    pub known: usize,
    /// Had been closed, and are open again.
    pub reopened: usize,
    /// Are closed, and stay so.
    pub closed: usize,
}

impl ClassCounts {
    pub(super) fn of(verdicts: &[Verdict]) -> Self {
        let mut counts = Self::default();
        for verdict in verdicts {
            *match verdict.class {
                Class::Matched => &mut counts.matched,
                Class::Differs => &mut counts.differs,
                Class::Duplicate => &mut counts.duplicate,
                Class::MissingHere => &mut counts.missing_here,
                Class::MissingThere => &mut counts.missing_there,
                Class::Likely => &mut counts.likely,
                Class::Absent => &mut counts.absent,
                Class::Unproven => &mut counts.unproven,
                Class::Late => &mut counts.late,
            } += 1;
        }
        counts
    }
}

impl NotedCounts {
    pub(super) fn add(&mut self, noted: &[Noted]) {
        for noted in noted {
            *match noted {
                Noted::New(_) => &mut self.new,
                Noted::Known(_) => &mut self.known,
                Noted::Reopened(_) => &mut self.reopened,
                Noted::Closed(_) => &mut self.closed,
            } += 1;
        }
    }
}
