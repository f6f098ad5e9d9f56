//! The one thread that writes the ledger: decides, syncs, and only then lets a payment count.
//!
//! Whatever waits shares the next sync. Two calls under one key never do: the second is decided
//! when the first is on the disk.

use std::collections::HashSet;
use std::sync::{Arc, PoisonError, RwLock};
use std::thread::JoinHandle;

use tokio::sync::{mpsc, oneshot};

use crate::behaviour::Keys;
use crate::book::{Book, Judged};
use crate::clock::{Clock, Moment};
use crate::error::{ErrorKind, ProviderError};
use crate::ledger::{Entry, LedgerFile, Made};
use crate::payment::{Payment, Wanted};
use crate::plant::Plant;

/// Calls that wait for the writer; further ones wait for a place.
const QUEUE_MAX: usize = 1024;
/// Calls that share a sync: enough that the sync no longer counts.
const BATCH_MAX: usize = 256;

/// Sends calls for payments to the writer.
#[derive(Clone, Debug)]
pub(crate) struct WriterHandle(mpsc::Sender<Command>);

/// Result of a call for a payment.
#[derive(Debug)]
pub(crate) enum Paid {
    Made(Payment),
    Replayed(Payment),
    Mismatch,
    Full,
}

pub(crate) struct Writer {
    file: LedgerFile,
    book: Arc<RwLock<Book>>,
    clock: Clock,
    payments_max: usize,
    /// True after a failed write, when the content of the disk is unknown.
    is_broken: bool,
}

type Reply<T> = oneshot::Sender<Result<T, ProviderError>>;

enum Command {
    Pay(Call),
    Plant(Plant, Reply<Payment>),
    /// The webhook of this payment was taken.
    Told(String),
    Stop,
}

struct Call {
    key: Option<String>,
    wanted: Wanted,
    keys: Keys,
    /// True if the payment owes a webhook.
    owes_webhook: bool,
    reply: Reply<Paid>,
}

/// Payments that share a sync.
#[derive(Default)]
struct Batch {
    lines: Vec<u8>,
    made: Vec<(Made, Reply<Paid>)>,
    keys: HashSet<String>,
}

impl WriterHandle {
    /// Makes the payment, or says why not. A caller who goes away changes nothing.
    pub(crate) async fn pay(
        &self,
        key: Option<String>,
        wanted: Wanted,
        keys: Keys,
        owes_webhook: bool,
    ) -> Result<Paid, ProviderError> {
        let (reply, answer) = oneshot::channel();
        self.ask(Command::Pay(Call { key, wanted, keys, owes_webhook, reply }), answer).await
    }

    /// Records that the webhook of this payment was accepted. Does not wait for the write: if it is lost, the
    /// webhook is sent once more after a restart.
    pub(crate) fn told(&self, id: &str) {
        if self.0.try_send(Command::Told(id.to_owned())).is_err() {
            tracing::debug!(id, "a webhook that was taken is not noted");
        }
    }

    pub(crate) async fn plant(&self, plant: Plant) -> Result<Payment, ProviderError> {
        let (reply, answer) = oneshot::channel();
        self.ask(Command::Plant(plant, reply), answer).await
    }

    /// Lets the thread end when it has done what came before.
    pub(crate) async fn stop(&self) {
        if self.0.send(Command::Stop).await.is_err() {
            tracing::debug!("the ledger's writer has ended before");
        }
    }

    async fn ask<T>(
        &self,
        command: Command,
        answer: oneshot::Receiver<Result<T, ProviderError>>,
    ) -> Result<T, ProviderError> {
        let stopped = |_| ProviderError::stopped();
        self.0.send(command).await.map_err(|_gone| ProviderError::stopped())?;
        answer.await.map_err(stopped)?
    }
}

impl Writer {
    pub(crate) fn new(
        file: LedgerFile,
        book: Arc<RwLock<Book>>,
        clock: Clock,
        payments_max: usize,
    ) -> Self {
        Self { file, book, clock, payments_max, is_broken: false }
    }

    /// Begins to write. The thread ends when told to, or when all handles are gone.
    pub(crate) fn spawn(self) -> std::io::Result<(WriterHandle, JoinHandle<()>)> {
        let (sender, receiver) = mpsc::channel(QUEUE_MAX);
        let thread = std::thread::Builder::new()
            .name("provider-ledger".to_owned())
            .spawn(move || self.run(receiver))?;
        Ok((WriterHandle(sender), thread))
    }

    fn run(mut self, mut commands: mpsc::Receiver<Command>) {
        let mut left_over = None;
        while let Some(command) = left_over.take().or_else(|| commands.blocking_recv()) {
            match command {
                Command::Pay(call) => left_over = self.pay(call, &mut commands),
                Command::Plant(plant, reply) => answer(reply, self.plant(plant)),
                Command::Told(id) => self.told(id),
                Command::Stop => return,
            }
        }
    }

    /// Makes this payment and those that wait behind it. Returns a command that has to come after.
    fn pay(&mut self, first: Call, commands: &mut mpsc::Receiver<Command>) -> Option<Command> {
        let mut batch = Batch::default();
        let mut left_over = None;
        let mut call = Some(first);
        while let Some(next) = call.take() {
            if next.key.as_ref().is_some_and(|key| batch.keys.contains(key)) {
                left_over = Some(Command::Pay(next));
                break;
            }
            self.decide(next, &mut batch);
            if batch.made.len() >= BATCH_MAX {
                break;
            }
            call = loop {
                match commands.try_recv() {
                    Ok(Command::Pay(next)) => break Some(next),
                    Ok(Command::Told(id)) => self.told(id),
                    Ok(other) => {
                        left_over = Some(other);
                        break None;
                    }
                    Err(_) => break None,
                }
            };
        }
        self.commit(batch);
        left_over
    }

    /// Answers a call at once, or puts its payment into the batch.
    fn decide(&self, call: Call, batch: &mut Batch) {
        let Call { key, wanted, keys, owes_webhook, reply } = call;
        if self.is_broken {
            return answer(reply, Err(broken()));
        }
        let book = self.book.read().unwrap_or_else(PoisonError::into_inner);
        let now = self.now(&book);
        match key.as_ref().map_or(Judged::Fresh, |key| book.judge(key, &wanted, keys, now)) {
            Judged::Replay(payment) => return answer(reply, Ok(Paid::Replayed(payment))),
            Judged::Mismatch => return answer(reply, Ok(Paid::Mismatch)),
            Judged::Fresh => {}
        }
        let number = book.len() + batch.made.len() + 1;
        if number > self.payments_max {
            return answer(reply, Ok(Paid::Full));
        }
        let payment = Payment {
            id: Payment::id_of(number),
            amount: wanted.amount,
            currency: wanted.currency,
            reference: wanted.reference,
            idempotency_key: key.clone(),
            created_at: now,
        };
        let made = Made { payment, owes_webhook };
        match Entry::Made(made.clone()).write(&mut batch.lines) {
            Ok(()) => {
                batch.keys.extend(key);
                batch.made.push((made, reply));
            }
            Err(error) => answer(reply, Err(broken().with_source(error))),
        }
    }

    fn commit(&mut self, batch: Batch) {
        if batch.made.is_empty() {
            return;
        }
        if let Err(error) = self.write(&batch.lines) {
            tracing::error!(%error, "the ledger cannot be written any more");
            for (_, reply) in batch.made {
                answer(reply, Err(broken()));
            }
            return;
        }
        let mut book = self.book.write().unwrap_or_else(PoisonError::into_inner);
        let mut replies = Vec::with_capacity(batch.made.len());
        for (made, reply) in batch.made {
            let payment = made.payment.clone();
            let applied = book.apply(Entry::Made(made));
            debug_assert!(applied.is_ok(), "numbered from the book's own length: {applied:?}");
            replies.push((payment, reply));
        }
        // Unlock the book first, so that a payment can be found before its caller hears of it.
        drop(book);
        for (payment, reply) in replies {
            answer(reply, Ok(Paid::Made(payment)));
        }
    }

    fn plant(&mut self, plant: Plant) -> Result<Payment, ProviderError> {
        if self.is_broken {
            return Err(broken());
        }
        let (entry, payment) = {
            let book = self.book.read().unwrap_or_else(PoisonError::into_inner);
            let (entry, payment) = plant.entry(&book, self.now(&book))?;
            let is_payment = matches!(entry, Entry::Duplicate(_) | Entry::Foreign(_));
            if is_payment && book.len() >= self.payments_max {
                return Err(ProviderError::new(ErrorKind::Full, "the ledger is full"));
            }
            (entry, payment)
        };
        let mut lines = Vec::new();
        entry.write(&mut lines).and_then(|()| self.write(&lines)).map_err(|error| {
            tracing::error!(%error, "the ledger cannot be written any more");
            broken().with_source(error)
        })?;
        let applied = self.book.write().unwrap_or_else(PoisonError::into_inner).apply(entry);
        debug_assert!(applied.is_ok(), "made from the book itself: {applied:?}");
        Ok(payment)
    }

    /// Notes that a webhook was taken. Nothing is synced: what a crash takes back is sent once more.
    fn told(&mut self, id: String) {
        let mut book = self.book.write().unwrap_or_else(PoisonError::into_inner);
        if self.is_broken || !book.is_owed(&id) {
            return;
        }
        let (entry, mut line) = (Entry::Told { id }, Vec::new());
        let written = entry.write(&mut line).and_then(|()| self.file.append_unsynced(&line));
        match written {
            Ok(()) => {
                let applied = book.apply(entry);
                debug_assert!(applied.is_ok(), "it was owed: {applied:?}");
            }
            Err(error) => {
                tracing::error!(%error, "the ledger cannot be written any more");
                self.is_broken = true;
            }
        }
    }

    fn write(&mut self, lines: &[u8]) -> std::io::Result<()> {
        let written = self.file.append(lines);
        self.is_broken = written.is_err();
        written
    }

    /// Never before the payment before: reports go by date.
    fn now(&self, book: &Book) -> Moment {
        let now = self.clock.now();
        book.latest().map_or(now, |latest| latest.max(now))
    }
}

fn broken() -> ProviderError {
    ProviderError::new(ErrorKind::Ledger, "the ledger cannot be written; start anew")
}

/// A caller who no longer waits is no concern of the ledger's.
fn answer<T>(reply: Reply<T>, result: Result<T, ProviderError>) {
    if reply.send(result).is_err() {
        tracing::debug!("whoever asked the ledger has gone");
    }
}
