//! Batches moves of many callers into one script.
//!
//! A script costs the server more than a move in it. Moves that arrive while one script is under way form
//! the next: no timer, and no wait when nothing is under way. Where one server has all shards, the shards
//! share scripts; in a cluster a script concerns one shard, so each shard has its own batches, and none
//! waits for the server of another.

use std::collections::{HashSet, VecDeque};
use std::sync::{Arc, Mutex};

use firstwrite_core::{RecordId, Timestamp, lock};
use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use redis::Value;
use tokio::sync::{Notify, oneshot};

use super::driver_error::{DriverError, ErrorReply};
use super::history_loss::Memory;
use super::keys::Shard;
use super::link::{Link, bytes};
use super::routing::Router;
use super::scripts::{Call, CommandArgs, Script};

/// An insert or a swap.
pub(super) struct Move {
    pub(super) id: RecordId,
    /// True if the move removes something: a full server may still accept that.
    pub(super) is_removal: bool,
    /// See `moves.lua`.
    pub(super) keys: CommandArgs,
    pub(super) audits: Option<Vec<u8>>,
    pub(super) args: CommandArgs,
}

/// Result of a move.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) status: Status,
    pub(super) now: Timestamp,
    /// True if it comes from the known life of the server and no write seen before is missing there.
    pub(super) is_current: bool,
    pub(super) value: Option<Vec<u8>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Status {
    Done,
    Stands,
    Moved,
    Unverified,
    HistoryLost,
    /// The server is not to be written to.
    Unfit,
}

type MoveResult = Result<Answer, DriverError>;

pub(super) struct Pipeline {
    router: Arc<Router>,
    memory: Arc<Memory>,
    queues: Arc<[BatchQueue]>,
}

/// Queue of moves that are sent one batch after another.
#[derive(Default)]
struct BatchQueue {
    queue: Mutex<Queue>,
    /// Notified when enough moves wait for a full script.
    is_full: Notify,
}

#[derive(Default)]
struct Queue {
    waiting: VecDeque<QueuedMove>,
    /// True while a task serves this queue.
    is_served: bool,
}

struct QueuedMove {
    moved: Move,
    reply: oneshot::Sender<MoveResult>,
}

/// The task that sends the moves waiting in a queue.
struct QueueTask {
    router: Arc<Router>,
    memory: Arc<Memory>,
    queues: Arc<[BatchQueue]>,
    place: usize,
    is_over: bool,
}

/// Maximum number of moves in one script: the server does nothing else for about a millisecond.
const MOVES_MAX: usize = 128;
/// Maximum size of one script's arguments, so that large outcomes do not wait for each other.
const BYTES_MAX: usize = 1024 * 1024;
/// Moves that wait in a queue; one more is refused at once.
const WAITING_MAX: usize = 4096;

/// Maximum number of scripts of one queue that are under way.
const UNDER_WAY_MAX: usize = 2;

/// Number of yields without a new move after which a batch is sent; each takes a microsecond or less.
const IDLE_MAX: usize = 8;

/// Index of the queue for all shards. The queues of the single shards follow it.
const SHARED: usize = 0;

impl Pipeline {
    pub(super) fn new(router: &Arc<Router>, memory: &Arc<Memory>) -> Self {
        let queues = (0..=Shard::all().len()).map(|_| BatchQueue::default()).collect();
        Self { router: Arc::clone(router), memory: Arc::clone(memory), queues }
    }

    /// Queues a move and waits for its result.
    pub(super) async fn send(&self, moved: Move) -> Result<Answer, DriverError> {
        let own = 1 + Shard::of(moved.id).place();
        let place = if self.router.has_one_server() { SHARED } else { own };
        let (reply, answer) = oneshot::channel();
        {
            let batch_queue = &self.queues[place];
            let mut queue = lock(&batch_queue.queue);
            if queue.waiting.len() >= WAITING_MAX {
                return Err(DriverError::NotSent("too busy: the queue is full".to_owned()));
            }
            queue.waiting.push_back(QueuedMove { moved, reply });
            if queue.waiting.len() == MOVES_MAX {
                batch_queue.is_full.notify_one();
            }
            if !queue.is_served {
                queue.is_served = true;
                let (router, memory) = (Arc::clone(&self.router), Arc::clone(&self.memory));
                let queues = Arc::clone(&self.queues);
                tokio::spawn(QueueTask { router, memory, queues, place, is_over: false }.serve());
            }
        }
        answer
            .await
            .unwrap_or_else(|_gone| Err(DriverError::Lost("the script was cut off".to_owned())))
    }
}

impl QueueTask {
    /// Sends batches until no move waits. Prepares the next while the server works on one, but only if it
    /// is full: two half-full ones would cost two flushes.
    async fn serve(mut self) {
        let (mut last, mut under_way) = (1, FuturesUnordered::new());
        loop {
            if under_way.is_empty() {
                self.gather(last).await;
            }
            let is_time = under_way.is_empty()
                || (under_way.len() < UNDER_WAY_MAX && self.waiting() >= MOVES_MAX);
            if !is_time {
                tokio::select! {
                    _done = under_way.next() => {}
                    () = self.queue().is_full.notified(), if under_way.len() < UNDER_WAY_MAX => {}
                }
                continue;
            }
            let Some(batch) = self.next() else { return };
            last = batch.len();
            let (router, memory) = (Arc::clone(&self.router), Arc::clone(&self.memory));
            let may_share = self.place != SHARED || router.has_one_server();
            under_way.push(async move {
                // A server may have become a cluster while they waited.
                let groups = if may_share { vec![batch] } else { by_shard(batch) };
                for group in groups {
                    send(&router, &memory, group).await;
                }
            });
        }
    }

    fn waiting(&self) -> usize {
        lock(&self.queue().queue).waiting.len()
    }

    fn queue(&self) -> &BatchQueue {
        &self.queues[self.place]
    }

    /// Yields so that callers that were just answered can queue their next move: one script for all of them
    /// is cheaper than two. Continues as soon as no other task adds a move.
    async fn gather(&self, expected: usize) {
        let mut idle = 0;
        let mut known = 0;
        while idle < IDLE_MAX && known < expected {
            tokio::task::yield_now().await;
            let waiting = self.waiting();
            idle = if waiting > known { 0 } else { idle + 1 };
            known = waiting;
        }
    }

    /// Returns the next moves, of different records. Removals are sent by themselves: a full server refuses
    /// others.
    fn next(&mut self) -> Option<Vec<QueuedMove>> {
        let mut queue = lock(&self.queues[self.place].queue);
        let Some(first) = queue.waiting.front() else {
            queue.is_served = false;
            self.is_over = true;
            return None;
        };
        let is_removal = first.moved.is_removal;
        let (mut ids, mut size) = (HashSet::new(), 0);
        let (mut batch, mut later) = (Vec::new(), VecDeque::new());
        while batch.len() < MOVES_MAX
            && let Some(waiting) = queue.waiting.pop_front()
        {
            let moved = &waiting.moved;
            let fits = batch.is_empty() || size + moved.args.bytes() <= BYTES_MAX;
            // One that cannot go yet keeps its place before the next one for the same record.
            if ids.insert(moved.id) && fits && moved.is_removal == is_removal {
                size += moved.args.bytes();
                batch.push(waiting);
            } else {
                later.push_back(waiting);
            }
        }
        later.append(&mut queue.waiting);
        queue.waiting = later;
        Some(batch)
    }
}

impl Drop for QueueTask {
    /// If the task is cancelled, fails the waiting callers and lets the next move start a new task.
    fn drop(&mut self) {
        if !self.is_over {
            *lock(&self.queue().queue) = Queue::default();
        }
    }
}

fn by_shard(batch: Vec<QueuedMove>) -> Vec<Vec<QueuedMove>> {
    let mut groups: Vec<Vec<QueuedMove>> = Vec::new();
    for waiting in batch {
        let shard = Shard::of(waiting.moved.id);
        match groups.iter_mut().find(|group| Shard::of(group[0].moved.id) == shard) {
            Some(group) => group.push(waiting),
            None => groups.push(vec![waiting]),
        }
    }
    groups
}

/// Sends a batch and answers every move in it.
async fn send(router: &Router, memory: &Memory, batch: Vec<QueuedMove>) {
    let shard = Shard::of(batch[0].moved.id);
    let seen = memory.of(router.marked(shard)).seen;
    let reply = router.run(shard, |link| call((router, memory), link, &batch)).await;
    let reply = reply.and_then(|value| ScriptReply::read(value).ok_or_else(unreadable));
    let mut answers = reply.map(|reply| {
        let is_current =
            memory.acknowledged(router.marked(shard), &reply.token, reply.count, reply.now)
                && reply.count >= seen;
        reply.answers(is_current)
    });
    for waiting in batch {
        let answer = match &mut answers {
            Ok(answers) => answers.next().unwrap_or_else(|| Err(unreadable())),
            Err(error) => Err(error.clone()),
        };
        // A caller who has gone away needs no answer.
        drop(waiting.reply.send(answer));
    }
}

fn call((router, memory): (&Router, &Memory), link: &Link, batch: &[QueuedMove]) -> Call {
    let all = || batch.iter().map(|waiting| &waiting.moved);
    let size = |of: fn(&Move) -> &CommandArgs| all().map(|moved| of(moved).bytes() + 64).sum();
    let mut keys = CommandArgs::with_capacity(batch.len() * 6 + 1, size(|moved| &moved.keys));
    let mut args = CommandArgs::with_capacity(batch.len() * 12 + 6, size(|moved| &moved.args));
    let marked = router.marked(Shard::of(batch[0].moved.id));
    let known = memory.of(marked);
    keys.push(router.keys.mark(marked));
    args.push(link.about().run());
    args.push(&*known.token);
    args.push(known.seen.to_string());
    args.push(if router.is_unfit(link) { "1" } else { "0" });
    args.push(batch.len().to_string());
    for moved in all() {
        keys.append(&moved.keys);
        args.append(&moved.args);
    }
    for audits in all().filter_map(|moved| moved.audits.as_ref()) {
        keys.push(audits);
    }
    Call { script: Script::Moves, keys, args }
}

/// The answer to a script.
struct ScriptReply {
    now: Timestamp,
    /// The life of the server, and how many writes it has taken.
    token: String,
    count: u64,
    /// For each move, its status and the record found.
    parts: std::vec::IntoIter<Value>,
}

impl ScriptReply {
    fn read(value: Value) -> Option<Self> {
        let Value::Array(parts) = value else { return None };
        let mut parts = parts.into_iter();
        let (Value::Int(now), token, Value::Int(count)) =
            (parts.next()?, parts.next()?, parts.next()?)
        else {
            return None;
        };
        let token = str::from_utf8(bytes(&token)?).ok()?.to_owned();
        let count = u64::try_from(count).ok()?;
        Some(Self { now: Timestamp::from_millis(now), token, count, parts })
    }

    /// In the order of the moves.
    fn answers(mut self, is_current: bool) -> impl Iterator<Item = MoveResult> {
        std::iter::from_fn(move || {
            let (status, value) = (self.parts.next()?, self.parts.next()?);
            let value = if let Value::BulkString(value) = value { Some(value) } else { None };
            let status = match bytes(&status)? {
                b"done" => Status::Done,
                b"stands" => Status::Stands,
                b"moved" => Status::Moved,
                b"verify" => Status::Unverified,
                b"loss" => Status::HistoryLost,
                b"unfit" => Status::Unfit,
                b"refused" => {
                    let reply = value.as_deref().map(String::from_utf8_lossy).unwrap_or_default();
                    return Some(Err(DriverError::Reply(ErrorReply::of_script(&reply))));
                }
                _ => return None,
            };
            Some(Ok(Answer { status, now: self.now, is_current, value }))
        })
    }
}

/// Returns the error for an unreadable answer. The step was done; only reading back tells its result.
fn unreadable() -> DriverError {
    DriverError::Unconfirmed("a script answers what it cannot".to_owned())
}
