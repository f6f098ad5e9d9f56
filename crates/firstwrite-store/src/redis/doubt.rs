//! Noticing that acknowledged history was lost: a fail-over to a replica that was behind, a restart without all
//! of the log, a store that somebody emptied or put back from a backup.
//!
//! Every shard counts its writes. The store remembers the highest count that each shard acknowledged to it and
//! names it with every unknown key: the script writes nothing where the count is lower. A server that was started
//! or promoted since begins a new *life* of the shard, which notes at which count it began; so what was lost before
//! others wrote on is found too. A process that remembers nothing finds a promoted replica by the name of the
//! history it follows on.
//!
//! In all these cases every shard is put in doubt: keys that are not known are refused, by the script that would
//! write them, until an operator has looked and cleared it.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use firstwrite_core::{StoreError, StoreErrorKind, Timestamp};
use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use redis::Value;

use super::fault::{Trouble, corrupt};
use super::keys::Shard;
use super::link::{Link, bytes};
use super::record::instant;
use super::scripts::{Call, Script};
use super::ways::Ways;
use super::words::Words;
use crate::doubt::{ClearedDoubt, Doubt};
use crate::encoding::{Reader, put_bytes};

/// What a store remembers of its shards.
#[derive(Debug)]
pub(super) struct Memory {
    shards: Mutex<Vec<Known>>,
}

/// What is known of one shard: which life it is in, and the highest count it acknowledged.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Known {
    /// Empty before the first greeting.
    pub(super) token: Arc<str>,
    pub(super) seen: u64,
}

/// Shards that are asked at a time.
pub(super) const AT_ONCE: usize = 64;

const DOING: &str = "looking for lost history";
/// Where a mark says that its shard is in doubt; see `mark.lua`.
const DOUBT_AT: usize = 17;
/// What a server says that follows on no other.
const NO_HISTORY: &str = "none";

impl Default for Memory {
    fn default() -> Self {
        Self { shards: Mutex::new(vec![Known::default(); Shard::all().len()]) }
    }
}

impl Memory {
    pub(super) fn of(&self, shard: Shard) -> Known {
        self.shards()[shard.place()].clone()
    }

    /// The shard answered with this count, in the life that was `known` when it was asked.
    pub(super) fn acknowledged(&self, shard: Shard, known: &Known, count: u64) {
        let mut shards = self.shards();
        let now = &mut shards[shard.place()];
        if now.token == known.token {
            now.seen = now.seen.max(count);
        }
    }

    fn begin(&self, shard: Shard, token: &str, seen: u64) {
        self.shards()[shard.place()] = Known { token: token.into(), seen };
    }

    /// Nothing here panics while it holds the lock, so a poisoned one is still whole.
    fn shards(&self) -> MutexGuard<'_, Vec<Known>> {
        self.shards.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Refuses a key that is not known while history is missing.
pub(super) fn refuse(doing: &'static str) -> StoreError {
    StoreError::definite(StoreErrorKind::InDoubt, doing)
        .caused_by("the server has lost acknowledged writes; an operator must clear the doubt")
}

/// Asks the server of a shard whether what was acknowledged is still there, before unknown keys are written to it.
/// Nothing that the caller wants written has been sent yet.
pub(super) async fn greet(ways: &Ways, memory: &Memory, shard: Shard) -> Result<(), Trouble> {
    let (known, token) = (memory.of(shard), new_token());
    let trusts = if ways.address.options.trusts_fail_over { "1" } else { "0" };
    let call = |link: &Link| Call {
        script: Script::Greet,
        keys: [ways.keys.mark(shard), ways.keys.news(shard), ways.keys.lives(shard)].into(),
        args: Words::from([
            link.run(),
            &link.history(),
            link.says("master_replid2").unwrap_or(NO_HISTORY),
            &known.token,
            &known.seen.to_string(),
            &token,
            trusts,
        ]),
    };
    let unsent = |trouble: Trouble| match trouble {
        Trouble::Lost(text) | Trouble::Unconfirmed(text) => Trouble::NotSent(text),
        unsent @ (Trouble::NotSent(_) | Trouble::Said(_)) => unsent,
    };
    let answer = ways.run(shard, call).await.map_err(unsent)?;
    let wrong = || Trouble::NotSent("a greeting is not answered".to_owned());
    let Value::Array(parts) = answer else { return Err(wrong()) };
    let [token, Value::Int(count), lost] = &parts[..] else { return Err(wrong()) };
    let text = |value| bytes(value).and_then(|bytes| str::from_utf8(bytes).ok());
    let (token, lost) = (text(token).ok_or_else(wrong)?, text(lost).ok_or_else(wrong)?);
    let count = u64::try_from(*count).unwrap_or_default();
    let what = match lost {
        "" => None,
        "promoted" => Some("a replica took over, and may have been behind"),
        _ => Some("writes that were acknowledged are missing"),
    };
    if let Some(what) = what {
        tracing::error!(
            server = %ways.address,
            shard = shard.0,
            count,
            seen = known.seen,
            "{what}: unknown keys are refused until an operator clears it"
        );
        let detail =
            format!("{what} (shard {:02x}: {count} writes, {} were seen)", shard.0, known.seen);
        raise(ways, &detail).await.map_err(unsent)?;
    }
    // Said once: the doubt stands for itself from now on, and an operator may clear it.
    memory.begin(shard, token, count);
    Ok(())
}

/// Sees to it that the marks name the histories that are written now, so that a promoted replica is known by the one
/// it follows on.
pub(super) async fn note_histories(ways: &Ways) -> Result<(), Trouble> {
    let mut is_any_new = false;
    for (_, link) in ways.masters().await? {
        is_any_new |= link.has_new_history().await?;
    }
    if !is_any_new {
        return Ok(());
    }
    each(Shard::all(), |shard| async move {
        let call = |link: &Link| Call {
            script: Script::Note,
            keys: [ways.keys.mark(shard)].into(),
            args: Words::from([link.run(), &link.history()]),
        };
        ways.run(shard, call).await.map(drop)
    })
    .await
    .map(drop)
}

/// Puts every shard in doubt: who lost part of one has lost part of others.
async fn raise(ways: &Ways, detail: &str) -> Result<(), Trouble> {
    // The journal first: no doubt without a reason.
    let call = |shard: Shard| {
        let mut keys = Words::from([ways.keys.mark(shard)]);
        if shard == Shard(0) {
            keys.push(ways.keys.journal());
        }
        Call { script: Script::Raise, keys, args: [detail].into() }
    };
    each(Shard::all(), |shard| {
        let call = call(shard);
        async move { ways.run(shard, |_link| call.clone()).await.map(drop) }
    })
    .await
    .map(drop)
}

/// See [`super::RedisStore::clear_doubts`].
pub(super) async fn clear(ways: &Ways, actor: &str, reason: &str) -> Result<usize, StoreError> {
    let mut why = Vec::new();
    put_bytes(&mut why, actor.as_bytes());
    put_bytes(&mut why, reason.as_bytes());
    let cleared = each(Shard::all(), |shard| {
        let why = why.clone();
        async move {
            let of_shard = [ways.keys.mark(shard), ways.keys.news(shard), ways.keys.lives(shard)];
            let mut keys = Words::from(of_shard);
            if shard == Shard(0) {
                keys.push(ways.keys.journal());
            }
            let token = new_token();
            let call = |link: &Link| {
                let mut args = Words::from([link.run(), &link.history(), &token]);
                args.push(&why);
                Call { script: Script::Clear, keys: keys.clone(), args }
            };
            ways.run(shard, call).await
        }
    });
    let cleared = cleared.await.map_err(|trouble| trouble.error(DOING))?;
    Ok(usize::from(cleared.contains(&Value::Int(1))))
}

/// Whether a shard is in doubt at this moment.
pub(super) async fn stands(ways: &Ways) -> Result<bool, StoreError> {
    let asked = each(Shard::all(), |shard| async move {
        ways.ask(shard, redis::cmd("GET").arg(ways.keys.mark(shard))).await
    });
    let marks = asked.await.map_err(|trouble| trouble.read_error(DOING))?;
    Ok(marks.iter().filter_map(bytes).any(|mark| mark.get(DOUBT_AT) == Some(&b'd')))
}

/// See [`super::RedisStore::doubts`].
pub(super) async fn all(ways: &Ways) -> Result<Vec<Doubt>, StoreError> {
    let mut command = redis::cmd("LRANGE");
    command.arg(ways.keys.journal()).arg(0).arg(-1);
    let value = ways.ask(Shard(0), &command).await.map_err(|trouble| trouble.read_error(DOING))?;
    let Value::Array(entries) = value else { return Err(corrupt("the journal is no list")) };
    let mut doubts: Vec<Doubt> = Vec::new();
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
                doubts.push(Doubt { noticed_at: at, detail, cleared: None });
            }
            _ => read_cleared(&mut doubts, at, rest)?,
        }
    }
    Ok(doubts)
}

fn read_cleared(doubts: &mut [Doubt], at: Timestamp, rest: &[u8]) -> Result<(), StoreError> {
    let mut rest = Reader(rest);
    let mut text = || match rest.bytes() {
        Ok(bytes) => Ok(String::from_utf8_lossy(bytes).into_owned()),
        Err(_short) => Err(corrupt("an entry of the journal is too short")),
    };
    let cleared = ClearedDoubt { at, by: text()?, reason: text()? };
    for doubt in doubts.iter_mut().filter(|doubt| doubt.cleared.is_none()) {
        doubt.cleared = Some(cleared.clone());
    }
    Ok(())
}

/// Asks many shards, a few at a time; answers in their order.
pub(super) async fn each<T, E, F>(
    shards: impl Iterator<Item = Shard>,
    ask: impl Fn(Shard) -> F,
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
