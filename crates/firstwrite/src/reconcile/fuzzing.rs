//! Accounts of providers, for [`crate::fuzzing`].

use std::io::{Cursor, Read};

use firstwrite_core::Timestamp;

use super::{CsvColumns, CsvExport, Made, Window};

/// An export, with columns of every kind.
pub(crate) fn csv(bytes: &[u8]) {
    let owned = bytes.to_vec();
    let open = move || Ok(Box::new(Cursor::new(owned.clone())) as Box<dyn Read + Send>);
    let made = Made::ByStatus {
        status: "status".to_owned(),
        made: vec!["paid".to_owned()],
        not_made: vec!["declined".to_owned()],
    };
    let mut columns = CsvColumns::new("id", "at", made);
    columns.key = Some("key".to_owned());
    columns.amount = Some("amount".to_owned());
    columns.currency = Some("currency".to_owned());
    let window =
        Window { from: Timestamp::from_millis(0), until: Timestamp::from_millis(i64::MAX) };
    let export = CsvExport::reader(open, columns).amount_power(2);
    if let Ok(page) = export.read(window) {
        let rows = bytes.split(|byte| *byte == b'\n' || *byte == b'\r').count();
        assert!(page.entries.len() <= rows, "more entries than lines");
    }
}
