//! A thread for a storage's blocking work, so that no runtime waits for a disk.

use std::fmt;
use std::sync::mpsc::{Sender, channel};
use std::thread::Builder;

use futures_channel::oneshot;

use super::{StorageError, StorageErrorKind};
use crate::BoxFuture;

type Job<S> = Box<dyn FnOnce(&mut S) + Send>;

/// A state that one thread holds; it ends when this is dropped, after what was asked of it.
pub(super) struct StorageThread<S> {
    jobs: Sender<Job<S>>,
}

impl<S: Send + 'static> StorageThread<S> {
    pub(super) fn start(mut state: S) -> Result<Self, StorageError> {
        let (jobs, asked) = channel::<Job<S>>();
        let work = move || asked.into_iter().for_each(|job| job(&mut state));
        Builder::new().name("firstwrite-client-storage".to_owned()).spawn(work).map_err(
            |error| {
                let doing = "starting the storage's thread";
                StorageError::new(StorageErrorKind::Unavailable, doing, Some(error.into()))
            },
        )?;
        Ok(Self { jobs })
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
        let is_asked = self.jobs.send(job).is_ok();
        Box::pin(async move {
            if !is_asked {
                return Err(gone());
            }
            telling.await.unwrap_or_else(|_| Err(gone()))
        })
    }
}

impl<S> fmt::Debug for StorageThread<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StorageThread").finish_non_exhaustive()
    }
}
