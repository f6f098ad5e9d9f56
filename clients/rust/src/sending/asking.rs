//! Asking the status resource: cheaper for the server than the request again, and it waits with us.

use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request, Uri};

use super::Sending;
use super::exchange::in_time;
use crate::client::StatusUse;
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

    /// Asks once; what comes next is written into `asks`, `pause` and `refresh`.
    pub(super) async fn ask(&mut self) -> Result<(), Error> {
        let refreshed = self.refresh;
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
        self.refresh = false;
        match after_status(answer.as_ref(), refreshed, self.core.clock.now()) {
            AfterStatus::Send { forget } => {
                self.asks = false;
                if forget {
                    let (url, elapsed) = (&self.entry.request.url, self.core.clock.elapsed());
                    self.core.origins.forget_status(url, elapsed);
                }
            }
            AfterStatus::Ask { wait: asked } => {
                self.pause = wait(asked, self.asked, self.core.draw());
            }
            AfterStatus::Refresh => self.refresh = true,
        }
        Ok(())
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
