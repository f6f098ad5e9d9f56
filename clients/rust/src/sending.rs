//! The path of one intent from its entry to its end.
//!
//! 1. **life**: is there time left at all
//! 2. **wait**: as long as the server said, and a random part
//! 3. **ask**: the status resource, where the last answer left a doubt and the server has one
//! 4. **budget**: a retry takes a token
//! 5. **credentials**: fetched for this attempt
//! 6. **mark**: the attempt is durable before a byte of it is sent
//! 7. **send**: by the transport, within the time there is
//! 8. **record**: what the answer means is durable before anybody learns of it

mod asking;
mod budget;
mod exchange;
mod recording;

use std::pin::pin;
use std::time::Duration;

use futures_util::future::{Either, select};
use http::HeaderMap;

use self::budget::Token;
use crate::client::{Core, Written};
use crate::credentials::Ask;
use crate::end::End;
use crate::entry::Entry;
use crate::error::{Error, Pending};
use crate::event::{Event, FailureKind, Step};
use crate::key::Key;
use crate::queue::Slot;
use crate::rules::life;
use crate::transport::{Failure, Reply};

/// Limit of the time that one call sends an intent.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Patience<'a> {
    /// A caller blocks for so long.
    Caller(Duration),
    /// A lane of the queue waits as long as it takes, and gives its slot to others meanwhile.
    Lane(&'a Slot<'a>),
}

/// Sends an intent until it has an end, or until the caller's patience is over.
pub(crate) async fn send(
    core: &Core,
    name: &str,
    key: &Key,
    patience: Patience<'_>,
) -> Result<End, Error> {
    let (deadline, slot) = match patience {
        Patience::Caller(time) => (Some(core.clock.elapsed().saturating_add(time)), None),
        Patience::Lane(slot) => (None, Some(slot)),
    };
    let turn = core.locks.of(name);
    let turn = match (turn.try_lock(), slot) {
        (Some(turn), _) => Some(turn),
        (None, Some(slot)) => Some(slot.rest(turn.lock()).await),
        (None, None) => within(core, time_left(core, deadline), turn.lock()).await,
    };
    let entry = core.read_own(name, key).await?;
    let mut sending = Sending::new(core, entry, deadline, slot);
    if let (None, None, Some(place)) = (slot, &sending.entry.end, &sending.entry.place) {
        let (intent, lane) = (name.to_owned(), place.lane.clone());
        return Err(Error::InLane { intent, lane });
    }
    if turn.is_none() {
        // Another task of this process sends it, and still does.
        return Err(sending.pending());
    }
    sending.run().await
}

/// An intent under way.
struct Sending<'a> {
    core: &'a Core,
    entry: Entry,
    /// By the clock's `elapsed`.
    deadline: Option<Duration>,
    /// The slot of the lane that it stands in.
    slot: Option<&'a Slot<'a>>,
    /// Time to wait before the next step.
    pause: Duration,
    /// The status resource is asked before the next attempt.
    asks: bool,
    /// Number of times it was asked since the last attempt.
    asked: u32,
    /// The credentials of the next attempt must be fresh.
    refresh: bool,
    /// Those of the next question to the status resource must be.
    refresh_question: bool,
}

impl<'a> Sending<'a> {
    fn new(
        core: &'a Core,
        entry: Entry,
        deadline: Option<Duration>,
        slot: Option<&'a Slot<'a>>,
    ) -> Self {
        let mut sending = Self {
            core,
            entry,
            deadline,
            slot,
            pause: Duration::ZERO,
            asks: false,
            asked: 0,
            refresh: false,
            refresh_question: false,
        };
        sending.begin_with_entry();
        sending
    }

    /// Sets all that follows from the entry alone: at the start, and when another process has changed it.
    fn begin_with_entry(&mut self) {
        self.pause = self.core.wait_left(&self.entry);
        if self.entry.shows_status {
            let (url, elapsed) = (&self.entry.request.url, self.core.clock.elapsed());
            self.core.origins.learn_status(url, elapsed);
        }
        self.asks = self.entry.doubt;
        self.asked = 0;
        self.refresh = false;
        self.refresh_question = false;
    }

    async fn run(&mut self) -> Result<End, Error> {
        loop {
            if let Some(end) = &self.entry.end {
                return Ok(end.clone());
            }
            if self.end_if_time_is_up().await? {
                continue;
            }
            self.wait().await?;
            if self.end_if_time_is_up().await? {
                continue;
            }
            if self.asks && self.may_ask() {
                self.ask().await?;
                continue;
            }
            let token = self.take_token().await?;
            self.attempt(token).await?;
        }
    }

    /// Ends the intent if nothing may be sent any more; then the entry is no longer what it was.
    async fn end_if_time_is_up(&mut self) -> Result<bool, Error> {
        let (limits, now) = (&self.core.settings.limits, self.core.clock.now());
        let Some(over) = life(&self.entry.life(), limits, now) else { return Ok(false) };
        let ended = self.entry.ended(End::by_time(over));
        match self.core.write(&self.entry, ended).await? {
            Written::Yes(entry) => {
                self.entry = entry;
                self.tell_end(over.end, None);
            }
            Written::No(stands) => self.go_on_with(stands)?,
        }
        Ok(true)
    }

    /// Waits as long as is to be waited, or says that there is no time for it.
    async fn wait(&mut self) -> Result<(), Error> {
        let pause = self.pause;
        self.sleep(pause).await?;
        self.pause = Duration::ZERO;
        Ok(())
    }

    async fn sleep(&self, time: Duration) -> Result<(), Error> {
        let left = self.time_left();
        if left.is_some_and(|left| left.is_zero()) {
            return Err(self.pending());
        }
        if let Some(left) = left.filter(|left| *left < time) {
            // The caller wanted to wait for so long, and no longer.
            self.core.clock.wait(left).await;
            return Err(self.pending());
        }
        let wait = self.core.clock.wait(time);
        match self.slot.filter(|_| !time.is_zero()) {
            Some(slot) => slot.rest(wait).await,
            None => wait.await,
        }
        Ok(())
    }

    async fn attempt(&mut self, token: Option<Token<'a>>) -> Result<(), Error> {
        let (refreshed, doubt) = (self.refresh, self.entry.doubt);
        let credentials = self.credentials(refreshed).await?;
        if self.time_left().is_some_and(|left| left.is_zero()) {
            // They took all the time there was; an attempt without a caller would only leave a doubt.
            return Err(self.pending());
        }
        if self.end_if_time_is_up().await? {
            return Ok(());
        }
        let (core, now) = (self.core, self.core.clock.now());
        let mut marked = self.entry.marked(now, &core.settings.spelling(), core.draw());
        marked.shows_status = self.knows_status();
        match self.core.write(&self.entry, marked).await? {
            Written::Yes(entry) => self.entry = entry,
            Written::No(stands) => return self.go_on_with(stands),
        }
        self.tell(Step::Marked, None);
        token.into_iter().for_each(Token::spend);
        let answer = self.exchange(credentials).await;
        self.tell(Step::Answered, Some(&answer));
        self.record(answer, doubt, refreshed).await
    }

    async fn credentials(&self, refresh: bool) -> Result<HeaderMap, Error> {
        let Some(credentials) = &self.core.credentials else { return Ok(HeaderMap::new()) };
        let ask =
            Ask { intent: self.entry.name.clone(), url: self.entry.request.url.clone(), refresh };
        let headers = within(self.core, self.time_left(), credentials.headers(ask)).await;
        headers.ok_or_else(|| self.pending())?.map_err(Error::Credentials)
    }

    /// Goes on with what another process wrote of this intent.
    fn go_on_with(&mut self, stands: Option<Entry>) -> Result<(), Error> {
        let Some(stands) = stands else {
            return Err(Error::NoIntent { intent: self.entry.name.clone() });
        };
        self.entry = stands;
        self.begin_with_entry();
        Ok(())
    }

    /// An answer showed that the server has a status resource, and none denied it.
    fn knows_status(&self) -> bool {
        self.core.origins.has_status(&self.entry.request.url, self.core.clock.elapsed())
    }

    fn time_left(&self) -> Option<Duration> {
        time_left(self.core, self.deadline)
    }

    fn pending(&self) -> Error {
        Error::Pending(Pending::of(&self.entry, self.core.wait_left(&self.entry)))
    }

    fn tell(&self, step: Step, answer: Option<&Result<Reply, Failure>>) {
        let mut event = Event::new(step, &self.entry.name, self.entry.attempts);
        match answer {
            Some(Ok(reply)) => event.status = Some(reply.status.as_u16()),
            Some(Err(Failure::NotSent(_))) => event.failure = Some(FailureKind::NotSent),
            Some(Err(Failure::Lost(_))) => event.failure = Some(FailureKind::Lost),
            None => {}
        }
        self.core.tell(&event);
    }
}

fn time_left(core: &Core, deadline: Option<Duration>) -> Option<Duration> {
    deadline.map(|deadline| deadline.saturating_sub(core.clock.elapsed()))
}

/// Returns what `work` gives, unless `limit` passes first.
async fn within<T>(
    core: &Core,
    limit: Option<Duration>,
    work: impl Future<Output = T>,
) -> Option<T> {
    let Some(limit) = limit else { return Some(work.await) };
    match select(pin!(work), core.clock.wait(limit)).await {
        Either::Left((done, _)) => Some(done),
        Either::Right(((), _)) => None,
    }
}
