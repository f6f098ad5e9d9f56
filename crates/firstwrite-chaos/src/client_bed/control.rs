//! The proxy's own paths, below `/_bed/`: by them a test sets the scene and reads what happened.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context, bail};
use serde_json::{Map, Value, json};

use super::Bed;
use super::proxy::Asked;
use crate::clients::books;
use crate::clients::ledger::Tenant;
use crate::clock::Deadline;

/// Everything else goes to the demo.
pub(super) const PATHS: &str = "/_bed/";

/// Far longer than a test waits for its own bed.
const BOOKS_MAX: Duration = Duration::from_mins(2);
const CLOSED_MAX: Duration = Duration::from_mins(1);

/// Carries out one request of the test; returns status and body.
pub(super) fn answer(bed: &Bed, asked: &Asked) -> (u16, Value) {
    match carry_out(bed, asked) {
        Ok(value) => (200, value),
        Err(error) => (400, json!({ "error": format!("{error:#}") })),
    }
}

fn carry_out(bed: &Bed, asked: &Asked) -> anyhow::Result<Value> {
    let (path, query) = asked.path.split_once('?').unwrap_or((&asked.path, ""));
    match (asked.method.as_str(), path) {
        ("POST", "/_bed/faults") => {
            let members = members(&asked.body)?;
            bed.schedule.lock().expect("drawing a fault does not panic").set(&members)?;
            Ok(json!({}))
        }
        ("POST", "/_bed/close") => {
            let ms = members(&asked.body)?.get("ms").and_then(Value::as_u64);
            let time = ms.map(Duration::from_millis).filter(|time| *time <= CLOSED_MAX);
            bed.door.close_for(time.context("`ms` is a whole number, up to 60000")?)?;
            Ok(json!({}))
        }
        ("POST", "/_bed/restart") => bed.restart().map(|()| json!({})),
        ("GET", "/_bed/log") => {
            let since = query.strip_prefix("since=").map(str::parse).transpose();
            Ok(bed.journal.to_json(since.context("since is no number")?.unwrap_or(0)))
        }
        ("GET", "/_bed/effects") => effects(bed),
        (method, path) => bail!("there is no {method} {path}; see cargo xtask client-bed --help"),
    }
}

fn members(body: &[u8]) -> anyhow::Result<Map<String, Value>> {
    serde_json::from_slice(body).context("the body is no JSON object")
}

/// All payments in the demo's books, and how many there are of each customer.
fn effects(bed: &Bed) -> anyhow::Result<Value> {
    let (mut payments, mut counts) = (Vec::new(), BTreeMap::<String, u64>::new());
    for tenant in Tenant::ALL {
        books::each(bed.address, tenant, Deadline::after(BOOKS_MAX), |payment| {
            let customer = payment["customer"].as_str().context("a payment has no `customer`")?;
            *counts.entry(customer.to_owned()).or_default() += 1;
            let of = |name: &str| payment[name].clone();
            payments.push(json!({
                "id": of("id"), "customer": customer, "amount": of("amount"), "status": of("status"),
            }));
            Ok(())
        })?;
    }
    Ok(json!({ "payments": payments, "counts": counts }))
}
