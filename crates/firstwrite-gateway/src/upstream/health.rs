//! Health of a server: by the results of its calls, and by health checks.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use http::header::HOST;
use http::{HeaderValue, Request};
use tokio::time::{Instant, MissedTickBehavior, interval};

use super::{Calling, HealthCheck, Server, Upstreams};
use crate::body::RequestBody;

/// Health of one server.
#[derive(Debug, Default)]
pub(super) struct Health {
    /// Failures in a row.
    failure_count: AtomicU32,
    /// Time of the last failure.
    failed_at: Mutex<Option<Instant>>,
}

/// One failure is a hiccup.
const FAILURES_MAX: u32 = 2;
/// Time after which an unhealthy server is tried again: without a call it could not show that it is back.
const ILL_FOR: Duration = Duration::from_secs(5);

impl Health {
    pub(super) fn is_well(&self) -> bool {
        if self.failure_count.load(Ordering::Relaxed) < FAILURES_MAX {
            return true;
        }
        let failed_at = *self.failed_at.lock().unwrap_or_else(PoisonError::into_inner);
        failed_at.is_none_or(|failed_at| failed_at.elapsed() >= ILL_FOR)
    }

    pub(super) fn answered(&self) {
        // Written only when it changes: every call of every thread reads it.
        if self.failure_count.load(Ordering::Relaxed) != 0 {
            self.failure_count.store(0, Ordering::Relaxed);
        }
    }

    pub(super) fn failed(&self) {
        *self.failed_at.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now());
        let before = self.failure_count.load(Ordering::Relaxed);
        self.failure_count.store(before.saturating_add(1), Ordering::Relaxed);
    }
}

/// Asks every server again and again whether it is well, if that is wanted.
pub(crate) async fn watch(upstreams: Arc<Upstreams>) {
    let Some(check) = upstreams.calling().health.clone() else { return };
    let mut turn = interval(check.every);
    turn.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        turn.tick().await;
        for server in upstreams.servers() {
            look(server, &check, upstreams.calling()).await;
        }
    }
}

async fn look(server: &Arc<Server>, check: &HealthCheck, calling: &Calling) {
    let was_well = server.is_well();
    let is_well = match question(server, check) {
        Some(request) => match server.call(Box::new(request), calling, None).await {
            Ok(response) => !response.status().is_server_error(),
            Err(_failed) => false,
        },
        None => false,
    };
    if is_well {
        server.health.answered();
    } else {
        server.health.failed();
    }
    if was_well != server.is_well() {
        let upstream = server.target().to_string();
        tracing::warn!(upstream, is_well = server.is_well(), "an upstream's health has changed");
    }
}

fn question(server: &Server, check: &HealthCheck) -> Option<Request<RequestBody>> {
    let mut request = Request::get(&check.path).body(RequestBody::empty()).ok()?;
    let host = HeaderValue::from_str(server.target().authority()).ok()?;
    request.headers_mut().insert(HOST, host);
    Some(request)
}
