//! Tests which texts have a canonical form, and which of them share it.

use proptest::prelude::*;

use super::*;

fn form(text: impl AsRef<[u8]>) -> Option<Vec<u8>> {
    let mut out = b"before".to_vec();
    let has_form = append(text.as_ref(), &mut out);
    assert_eq!(&out[..6], b"before", "what was there stays");
    assert!(has_form || out.len() == 6, "nothing is left of a text without a form");
    has_form.then(|| out.split_off(6))
}

/// The form with its tags as ASCII, to be read in a test.
fn shown(text: &str) -> String {
    let form = form(text).expect("the text has a form");
    let mut shown = String::new();
    for chunk in form.chunk_by(|_, next| *next < NAME) {
        shown.push(char::from(b"@NTF#$[{].?"[usize::from(chunk[0] - NAME)]));
        shown.push_str(std::str::from_utf8(&chunk[1..]).unwrap());
    }
    shown
}

#[test]
fn a_form_is_a_stream_of_tags() {
    for (text, expected) in [
        ("null", "N"),
        (" true ", "T"),
        ("\t\r\n false", "F"),
        ("-12.50", "#-125e-1"),
        (r#""a b""#, "$a b"),
        ("[]", "[]"),
        ("[ ]", "[]"),
        ("[1, 2 ,3]", "[#1#2#3]"),
        ("{}", "{]"),
        ("{ }", "{]"),
        (r#"{"b":1,"a":[{"d":"x","c":{}}]}"#, "{@a[{@c{]@d$x]]@b#1]"),
        (r#"{"":"","a":null}"#, "{@$@aN]"),
        (r#"{"b":0,"ab":0,"a":0,"B":0,"é":0,"z":0}"#, "{@B#0@a#0@ab#0@b#0@z#0@é#0]"),
    ] {
        assert_eq!(shown(text), expected, "{text}");
    }
}

#[test]
fn spellings_of_one_document_share_a_form() {
    for (one, other) in [
        (r#"{"a":1,"b":2}"#, r#"{"b":2,"a":1}"#),
        (r#"{"a":1,"b":2}"#, "{ \"a\" : 1 ,\r\n\t\"b\" : 2 }\n"),
        (r#"{"x":{"b":[1,{"d":1,"c":2}],"a":0}}"#, r#"{"x":{"a":0,"b":[1,{"c":2,"d":1}]}}"#),
        (r#""A/\n\b\f\r\t\"\\""#, r#""\u0041\/\u000a\u0008\u000C\u000d\u0009\u0022\u005c""#),
        (r#""é€""#, r#""\u00e9\u20AC""#),
        (r#""😀""#, r#""\ud83d\uDE00""#),
        (r#"{"\u0061":1}"#, r#"{"a":1}"#),
        (r#"["\u0000"]"#, r#"[ "\u0000" ]"#),
        ("[1,-0,1200]", "[1.0,0,1.2e3]"),
    ] {
        assert_eq!(form(one).unwrap(), form(other).unwrap(), "{one} and {other}");
    }
}

#[test]
fn different_documents_have_different_forms() {
    let documents = [
        "null",
        "true",
        "false",
        "0",
        "1",
        "[]",
        "{}",
        r#""""#,
        r#""null""#,
        r#""0""#,
        r#""1""#,
        "[null]",
        "[[]]",
        "[[],[]]",
        "[[[]]]",
        "[{}]",
        "[1,2]",
        "[2,1]",
        "[12]",
        r#"["1","2"]"#,
        r#"["12"]"#,
        r#"["1",2]"#,
        r#"{"":null}"#,
        r#"{"a":null}"#,
        r#"{"a":"b"}"#,
        r#"{"ab":""}"#,
        r#"{"a":{"b":1}}"#,
        r#"{"a":{},"b":1}"#,
        r#"{"a":[1],"b":2}"#,
        r#"{"a":[1,2]}"#,
        // One letter in two ways of composing it, and look-alikes.
        "\"\u{e9}\"",
        "\"e\u{301}\"",
        "\"\u{212b}\"",
        "\"\u{c5}\"",
        "\"A\u{30a}\"",
        r#""A""#,
        r#""a""#,
        "9007199254740992",
        "9007199254740993",
        "1e400",
        "1e401",
        "0.1",
        "0.10000000000000001",
    ];
    for (index, one) in documents.iter().enumerate() {
        for other in &documents[..index] {
            assert_ne!(form(one).unwrap(), form(other).unwrap(), "{one} and {other}");
        }
    }
}

#[test]
fn what_readers_disagree_about_has_no_form() {
    for (cause, text) in [
        ("duplicate name", &br#"{"a":1,"a":1}"#[..]),
        ("duplicate name, apart", br#"{"a":1,"b":2,"a":3}"#),
        ("duplicate name, once unescaped", br#"{"a":1,"\u0061":2}"#),
        ("duplicate empty name", br#"{"":1,"":2}"#),
        ("duplicate name inside", br#"{"x":[{"b":1,"a":2,"b":3}]}"#),
        ("lone high surrogate", br#""\ud83d""#),
        ("lone low surrogate", br#""\ude00""#),
        ("high surrogate and a letter", br#""\ud83dx""#),
        ("high surrogate and an escape", br#""\ud83d\n""#),
        ("two high surrogates", br#""\ud83d\ud83d""#),
        ("surrogates the wrong way round", br#""\ude00\ud83d""#),
        ("lone surrogate in a name", br#"{"\ud800":1}"#),
        ("byte order mark", b"\xef\xbb\xbf{}"),
        ("not UTF-8", b"\"\xff\""),
        ("overlong UTF-8", b"\"\xc0\xaf\""),
        ("surrogate in UTF-8", b"\"\xed\xa0\x80\""),
        ("UTF-16", b"{\0}\0"),
        ("power of ten beyond 64 bits", b"1e9223372036854775808"),
        ("power of ten beyond 64 bits, of zero", b"0e99999999999999999999"),
    ] {
        assert_eq!(form(text), None, "{cause}");
    }
}

#[test]
fn what_is_not_json_has_no_form() {
    for text in [
        "",
        " ",
        "{",
        "}",
        "[",
        "]",
        "\"",
        "[1",
        "[1,",
        "[1,]",
        "[,1]",
        "[1 2]",
        "[1}",
        "{]",
        r#"{"a"}"#,
        r#"{"a":}"#,
        r#"{"a":1,}"#,
        r#"{,"a":1}"#,
        r#"{"a" 1}"#,
        r"{a:1}",
        r"{'a':1}",
        r"{1:1}",
        r#"{"a":1"#,
        r#"{"a":1 "b":2}"#,
        r#"{"a"::1}"#,
        "nul",
        "nulll",
        "Null",
        "True",
        "tru",
        "truefalse",
        "NaN",
        "Infinity",
        "-Infinity",
        "undefined",
        "0x10",
        "01",
        "1.",
        ".1",
        "+1",
        "1e",
        "-",
        "1 1",
        "{}{}",
        "[] x",
        "[]\0",
        "\0",
        "// c\n1",
        "1/**/",
        "\"a\nb\"",
        "\"a\tb\"",
        "\"a\0b\"",
        "\"\u{1f}\"",
        r#""\x41""#,
        r#""\u12""#,
        r#""\u12g4""#,
        r#""\u+123""#,
        r#""\U0041""#,
        r#""\"#,
        r#""\""#,
        r#""\'""#,
        "\u{a0}1",
        "\u{b}1",
        "\u{c}1",
    ] {
        assert_eq!(form(text), None, "{text:?}");
    }
}

#[test]
fn depth_ends_at_64() {
    let nested = |depth: usize| "[".repeat(depth) + &"]".repeat(depth);
    assert!(form(nested(64)).is_some());
    assert!(form(nested(65)).is_none());
    let nested = |depth: usize| r#"{"a":"#.repeat(depth) + "1" + &"}".repeat(depth);
    assert!(form(nested(64)).is_some());
    assert!(form(nested(65)).is_none());
    // What never closes ends as early as what does.
    assert!(form("[".repeat(100_000)).is_none());
    // Breadth is no depth.
    assert!(form(format!("[{}[]]", "[],".repeat(1_000))).is_some());
}

#[test]
fn the_end_of_a_value_is_found() {
    let form = form(r#"[{"a":[1,[]],"b":"x"},[],{},"y",null]"#).unwrap();
    assert_eq!(value_end(&form, 0), form.len());
    let mut at = 1;
    for (length, tag) in [(14, OBJECT), (2, ARRAY), (2, OBJECT), (2, STRING), (1, NULL)] {
        assert_eq!(form[at], tag);
        assert_eq!(value_end(&form, at), at + length);
        at += length;
    }
    assert_eq!(form[at], END);
}

/// Texts close to JSON, where a parser's edges are.
fn nearly_json() -> impl Strategy<Value = String> {
    let token = prop_oneof![
        prop::sample::select(vec![
            "{",
            "}",
            "[",
            "]",
            ",",
            ":",
            " ",
            "\n",
            "null",
            "true",
            "false",
            "0",
            "1",
            "-",
            ".",
            "e",
            "E",
            "+",
            "\"",
            "\\",
            "\\u",
            "\"a\"",
            "\"b\"",
            "\"\\u0061\"",
            "\"\\ud83d\\ude00\"",
            "00",
            "d800",
            "é",
            "{\"a\":",
            "[1,",
            "\"\":",
        ])
        .prop_map(str::to_owned),
        "[ -~]",
    ];
    prop::collection::vec(token, 0..14).prop_map(|tokens| tokens.concat())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn any_bytes_are_taken_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        form(bytes);
    }

    #[test]
    fn what_has_a_form_is_json_and_the_other_way_round(text in nearly_json()) {
        let read = serde_json::from_str::<serde_json::Value>(&text);
        let is_taken = form(&text).is_some();
        // An independent reader takes the last of two equal names, and refuses what no float holds.
        let has_duplicate = text.matches("\"a\"").count() + text.matches("\\u0061").count() > 1
            || text.matches("\"b\"").count() > 1
            || text.matches("\"\"").count() > 1
            || text.matches('"').count() > 8;
        let has_power = text.contains(['e', 'E']);
        if is_taken && !has_power {
            prop_assert!(read.is_ok(), "{text}");
        }
        if read.is_ok() && !has_duplicate {
            prop_assert!(is_taken, "{text}");
        }
    }
}
