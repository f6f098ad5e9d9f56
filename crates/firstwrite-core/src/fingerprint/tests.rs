//! Tables of requests: which are the same, and what a mismatch names.

mod secrets;

use http::header::{CONTENT_TYPE, HeaderValue};

use super::difference::{NAMES_MAX, REMOVED};
use super::*;
use crate::codec::hex;

/// A request as a test thinks of it; the default is a small JSON `POST`.
#[derive(Clone)]
struct Example {
    method: Method,
    authority: &'static str,
    path: &'static str,
    query: Option<&'static str>,
    headers: HeaderMap,
    body: Vec<u8>,
    rules: FingerprintRules,
    secret: Option<Secret>,
}

type Change = fn(&mut Example);

const ID: RecordId = RecordId::from_bytes([7; 16]);

fn example(body: impl AsRef<[u8]>) -> Example {
    Example {
        method: Method::POST,
        authority: "api.example",
        path: "/orders",
        query: None,
        headers: HeaderMap::from_iter([(
            CONTENT_TYPE,
            HeaderValue::from_static("application/json"),
        )]),
        body: body.as_ref().to_vec(),
        // Without a secret nothing else would explain a mismatch.
        rules: FingerprintRules { explain: true, ..FingerprintRules::default() },
        secret: None,
    }
}

/// The tenant of all examples.
fn acme() -> Tenant {
    Tenant::new("acme").unwrap()
}

fn secret(first: u8) -> Secret {
    let bytes: [u8; 32] = std::array::from_fn(|at| first.wrapping_add(u8::try_from(at).unwrap()));
    Secret::new(&bytes).unwrap()
}

impl Example {
    fn header(mut self, name: &'static str, value: &'static str) -> Self {
        self.headers.append(name, HeaderValue::from_static(value));
        self
    }

    fn content_type(mut self, value: &'static str) -> Self {
        self.headers.insert(CONTENT_TYPE, HeaderValue::from_static(value));
        self
    }

    fn count_header(mut self, name: &'static str) -> Self {
        self.rules.headers.push(HeaderName::from_static(name));
        self
    }

    fn select(mut self, pointers: &[&str]) -> Self {
        self.rules.select.extend(pointers.iter().map(|text| Pointer::parse(text).unwrap()));
        self
    }

    fn ignore(mut self, pointers: &[&str]) -> Self {
        self.rules.ignore.extend(pointers.iter().map(|text| Pointer::parse(text).unwrap()));
        self
    }

    fn with(mut self, change: impl FnOnce(&mut Self)) -> Self {
        change(&mut self);
        self
    }

    fn parts(&self) -> Parts<'_> {
        Parts {
            method: &self.method,
            authority: self.authority,
            path: self.path,
            query: self.query,
            headers: &self.headers,
            body: &self.body,
        }
    }

    fn fingerprint(&self) -> Fingerprint {
        Fingerprint::of(&self.parts(), &self.rules, self.secret.as_ref(), &ID)
    }

    fn form(&self) -> BodyForm {
        self.fingerprint().form()
    }

    fn is_same_as(&self, other: &Self) -> bool {
        self.fingerprint().compare(&other.fingerprint()) == Comparison::Same
    }

    /// Returns the names of the parts in which this request differs from `first`.
    fn differing(&self, first: &Self) -> Vec<String> {
        let stored = first.fingerprint();
        let secrets = Secrets::new(self.secret.iter().cloned().collect()).unwrap();
        let known = (&secrets, &acme());
        Fingerprint::differing_parts(&self.parts(), &self.rules, known, &ID, &stored)
    }

    /// Compares this request with `stored`, knowing `secrets`.
    fn compared(&self, stored: &Fingerprint, secrets: &Secrets) -> Option<Comparison> {
        let (parts, known) = (self.parts(), (secrets, &acme()));
        let taken = Fingerprint::taken_like(stored, &parts, &self.rules, known, &ID)?;
        Some(taken.compare(stored))
    }

    /// The fingerprint that version 1 took.
    fn of_version_1(&self) -> Fingerprint {
        let secret = self.secret.as_ref();
        let taken = Fingerprint::by(Version::One, &self.parts(), &self.rules, secret, &ID);
        // It did not say which secret it used.
        taken.keyed_by(None)
    }
}

#[test]
fn a_known_request_keeps_its_fingerprint() {
    // Stored format: a change of these values needs a new `Fingerprint::VERSION`.
    let canonical = example(r#"{"amount":12.50,"items":[{"sku":"a"},{}],"note":null}"#)
        .with(|request| request.query = Some("dry=1"))
        .header("x-shop", "berlin")
        .count_header("x-shop");
    let raw = canonical.clone().content_type("text/plain");
    let keyed = canonical.clone().with(|request| {
        request.secret = Some(Secret::new(b"0123456789abcdef").unwrap());
    });
    let shown = |fingerprint: Fingerprint| {
        format!(
            "{} {}",
            hex::encode(fingerprint.digest()),
            hex::encode(fingerprint.parts().as_bytes())
        )
    };
    let requests = [canonical, raw, keyed];
    assert_eq!(
        requests.clone().map(|request| shown(request.fingerprint())),
        [
            "b27d6a84436ea48dfe114f142fe37ee6711bf44e167d7d26e2b73f694d85cf24 \
             19810cfc986d9f373321daa35641e39823dd125d1cda",
            "6406de20401933a8de77b77b638b1ea7deecb49685d7eade046a9142a4125212 \
             19810cfc986d9f37ec44daa35641cf09",
            "8a21b69291faeb1946d82a5a15c5e9a5e798d0b2b168ca5c868ed3d40269b4f1 \
             66104a895e430db392595dad7b3703c2c61b1cd9af5b",
        ]
    );
    let keyed_by = requests[2].fingerprint().secret().map(|id| hex::encode(id.as_bytes()));
    assert_eq!(keyed_by.as_deref(), Some("564cd4172d"));
    assert_eq!(
        requests.map(|request| shown(request.of_version_1())),
        [
            "a6b1dc0151455bc8f0ca93d59c92236c7999917c5cfc6b0a8431a913fe8f1fb8 \
             19810cfc986d9f375641e39823dd125d1cda",
            "34a7f3df39288d47efd511f4ec2bcbe0c5c47094fb3bce9bce7066c4d9aa3c4c \
             19810cfc986d9f375641cf09",
            "44205c12d1c43ce756867b491261e63be2957fa922ce248a090d8d47d2f4a1f1 \
             66104a895e430db37b3703c2c61b1cd9af5b",
        ]
    );
}

#[test]
fn the_spelling_of_json_makes_no_difference() {
    let first = example(r#"{"amount":1,"name":"Añ","tags":["x",{"b":1,"a":2}]}"#);
    for body in [
        r#"{"name":"Añ","tags":["x",{"a":2,"b":1}],"amount":1}"#,
        " {\n\"amount\" : 1.0, \"name\":\"\\u0041\\u00f1\",\t\"tags\":[\"x\",{\"b\":10e-1,\"a\":2}]}",
    ] {
        assert!(example(body).is_same_as(&first), "{body}");
    }
    for body in [
        r#"{"amount":2,"name":"Añ","tags":["x",{"b":1,"a":2}]}"#,
        r#"{"amount":"1","name":"Añ","tags":["x",{"b":1,"a":2}]}"#,
        r#"{"amount":1,"name":"An\u0303","tags":["x",{"b":1,"a":2}]}"#,
        r#"{"amount":1,"name":"Añ","tags":[{"b":1,"a":2},"x"]}"#,
        r#"{"amount":1,"name":"Añ","tags":["x",{"b":1,"a":2}],"x":null}"#,
    ] {
        assert!(!example(body).is_same_as(&first), "{body}");
    }
}

#[test]
fn everything_a_request_asks_for_counts() {
    let first = example("{}");
    let changes: [(&str, Change); 9] = [
        ("method", |request| request.method = Method::PUT),
        ("authority", |request| request.authority = "api.example:8443"),
        ("path", |request| request.path = "/orders/"),
        ("path case", |request| request.path = "/Orders"),
        ("empty query", |request| request.query = Some("")),
        ("query", |request| request.query = Some("a=1")),
        ("path and query", |request| request.path = "/orders?a=1"),
        ("body", |request| request.body = b"[]".to_vec()),
        ("no body", |request| request.body.clear()),
    ];
    for (what, change) in changes {
        assert!(!first.clone().with(change).is_same_as(&first), "{what}");
    }
    assert!(first.clone().with(|request| request.authority = "API.Example").is_same_as(&first));
    assert!(first.clone().header("user-agent", "curl").is_same_as(&first));
}

#[test]
fn the_borders_between_parts_count() {
    let one = example("").with(|request| (request.authority, request.path) = ("ab", "c"));
    let other = example("").with(|request| (request.authority, request.path) = ("a", "bc"));
    assert!(!one.is_same_as(&other));
    let base = example("").count_header("x-a").count_header("x-b");
    assert!(!base.clone().header("x-a", "1").is_same_as(&base.clone().header("x-b", "1")));
}

#[test]
fn a_selected_header_counts_with_all_its_lines() {
    let base = || example("{}").count_header("x-shop");
    let first = base().header("x-shop", "a").header("x-shop", "b");
    assert!(base().header("x-shop", "a").header("x-shop", "b").is_same_as(&first));
    for (what, other) in [
        ("absent", base()),
        ("one line fewer", base().header("x-shop", "a")),
        ("other order", base().header("x-shop", "b").header("x-shop", "a")),
        ("joined", base().header("x-shop", "a, b")),
        ("joined tightly", base().header("x-shop", "ab")),
        ("a third line", first.clone().header("x-shop", "b")),
    ] {
        assert!(!other.is_same_as(&first), "{what}");
    }
    assert!(!base().is_same_as(&base().header("x-shop", "")), "absent is not empty");
}

#[test]
fn the_content_type_decides_on_the_form() {
    for (content_type, form) in [
        ("application/json", BodyForm::Canonical),
        ("Application/JSON", BodyForm::Canonical),
        ("application/json; charset=utf-8", BodyForm::Canonical),
        ("application/json ;charset=\"x;y\"", BodyForm::Canonical),
        ("application/merge-patch+json", BodyForm::Canonical),
        ("application/vnd.shop.v2+JSON;q=1", BodyForm::Canonical),
        ("application/jsonp", BodyForm::Raw),
        ("application/json-seq", BodyForm::Raw),
        ("application/x+json+xml", BodyForm::Raw),
        ("application+json", BodyForm::Raw),
        ("text/json", BodyForm::Raw),
        ("text/plain", BodyForm::Raw),
        ("text/plain; x=application/json", BodyForm::Raw),
        ("", BodyForm::Raw),
    ] {
        assert_eq!(example("{}").content_type(content_type).form(), form, "{content_type}");
    }
    assert_eq!(example("{}").with(|request| request.headers.clear()).form(), BodyForm::Raw);
    assert_eq!(example("{}").header("content-type", "application/json").form(), BodyForm::Raw);
    assert_eq!(
        example("{}").with(|request| request.rules.body = BodyForm::Raw).form(),
        BodyForm::Raw
    );
}

#[test]
fn a_body_without_canonical_form_matches_only_itself() {
    let deep = "[".repeat(65) + &"]".repeat(65);
    for body in [
        &br#"{"a":1,"a":1}"#[..],
        br#"{"a":1,"\u0061":1}"#,
        br#"{"a":"\ud800"}"#,
        b"\xef\xbb\xbf{}",
        b"{\"a\":\"\xff\"}",
        br#"{"a":1e99999999999999999999}"#,
        br#"{"a":1} x"#,
        b"",
        deep.as_bytes(),
    ] {
        let request = example(body);
        let what = String::from_utf8_lossy(body);
        assert_eq!(request.form(), BodyForm::Raw, "{what}");
        assert!(request.is_same_as(&example(body)), "{what}");
        let spaced = [body, b" "].concat();
        assert!(!request.is_same_as(&example(spaced)), "{what}");
    }
    // The same bytes as text and as JSON are two requests: their forms mean different things.
    assert!(!example("{}").is_same_as(&example("{}").content_type("text/plain")));
}

#[test]
fn what_the_body_is_said_to_be_counts() {
    let form = |boundary| {
        let content_type = format!("multipart/form-data; boundary={boundary}");
        example("--A\r\n\r\n10\r\n--A--\r\n--B\r\n\r\n9000\r\n--B--\r\n").with(|request| {
            request.headers.insert(CONTENT_TYPE, HeaderValue::from_str(&content_type).unwrap());
        })
    };
    assert!(form("A").is_same_as(&form("\"A\"")));
    assert!(!form("A").is_same_as(&form("B")));
    let json = example("{}");
    assert!(json.is_same_as(&example("{}").content_type("Application/json;charset=\"UTF-8\"")));
    assert!(json.is_same_as(&example("{}").header("content-encoding", "identity")));
    assert!(!json.is_same_as(&example("{}").content_type("application/merge-patch+json")));
    assert!(!json.is_same_as(&example("{}").header("content-encoding", "gzip")));
}

#[test]
fn only_selected_values_count() {
    let check = |select: &[&str], one: &str, other: &str, expected: bool| {
        let is_same = example(one).select(select).is_same_as(&example(other).select(select));
        assert_eq!(is_same, expected, "{select:?} of {one} and {other}");
    };
    let order = r#"{"amount":5,"to":{"iban":"x","name":"n"},"items":[1,2,3]}"#;
    check(&["/amount"], order, r#"{"amount":5.0}"#, true);
    check(&["/amount"], order, r#"{"amount":6}"#, false);
    check(&["/amount"], order, r#"{"amount":null}"#, false);
    check(&["/amount"], r#"{"amount":null}"#, "{}", false);
    check(&["/amount"], "{}", "[]", true);
    check(&["/to/iban", "/amount"], order, r#"{"to":{"iban":"x"},"amount":5}"#, true);
    check(&["/to/iban", "/amount"], order, r#"{"to":{"iban":5},"amount":"x"}"#, false);
    check(&["/items/1"], order, r#"{"items":[9,2]}"#, true);
    check(&["/items/1"], order, r#"{"items":[2]}"#, false);
    check(&["/items/1"], order, r#"{"items":{"1":2}}"#, true);
    check(&["/items/-"], order, r#"{"items":[]}"#, true);
    check(&["/items/3"], order, r#"{"items":[]}"#, true);
    check(&["/amount/x"], order, "{}", true);
    check(&["/to"], order, r#"{"to":{"name":"n","iban":"x"}}"#, true);
    check(&["/to"], order, r#"{"to":{"name":"n"}}"#, false);
    check(&["/a", "/b"], r#"{"a":1}"#, r#"{"b":1}"#, false);
    check(&[""], order, order, true);
    check(&[""], order, "{}", false);
    check(&["/m~1n", "/~0"], r#"{"m/n":1,"~":2,"x":3}"#, r#"{"m/n":1,"~":2}"#, true);
    // Without canonical form everything counts.
    check(&["/a"], r#"{"a":1,"b":1,"b":1}"#, r#"{"a":1,"b":1,"b":2}"#, false);
}

#[test]
fn ignored_values_do_not_count() {
    let check = |ignore: &[&str], one: &str, other: &str, expected: bool| {
        let is_same = example(one).ignore(ignore).is_same_as(&example(other).ignore(ignore));
        assert_eq!(is_same, expected, "without {ignore:?}: {one} and {other}");
    };
    check(&["/at"], r#"{"at":1,"b":2}"#, r#"{"at":{"x":[]},"b":2}"#, true);
    check(&["/at"], r#"{"at":1,"b":2}"#, r#"{"b":2}"#, true);
    check(&["/at"], r#"{"at":1,"b":2}"#, r#"{"at":1,"b":3}"#, false);
    check(&["/at"], r#"{"x":{"at":1}}"#, r#"{"x":{"at":2}}"#, false);
    check(&["/x/at"], r#"{"x":{"at":1,"b":1}}"#, r#"{"x":{"b":1}}"#, true);
    check(&["/x/at"], r#"{"x":{"at":1}}"#, r#"{"x":{}}"#, true);
    check(&["/x/at"], r#"{"x":{}}"#, "{}", false);
    check(&["/x/at", "/b"], r#"{"b":1,"x":{"at":1}}"#, r#"{"x":{"at":2}}"#, true);
    check(&["/1"], "[1,2,3]", "[1,9,3]", true);
    check(&["/1"], "[1,2,3]", "[1,3]", false);
    check(&["/1"], "[1,2]", "[1]", false);
    check(&["/1"], r#"{"1":1}"#, "{}", true);
    check(&["/items/0/at"], r#"{"items":[{"at":1}]}"#, r#"{"items":[{"at":2}]}"#, true);
    check(&["/items/0/at"], r#"{"items":[0,{"at":1}]}"#, r#"{"items":[0,{"at":2}]}"#, false);
    check(&[""], "[1]", r#"{"a":"b"}"#, true);
    check(&["/\u{61}"], r#"{"\u0061":1}"#, r#"{"a":2}"#, true);
    // A duplicate of an ignored name is still a duplicate.
    check(&["/a"], r#"{"a":1,"a":2}"#, r#"{"a":1,"a":3}"#, false);

    let narrowed = |body| example(body).select(&["/to"]).ignore(&["/to/name"]);
    let first = narrowed(r#"{"to":{"iban":1,"name":2},"x":1}"#);
    assert!(first.is_same_as(&narrowed(r#"{"to":{"iban":1}}"#)));
    assert!(!first.is_same_as(&narrowed(r#"{"to":{"iban":2,"name":2}}"#)));
}

#[test]
fn fingerprints_of_two_records_cannot_be_compared() {
    let request = example(r#"{"a":1}"#);
    let keyed = secret(1);
    let under = |id| Fingerprint::of(&request.parts(), &request.rules, Some(&keyed), &id);
    let (one, other) = (under(RecordId::from_bytes([1; 16])), under(RecordId::from_bytes([2; 16])));
    assert_eq!(one.compare(&other), Comparison::Different);
    let shared = one.parts().iter().filter(|&part| other.parts().iter().any(|it| it == part));
    assert_eq!(shared.count(), 0);
}

#[test]
fn what_was_stored_compares_like_what_was_taken() {
    let taken = example(r#"{"a":1}"#).fingerprint();
    let stored = |version| {
        Fingerprint::from_stored(
            version,
            BodyForm::from_byte(taken.form().as_byte()).unwrap(),
            *taken.digest(),
            PartDigests::from_bytes(taken.parts().as_bytes()).unwrap(),
        )
    };
    assert_eq!(stored(Fingerprint::VERSION), taken);
    assert_eq!(taken.compare(&stored(Fingerprint::VERSION)), Comparison::Same);
    assert_eq!(taken.compare(&stored(3)), Comparison::OtherWay);
    assert_eq!(example("{}").compared(&stored(3), &Secrets::default()), None);
    assert_eq!(BodyForm::from_byte(0), None);
    assert_eq!(PartDigests::from_bytes(&[0; 5]), None);
    assert_eq!(PartDigests::from_bytes(&[0; 130]), None);
    assert_eq!(PartDigests::from_bytes(&[]), Some(PartDigests::default()));
    assert_eq!(PartDigests::from_bytes(&[0; 128]).unwrap().count(), 64);
}

#[test]
fn a_log_shows_only_the_beginning_of_a_digest() {
    let fingerprint = example("[1,2]").fingerprint();
    let start = hex::encode(&fingerprint.digest()[..4]);
    assert_eq!(format!("{fingerprint:?}"), format!("Fingerprint(v2 Canonical {start}…, 8 parts)"));
}

#[test]
fn a_mismatch_names_what_differs() {
    let check = |first: &str, second: &str, expected: &[&str]| {
        assert_eq!(example(second).differing(&example(first)), expected, "{first} then {second}");
    };
    check(r#"{"a":1,"b":2}"#, r#"{"b":2.0,"a":1}"#, &[]);
    check(r#"{"a":1,"b":2}"#, r#"{"b":3,"a":1}"#, &["/b"]);
    check(r#"{"a":1}"#, r#"{"a":1,"b":2}"#, &["/b"]);
    check(r#"{"a":1,"b":2}"#, r#"{"a":1}"#, &[REMOVED]);
    check(r#"{"a":1,"b":2,"c":3}"#, r#"{"a":2}"#, &["/a", REMOVED]);
    check(r#"{"to":{"iban":"x"}}"#, r#"{"to":{"iban":"y"}}"#, &["/to/iban"]);
    check(r#"{"items":[{"n":1},{"n":2}]}"#, r#"{"items":[{"n":1},{"n":3}]}"#, &["/items/1/n"]);
    check(r#"{"a":{}}"#, r#"{"a":[]}"#, &["/a"]);
    check(r#"{"a/b":1,"~":1,"":1}"#, r#"{"a/b":2,"~":2,"":2}"#, &["/", "/a~1b", "/~0"]);
    check("1", "2", &["body"]);
    check("[1,2]", "[2,1]", &["/0", "/1"]);
    check("{x", "{y", &["body"]);
    check(r#"{"a":1,"b":2}"#, r#"{"a":1,"b":2,"b":2}"#, &["body", REMOVED]);

    let first = example("{}").count_header("x-shop").header("x-shop", "a");
    let second = example("{}").count_header("x-shop").with(|request| {
        request.method = Method::PUT;
        request.authority = "other.example";
        request.path = "/refunds";
        request.query = Some("");
    });
    assert_eq!(second.differing(&first), ["method", "authority", "path", "query", "header:x-shop"]);
    let encoded =
        example("{}").content_type("application/cbor+json").header("content-encoding", "br");
    let names = ["header:content-type", "header:content-encoding"];
    assert_eq!(encoded.differing(&example("{}")), names);

    let selected = |body| example(body).select(&["/to/iban", "/amount"]).ignore(&["/at"]);
    let first = selected(r#"{"to":{"iban":"x"},"amount":1,"at":1}"#);
    let second = selected(r#"{"to":{"iban":"y"},"at":2}"#);
    assert_eq!(second.differing(&first), ["/to/iban", "/amount"]);
}

/// An object with members `m000` and so on, each with its number as value.
fn wide(range: std::ops::Range<usize>) -> String {
    let members: Vec<_> = range.map(|number| format!("\"m{number:03}\":{number}")).collect();
    format!("{{{}}}", members.join(","))
}

#[test]
fn the_end_of_what_is_remembered_is_no_difference() {
    let first = example(wide(100..300));
    assert_eq!(first.fingerprint().parts().count(), PartDigests::COUNT_MAX);
    let second = |body: String| example(body).differing(&first);

    let changed = wide(100..300).replace(":150", ":0");
    assert_eq!(second(changed), ["/m150"]);
    // Six parts before the body leave room for 58 of its leaves.
    let forgotten = wide(100..300).replace(":158", ":0");
    assert_eq!(second(forgotten), [""; 0]);
    let last = wide(100..300).replace(":157", ":0");
    assert_eq!(second(last), ["/m157"]);
    let longer = wide(100..300).replacen('{', r#"{"a":1,"b":2,"#, 1);
    assert_eq!(second(longer), ["/a", "/b"]);
    assert_eq!(second(wide(101..300)), [REMOVED]);
}

#[test]
fn names_are_few_and_short() {
    let names = example(wide(500..900)).differing(&example(wide(100..110)));
    assert_eq!(names.len(), NAMES_MAX);
    assert_eq!(names[0], "/m500");

    let long = |value: u8| example(format!(r#"{{"{}":[{value}]}}"#, "é/".repeat(1_000)));
    let names = long(2).differing(&long(1));
    assert_eq!(names.len(), 1);
    assert!(names[0].starts_with("/é~1é~1") && names[0].ends_with('…'), "{}", names[0]);
    assert!(names[0].len() <= 128 && names[0].len() > 120, "{}", names[0].len());
}

#[test]
fn nothing_is_named_when_nothing_was_kept() {
    let request = example(r#"{"a":1}"#);
    let taken = request.fingerprint();
    for stored in [
        Fingerprint::from_stored(2, taken.form(), [0; 32], PartDigests::default()),
        Fingerprint::from_stored(3, taken.form(), [0; 32], taken.parts().clone()),
        Fingerprint::from_stored(2, taken.form(), [0; 32], taken.parts().clone())
            .keyed_by(Some(secret(1).id())),
    ] {
        let known = (&Secrets::default(), &acme());
        let names =
            Fingerprint::differing_parts(&request.parts(), &request.rules, known, &ID, &stored);
        assert_eq!(names, [""; 0]);
    }
}
