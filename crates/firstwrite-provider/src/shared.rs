//! State shared by all calls.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard};
use std::time::Duration;

use tokio::sync::{Semaphore, watch};

use crate::book::Book;
use crate::clock::Clock;
use crate::conduct::Conduct;
use crate::requests::Counters;
use crate::webhook::Mailbox;
use crate::writer::WriterHandle;

/// Payments under way at once, also those whose callers have gone; further calls get a 503.
pub(crate) const UNDER_WAY_MAX: u32 = 4096;

#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) writer: WriterHandle,
    pub(crate) mailbox: Mailbox,
    pub(crate) clock: Clock,
    pub(crate) requests: Counters,
    /// One permit for each payment under way. Acquiring all of them waits until there is none.
    pub(crate) places: Arc<Semaphore>,
    book: Arc<RwLock<Book>>,
    conduct: Mutex<Conduct>,
    /// Ends when the provider does.
    stopping: watch::Receiver<()>,
}

impl Shared {
    pub(crate) fn new(
        writer: WriterHandle,
        mailbox: Mailbox,
        book: Arc<RwLock<Book>>,
        conduct: Conduct,
        (clock, stopping): (Clock, watch::Receiver<()>),
    ) -> Self {
        Self {
            writer,
            mailbox,
            clock,
            requests: Counters::default(),
            places: Arc::new(Semaphore::new(UNDER_WAY_MAX as usize)),
            book,
            conduct: Mutex::new(conduct),
            stopping,
        }
    }

    pub(crate) fn book(&self) -> RwLockReadGuard<'_, Book> {
        self.book.read().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn conduct(&self) -> MutexGuard<'_, Conduct> {
        self.conduct.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lets time pass; `false` if the provider stops meanwhile.
    pub(crate) async fn wait(&self, duration: Duration) -> bool {
        if duration.is_zero() {
            return true;
        }
        let mut stopping = self.stopping.clone();
        tokio::select! {
            () = tokio::time::sleep(duration) => true,
            _ = stopping.changed() => false,
        }
    }
}
