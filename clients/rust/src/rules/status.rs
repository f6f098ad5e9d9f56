//! Meanings of the answers of the status resource.

use std::time::Duration;

use serde_json::Value;

use super::backoff::retry_after;
use super::problem::Problem;
use super::time::Timestamp;
use crate::transport::{Failure, Reply};

/// The wait where the resource names none.
const WAIT_DEFAULT: Duration = Duration::from_secs(1);

/// The next thing to do after the status resource was asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AfterStatus {
    /// The request is sent again, which is always safe.
    Send {
        /// True if this server has no such resource, and is not asked again.
        forget: bool,
    },
    /// It is asked again.
    Ask {
        /// Not before so much time has passed.
        wait: Duration,
    },
    /// It is asked again at once with fresh credentials.
    Refresh,
}

/// Says what to do after the status resource was asked. `refreshed`: it was asked with fresh credentials.
pub fn after_status(
    answer: Result<&Reply, &Failure>,
    refreshed: bool,
    now: Timestamp,
) -> AfterStatus {
    const SEND: AfterStatus = AfterStatus::Send { forget: false };
    let Ok(reply) = answer else { return SEND };
    let document: Value = serde_json::from_slice(&reply.body).unwrap_or_default();
    let wait = || {
        let member = document["retry_after"].as_f64();
        let now = reply.date().unwrap_or(now);
        retry_after(reply.header("retry-after"), member, now).unwrap_or(WAIT_DEFAULT)
    };
    let problem = Problem::read(&reply.body);
    let is_settling = problem.as_ref().is_some_and(|problem| problem.code == "outcome-unknown");
    match reply.status.as_u16() {
        200 => match document["state"].as_str() {
            Some("reserved" | "interim" | "uncertain") => AfterStatus::Ask { wait: wait() },
            Some(_) | None => SEND,
        },
        401 | 407 if !refreshed => AfterStatus::Refresh,
        429 | 503 => AfterStatus::Ask { wait: wait() },
        404 | 405 if problem.is_none() => AfterStatus::Send { forget: true },
        _ if is_settling => AfterStatus::Ask { wait: wait() },
        _ => SEND,
    }
}
