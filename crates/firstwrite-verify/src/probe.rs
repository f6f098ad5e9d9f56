//! Tools of the checks: fresh keys, requests, counters, and a list of findings.

mod sending;

use std::collections::HashSet;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep};

use crate::call::Call;
use crate::catalogue::{self, Severity};
use crate::effects::{Counter, Mark};
use crate::error::Error;
use crate::finding::{Finding, Verdict};
use crate::json::Json;
use crate::plan::{Hint, Plan};
use crate::reply::Reply;
use crate::target::Target;
use crate::timeline::Exchange;
use crate::wire::{Silence, Trust};

/// One run against one API.
#[derive(Debug)]
pub(crate) struct Probe {
    pub(crate) plan: Arc<Plan>,
    pub(crate) target: Target,
    trust: Option<Trust>,
    pub(crate) counter: Counter,
    /// The body in other words, or why that cannot be had.
    pub(crate) json: Result<Json, String>,
    body: Vec<u8>,
    pub(crate) random: fastrand::Rng,
    /// Differs from run to run also under one seed: keys of an earlier run are used up.
    run: u64,
    keys: u64,
    requests: u32,
    pub(crate) began_at: Instant,
    pub(crate) findings: Vec<Finding>,
    pub(crate) exchanges: Vec<Exchange>,
    /// Digests of the bodies with which success was told.
    pub(crate) told: HashSet<u64>,
    /// The name of what is going on, for the timeline.
    pub(crate) scene: &'static str,
}

/// The reason why a scene ended early.
#[derive(Debug)]
pub(crate) struct Stop(pub(crate) String);

impl From<Silence> for Stop {
    fn from(silence: Silence) -> Self {
        Self(silence.to_string())
    }
}

/// Pauses before a busy key is asked again: short at first, then longer and longer.
const PAUSE_FIRST: Duration = Duration::from_millis(30);
const PAUSE_MAX: Duration = Duration::from_millis(800);
/// A failure that goes on for so long is no passing one.
const FAILURES_MAX: Duration = Duration::from_secs(3);

impl Probe {
    pub(crate) async fn new(plan: Plan) -> Result<Self, Error> {
        let target = Target::resolve(&plan.url, plan.reach).await?;
        let trust =
            if target.is_tls() { Some(Trust::load(plan.ca_file.as_deref())?) } else { None };
        let counter = Counter::new(&plan, &target).await?;
        let body = match counter.webhook_url() {
            Some(url) => replace(&plan.body, "{webhook}", url),
            None => plan.body.clone(),
        };
        let json = Json::parse(&body, plan.vary.as_deref());
        if let (Some(_), Err(error)) = (&plan.vary, &json) {
            return Err(Error::usage(format!("--vary: {error}")));
        }
        let random = fastrand::Rng::with_seed(plan.seed);
        Ok(Self {
            plan: Arc::new(plan),
            target,
            trust,
            counter,
            json,
            body,
            random,
            run: fastrand::u64(..),
            keys: 0,
            requests: 0,
            began_at: Instant::now(),
            findings: Vec::new(),
            exchanges: Vec::new(),
            told: HashSet::new(),
            scene: "first",
        })
    }

    pub(crate) fn requests(&self) -> u32 {
        self.requests
    }

    /// Returns an unused key in the form of a UUID: some servers accept nothing else.
    pub(crate) fn key(&mut self) -> String {
        self.keys += 1;
        let mut random = fastrand::Rng::with_seed(self.run ^ self.keys.rotate_left(32));
        let (high, low) = (random.u64(..), random.u64(..));
        format!(
            "{:08x}-{:04x}-4{:03x}-8{:03x}-{:012x}",
            high >> 32,
            (high >> 16) & 0xffff,
            high & 0xfff,
            (low >> 48) & 0xfff,
            low & 0xffff_ffff_ffff
        )
    }

    /// The user's request without a key.
    pub(crate) fn keyless(&self) -> Call {
        let mut call = Call::new(self.plan.method.clone(), self.target.path_and_query());
        for (name, value) in &self.plan.headers {
            let value = match self.counter.webhook_url() {
                Some(url) => value.replace("{webhook}", url),
                None => value.clone(),
            };
            call = call.given(&(name.clone(), value));
        }
        if !self.body.is_empty() && !call.has("content-type") {
            let kind =
                if self.json.is_ok() { "application/json" } else { "application/octet-stream" };
            call = call.header("Content-Type", kind);
        }
        call.body(self.body.clone())
    }

    /// The user's request under this key.
    pub(crate) fn call(&self, key: &str) -> Call {
        self.keyless().header(&self.plan.key_header, self.plan.profile.spelled(key))
    }

    /// The user's request under this key, slow if the user said how.
    pub(crate) fn slow_call(&self, key: &str) -> Call {
        match &self.plan.slow {
            Some(hint) => hinted(self.call(key), hint),
            None => self.call(key),
        }
    }

    /// Sends a request until the key is no longer busy, or for as long as the limit says.
    pub(crate) async fn settle(&mut self, call: &Call) -> Result<Reply, Stop> {
        self.settle_unlike(call, None).await
    }

    /// The same; but a refusal of another kind than this one is a last word.
    pub(crate) async fn settle_unlike(
        &mut self,
        call: &Call,
        busy: Option<&Reply>,
    ) -> Result<Reply, Stop> {
        let began_at = Instant::now();
        let mut pause = PAUSE_FIRST;
        loop {
            let reply = self.send(call).await?;
            let is_last = match reply.status() {
                // Some servers give the stored answer under a status that says to come back.
                Some(409 | 423 | 425) => {
                    reply.answer().is_some_and(|answer| self.told.contains(&digest(&answer.body)))
                        || busy.is_some_and(|busy| reply.kind() != busy.kind())
                }
                // The server, or what stands before it, is away.
                None | Some(502..=504) => false,
                // A client that is told of a failure comes back as well, but not for ever.
                Some(500..) => began_at.elapsed() >= FAILURES_MAX,
                Some(_) => true,
            };
            if is_last || began_at.elapsed() >= self.plan.limits.settle {
                return Ok(reply);
            }
            sleep(pause).await;
            pause = (pause * 2).min(PAUSE_MAX);
        }
    }

    pub(crate) async fn mark(&mut self) -> Result<Mark, Stop> {
        self.counter.mark(self.trust.as_ref()).await.map_err(Stop)
    }

    /// Returns the number of effects since the mark, or `None` if it is unknown.
    pub(crate) async fn effects(
        &mut self,
        mark: Mark,
        replies: &[&Reply],
    ) -> Result<Option<u64>, Stop> {
        self.effects_besides(mark, &[], replies).await
    }

    /// The same, where some were answered before the mark.
    pub(crate) async fn effects_besides(
        &mut self,
        mark: Mark,
        known: &[&Reply],
        replies: &[&Reply],
    ) -> Result<Option<u64>, Stop> {
        self.counter.since(mark, (known, replies), self.trust.as_ref()).await.map_err(Stop)
    }

    pub(crate) fn pass(&mut self, id: &str, sent: &str, found: &str) {
        self.note(id, Verdict::Passed, sent, found);
    }

    pub(crate) fn fail(&mut self, id: &str, sent: &str, found: &str) {
        self.note(id, Verdict::Failed(catalogue::named(id).severity), sent, found);
    }

    /// A failure that is not as bad as the check's worst.
    pub(crate) fn fail_as(&mut self, severity: Severity, id: &str, sent: &str, found: &str) {
        let severity = severity.min(catalogue::named(id).severity);
        self.note(id, Verdict::Failed(severity), sent, found);
    }

    /// Notes that the check needs something that was not given.
    pub(crate) fn not_asked(&mut self, id: &str, why: &str) {
        self.note(id, Verdict::NotAsked, "", why);
    }

    pub(crate) fn does_not_apply(&mut self, id: &str, why: &str) {
        self.note(id, Verdict::DoesNotApply, "", why);
    }

    /// The body of another request, or a note that there is none.
    pub(crate) fn other_body(&mut self, id: &str) -> Option<Vec<u8>> {
        match &self.json {
            Ok(json) => Some(json.other()),
            Err(why) => {
                let why = why.clone();
                self.not_asked(id, &why);
                None
            }
        }
    }

    /// Notes how often something happened where once is right.
    pub(crate) fn once(&mut self, id: &str, effects: Option<u64>, sent: &str, found: &str) {
        match effects {
            None => self.not_asked(id, UNCOUNTED),
            Some(1) => self.pass(id, sent, &format!("1 effect; {found}")),
            Some(count) => self.fail(id, sent, &format!("{count} effects; {found}")),
        }
    }

    /// Returns true if a check has failed with more than minor severity: by more than a wording or a status.
    pub(crate) fn has_failed(&self, id: &str) -> bool {
        let failed =
            |verdict| matches!(verdict, Verdict::Failed(severity) if severity > Severity::Minor);
        self.findings.iter().any(|finding| finding.check.id == id && failed(finding.verdict))
    }

    /// Returns true if a check has a finding.
    pub(crate) fn is_noted(&self, id: &str) -> bool {
        self.findings.iter().any(|finding| finding.check.id == id)
    }

    fn note(&mut self, id: &str, verdict: Verdict, sent: &str, found: &str) {
        let finding = Finding {
            check: catalogue::named(id),
            verdict,
            sent: sent.to_owned(),
            found: found.to_owned(),
        };
        debug_assert!(!self.is_noted(id), "{id} is noted twice");
        self.findings.push(finding);
    }
}

/// Reason given when the number of effects is unknown.
pub(crate) const UNCOUNTED: &str = "effects are not counted: answers hold no id; give --effects-url, --effects-webhook or --id-pointer";

/// Adds the hint that makes the server slow, or fail, to the request.
pub(crate) fn hinted(call: Call, hint: &Hint) -> Call {
    match hint {
        Hint::Header(header) => call.given(header),
        Hint::Query(query) => {
            let path = with_query(call.path_now(), query);
            call.path(path)
        }
    }
}

pub(crate) fn digest(body: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    body.hash(&mut hasher);
    hasher.finish()
}

/// The path with another part of a query.
pub(crate) fn with_query(path: &str, query: &str) -> String {
    let mark = if path.contains('?') { '&' } else { '?' };
    format!("{path}{mark}{query}")
}

fn replace(body: &[u8], hole: &str, with: &str) -> Vec<u8> {
    match std::str::from_utf8(body) {
        Ok(text) => text.replace(hole, with).into_bytes(),
        Err(_) => body.to_vec(),
    }
}
