//! Stored answers are for those who may ask.

use crate::plan::Tenants;
use crate::probe::{Probe, Stop};
use crate::reply::Reply;

pub(super) const CHECKS: &[&str] = &["credentials-missing"];
pub(super) const REVOKED: &[&str] = &["credentials-revoked"];

/// Headers that say who asks, besides those by which the other tenant differs.
const CREDENTIALS: [&str; 5] =
    ["authorization", "cookie", "x-api-key", "api-key", "proxy-authorization"];

pub(super) async fn run(probe: &mut Probe) -> Result<(), Stop> {
    let mut names: Vec<String> = CREDENTIALS.iter().map(|&name| name.to_owned()).collect();
    if let Tenants::Other(headers) = &probe.plan.other_tenant {
        names.extend(headers.iter().map(|(name, _)| name.to_ascii_lowercase()));
    }
    let given =
        probe.plan.headers.iter().any(|(name, _)| names.contains(&name.to_ascii_lowercase()));
    if !given {
        probe.does_not_apply("credentials-missing", "the requests carry no credentials");
        return Ok(());
    }
    let key = probe.key();
    let call = probe.call(&key);
    let first = probe.send(&call).await?;
    let call = names.iter().fold(call, |call, name| call.without(name));
    let reply = probe.send(&call).await?;
    let sent = format!("without credentials {}", call.summary());
    // A server that takes strangers, too, is asked something else than this.
    let key = probe.key();
    let stranger = names.iter().fold(probe.call(&key), |call, name| call.without(name));
    let fresh = probe.send(&stranger).await?;
    if fresh.is_success() {
        let why = "requests without credentials are served here";
        probe.does_not_apply("credentials-missing", why);
        return Ok(());
    }
    tell(probe, "credentials-missing", &first, &reply, &sent);
    Ok(())
}

/// Last of all: nothing works afterwards.
pub(super) async fn revoked(probe: &mut Probe) -> Result<(), Stop> {
    let Some(revoke) = probe.plan.hooks.revoke.clone() else {
        probe.not_asked("credentials-revoked", "nothing revokes credentials: give --revoke-cmd");
        return Ok(());
    };
    let key = probe.key();
    let call = probe.call(&key);
    let first = probe.send(&call).await?;
    revoke.call().await.map_err(Stop)?;
    let reply = probe.send(&call).await?;
    let sent = format!("with revoked credentials {}", call.summary());
    tell(probe, "credentials-revoked", &first, &reply, &sent);
    Ok(())
}

fn tell(probe: &mut Probe, id: &str, first: &Reply, reply: &Reply, sent: &str) {
    let is_stored = match (first.answer(), reply.answer()) {
        (Some(first), Some(reply)) => reply.is_success() || reply.body == first.body,
        (None, _) | (_, None) => false,
    };
    let found = reply.summary();
    match reply.status() {
        _ if is_stored => probe.fail(id, sent, &format!("the stored answer: {found}")),
        Some(400..500) => probe.pass(id, sent, &found),
        Some(_) | None => {
            probe.fail_as(crate::catalogue::Severity::Minor, id, sent, &found);
        }
    }
}
