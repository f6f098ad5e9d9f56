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

/// Cut off within its last field, an export has as many fields as it should.
#[tokio::test]
async fn an_export_ends_with_a_line_end() {
    let text = b"id,at,amount,currency,key\npay_1,2026-01-31T12:00:00Z,5,EUR,k1\n";
    for cut in [1, 2] {
        let page = pull(&export(&text[..text.len() - cut])).await.unwrap();
        assert_eq!(page.flaws.len(), 1, "{page:?}");
        assert!(page.flaws[0].detail.contains("line end"), "{page:?}");
    }
    assert!(pull(&export(text)).await.unwrap().flaws.is_empty());
    let text = b"id,at,amount,currency,key\r\npay_1,2026-01-31T12:00:00Z,5,EUR,k1\r\n";
    assert!(pull(&export(text)).await.unwrap().flaws.is_empty());
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
    // Half a day before the window is another time zone; two days are not. A row after the window may be dated
    // wrongly, and the code that knows the time checks it.
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

/// A date may be wrong; a key of ours is not.
#[tokio::test]
async fn a_row_with_a_key_of_ours_is_read_whatever_its_date() {
    let text = b"id,key,at\n1,k1:charge:0123456789abcdef,1970-01-01T00:00:00Z\n2,other,1970-01-01T00:00:00Z\n";
    let columns =
        CsvColumns { key: Some("key".to_owned()), ..CsvColumns::new("id", "at", Made::All) };
    let export = CsvExport::reader(move || Ok(Box::new(&text[..])), columns);
    let at = |days: i64| Timestamp::from_millis(days * 86_400_000);
    let page = export.pull(Window { from: at(20_000), until: at(20_010) }, None).await.unwrap();
    let read: Vec<_> = page.entries.iter().map(|entry| entry.provider_id.as_str()).collect();
    assert_eq!(read, ["1"]);
}

#[tokio::test]
async fn flaws_without_end_end() {
    let text: &'static [u8] = Box::leak(
        format!("id,key,amount,currency,at\n{}", "x,,,,\n".repeat(5000)).into_bytes().into(),
    );
    let page = pull(&export(text)).await.unwrap();
    assert_eq!(page.flaws.len(), FLAWS_MAX + 1);
}

/// Gives `head`, and `fill` over and over, 200 MB in all; counts what is taken.
struct Endless {
    head: &'static [u8],
    fill: &'static [u8],
    given: Arc<std::sync::atomic::AtomicU64>,
}

impl Read for Endless {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        use std::sync::atomic::Ordering::SeqCst;
        let at = usize::try_from(self.given.load(SeqCst)).unwrap();
        if at >= 200_000_000 {
            return Ok(0);
        }
        for (place, byte) in out.iter_mut().enumerate() {
            let fill = || self.fill[(at + place - self.head.len()) % self.fill.len()];
            *byte = self.head.get(at + place).copied().unwrap_or_else(fill);
        }
        self.given.fetch_add(out.len() as u64, SeqCst);
        Ok(out.len())
    }
}

#[tokio::test]
async fn a_row_without_end_is_not_kept_in_memory() {
    for (head, fill, line) in [
        (&b"id,key,amount,currency,at\npay_1,"[..], &b"x"[..], 2),
        // A quote that is not closed makes one row of many lines.
        (b"id,key,amount,currency,at\na,,1,EUR,2026-01-31T12:00:00Z\npay_1,\"", b"x\n", 3),
        (b"id,key", b"x", 1),
    ] {
        let given = Arc::new(std::sync::atomic::AtomicU64::new(0));
        let counter = Arc::clone(&given);
        let open = move || {
            let given = Arc::clone(&counter);
            Ok(Box::new(Endless { head, fill, given }) as Box<dyn Read + Send>)
        };
        let told = match pull(&CsvExport::reader(open, columns())).await {
            Ok(page) => page.flaws[0].to_string(),
            Err(error) => error.to_string(),
        };
        let expected = format!("line {line}: it is longer than 1048576 bytes");
        assert!(told.contains(&expected) && !told.contains('\n'), "{told}");
        let given = given.load(std::sync::atomic::Ordering::SeqCst);
        assert!(given < 2_000_000, "{given} bytes were read");
    }
}

/// Quotes inside of fields open nothing: the rows behind them are rows of their own.
#[tokio::test]
async fn a_long_export_of_short_rows_is_read() {
    let (odd, row) =
        ("pay,k,5,EUR,2026-01-31T12:00:00Z,19\" \n", "pay,k,5,EUR,2026-01-31T12:00:00Z,\n");
    let text = format!("id,key,amount,currency,at,note\n{odd}{}{odd}", row.repeat(59_998));
    let page = pull(&export(text.leak().as_bytes())).await.unwrap();
    assert_eq!((page.entries.len(), page.flaws.len()), (60_000, 0), "{:?}", page.flaws.first());
}

#[cfg(unix)]
#[tokio::test]
async fn what_is_no_file_is_refused_and_not_waited_for() {
    let folder = tempfile::tempdir().unwrap();
    let pipe = folder.path().join("pipe");
    assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    for path in [&*pipe, folder.path(), Path::new("/dev/null")] {
        let export = CsvExport::file(path, columns());
        let pulled = tokio::time::timeout(Duration::from_secs(5), pull(&export)).await;
        if pulled.is_err() {
            // Lets the reader go, which waits for a writer.
            drop(std::fs::OpenOptions::new().write(true).open(path));
        }
        let refused = pulled.expect("a pipe is not waited for").unwrap_err().to_string();
        assert_eq!(refused, "the export cannot be opened: it is not a regular file");
    }
}
