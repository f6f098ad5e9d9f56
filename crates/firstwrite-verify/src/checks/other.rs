//! Another request under a key that is used up: it must neither run nor get the old answer.

use http::Method;

use super::refusal::Refusals;
use crate::call::Call;
use crate::catalogue::Severity;
use crate::probe::{Probe, Stop, with_query};
use crate::reply::Reply;

pub(super) const CHECKS: &[&str] = &["other-body", "other-query", "other-path", "other-method"];

pub(super) async fn run(probe: &mut Probe) -> Result<(), Stop> {
    let key = probe.key();
    let call = probe.call(&key);
    let first = probe.send(&call).await?;
    if !first.is_success() {
        return Err(Stop(format!(
            "the first request was not answered with success: {}",
            first.summary()
        )));
    }
    body(probe, &call, &first).await?;

    let other = with_other_query(&call);
    let mark = probe.mark().await?;
    let reply = probe.send(&other).await?;
    let effects = probe.effects_besides(mark, &[&first], &[&reply]).await?;
    let (sent, found) = (other.summary(), reply.summary());
    let is_old = reply.repeats(&first) || marked(&reply);
    match () {
        () if is_old => probe.fail("other-query", &sent, &format!("the old answer: {found}")),
        () if reply.is_success() || effects.is_some_and(|count| count > 0) => {
            probe.fail("other-query", &sent, &format!("it ran: {found}"));
        }
        () if reply.is_refusal() => probe.pass("other-query", &sent, &found),
        () => probe.fail("other-query", &sent, &format!("the server failed: {found}")),
    }

    never_old(probe, "other-path", &elsewhere(&call), &first).await?;
    never_old(probe, "other-method", &with_other_method(&call), &first).await
}

async fn body(probe: &mut Probe, call: &Call, first: &Reply) -> Result<(), Stop> {
    let other = match &probe.json {
        Ok(json) => json.other(),
        // A body that is no JSON is another one with another byte.
        Err(_) if !call.body_now().is_empty() => [call.body_now(), b" "].concat(),
        Err(why) => {
            let why = why.clone();
            probe.not_asked("other-body", &why);
            return Ok(());
        }
    };
    let call = call.clone().body(other);
    let mark = probe.mark().await?;
    let reply = probe.send(&call).await?;
    let effects = probe.effects_besides(mark, &[first], &[&reply]).await?;
    let (sent, found) = (call.summary(), reply.summary());
    if reply.repeats(first) || marked(&reply) {
        let found = format!("the answer to the first request: {found}");
        probe.fail("other-body", &sent, &found);
    } else if reply.is_success() || effects.is_some_and(|count| count > 0) {
        probe.fail("other-body", &sent, &format!("it ran: {found}"));
    } else {
        let mut refusals = Refusals::default();
        refusals.judge(&call, &reply, &[probe.plan.profile.mismatch()]);
        refusals.tell(probe, "other-body");
    }
    Ok(())
}

/// Fails if the server replays the first response. Any refusal passes, since there may be no such operation.
async fn never_old(probe: &mut Probe, id: &str, call: &Call, first: &Reply) -> Result<(), Stop> {
    let reply = probe.send(call).await?;
    let (sent, found) = (call.summary(), reply.summary());
    if reply.repeats(first) || marked(&reply) {
        probe.fail(id, &sent, &format!("the answer to the first request: {found}"));
    } else if reply.answer().is_some_and(crate::wire::Answer::is_failure) {
        probe.fail_as(Severity::Minor, id, &sent, &format!("the server failed: {found}"));
    } else {
        probe.pass(id, &sent, &found);
    }
    Ok(())
}

/// The same request to another path, where there is probably nothing.
pub(super) fn elsewhere(call: &Call) -> Call {
    let (path, query) = split(call.path_now());
    call.clone().path(format!("{}/firstwrite-verify{query}", path.trim_end_matches('/')))
}

pub(super) fn with_other_query(call: &Call) -> Call {
    call.clone().path(with_query(call.path_now(), "firstwrite-verify=1"))
}

pub(super) fn with_other_method(call: &Call) -> Call {
    let method = if *call.method_now() == Method::PUT { Method::POST } else { Method::PUT };
    call.clone().method(method)
}

pub(super) fn marked(reply: &Reply) -> bool {
    reply.answer().is_some_and(|answer| answer.is_marked() && answer.is_success())
}

fn split(path: &str) -> (&str, &str) {
    path.find('?').map_or((path, ""), |at| path.split_at(at))
}
