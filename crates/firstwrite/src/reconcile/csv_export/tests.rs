//! Exports, good and bad.

use firstwrite_core::Timestamp;

use super::*;

fn columns() -> CsvColumns {
    CsvColumns {
        key: Some("key".to_owned()),
        amount: Some("amount".to_owned()),
        currency: Some("currency".to_owned()),
        ..CsvColumns::new("id", "at", Made::All)
    }
}

fn export(text: &'static [u8]) -> CsvExport {
    CsvExport::reader(move || Ok(Box::new(text)), columns())
}

fn whole() -> Window {
    Window { from: Timestamp::EPOCH, until: Timestamp::NEVER }
}

async fn pull(export: &CsvExport) -> Result<SourcePage, SourceError> {
    export.pull(whole(), None).await
}

#[tokio::test]
async fn an_export_is_read_by_the_names_of_its_columns() {
    let text = "\u{feff}at, id ,note,currency,amount,key\r\n\
                2026-01-31T12:00:00Z,pay_1,\"one, \"\"two\"\"\",EUR,12.50,k1\r\n\
                2026-01-31T12:00:01Z,pay_2,,,,\r\n";
    let page = pull(&export(text.as_bytes())).await.unwrap();
    assert_eq!((page.flaws.len(), page.next), (0, None));
    let [first, second] = &page.entries[..] else { panic!("{:?}", page.entries) };
    assert_eq!((first.provider_id.as_str(), first.key.as_deref()), ("pay_1", Some("k1")));
    assert_eq!(first.amount, Some("12.5".parse().unwrap()));
    let raw: serde_json::Value = serde_json::from_slice(&first.raw).unwrap();
    assert_eq!(raw["note"], "one, \"two\"");
    assert_eq!((&second.key, &second.amount, &second.currency), (&None, &None, &None));
}

#[tokio::test]
async fn a_quote_that_is_not_closed_hides_no_row_unnoticed() {
    let head = "id,key,amount,currency,at,note\n";
    let row = |number: u8, note: &str| {
        format!("pay_{number},k{number},5,EUR,2026-01-31T12:00:0{number}Z,{note}\n")
    };
    for (text, flaw) in [
        (format!("{head}{}{}", row(1, "\"19 screen"), row(2, "")), "several lines"),
        (format!("{head}{}{}", row(1, ""), row(2, "\"cut")), "not closed"),
    ] {
        let page = pull(&export(text.leak().as_bytes())).await.unwrap();
        let flaws: Vec<String> = page.flaws.iter().map(ToString::to_string).collect();
        assert!(flaws.iter().any(|told| told.contains(flaw)), "{flaws:?}");
    }
    let text = format!("{head}{}{}", row(1, "\"a \"\"b\"\"\""), row(2, "\"\""));
    assert!(pull(&export(text.leak().as_bytes())).await.unwrap().flaws.is_empty());
}

#[tokio::test]
async fn a_column_that_stands_twice_is_refused() {
    let text = b"id,key,amount,currency,at,key\n";
    let refused = pull(&export(text)).await.unwrap_err().to_string();
    assert!(refused.contains("more than one column `key`"), "{refused}");
}

#[tokio::test]
async fn a_bad_row_is_told_by_its_line_and_the_others_are_read() {
    let text = b"id,key,amount,currency,at\n\
        pay_1,k1,5,EUR,2026-01-31T12:00:00Z\n\
        pay_2,k2,five,EUR,2026-01-31T12:00:00Z\n\
        pay_3,k3,5,EUR\n\
        pay_4,k4,5,EUR,soon\n\
        ,k5,5,EUR,2026-01-31T12:00:00Z\n\
        pay_6,\xff,5,EUR,2026-01-31T12:00:00Z\n\
        pay_7,k7,5,EUR,2026-01-31T12:00:00Z\n";
    let page = pull(&export(text)).await.unwrap();
    let ids: Vec<_> = page.entries.iter().map(|entry| entry.provider_id.as_str()).collect();
    assert_eq!(ids, ["pay_1", "pay_7"]);
    let flaws: Vec<String> = page.flaws.iter().map(ToString::to_string).collect();
    let told = [
        "line 3: its amount is not a decimal number",
        "line 4: it has more or fewer fields than the head",
        "line 5: its time cannot be read",
        "line 6: it has no id",
        "line 7: it is not UTF-8",
    ];
    assert_eq!(flaws, told);
    assert!(!flaws.join("").contains("five"), "what a row says is nobody's to read");
}

#[tokio::test]
async fn what_is_cut_off_is_a_flaw() {
    let text = b"id,key,amount,currency,at\npay_1,k1,5,EUR,2026-01-31T12:00:00Z\n";
    let short = export(text).bytes_max(text.len() as u64 - 5);
    assert!(!pull(&short).await.unwrap().flaws.is_empty());
    let exact = export(text).bytes_max(text.len() as u64);
    assert!(pull(&exact).await.unwrap().flaws.is_empty());
    // A quote that never ends takes everything behind it.
    let open = b"id,key,amount,currency,at\npay_1,\"k1,5,EUR,2026-01-31T12:00:00Z\npay_2,k2,5,EUR,2026-01-31T12:00:00Z\n";
    assert_eq!(pull(&export(open)).await.unwrap().flaws.len(), 2);
}

#[tokio::test]
async fn a_reader_that_fails_is_a_flaw_and_no_panic() {
    struct Broken(usize);
    impl Read for Broken {
        fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
            let text = b"id,key,amount,currency,at\npay_1,k1,5,EUR,2026-01-31T12:00:00Z\npay_2";
            if self.0 == text.len() {
                return Err(io::Error::other("a test"));
            }
            let count = out.len().min(text.len() - self.0);
            out[..count].copy_from_slice(&text[self.0..self.0 + count]);
            self.0 += count;
            Ok(count)
        }
    }
    let export = CsvExport::reader(|| Ok(Box::new(Broken(0))), columns());
    let page = pull(&export).await.unwrap();
    assert_eq!((page.entries.len(), page.flaws.len()), (1, 1));
    let export = CsvExport::reader(|| Err(io::Error::other("a test")), columns());
    assert!(pull(&export).await.unwrap_err().to_string().contains("cannot be opened"));
}

#[tokio::test]
async fn a_column_that_is_not_there_is_an_error() {
    for text in [&b"id,key,amount,at\n"[..], b"", b"a,b\n1,2\n"] {
        let error = pull(&export(text)).await.unwrap_err();
        assert!(error.to_string().contains("no column"), "{error}");
    }
}

#[tokio::test]
async fn rows_that_failed_or_are_long_before_the_window_are_passed_over() {
    // Half a day before the window is another time zone; two days are not. A row after the window may be
    // dated wrongly, and whoever knows the time looks at it.
    let text = b"id;status;at\n1;paid;200000\n2;failed;200000\n3;paid;150000\n4;paid;20000\n\
        5;open;200000\n6;paid;99999999999\n";
    let made = Made::by_status("status".to_owned(), &["paid"], &["failed"]);
    let columns = CsvColumns::new("id", "at", made);
    let export = CsvExport::reader(move || Ok(Box::new(&text[..])), columns)
        .delimiter(b';')
        .times(TimeForm::UnixSeconds);
    let at = |seconds: i64| Timestamp::from_millis(seconds * 1000);
    let window = Window { from: at(193_000), until: at(300_000) };
    let page = export.pull(window, None).await.unwrap();
    let read: Vec<_> =
        page.entries.iter().map(|entry| (entry.provider_id.as_str(), entry.is_made)).collect();
    assert_eq!(read, [("1", true), ("3", true), ("5", false), ("6", true)]);
    assert_eq!(page.flaws, []);
}

#[tokio::test]
async fn flaws_without_end_end() {
    let text: &'static [u8] = Box::leak(
        format!("id,key,amount,currency,at\n{}", "x,,,,\n".repeat(5000)).into_bytes().into(),
    );
    let page = pull(&export(text)).await.unwrap();
    assert_eq!(page.flaws.len(), FLAWS_MAX + 1);
}
