//! Sending what is in the lanes: each in order, all of them side by side.

use std::collections::{BTreeMap, BTreeSet};
use std::pin::pin;

use futures_util::future::{Either, select};
use futures_util::stream::{FuturesUnordered, StreamExt as _};

use super::slots::{Slot, Slots};
use super::{Queue, Shared};
use crate::client::Written;
use crate::end::{End, EndKind};
use crate::entry::{Entry, Place};
use crate::error::Error;
use crate::intent::Intent;
use crate::snapshot::Snapshot;
use crate::storage::StorageErrorKind;

/// Lanes as they stand.
struct Look {
    /// Entries of each lane that are not settled, in order.
    lanes: BTreeMap<String, Vec<Entry>>,
    /// Lanes in which an entry stands that cannot be read.
    spoilt: BTreeSet<String>,
    errors: Vec<Error>,
}

/// State of a lane after a turn.
#[derive(Debug, PartialEq, Eq)]
enum Turn {
    /// Everything is settled.
    Empty,
    /// The first intent that is not settled ended unknown or expired, or one cannot be read.
    Stopped,
}

impl Queue {
    /// Sends what is in the lanes, and what comes into them, until `until` is done. Dropping the future loses nothing.
    ///
    /// An entry that cannot be read stops its lane and is told to [`QueueHooks::failed`](super::QueueHooks::failed). If
    /// its lane cannot be known either, every lane goes on.
    pub async fn run(&self, until: impl Future<Output = ()>) -> Result<(), Error> {
        let clock = &self.shared.client.core().clock;
        let mut until = pin!(until);
        let slots = Slots::new(self.settings.lanes_max);
        let (mut turns, mut busy) = (FuturesUnordered::new(), BTreeSet::new());
        // Lanes that failed rest until the next look by time.
        let mut resting = BTreeSet::new();
        let mut told = BTreeSet::new();
        loop {
            let woken = self.shared.wakeup.next();
            let look = self.shared.look().await?;
            self.shared.tell_unreadable(&look.errors, &mut told);
            for (lane, entries) in look.lanes {
                let is_idle = !busy.contains(&lane) && !resting.contains(&lane);
                let is_stopped = look.spoilt.contains(&lane) || is_stopped(&entries);
                if is_idle && !is_stopped {
                    busy.insert(lane.clone());
                    turns.push(self.turn_of(lane, &slots));
                }
            }
            let time = clock.wait(self.settings.poll);
            let happened = {
                // A set without turns is always ready, so it is not asked.
                let turn = pin!(async {
                    if turns.is_empty() { std::future::pending().await } else { turns.next().await }
                });
                let rest = pin!(select(woken, time));
                match select(&mut until, select(turn, rest)).await {
                    Either::Left(((), _)) => return Ok(()),
                    Either::Right((Either::Left((turn, _)), _)) => Some(turn),
                    Either::Right((Either::Right((Either::Left(_), _)), _)) => Some(None),
                    Either::Right((Either::Right((Either::Right(_), _)), _)) => None,
                }
            };
            match happened {
                Some(Some((lane, turn))) => {
                    busy.remove(&lane);
                    if let Err(error) = turn {
                        self.shared.hooks.failed(&lane, &error);
                        resting.insert(lane);
                    }
                }
                Some(None) => {}
                None => resting.clear(),
            }
        }
    }

    /// Sends what is in the lanes, side by side, until every lane is empty, stopped or failed; returns the lanes that
    /// are stopped, or the first lane's error. Those of other lanes, and entries that cannot be read, are told to
    /// [`QueueHooks::failed`](super::QueueHooks::failed).
    pub async fn run_once(&self) -> Result<Vec<String>, Error> {
        let look = self.shared.look().await?;
        self.shared.tell_unreadable(&look.errors, &mut BTreeSet::new());
        let mut stopped = look.spoilt;
        let slots = Slots::new(self.settings.lanes_max);
        let lanes = look.lanes.into_keys();
        let mut turns: FuturesUnordered<_> = lanes.map(|lane| self.turn_of(lane, &slots)).collect();
        let mut failed = None;
        while let Some((lane, turn)) = turns.next().await {
            match turn {
                Ok(Turn::Empty) => {}
                Ok(Turn::Stopped) => drop(stopped.insert(lane)),
                Err(error) if failed.is_none() => failed = Some(error),
                Err(error) => self.shared.hooks.failed(&lane, &error),
            }
        }
        failed.map_or_else(|| Ok(stopped.into_iter().collect()), Err)
    }

    /// The turn of a lane, which works as long as it holds a slot.
    async fn turn_of(&self, lane: String, slots: &Slots) -> (String, Result<Turn, Error>) {
        let slot = slots.take().await;
        let turn = self.shared.turn(&lane, self.settings.acknowledges, &slot).await;
        (lane, turn)
    }
}

fn is_stopped(entries: &[Entry]) -> bool {
    let end = entries.first().and_then(|first| first.end.as_ref()).map(End::kind);
    matches!(end, Some(EndKind::Unknown | EndKind::Expired))
}

impl Shared {
    async fn look(&self) -> Result<Look, Error> {
        let mut lanes: BTreeMap<String, Vec<Entry>> = BTreeMap::new();
        let (mut spoilt, mut errors) = (BTreeSet::new(), Vec::new());
        for entry in self.client.core().list().await? {
            let entry = match entry {
                Ok(entry) => entry,
                // What cannot be read at the moment may be the first of its lane.
                Err(Error::Storage(error))
                    if matches!(
                        error.kind(),
                        StorageErrorKind::Busy | StorageErrorKind::Unavailable
                    ) =>
                {
                    return Err(Error::Storage(error));
                }
                Err(error) => {
                    if let Error::Damaged { lane: Some(lane), .. } = &error {
                        spoilt.insert(lane.clone());
                    }
                    errors.push(error);
                    continue;
                }
            };
            if let Some(Place { lane, is_settled: false, .. }) = &entry.place {
                lanes.entry(lane.clone()).or_default().push(entry);
            }
        }
        for entries in lanes.values_mut() {
            entries.sort_by_key(|entry| {
                (entry.place.as_ref().map(|place| place.number), entry.name.clone())
            });
        }
        Ok(Look { lanes, spoilt, errors })
    }

    /// Tells which entries cannot be read, each once.
    fn tell_unreadable(&self, errors: &[Error], told: &mut BTreeSet<String>) {
        for error in errors {
            if told.insert(error.to_string()) {
                let lane =
                    if let Error::Damaged { lane, .. } = error { lane.as_deref() } else { None };
                self.hooks.failed(lane.unwrap_or_default(), error);
            }
        }
    }

    /// Sends a lane in order until it is empty or stopped.
    async fn turn(&self, lane: &str, acknowledges: bool, slot: &Slot<'_>) -> Result<Turn, Error> {
        loop {
            let mut look = self.look().await?;
            if look.spoilt.contains(lane) {
                return Ok(Turn::Stopped);
            }
            let Some(entries) = look.lanes.remove(lane) else { return Ok(Turn::Empty) };
            for entry in entries {
                if !self.carry_through(&entry, acknowledges, slot).await? {
                    return Ok(Turn::Stopped);
                }
            }
        }
    }

    /// Applies, sends and settles one intent; says whether the lane goes on.
    async fn carry_through(
        &self,
        entry: &Entry,
        acknowledges: bool,
        slot: &Slot<'_>,
    ) -> Result<bool, Error> {
        self.apply(entry).await?;
        let intent = Intent::new(self.client.clone(), entry.clone());
        let end = match intent.send_to_the_end(slot).await {
            Ok(end) => end,
            // Acknowledged meanwhile, so the application knows how it ended.
            Err(Error::NoIntent { .. }) => return Ok(true),
            Err(error) => return Err(error),
        };
        let snapshot = Snapshot { end: Some(end.clone()), ..self.snapshot(entry) };
        let (hook, settled) = match &end {
            End::Done(done) => ("confirm", self.hooks.confirm(&snapshot, done).await),
            End::Refused(refused) => ("rollback", self.hooks.rollback(&snapshot, refused).await),
            End::Unknown(_) | End::Expired(_) => return Ok(false),
        };
        settled.map_err(|source| Error::Hook { intent: entry.name.clone(), hook, source })?;
        if acknowledges {
            return match intent.acknowledge().await {
                Ok(()) | Err(Error::NoIntent { .. }) => Ok(true),
                Err(error) => Err(error),
            };
        }
        self.note(entry, |place| place.is_settled = true).await.map(|()| true)
    }

    /// Runs a `rollback` that is due: of a refusal after which the process died, or its hook failed.
    pub(super) async fn roll_back(&self, name: &str) -> Result<(), Error> {
        let Some(entry) = self.client.core().read(name).await? else { return Ok(()) };
        let Some(End::Refused(refused)) = entry.end.as_ref().filter(|_| entry.owes_rollback())
        else {
            return Ok(());
        };
        let rolled_back = self.hooks.rollback(&self.snapshot(&entry), refused).await;
        rolled_back.map_err(|source| {
            let intent = entry.name.clone();
            Error::Hook { intent, hook: "rollback", source }
        })?;
        self.note(&entry, |place| place.is_settled = true).await
    }

    /// Runs `apply` unless that is noted already.
    pub(super) async fn apply(&self, entry: &Entry) -> Result<(), Error> {
        if entry.end.is_some() || entry.place.as_ref().is_none_or(|place| place.is_applied) {
            return Ok(());
        }
        let applied = self.hooks.apply(&self.snapshot(entry)).await;
        applied.map_err(|source| {
            let intent = entry.name.clone();
            Error::Hook { intent, hook: "apply", source }
        })?;
        self.note(entry, |place| place.is_applied = true).await
    }

    /// Changes the place of an entry, whatever else happened to it.
    async fn note(&self, entry: &Entry, change: impl Fn(&mut Place)) -> Result<(), Error> {
        let core = self.client.core();
        let mut entry = match core.read_own(&entry.name, &entry.key).await {
            Ok(entry) => entry,
            // Acknowledged meanwhile.
            Err(Error::NoIntent { .. }) => return Ok(()),
            Err(error) => return Err(error),
        };
        loop {
            let mut noted = entry.clone();
            noted.place.iter_mut().for_each(&change);
            match core.write(&entry, noted).await? {
                Written::Yes(_) | Written::No(None) => return Ok(()),
                Written::No(Some(stands)) => entry = stands,
            }
        }
    }

    fn snapshot(&self, entry: &Entry) -> Snapshot {
        Snapshot::of(entry, self.client.core().wait_left(entry))
    }
}
