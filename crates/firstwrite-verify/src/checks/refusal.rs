//! Judges requests that must not run: the server must refuse them, with a status that clients expect.

use crate::call::Call;
use crate::catalogue::Severity;
use crate::probe::{Probe, Stop};
use crate::reply::Reply;
use crate::wire::Silence;

/// The worst result among requests that must be refused.
#[derive(Debug, Default)]
pub(super) struct Refusals {
    worst: Option<Severity>,
    sent: String,
    found: String,
    /// A closed connection is an answer to what is no HTTP.
    may_close: bool,
}

impl Refusals {
    pub(super) fn or_closed() -> Self {
        Self { may_close: true, ..Self::default() }
    }

    /// Sends a request that must be refused with one of these statuses; the first of them is the one to say.
    pub(super) async fn ask(
        &mut self,
        probe: &mut Probe,
        call: &Call,
        statuses: &[u16],
    ) -> Result<Reply, Stop> {
        let mark = probe.mark().await?;
        let reply = probe.send(call).await?;
        self.judge(call, &reply, statuses);
        let effects = probe.effects(mark, &[]).await?;
        if effects.is_some_and(|count| count > 0) && !reply.is_success() {
            self.note(Some(Severity::Critical), call, &reply, "it ran all the same: ");
        }
        Ok(reply)
    }

    pub(super) fn judge(&mut self, call: &Call, reply: &Reply, statuses: &[u16]) {
        let (badness, why) = match reply.answer() {
            None if self.may_close && reply.result == Err(Silence::Closed) => (None, ""),
            None => (Some(Severity::Minor), "no answer: "),
            Some(answer) if answer.is_success() => {
                (Some(Severity::Critical), "it was not refused: ")
            }
            Some(answer) if answer.is_failure() => {
                (Some(Severity::Critical), "the server failed: ")
            }
            Some(answer) if statuses.contains(&answer.status) => (None, ""),
            Some(_) => (Some(Severity::Minor), "refused, with an unusual status: "),
        };
        self.note(badness, call, reply, why);
    }

    fn note(&mut self, badness: Option<Severity>, call: &Call, reply: &Reply, why: &str) {
        if self.sent.is_empty() || badness > self.worst {
            self.worst = badness;
            self.sent = call.summary();
            self.found = format!("{why}{}", reply.summary());
        }
    }

    /// Records the worst result as the finding of check `id`.
    pub(super) fn tell(self, probe: &mut Probe, id: &str) {
        self.tell_at_most(Severity::Critical, probe, id);
    }

    /// Records the worst result as the finding of check `id`, with at most this severity.
    pub(super) fn tell_at_most(self, most: Severity, probe: &mut Probe, id: &str) {
        match self.worst {
            None => probe.pass(id, &self.sent, &self.found),
            Some(severity) => probe.fail_as(severity.min(most), id, &self.sent, &self.found),
        }
    }
}
