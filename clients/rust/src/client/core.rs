//! The steps on entries, over any storage.

use std::fmt;
use std::time::Duration;

use futures_util::lock::Mutex;

use super::builder::Settings;
use super::locks::Locks;
use super::waits::Waits;
use crate::BoxError;
use crate::clock::Clock;
use crate::credentials::Credentials;
use crate::end::End;
use crate::entry::{self, Entry, Place, Request, Unreadable};
use crate::error::Error;
use crate::event::{Event, Step};
use crate::key::{Key, Secret};
use crate::origins::Origins;
use crate::seal::Seal;
use crate::storage::{Inserted, Storage, Stored};
use crate::transport::Transport;

pub(super) type Random = Box<dyn Fn(&mut [u8]) -> Result<(), BoxError> + Send + Sync>;
type Hook = Box<dyn Fn(&Event<'_>) + Send + Sync>;

/// Parts and settings of a client.
pub(crate) struct Core {
    pub(crate) storage: Box<dyn Storage>,
    pub(crate) transport: Box<dyn Transport>,
    pub(crate) clock: Box<dyn Clock>,
    pub(super) random: Random,
    pub(crate) credentials: Option<Box<dyn Credentials>>,
    pub(super) seal: Option<Box<dyn Seal>>,
    pub(super) hooks: Vec<Hook>,
    pub(super) secret: Option<Secret>,
    pub(crate) settings: Settings,
    pub(crate) origins: Origins,
    pub(crate) locks: Locks,
    pub(super) waits: Waits,
    /// The number of the last place that this client gave in the queue.
    pub(super) last_place: Mutex<Option<u64>>,
}

/// Result of a write that compared revisions.
pub(crate) enum Written {
    /// It stands, with its new revision.
    Yes(Entry),
    /// Another process was faster: this stands now.
    No(Option<Entry>),
}

impl Core {
    /// Opens an intent, or returns the one that stands with the same request.
    pub(crate) async fn open(
        &self,
        name: &str,
        request: Request,
        place: Option<Place>,
    ) -> Result<Entry, Error> {
        let fresh = self.fresh(name, request, place)?;
        let stored = self.encode(&fresh)?;
        match self.storage.insert(stored, self.settings.entries_max).await? {
            Inserted::Yes => {
                self.tell(&Event::new(Step::Opened, name, 0));
                Ok(fresh)
            }
            Inserted::Full => Err(Error::TooManyEntries { entries_max: self.settings.entries_max }),
            Inserted::Stands(stored) => {
                let stands = self.decode(&stored)?;
                let mut differing = stands.request.differing(&fresh.request);
                let lane = |entry: &Entry| entry.place.as_ref().map(|place| place.lane.clone());
                if fresh.place.is_some() && lane(&stands) != lane(&fresh) {
                    differing.push("lane");
                }
                if differing.is_empty() {
                    return Ok(stands);
                }
                Err(Error::IntentConflict { intent: name.to_owned(), differing })
            }
        }
    }

    /// Opens an intent anew, where a new key is safe. One in a lane takes the last place in it, once the queue has taken
    /// its effect back.
    pub(crate) async fn supersede(&self, name: &str, request: Request) -> Result<Entry, Error> {
        loop {
            let Some(stands) = self.read(name).await? else {
                return self.open(name, request, None).await;
            };
            // Another process may have sent a derived key already: by a client with the secret that is the error below,
            // by one that draws its keys it is an unsafe key.
            let is_known = self.secret.is_some() || !stands.doubt;
            let is_untouched = stands.attempts == 0 && stands.end.is_none() && is_known;
            let is_safe = stands.end.as_ref().is_some_and(End::may_be_superseded);
            if !is_untouched && !is_safe {
                let end = stands.end.as_ref().map(End::kind);
                return Err(Error::NewKeyUnsafe { intent: name.to_owned(), end });
            }
            if self.secret.is_some() {
                return Err(Error::KeyIsDerived { intent: name.to_owned() });
            }
            let place = match &stands.place {
                Some(place) if stands.owes_rollback() => {
                    let (intent, lane) = (name.to_owned(), place.lane.clone());
                    return Err(Error::InLane { intent, lane });
                }
                Some(place) => Some(self.next_place(&place.lane).await?),
                None => None,
            };
            let fresh = self.fresh(name, request.clone(), place)?;
            // A write that came between, such as the mark of an attempt, has another revision, and is looked at.
            if self.storage.replace(stands.revision, self.encode(&fresh)?).await? {
                self.tell(&Event::new(Step::Opened, name, 0));
                return Ok(fresh);
            }
        }
    }

    /// The last place of a lane.
    pub(crate) async fn next_place(&self, lane: &str) -> Result<Place, Error> {
        let mut known = self.last_place.lock().await;
        let last = if let Some(last) = *known {
            last
        } else {
            // A clock that went back while no process ran must not put new intents before old ones.
            let entries = self.list().await?.into_iter().flatten();
            entries.filter_map(|entry| Some(entry.place?.number)).max().unwrap_or(0)
        };
        let by_clock = u64::try_from(self.clock.now().to_millis()).unwrap_or(0);
        let number = by_clock.max(last.saturating_add(1));
        *known = Some(number);
        Ok(Place { lane: lane.to_owned(), number, is_applied: false, is_settled: false })
    }

    /// The entry of this name, if it stands.
    pub(crate) async fn read(&self, name: &str) -> Result<Option<Entry>, Error> {
        let stored = self.storage.get(name).await?;
        stored.map(|stored| self.decode(&stored)).transpose()
    }

    /// All entries, and errors of those that cannot be read.
    pub(crate) async fn list(&self) -> Result<Vec<Result<Entry, Error>>, Error> {
        let (mut entries, mut after) = (Vec::new(), None);
        loop {
            let page = self.storage.list(after).await?;
            entries.extend(page.entries.into_iter().map(|stored| self.decode(&stored?)));
            after = page.next;
            if after.is_none() {
                return Ok(entries);
            }
        }
    }

    /// Writes `after` where `before` stands.
    pub(crate) async fn write(&self, before: &Entry, after: Entry) -> Result<Written, Error> {
        let after = Entry { revision: before.revision + 1, ..after };
        if self.storage.replace(before.revision, self.encode(&after)?).await? {
            return Ok(Written::Yes(after));
        }
        let stands = self.read(&before.name).await?;
        Ok(Written::No(stands.filter(|stands| stands.key == before.key)))
    }

    /// Deletes the entry of an intent that ended.
    pub(crate) async fn acknowledge(&self, name: &str, key: &Key) -> Result<(), Error> {
        loop {
            let entry = self.read_own(name, key).await?;
            if entry.end.is_none() {
                return Err(Error::NotEnded { intent: name.to_owned() });
            }
            if self.storage.remove(name, entry.revision).await? {
                self.waits.forget(key.as_str());
                self.tell(&Event::new(Step::Acknowledged, name, entry.attempts));
                return Ok(());
            }
        }
    }

    /// The entry of an intent, of this life of its name.
    pub(crate) async fn read_own(&self, name: &str, key: &Key) -> Result<Entry, Error> {
        let entry = self.read(name).await?.filter(|entry| entry.key == *key);
        entry.ok_or_else(|| Error::NoIntent { intent: name.to_owned() })
    }

    /// The time that is left to wait, which no step of the time of day changes while this process lives.
    pub(crate) fn wait_left(&self, entry: &Entry) -> Duration {
        self.waits.left(entry, self.clock.as_ref())
    }

    pub(crate) fn tell(&self, event: &Event<'_>) {
        for hook in &self.hooks {
            hook(event);
        }
    }

    /// A number from 0 up to, but not, 1. Without randomness a fleet comes back at once, which is no reason to stop.
    pub(crate) fn draw(&self) -> f64 {
        let mut bytes = [0; 4];
        drop((self.random)(&mut bytes));
        f64::from(u32::from_ne_bytes(bytes)) / (f64::from(u32::MAX) + 1.0)
    }

    fn fresh(&self, name: &str, request: Request, place: Option<Place>) -> Result<Entry, Error> {
        let mut bytes = [0; Key::BYTES + 8];
        (self.random)(&mut bytes).map_err(Error::Randomness)?;
        let (drawn, revision) = bytes.split_first_chunk().expect("there are more bytes");
        let revision = revision.first_chunk().copied().map(u64::from_ne_bytes).unwrap_or_default();
        Ok(Entry {
            name: name.to_owned(),
            // Lives of one name begin at different numbers, so that no late write of one fits the next. Two bits are
            // left for those to come.
            revision: revision >> 3,
            key: match &self.secret {
                Some(secret) => secret.derive(name),
                None => Key::from_random(*drawn),
            },
            request,
            opened_at: self.clock.now(),
            attempts: 0,
            // An earlier process, whose storage is gone, may have sent a key that is derived.
            doubt: self.secret.is_some(),
            first_attempt_at: None,
            resumed_at: None,
            latest_at: None,
            spelling: None,
            not_before: None,
            waits_for: Duration::ZERO,
            expires_at: None,
            shows_status: false,
            end: None,
            place,
        })
    }

    fn encode(&self, entry: &Entry) -> Result<Stored, Error> {
        entry::encode(entry, self.seal.as_deref())
    }

    fn decode(&self, stored: &Stored) -> Result<Entry, Error> {
        entry::decode(stored, self.seal.as_deref()).map_err(|unreadable| {
            let problem = match unreadable {
                Unreadable::Damaged(why) => format!("it is damaged: {why}"),
                Unreadable::Later => "a later version wrote it".to_owned(),
                Unreadable::Sealed(error) => error.to_string(),
            };
            Error::Damaged { intent: stored.name.clone(), problem, lane: entry::lane_of(stored) }
        })
    }
}

impl fmt::Debug for Core {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Core").field("storage", &self.storage).finish_non_exhaustive()
    }
}
