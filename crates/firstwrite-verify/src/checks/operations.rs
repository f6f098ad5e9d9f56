//! The other operations of the API, from its OpenAPI document: one that was forgotten is the one that doubles.

use http::Method;

use crate::call::Call;
use crate::openapi::{self, Described};
use crate::probe::{Probe, Stop};
use crate::reply::Reply;

pub(super) const CHECKS: &[&str] = &["operations-declared", "operations-protected"];

/// As many as a person looks through.
const NAMED_MAX: usize = 20;

pub(super) async fn run(probe: &mut Probe) -> Result<(), Stop> {
    let Some(operations) = probe.plan.operations.clone() else {
        for id in CHECKS {
            probe.not_asked(id, "no document: give --openapi");
        }
        return Ok(());
    };
    let described = openapi::read(&operations.document, operations.base_path.as_deref())
        .map_err(|error| Stop(error.to_string()))?;
    // PUT and DELETE can be repeated by what they mean, if the API keeps to that.
    let changing: Vec<Described> = described
        .into_iter()
        .filter(|one| matches!(one.method, Method::POST | Method::PATCH))
        .collect();
    let sent = format!("{} operations in {}", changing.len(), operations.document.display());
    let header = probe.plan.key_header.to_ascii_lowercase();
    let undeclared: Vec<String> =
        changing.iter().filter(|one| !one.headers.contains(&header)).map(named).collect();
    tell(probe, "operations-declared", &sent, &undeclared);
    if operations.are_asked {
        protected(probe, &changing, &sent).await
    } else {
        let why =
            "give --ask-operations: each gets a request without a key and with an empty object";
        probe.not_asked("operations-protected", why);
        Ok(())
    }
}

/// Each operation gets what the checked one refuses for lack of a key; the refusal must be the same.
async fn protected(probe: &mut Probe, changing: &[Described], sent: &str) -> Result<(), Stop> {
    let id = "operations-protected";
    let missing = probe.send(&probe.keyless()).await?;
    if !missing.is_refusal() {
        let why = "the checked operation itself takes requests without a key";
        probe.does_not_apply(id, why);
        return Ok(());
    }
    let mut unprotected = Vec::new();
    for one in changing {
        let call = probe.keyless().method(one.method.clone()).path(filled(&one.path)).body("{}");
        let reply = probe.send(&content(call)).await?;
        if !is_same(&missing, &reply) {
            unprotected.push(format!("{} ({})", named(one), reply.summary()));
        }
    }
    tell(probe, id, sent, &unprotected);
    Ok(())
}

fn tell(probe: &mut Probe, id: &str, sent: &str, lacking: &[String]) {
    if lacking.is_empty() {
        return probe.pass(id, sent, "all of them");
    }
    let mut found: Vec<String> = lacking.iter().take(NAMED_MAX).cloned().collect();
    if let more @ 1.. = lacking.len().saturating_sub(NAMED_MAX) {
        found.push(format!("and {more} more"));
    }
    probe.fail(id, sent, &format!("not these: {}", found.join("; ")));
}

/// The same status, for the same reason.
fn is_same(missing: &Reply, reply: &Reply) -> bool {
    missing.status() == reply.status() && missing.kind() == reply.kind()
}

fn content(call: Call) -> Call {
    call.header("Content-Type", "application/json")
}

fn named(one: &Described) -> String {
    format!("{} {}", one.method, one.path)
}

/// A path with something in the place of its parameters.
fn filled(path: &str) -> String {
    let mut filled = String::new();
    let mut rest = path;
    while let Some((before, after)) = rest.split_once('{') {
        filled.push_str(before);
        let Some((_, after)) = after.split_once('}') else { break };
        filled.push_str("firstwrite-verify");
        rest = after;
    }
    filled + rest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_are_filled() {
        assert_eq!(filled("/a/{id}/b/{x}"), "/a/firstwrite-verify/b/firstwrite-verify");
        assert_eq!(filled("/a"), "/a");
    }
}
