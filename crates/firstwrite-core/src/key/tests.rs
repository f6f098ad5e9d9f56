//! Tables of header values and the keys they spell, and properties over any value.

use proptest::prelude::*;

use super::*;

fn check(header_value: &str, expected: Result<&str, KeyError>) {
    let found = Key::parse(header_value);
    let found = found.as_ref().map(Key::as_str).map_err(|error| *error);
    assert_eq!(found, expected, "the header value {header_value:?}");
}

#[test]
fn quoted_and_bare_spell_the_same_key() {
    for (header_value, key) in [
        (r#""order-1""#, "order-1"),
        ("order-1", "order-1"),
        ("  order-1 ", "order-1"),
        (r#"  "order-1"  "#, "order-1"),
        ("8e03978e-40d5-43e8-bc93-6894a57f9324", "8e03978e-40d5-43e8-bc93-6894a57f9324"),
        ("42", "42"),
        ("-1.5", "-1.5"),
        ("tok/en:x=1&y#z", "tok/en:x=1&y#z"),
        ("*", "*"),
        ("'single'", "'single'"),
        ("<script>alert(1)</script>", "<script>alert(1)</script>"),
        ("../../etc/passwd", "../../etc/passwd"),
        ("$(reboot)", "$(reboot)"),
        ("undefined", "undefined"),
        ("a%0d%0aSet-Cookie:x", "a%0d%0aSet-Cookie:x"),
    ] {
        check(header_value, Ok(key));
    }
}

#[test]
fn a_quoted_key_may_hold_what_a_bare_one_may_not() {
    for (header_value, key) in [
        (r#""a\"b""#, r#"a"b"#),
        (r#""a\\b""#, r"a\b"),
        (r#""a,b""#, "a,b"),
        (r#""a;b""#, "a;b"),
        (r#"":YWJj:""#, ":YWJj:"),
        (r#""?1""#, "?1"),
        (r#""%0d%0aX:y""#, "%0d%0aX:y"),
        (r#""';DROP/**/TABLE""#, "';DROP/**/TABLE"),
    ] {
        check(header_value, Ok(key));
    }
}

#[test]
fn parameters_are_accepted_and_ignored() {
    for header_value in [
        r#""k";a"#,
        r#""k"; a=1;b=?0"#,
        r#""k";a="x;y, z""#,
        r#""k";a=tok;a=:YQ==:"#,
        r#""k";d=@1700000000"#,
        r#""k";*a=1.5"#,
    ] {
        check(header_value, Ok("k"));
    }
}

#[test]
fn what_is_not_one_string_is_refused() {
    use KeyError::{Empty, Malformed, NotAString, NotVisibleAscii, Several};
    for (header_value, error) in [
        ("", Empty),
        ("   ", Empty),
        (r#""""#, Empty),
        (r#""";a=1"#, Empty),
        // Quotes that do not close, or close twice.
        (r#"""#, Malformed),
        (r#""abc"#, Malformed),
        (r#""abc\"#, Malformed),
        (r#""abc\""#, Malformed),
        (r#""a"b"#, Malformed),
        (r#""a" "b""#, Malformed),
        (r#"abc""#, Malformed),
        (r#"a"b"c"#, Malformed),
        // Only a quote and a backslash may be escaped.
        (r#""a\bc""#, Malformed),
        (r#""\u0041""#, Malformed),
        (r#""a\ ""#, Malformed),
        (r"a\b", Malformed),
        // Parameters that are none.
        (r#""k";"#, Malformed),
        (r#""k";A=1"#, Malformed),
        (r#""k";a="#, Malformed),
        (r#""k" ;a"#, Malformed),
        (r#""k";a=1.2.3"#, Malformed),
        ("k;a=1", Malformed),
        ("k;", Malformed),
        // Lists, as a client sends them or as a proxy joins two lines.
        (r#""a","b""#, Malformed),
        (r#""a", "b""#, Malformed),
        (r#""a","#, Malformed),
        ("a,b", Several),
        ("a, b", Several),
        ("a,", Several),
        (r#"a,"b""#, Several),
        // Other structured types.
        (r#"("a")"#, NotAString),
        ("(a b)", NotAString),
        (":YWJj:", NotAString),
        ("?1", NotAString),
        ("@1700000000", NotAString),
        (r#"%"a%20b""#, NotAString),
        // Characters no key has.
        ("a b", NotVisibleAscii),
        (r#""a b""#, NotVisibleAscii),
        (r#"" ""#, NotVisibleAscii),
        ("a\tb", NotVisibleAscii),
        ("\tabc", NotVisibleAscii),
        ("a\r\nSet-Cookie: x", NotVisibleAscii),
        ("\"a\r\n\"", NotVisibleAscii),
        ("a\0", NotVisibleAscii),
        ("a\u{7f}", NotVisibleAscii),
        ("\u{1b}[31mred", NotVisibleAscii),
        ("clé", NotVisibleAscii),
        ("\"clé\"", NotVisibleAscii),
        ("\u{202e}abc", NotVisibleAscii),
        ("\u{feff}abc", NotVisibleAscii),
        ("“abc”", NotVisibleAscii),
        ("🔑", NotVisibleAscii),
    ] {
        check(header_value, Err(error));
    }
}

#[test]
fn a_key_has_at_most_255_bytes_in_either_spelling() {
    let longest = "k".repeat(255);
    check(&longest, Ok(&longest));
    check(&format!("\"{longest}\""), Ok(&longest));
    // Escapes and parameters are spelling, not length.
    check(&format!("\"{}\";a=1", "\\\"".repeat(255)), Ok(&"\"".repeat(255)));

    let over = "k".repeat(256);
    check(&over, Err(KeyError::TooLong { bytes: 256 }));
    check(&format!("\"{over}\""), Err(KeyError::TooLong { bytes: 256 }));
}

#[test]
fn a_plain_value_is_taken_as_it_is() {
    assert_eq!(Key::new(r#""a",b;\"#).unwrap().as_str(), r#""a",b;\"#);
    assert_eq!(Key::new(""), Err(KeyError::Empty));
    assert_eq!(Key::new("a b"), Err(KeyError::NotVisibleAscii));
    assert_eq!(Key::new(" a"), Err(KeyError::NotVisibleAscii));
    assert_eq!(Key::new("ü"), Err(KeyError::NotVisibleAscii));
}

#[test]
fn a_request_has_one_key_line_or_none() {
    let headers = |lines: &[&[u8]]| {
        let mut headers = HeaderMap::new();
        for line in lines {
            headers.append("Idempotency-Key", HeaderValue::from_bytes(line).unwrap());
        }
        Key::from_headers(&headers)
    };
    assert_eq!(headers(&[]), Ok(None));
    assert_eq!(headers(&[b"\"a\""]), Ok(Some(Key::new("a").unwrap())));
    assert_eq!(headers(&[b"a", b"b"]), Err(KeyError::Several));
    assert_eq!(headers(&[b"a", b"a"]), Err(KeyError::Several));
    assert_eq!(headers(&[b""]), Err(KeyError::Empty));
    assert_eq!(headers(&[b"\xff"]), Err(KeyError::NotVisibleAscii));
    assert_eq!(headers(&["é".as_bytes()]), Err(KeyError::NotVisibleAscii));
}

#[test]
fn a_log_shows_the_length_and_at_most_four_characters() {
    for (key, shown) in [
        ("k", "Key(…(1))"),
        ("secret-key1", "Key(…(11))"),
        ("secret-key12", "Key(secr…(12))"),
        ("8e03978e-40d5-43e8-bc93-6894a57f9324", "Key(8e03…(36))"),
    ] {
        assert_eq!(format!("{:?}", Key::new(key).unwrap()), shown);
    }
}

#[test]
fn an_error_says_what_to_do_in_one_line() {
    for (error, text) in [
        (KeyError::Empty, "the key is empty"),
        (KeyError::TooLong { bytes: 300 }, "the key has 300 bytes, 255 are allowed"),
        (KeyError::NotVisibleAscii, "the key may hold visible ASCII characters only"),
        (KeyError::NotAString, "the key is not a string; put it in double quotes"),
        (KeyError::Malformed, "the key is neither one quoted string nor plain characters"),
        (KeyError::Several, "there is more than one key; send exactly one"),
    ] {
        assert_eq!(error.to_string(), text);
    }
}

proptest! {
    #[test]
    fn a_bare_key_means_what_its_quoted_form_means(
        value in "[!#-$&-')-+\\--9<->A-\\[\\]-~][!#-+\\--:<-\\[\\]-~]{0,254}",
    ) {
        let bare = Key::parse(&value).unwrap();
        prop_assert_eq!(bare.as_str(), &value);
        let quoted = Key::parse(bare.to_header_value().to_str().unwrap()).unwrap();
        prop_assert_eq!(bare, quoted);
    }

    #[test]
    fn every_key_survives_its_header_value(value in "[!-~]{1,255}") {
        let key = Key::new(&value).unwrap();
        let header_value = key.to_header_value();
        prop_assert_eq!(Key::parse(header_value.to_str().unwrap()), Ok(key));
    }

    #[test]
    fn any_header_value_gives_a_key_or_an_error(bytes in proptest::collection::vec(any::<u8>(), 0..600)) {
        if let Ok(value) = HeaderValue::from_bytes(&bytes) {
            let headers = HeaderMap::from_iter([(Key::HEADER, value)]);
            if let Ok(key) = Key::from_headers(&headers) {
                let key = key.unwrap();
                prop_assert!(Key::new(key.as_str()).is_ok());
            }
        }
    }

    #[test]
    fn any_text_gives_a_key_or_an_error(text in "\\PC*|[ -~]{0,300}|\"[ -~]*\"(;[a-z=\"]*)?") {
        if let Ok(key) = Key::parse(&text) {
            prop_assert!(key.as_str().len() <= Key::BYTES_MAX);
        }
    }
}
