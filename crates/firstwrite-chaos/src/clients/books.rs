//! Reads all payments from the demo, page by page, and compares them with the clients' ledger.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context, ensure};
use serde_json::Value;

use super::ledger::{Fault, KeyId, Ledger, Tenant, id_text};
use super::load::ANSWER_MAX;
use crate::clock::{Deadline, pause};
use crate::http::{Client, Request};

/// Ids of payments, by the key they were asked for with.
pub(crate) type Payments = HashMap<String, Vec<String>>;

/// Far longer than one reading of all payments takes.
const READ_MAX: Duration = Duration::from_mins(2);
const BETWEEN_LOOKS: Duration = Duration::from_millis(200);

/// Every key has exactly one payment, the one its answer names, and there are no others.
pub(crate) fn compare(
    address: SocketAddr,
    ledger: &Ledger,
    deadline: Deadline,
) -> anyhow::Result<()> {
    let mut books = HashMap::new();
    for tenant in Tenant::ALL {
        books.insert(tenant, read(address, tenant, deadline)?);
    }
    for (id, answer) in ledger.entries() {
        let payments = books.get_mut(&id.tenant).and_then(|payments| payments.remove(&id.key));
        let payments = payments.unwrap_or_default();
        let told = answer.as_ref().and_then(super::ledger::Answer::payment_id);
        if payments.len() > 1 {
            ledger.fault(Fault::Duplicate, format!("{id}: payments {}", payments.join(", ")));
        }
        match (&told, answer.is_some()) {
            (Some(told), _) if !payments.contains(told) => {
                ledger.fault(
                    Fault::Lost,
                    format!("{id}: was told of payment {told}, which is not in the books"),
                );
            }
            (None, true) => {
                ledger.fault(Fault::Unexpected, format!("{id}: the answer names no payment"));
            }
            _ if payments.is_empty() => {
                ledger.fault(Fault::Missing, format!("{id}: has no payment"));
            }
            _ => {}
        }
    }
    for (tenant, left) in books {
        for (key, payments) in left {
            let id = KeyId { tenant, key };
            let line = format!("{id}: {} payments nobody asked for", payments.len());
            ledger.fault(Fault::Unexpected, line);
        }
    }
    Ok(())
}

/// Every payment ends as settled: whatever the provider did, it tells, however often either was killed. What is
/// still pending when the time is over is held against the demo.
pub(crate) fn wait_until_settled(
    address: SocketAddr,
    ledger: &Ledger,
    deadline: Deadline,
) -> anyhow::Result<()> {
    loop {
        let mut pending = Vec::new();
        for tenant in Tenant::ALL {
            each(address, tenant, Deadline::after(READ_MAX), |payment| {
                if payment["status"] == "pending" {
                    pending.push(format!("{} of {tenant:?}", payment["id"]));
                }
                Ok(())
            })?;
        }
        if pending.is_empty() {
            return Ok(());
        }
        if deadline.is_over() {
            for payment in pending {
                ledger.fault(Fault::Pending, format!("payment {payment} is never settled"));
            }
            return Ok(());
        }
        pause(BETWEEN_LOOKS);
    }
}

/// All payments of one tenant.
pub(crate) fn read(
    address: SocketAddr,
    tenant: Tenant,
    deadline: Deadline,
) -> anyhow::Result<Payments> {
    let mut payments = Payments::new();
    each(address, tenant, deadline, |payment| {
        let id = id_text(&payment["id"]).context("a payment has no `id`")?;
        let customer = payment["customer"].as_str().context("a payment has no `customer`")?;
        payments.entry(customer.to_owned()).or_default().push(id);
        Ok(())
    })?;
    Ok(payments)
}

/// Shows every payment of one tenant to `visit`.
pub(crate) fn each(
    address: SocketAddr,
    tenant: Tenant,
    deadline: Deadline,
    mut visit: impl FnMut(&Value) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    let mut client = Client::new(address, ANSWER_MAX);
    let mut after: Option<String> = None;
    loop {
        ensure!(!deadline.is_over(), "reading all payments did not end in time");
        let cursor = after.map(|cursor| format!("&after={}", escaped(&cursor))).unwrap_or_default();
        let page = read_page(&mut client, tenant, &format!("/payments?limit=1000{cursor}"))?;
        for payment in page["payments"].as_array().context("a page has no `payments`")? {
            visit(payment)?;
        }
        match id_text(&page["next"]) {
            Some(cursor) => after = Some(cursor),
            None => return Ok(()),
        }
    }
}

fn read_page(client: &mut Client, tenant: Tenant, path: &str) -> anyhow::Result<Value> {
    let request = Request {
        method: "GET",
        path: path.to_owned(),
        headers: vec![("authorization", tenant.credentials())],
        body: Vec::new(),
    };
    let response = client.send(&request).with_context(|| format!("GET {path}"))?;
    ensure!(response.status == 200, "GET {path}: expected 200, got {}", response.status);
    serde_json::from_slice(&response.body).with_context(|| format!("GET {path}"))
}

/// A cursor is the demo's own matter; whatever it holds must survive in a query.
fn escaped(text: &str) -> String {
    let mut escaped = String::new();
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            escaped.push(char::from(byte));
        } else {
            escaped.extend(format!("%{byte:02X}").chars());
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cursor_survives_in_a_query() {
        assert_eq!(escaped("pay_1-2.3~4"), "pay_1-2.3~4");
        assert_eq!(escaped("a=b&c d/é"), "a%3Db%26c%20d%2F%C3%A9");
    }
}
