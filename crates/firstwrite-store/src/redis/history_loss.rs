//! Detects the loss of acknowledged history: a fail-over to a replica that was behind, a restart without
//! all of the log, a store that was emptied or restored from a backup.
//!
//! A server counts the writes to it; in a cluster, each shard does. Every answer carries the count and the
//! *life* of the server that it comes from. The store remembers the life and the highest count in it,
//! including other processes' writes, and sends both with every unknown key: the script writes nothing if
//! the life differs or the count is lower. A server that was started or promoted since begins a new life
//! and notes the count at which it began, so a loss is found even after others have written on. A process
//! that remembers nothing recognises a promoted replica by the name of the history that it continues.
//!
//! The store reads all lives when it is opened, when one has changed, and in every sweep. A loss in one
//! marks all of them: the script refuses unknown keys until an operator has examined and cleared the loss.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use firstwrite_core::encoding::{Reader, put_bytes};
use firstwrite_core::{
    ClearedLoss, HistoryLoss, RecordId, StoreError, StoreErrorKind, Timestamp, lock, lost_again,
};
use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use redis::Value;

use super::admission;
use super::driver_error::{DriverError, corrupt};
use super::keys::Shard;
use super::link::{Link, bytes};
use super::record::instant;
use super::routing::Router;
use super::scripts::{Call, CommandArgs, Script};

/// The last known state of each server, by the shard that has the mark.
#[derive(Debug)]
pub(super) struct Memory {
    marks: Mutex<Vec<KnownMark>>,
    /// Held while the servers are asked.
    asking: tokio::sync::Mutex<()>,
    /// Number of times that all servers were asked.
    verified: AtomicU64,
}

/// Last known state of one server: its life, the highest count seen in it, and the time of that answer.
#[derive(Clone, Debug)]
pub(super) struct KnownMark {
    /// Empty before the first check.
    pub(super) token: Arc<str>,
    pub(super) seen: u64,
    at: Timestamp,
}

/// Maximum number of shards asked at the same time.
pub(super) const AT_ONCE: usize = 64;

const DOING: &str = "looking for lost history";

impl Default for Memory {
    fn default() -> Self {
        let unknown = KnownMark { token: "".into(), seen: 0, at: Timestamp::from_millis(0) };
        Self {
            marks: Mutex::new(vec![unknown; Shard::all().len()]),
            asking: tokio::sync::Mutex::default(),
            verified: AtomicU64::new(0),
        }
    }
}

impl Memory {
    pub(super) fn of(&self, marked: Shard) -> KnownMark {
        lock(&self.marks)[marked.place()].clone()
    }

    pub(super) fn verified(&self) -> u64 {
        self.verified.load(Ordering::Acquire)
    }

    /// Notes a server's answer with this count, in this life. Returns true if it is the known life: a count
    /// of another life says nothing about it.
    pub(super) fn acknowledged(
        &self,
        marked: Shard,
        token: &str,
        count: u64,
        at: Timestamp,
    ) -> bool {
        let mut marks = lock(&self.marks);
        let known = &mut marks[marked.place()];
        let is_same = *known.token == *token;
        if is_same && count >= known.seen {
            (known.seen, known.at) = (count, at);
        }
        is_same
    }

    /// Notes the result of a verification. A loss is reported once: from then on the loss is recorded on
    /// the server.
    fn verified_history(
        &self,
        marked: Shard,
        HistoryCheck { token, count, at, lost }: &HistoryCheck,
    ) {
        if lost.is_some() || !self.acknowledged(marked, token, *count, *at) {
            let known = KnownMark { token: token.as_str().into(), seen: *count, at: *at };
            lock(&self.marks)[marked.place()] = known;
        }
    }
}

/// A server's answer to the check for lost history.
struct HistoryCheck {
    token: String,
    count: u64,
    at: Timestamp,
    lost: Option<&'static str>,
}

/// Refuses a key that is not known while history is missing.
pub(super) fn refuse(doing: &'static str) -> StoreError {
    StoreError::definite(StoreErrorKind::HistoryLost, doing)
        .caused_by("the server has lost acknowledged writes; an operator must clear the loss")
}

/// See [`firstwrite_core::Store::check_history`].
pub(super) async fn check(
    router: &Router,
    memory: &Memory,
    id: RecordId,
) -> Result<(), StoreError> {
    let error = |error: DriverError| error.read_error(DOING);
    let mark = || async move {
        let marked = router.marked(Shard::of(id));
        // Read before the server is asked: other answers raise it meanwhile.
        let known = memory.of(marked);
        let mut command = redis::cmd("HMGET");
        command.arg(router.keys.mark(marked)).arg(&["token", "count", "loss"]);
        let Value::Array(fields) = router.ask(marked, &command).await? else { return Ok(None) };
        let text = |place: usize| str::from_utf8(fields.get(place).and_then(bytes)?).ok();
        let count = text(1).and_then(|digits| digits.parse::<u64>().ok()).unwrap_or(0);
        let is_current = text(0) == Some(&*known.token) && count >= known.seen;
        Ok::<_, DriverError>(is_current.then_some(text(2).is_some()))
    };
    for _ in 0..2 {
        let verified = memory.verified();
        match mark().await.map_err(error)? {
            Some(false) => return Ok(()),
            Some(true) => return Err(refuse(DOING)),
            None => verify_since(router, memory, verified).await.map_err(error)?,
        }
    }
    let changing = StoreError::definite(StoreErrorKind::Unavailable, DOING);
    Err(changing.caused_by("the server is restarted again and again"))
}

/// Checks the history for a store that only reads: relies on what writers have noticed.
pub(super) async fn check_noticed(router: &Router) -> Result<(), StoreError> {
    if stands(router).await? { Err(refuse(DOING)) } else { Ok(()) }
}

/// Checks that every server still has all acknowledged writes, before unknown keys are written to it. None
/// of the caller's writes has been sent yet.
pub(super) async fn verify(router: &Router, memory: &Memory) -> Result<(), DriverError> {
    let _turn = memory.asking.lock().await;
    ask_all(router, memory).await
}

/// Verifies the servers unless another caller has done so since `verified` was read.
pub(super) async fn verify_since(
    router: &Router,
    memory: &Memory,
    verified: u64,
) -> Result<(), DriverError> {
    let _turn = memory.asking.lock().await;
    if memory.verified() == verified { ask_all(router, memory).await } else { Ok(()) }
}

async fn ask_all(router: &Router, memory: &Memory) -> Result<(), DriverError> {
    let unsent = |error: DriverError| match error {
        DriverError::Lost(text) | DriverError::Unconfirmed(text) => DriverError::NotSent(text),
        unsent @ (DriverError::NotSent(_) | DriverError::Reply(_)) => unsent,
    };
    router.refresh().await.map_err(unsent)?;
    let marked = router.all_marked().await?;
    let asked = each(marked.into_iter(), |shard| verify_history(router, memory, shard)).await;
    let lost: Vec<String> = asked.map_err(unsent)?.into_iter().flatten().collect();
    if let Some(first) = lost.first() {
        tracing::error!(
            server = %router.address,
            "{first}: unknown keys are refused until an operator clears it"
        );
        raise(router, first).await.map_err(unsent)?;
    }
    memory.verified.fetch_add(1, Ordering::AcqRel);
    Ok(())
}

/// Verifies one server. Returns what is missing there.
async fn verify_history(
    router: &Router,
    memory: &Memory,
    marked: Shard,
) -> Result<Option<String>, DriverError> {
    let (known, token, options) = (memory.of(marked), new_token(), &router.address.options);
    let call = |link: &Link| {
        let about = link.about();
        Call {
            script: Script::VerifyHistory,
            keys: [router.keys.mark(marked)].into(),
            args: CommandArgs::from([
                about.run(),
                about.history(),
                about.former_history(),
                if options.accept_key_loss { "0" } else { about.evicted() },
                &known.token,
                &known.seen.to_string(),
                &known.at.as_millis().to_string(),
                &token,
                if options.trusts_fail_over { "1" } else { "0" },
            ]),
        }
    };
    let answer = router.run(marked, call).await?;
    let check = HistoryCheck::read(&answer)
        .ok_or_else(|| DriverError::NotSent("a check is not answered".to_owned()))?;
    memory.verified_history(marked, &check);
    let (count, seen) = (check.count, known.seen);
    Ok(check.lost.map(|lost| format!("{lost} ({count} writes are there, {seen} were seen)")))
}

impl HistoryCheck {
    fn read(answer: &Value) -> Option<Self> {
        let Value::Array(parts) = answer else { return None };
        let [Value::Int(at), token, Value::Int(count), lost] = &parts[..] else { return None };
        let text = |value| str::from_utf8(bytes(value)?).ok();
        let lost = match text(lost)? {
            "" => None,
            "promoted" => Some("a replica took over, and may have been behind"),
            "evicted" => Some("the server evicted keys"),
            _ => Some("writes that were acknowledged are missing"),
        };
        let (token, count) = (text(token)?.to_owned(), u64::try_from(*count).ok()?);
        Some(Self { token, count, at: Timestamp::from_millis(*at), lost })
    }
}

/// Marks every shard: a server that lost part of one has lost part of others.
async fn raise(router: &Router, detail: &str) -> Result<(), DriverError> {
    each(router.all_marked().await?.into_iter(), |shard| {
        let call =
            Call { script: Script::Raise, keys: marks_of(router, shard), args: [detail].into() };
        async move { router.run(shard, |_link| call.clone()).await.map(drop) }
    })
    .await?;
    // If everything was lost, the marker of the store is lost too.
    admission::create(router).await.map(drop)
}

/// The mark, and in the first shard the journal.
fn marks_of(router: &Router, marked: Shard) -> CommandArgs {
    let mut keys = CommandArgs::from([router.keys.mark(marked)]);
    if marked == Shard(0) {
        keys.push(router.keys.history_losses());
    }
    keys
}

/// Returns the life of each server that its marks name, and the count that was seen in it, after checking that
/// nothing of it is missing: see [`clear`].
pub(super) async fn lives(
    router: &Router,
    memory: &Memory,
) -> Result<Vec<(Shard, KnownMark)>, StoreError> {
    let error = |error: DriverError| error.error(DOING);
    verify(router, memory).await.map_err(error)?;
    let marked = router.all_marked().await.map_err(error)?;
    Ok(marked.into_iter().map(|shard| (shard, memory.of(shard))).collect())
}

/// Fails unless the lives are `now` those that were read `before`, on all servers: so none is cleared where one has
/// begun another life.
pub(super) fn compare(
    before: &[(Shard, KnownMark)],
    now: &[(Shard, KnownMark)],
) -> Result<(), StoreError> {
    let mut both = before.iter().zip(now);
    let goes_on = both.all(|((shard, before), (same, now))| {
        shard == same && before.token == now.token && before.seen <= now.seen
    });
    let is_same = before.len() == now.len() && goes_on;
    if is_same { Ok(()) } else { Err(lost_again(DOING)) }
}

/// Clears the losses that were open in `lives`, with all their counted writes. A server that has begun another life
/// since, or whose count went down, may have had an older copy put back behind the marking of records: it stays
/// marked.
pub(super) async fn clear(
    router: &Router,
    lives: &[(Shard, KnownMark)],
    (actor, reason): (&str, &str),
) -> Result<usize, StoreError> {
    let mut why = Vec::new();
    put_bytes(&mut why, actor.as_bytes());
    put_bytes(&mut why, reason.as_bytes());
    let error = |error: DriverError| error.error(DOING);
    let cleared = each(lives.iter(), |(shard, known)| {
        let (why, token, shard) = (&why, new_token(), *shard);
        async move {
            let call = |link: &Link| {
                let about = link.about();
                let mut args =
                    CommandArgs::from([about.run(), about.history(), about.evicted(), &*token]);
                args.push(why);
                args.push(&*known.token);
                args.push(known.seen.to_string());
                Call { script: Script::Clear, keys: marks_of(router, shard), args }
            };
            router.run(shard, call).await
        }
    });
    let cleared = cleared.await.map_err(error)?;
    if cleared.contains(&Value::Int(-1)) {
        return Err(lost_again(DOING));
    }
    Ok(usize::from(cleared.contains(&Value::Int(1))))
}

/// Returns true if a server has an open history loss.
pub(super) async fn stands(router: &Router) -> Result<bool, StoreError> {
    let error = |error: DriverError| error.read_error(DOING);
    let marked = router.all_marked().await.map_err(error)?;
    let asked = each(marked.into_iter(), |shard| async move {
        router.ask(shard, redis::cmd("HGET").arg(router.keys.mark(shard)).arg("loss")).await
    });
    Ok(asked.await.map_err(error)?.iter().any(|loss| bytes(loss).is_some()))
}

/// See [`super::RedisStore::history_losses`].
pub(super) async fn all(router: &Router) -> Result<Vec<HistoryLoss>, StoreError> {
    let mut command = redis::cmd("LRANGE");
    command.arg(router.keys.history_losses()).arg(0).arg(-1);
    let value = router.ask(Shard(0), &command).await.map_err(|error| error.read_error(DOING))?;
    let Value::Array(entries) = value else { return Err(corrupt("the journal is no list")) };
    let mut losses: Vec<HistoryLoss> = Vec::new();
    for entry in entries.iter().filter_map(bytes) {
        let (kind, entry) =
            entry.split_first().ok_or_else(|| corrupt("an entry of the journal is empty"))?;
        let (at, rest) = entry
            .split_first_chunk()
            .ok_or_else(|| corrupt("an entry of the journal is too short"))?;
        let at = instant(at)?;
        match kind {
            b'r' => {
                let detail = String::from_utf8_lossy(rest).into_owned();
                losses.push(HistoryLoss::new(at, detail, None));
            }
            _ => read_cleared(&mut losses, at, rest)?,
        }
    }
    Ok(losses)
}

fn read_cleared(losses: &mut [HistoryLoss], at: Timestamp, rest: &[u8]) -> Result<(), StoreError> {
    let mut rest = Reader(rest);
    let mut text = || match rest.bytes() {
        Ok(bytes) => Ok(String::from_utf8_lossy(bytes).into_owned()),
        Err(_short) => Err(corrupt("an entry of the journal is too short")),
    };
    let cleared = ClearedLoss::new(at, text()?, text()?);
    for loss in losses.iter_mut().filter(|loss| loss.cleared.is_none()) {
        loss.cleared = Some(cleared.clone());
    }
    Ok(())
}

/// Asks many shards, a few at a time; answers in their order.
pub(super) async fn each<S, T, E, F>(
    shards: impl Iterator<Item = S>,
    ask: impl Fn(S) -> F,
) -> Result<Vec<T>, E>
where
    F: Future<Output = Result<T, E>>,
{
    stream::iter(shards.map(ask)).buffered(AT_ONCE).try_collect().await
}

/// A name that no other life of any shard has.
fn new_token() -> String {
    use std::hash::{BuildHasher as _, RandomState};
    let draw = || RandomState::new().hash_one(0);
    format!("{:016x}{:016x}", draw(), draw())
}
