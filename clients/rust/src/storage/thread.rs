//! A thread for a storage's blocking work, so that no runtime waits for a disk.

use std::fmt;
use std::sync::mpsc::{Sender, channel};
use std::thread::{Builder, JoinHandle};

use futures_channel::oneshot;

use super::{StorageError, StorageErrorKind};
use crate::BoxFuture;

type Job<S> = Box<dyn FnOnce(&mut S) + Send>;

/// A state that one thread holds. Dropping this waits until everything that was asked is done and the state is gone, so
/// that a file is free again.
pub(super) struct StorageThread<S> {
    /// There until it is dropped.
    jobs: Option<Sender<Job<S>>>,
    thread: Option<JoinHandle<()>>,
}

impl<S: Send + 'static> StorageThread<S> {
    pub(super) fn start(mut state: S) -> Result<Self, StorageError> {
        let (jobs, asked) = channel::<Job<S>>();
        let work = move || asked.into_iter().for_each(|job| job(&mut state));
        let thread = Builder::new().name("firstwrite-client-storage".to_owned()).spawn(work);
        let thread = thread.map_err(|error| {
            let doing = "starting the storage's thread";
            StorageError::new(StorageErrorKind::Unavailable, doing, Some(error.into()))
        })?;
        Ok(Self { jobs: Some(jobs), thread: Some(thread) })
    }

    /// Runs `work` on the thread. It is run even if the future is dropped.
    pub(super) fn call<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut S) -> Result<T, StorageError> + Send + 'static,
    ) -> BoxFuture<'static, Result<T, StorageError>> {
        let (told, telling) = oneshot::channel();
        let job: Job<S> = Box::new(move |state| {
            // Nobody listens any more if the future was dropped; the work is done all the same.
            drop(told.send(work(state)));
        });
        let gone = || {
            let doing = "asking the storage's thread, which has ended";
            StorageError::new(StorageErrorKind::Unavailable, doing, None)
        };
        let is_asked = self.jobs.as_ref().is_some_and(|jobs| jobs.send(job).is_ok());
        Box::pin(async move {
            if !is_asked {
                return Err(gone());
            }
            telling.await.unwrap_or_else(|_| Err(gone()))
        })
    }
}

impl<S> Drop for StorageThread<S> {
    fn drop(&mut self) {
        self.jobs = None;
        // A thread that panicked has told whoever waited for it.
        drop(self.thread.take().map(JoinHandle::join));
    }
}

impl<S> fmt::Debug for StorageThread<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StorageThread").finish_non_exhaustive()
    }
}
