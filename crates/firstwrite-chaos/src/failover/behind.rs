//! A failover to a standby that lacks the last writes: what the service must do, step by step.

use std::fmt;
use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use serde_json::Value;

use super::Site;
use crate::clients::books;
use crate::clients::ledger::{Answer, KeyId, Tenant};
use crate::clients::load::{ANSWER_MAX, asks_to_come_again, payment};
use crate::clock::{Deadline, Stopwatch, pause, wait_until};
use crate::http::{Client, Response};

/// Enough to see that it is no accident, few enough to be spelled out.
const KEYS: usize = 20;
/// Maximum time until the service finds its new primary.
const VERDICT_MAX: Duration = Duration::from_mins(1);
/// Maximum time until the service learns of an operator's decision.
pub(super) const HEAR_MAX: Duration = Duration::from_secs(30);
const KNOCK: Duration = Duration::from_millis(50);
/// So many counter-examples per question are spelled out.
const SPELLED_OUT_MAX: usize = 3;

/// Questions that were asked, with their findings.
#[derive(Debug, Default)]
pub(super) struct Findings {
    questions: Vec<Question>,
}

/// Something that must be so for each of a number of keys.
#[derive(Debug)]
struct Question {
    text: &'static str,
    asked: usize,
    /// The keys for which it is not so.
    wrong: Vec<String>,
}

/// Reply to a key.
#[derive(Debug)]
enum Reply {
    Answer(Answer),
    /// 409: the outcome is unknown.
    OutcomeUnknown,
    Other(String),
}

/// Goes through the whole of it; what was wrong is in the findings.
pub(super) fn fail_over(
    site: &mut dyn Site,
    seed: u64,
    hear_max: Duration,
) -> anyhow::Result<Findings> {
    let mut findings = Findings::default();
    let keys = |kind: &str| -> Vec<KeyId> {
        (0..KEYS)
            .map(|number| KeyId {
                tenant: Tenant::ALL[number % 2],
                key: format!("{kind}_{seed:x}_{number}"),
            })
            .collect()
    };
    let (kept, lost, unknown) = (keys("kept"), keys("lost"), keys("unknown"));

    let address = site.start()?;
    let first = pay_all(address, &kept).context("before the standby is cut off")?;
    site.hold_back()?;
    pay_all(address, &lost).context("after the standby is cut off")?;
    let address = site.fail_over()?;

    // No patience with a service that runs an unknown key first and doubts later.
    let replies = ask_all(address, &unknown);
    findings.all("keys nobody has sent are in doubt", &unknown, &replies, is_history_lost);
    let replies = ask_all(address, &lost);
    findings.all("keys whose history is lost are in doubt", &lost, &replies, is_history_lost);
    let replies = ask_all(address, &kept);
    findings.all(
        "keys that survived replay",
        &kept,
        &replies,
        |number, reply| matches!(reply, Reply::Answer(answer) if first.get(number) == Some(answer)),
    );
    let paid = payments(address, &[&kept, &lost, &unknown])?;
    findings.counts("only keys that survived are paid", &paid, |key| {
        usize::from(key.key.starts_with("kept"))
    });

    site.clear_history_loss().context("clearing the doubt")?;
    let watch = Stopwatch::start();
    wait_until(hear_max, || is_answer(0, &ask(address, &unknown[0], Duration::ZERO)));
    println!("the first new key after clearing took {:.1} s", watch.seconds());
    let replies = ask_all(address, &unknown);
    findings.all("once cleared, new keys run", &unknown, &replies, is_answer);
    let replies = ask_all(address, &kept);
    findings.all(
        "once cleared, keys that survived still replay",
        &kept,
        &replies,
        |number, reply| matches!(reply, Reply::Answer(answer) if first.get(number) == Some(answer)),
    );
    let paid = payments(address, &[&kept, &unknown])?;
    findings.counts("each of these keys is paid once", &paid, |_| 1);
    Ok(findings)
}

fn is_history_lost(_: usize, reply: &Reply) -> bool {
    matches!(reply, Reply::OutcomeUnknown)
}

fn is_answer(_: usize, reply: &Reply) -> bool {
    matches!(reply, Reply::Answer(_))
}

/// Pays with every key, and insists on an answer.
fn pay_all(address: SocketAddr, keys: &[KeyId]) -> anyhow::Result<Vec<Answer>> {
    let mut answers = Vec::new();
    for (id, reply) in keys.iter().zip(ask_all(address, keys)) {
        match reply {
            Reply::Answer(answer) => answers.push(answer),
            Reply::OutcomeUnknown | Reply::Other(_) => bail!("{id}: {reply}"),
        }
    }
    Ok(answers)
}

fn ask_all(address: SocketAddr, keys: &[KeyId]) -> Vec<Reply> {
    keys.iter().map(|id| ask(address, id, VERDICT_MAX)).collect()
}

/// Sends one key until there is a verdict on it: it has run, or it is in doubt. A service that looks for
/// its new primary says that it is unavailable, and is asked again, for `limit` at most.
fn ask(address: SocketAddr, id: &KeyId, limit: Duration) -> Reply {
    let deadline = Deadline::after(limit);
    loop {
        let sent = Client::new(address, ANSWER_MAX).send(&payment(id));
        let reply = sent.map_or_else(|error| Reply::Other(error.to_string()), Reply::of);
        if deadline.is_over() || !matches!(reply, Reply::Other(_)) {
            return reply;
        }
        pause(KNOCK);
    }
}

fn payments(address: SocketAddr, keys: &[&[KeyId]]) -> anyhow::Result<Vec<(KeyId, usize)>> {
    let deadline = Deadline::after(VERDICT_MAX);
    let mut counts = Vec::new();
    for tenant in Tenant::ALL {
        let payments = books::read(address, tenant, deadline)?;
        for id in keys.iter().copied().flatten().filter(|id| id.tenant == tenant) {
            counts.push((id.clone(), payments.get(&id.key).map_or(0, Vec::len)));
        }
    }
    Ok(counts)
}

impl Reply {
    fn of(response: Response) -> Self {
        if response.status == 202 {
            return Self::Other("202: the final answer is still to come".to_owned());
        }
        if !asks_to_come_again(response.status) {
            return Self::Answer(Answer::of(response));
        }
        let problem: Value = serde_json::from_slice(&response.body).unwrap_or_default();
        let kind = problem["type"].as_str().unwrap_or("no problem type");
        if response.status == 409 && kind.ends_with("outcome-unknown") {
            return Self::OutcomeUnknown;
        }
        Self::Other(format!("{} {kind}", response.status))
    }
}

impl fmt::Display for Reply {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Answer(answer) => write!(f, "answered {answer}"),
            Self::OutcomeUnknown => f.write_str("409 outcome-unknown"),
            Self::Other(text) => f.write_str(text),
        }
    }
}

impl Findings {
    /// Asks one question of all replies.
    fn all(
        &mut self,
        text: &'static str,
        keys: &[KeyId],
        replies: &[Reply],
        is_so: impl Fn(usize, &Reply) -> bool,
    ) {
        let pairs = keys.iter().zip(replies).enumerate();
        let wrong = pairs.filter(|(number, (_, reply))| !is_so(*number, reply));
        let wrong = wrong.map(|(_, (id, reply))| format!("{id}: {reply}")).collect();
        self.questions.push(Question { text, asked: keys.len(), wrong });
    }

    fn counts(
        &mut self,
        text: &'static str,
        paid: &[(KeyId, usize)],
        due: impl Fn(&KeyId) -> usize,
    ) {
        let wrong = paid.iter().filter(|(id, count)| *count != due(id));
        let wrong = wrong.map(|(id, count)| format!("{id}: {count} payments")).collect();
        self.questions.push(Question { text, asked: paid.len(), wrong });
    }

    pub(super) fn judge(&self) -> anyhow::Result<()> {
        let wrong = self.questions.iter().filter(|question| !question.wrong.is_empty()).count();
        ensure!(wrong == 0, "{wrong} of {} questions are answered no", self.questions.len());
        Ok(())
    }
}

impl fmt::Display for Findings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for Question { text, asked, wrong } in &self.questions {
            let verdict = if wrong.is_empty() { "yes" } else { "NO" };
            writeln!(f, "{text:<48} {verdict:<3} ({}/{asked})", asked - wrong.len())?;
            for line in wrong.iter().take(SPELLED_OUT_MAX) {
                writeln!(f, "  {line}")?;
            }
        }
        Ok(())
    }
}
