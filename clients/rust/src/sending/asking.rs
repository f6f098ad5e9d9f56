//! Asking the status resource: cheaper for the server than the request again, and it waits with us.

use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request, Uri};

use super::Sending;
use super::exchange::in_time;
use crate::client::{StatusUse, Written};
use crate::error::Error;
use crate::rules::{AfterStatus, after_status, wait};

/// The time for which the resource holds us at most.
const HOLD: Duration = Duration::from_secs(20);
/// The time for question and answer to get there and back, so that a held answer is not taken for a lost one.
const ON_THE_WAY: Duration = Duration::from_secs(2);

impl Sending<'_> {
    /// True if this server is known to have the resource, by its answers or by the application's word.
    pub(super) fn may_ask(&self) -> bool {
        let (url, elapsed) = (&self.entry.request.url, self.core.clock.elapsed());
        match self.core.settings.status {
            StatusUse::Auto => self.knows_status(),
            StatusUse::Always => !self.core.origins.lacks_status(url, elapsed),
            StatusUse::Never => false,
        }
    }

    /// Asks once; what comes next is written into `asks`, `pause` and `refresh_question`.
    pub(super) async fn ask(&mut self) -> Result<(), Error> {
        let refreshed = self.refresh_question;
        let credentials = self.credentials(refreshed).await?;
        let Some(url) = self.status_url() else {
            self.asks = false;
            return Ok(());
        };
        let mut request = Request::new(Bytes::new());
        *request.method_mut() = Method::GET;
        *request.headers_mut() = credentials;
        *request.uri_mut() = url;
        let sent = self.core.transport.send(request, self.core.settings.answer_bytes_max);
        let answer = in_time(self.core, self.time_limit(), sent).await;
        self.asked = self.asked.saturating_add(1);
        self.refresh_question = false;
        match after_status(answer.as_ref(), refreshed, self.core.clock.now()) {
            AfterStatus::Send { forget } => {
                self.asks = false;
                if forget {
                    let (url, elapsed) = (&self.entry.request.url, self.core.clock.elapsed());
                    self.core.origins.forget_status(url, elapsed);
                }
            }
            AfterStatus::Ask { wait: asked } => {
                return self.record_wait(wait(asked, self.asked, self.core.draw())).await;
            }
            AfterStatus::Refresh => self.refresh_question = true,
        }
        Ok(())
    }

    /// Writes down the wait before the next question, so that it holds for the next call and the next process too.
    async fn record_wait(&mut self, waits_for: Duration) -> Result<(), Error> {
        let mut is_crossed = false;
        loop {
            let now = self.core.clock.now();
            let mut waiting = self.entry.waiting(self.entry.doubt, now, waits_for);
            if is_crossed {
                waiting.keep_later_wait(&self.entry);
            }
            waiting.shows_status = self.knows_status();
            match self.core.write(&self.entry, waiting).await? {
                Written::Yes(entry) => {
                    self.entry = entry;
                    self.pause = self.core.wait_left(&self.entry);
                    return Ok(());
                }
                Written::No(Some(stands)) if stands.end.is_none() => {
                    is_crossed = true;
                    self.entry = stands;
                }
                Written::No(stands) => return self.go_on_with(stands),
            }
        }
    }

    fn status_url(&self) -> Option<Uri> {
        let url = &self.entry.request.url;
        let hold = self.time_limit().saturating_sub(ON_THE_WAY).min(HOLD).as_secs();
        let query = if hold > 0 { format!("?wait={hold}s") } else { String::new() };
        let path = format!("/.firstwrite/operations/{}{query}", self.entry.key.as_str());
        let origin =
            Uri::builder().scheme(url.scheme()?.clone()).authority(url.authority()?.clone());
        origin.path_and_query(path).build().ok()
    }
}
