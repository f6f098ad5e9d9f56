//! Waiting for the final answer where a handler has given an interim one.

use std::time::Duration;

use firstwrite_core::{Interim, RecordId, State};
use http::Response;
use tokio::time::{Instant, sleep_until};

use crate::body::ResponseBody;
use crate::layer::Shared;
use crate::lines::say;
use crate::respond;

/// A message that is delivered at once takes a few milliseconds…
const POLL_FIRST: Duration = Duration::from_millis(5);
/// … and one that is not may take any time: the store is not asked more often than this.
const POLL_MAX: Duration = Duration::from_millis(250);
/// Below the idle limit of nearly every proxy on the way.
const WAIT_MAX: Duration = Duration::from_mins(1);

/// Returns the answer to give: the final one if it comes within the time that the handler allows, or else the
/// handler's own.
///
/// Nothing depends on the caller's patience: a caller that asks again later gets the answer that is stored
/// then.
pub(crate) async fn or_final(
    shared: &Shared,
    id: RecordId,
    mut given: Response<ResponseBody>,
) -> Response<ResponseBody> {
    let Some(Interim { wait_for }) = given.extensions_mut().remove() else { return given };
    let until = Instant::now() + wait_for.min(WAIT_MAX);
    let mut pause = POLL_FIRST;
    while Instant::now() < until {
        sleep_until(until.min(Instant::now() + pause)).await;
        pause = (pause * 2).min(POLL_MAX);
        match shared.store.get(id).await.map(|found| found.map(|found| found.record.state)) {
            Ok(Some(State::Completed { outcome, retained_until, .. })) if !outcome.is_interim => {
                return respond::first(&outcome, Some(retained_until));
            }
            Ok(Some(State::Completed { .. })) => {}
            Ok(Some(State::Reserved(_) | State::Uncertain { .. }) | None) => return given,
            Err(error) => {
                let lines = &*shared.lines;
                say!(lines.no_final, warn, %error, record_id = %id, "the final answer could not be looked up");
                return given;
            }
        }
    }
    given
}
