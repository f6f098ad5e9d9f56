//! Compares what the demo's provider really did with what the clients were told: the third of three records.

use std::collections::HashMap;
use std::path::Path;

use anyhow::Context;
use serde_json::Value;

use super::ledger::{Answer, Fault, Ledger};

/// Checks that every payment that a client knows of was made once at the provider, and that there are no others.
pub(crate) fn compare(file: &Path, ledger: &Ledger) -> anyhow::Result<()> {
    let text = std::fs::read_to_string(file).context("cannot read the provider's ledger")?;
    judge(&text, ledger);
    Ok(())
}

fn judge(text: &str, ledger: &Ledger) {
    let mut made = effects(text);
    for (id, answer) in ledger.entries() {
        let Some(payment) = answer.as_ref().and_then(Answer::payment_id) else { continue };
        match made.remove(&payment) {
            Some(1) => {}
            Some(count) => {
                let line = format!("{id}: the provider was made to pay {count} times");
                ledger.fault(Fault::Duplicate, line);
            }
            None => {
                let line = format!("{id}: payment {payment} never came to the provider");
                ledger.fault(Fault::Lost, line);
            }
        }
    }
    for (payment, count) in made {
        let line =
            format!("the provider paid {count} times for {payment}, which nobody was told of");
        ledger.fault(Fault::Unexpected, line);
    }
}

/// Counts how often each payment was made. A line that a crash cut off does not count: its payment was never made.
fn effects(text: &str) -> HashMap<String, usize> {
    let mut made = HashMap::new();
    for line in text.lines() {
        let Ok(entry) = serde_json::from_str::<Value>(line) else { continue };
        if let ("made", Some(payment)) =
            (entry["entry"].as_str().unwrap_or_default(), entry["reference"].as_str())
        {
            *made.entry(payment.to_owned()).or_default() += 1;
        }
    }
    made
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::clients::ledger::{KeyId, Tenant};
    use crate::http::Response;

    fn faults(text: &str) -> Vec<Fault> {
        let ledger = Ledger::new(7, 1, Duration::ZERO);
        let id = KeyId { tenant: Tenant::Acme, key: "k".to_owned() };
        assert!(ledger.open(&id));
        let paid = Response::from_printed(b"HTTP/1.1 201 Created\r\n\r\n{\"id\":\"p1\"}").unwrap();
        ledger.answered(&id, Answer::of(paid));
        judge(text, &ledger);
        ledger.report(1, 0.0).faults.into_iter().map(|(fault, _)| fault).collect()
    }

    #[test]
    fn once_is_right_and_everything_else_is_found() {
        let made = |payment: &str| format!("{{\"entry\":\"made\",\"reference\":\"{payment}\"}}\n");
        assert_eq!(faults(&made("p1")), []);
        assert_eq!(faults(&(made("p1") + "{\"entry\":\"ma")), []);
        assert_eq!(faults(&(made("p1") + &made("p1"))), [Fault::Duplicate]);
        assert_eq!(faults(""), [Fault::Lost]);
        assert_eq!(faults(&(made("p1") + &made("p2"))), [Fault::Unexpected]);
    }
}
