//! Properties over any JSON document: two spellings of it are one request, another document is not.

use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderValue, Method};
use proptest::prelude::*;
use serde_json::{Map, Number, Value};

use super::*;

fn fingerprint(body: &str) -> Fingerprint {
    let headers =
        HeaderMap::from_iter([(CONTENT_TYPE, HeaderValue::from_static("application/json"))]);
    let parts = Parts {
        method: &Method::POST,
        authority: "api.example",
        path: "/orders",
        query: None,
        headers: &headers,
        body: body.as_bytes(),
    };
    let rules = FingerprintRules::default();
    Fingerprint::of(&parts, &rules, None, &RecordId::from_bytes([7; 16]))
}

fn document() -> impl Strategy<Value = Value> {
    let scalar = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        (-1000_i64..1000).prop_map(Value::from),
        // Hundredths print exactly, as prices do.
        (-100_000_i32..100_000)
            .prop_map(|cents| Value::from(Number::from_f64(f64::from(cents) / 100.0).unwrap())),
        ".{0,12}".prop_map(Value::from),
        "[a-c~/\"\\\\\u{0}-\u{1f}😀é]{0,6}".prop_map(Value::from),
    ];
    scalar.prop_recursive(5, 64, 8, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..6).prop_map(Value::from),
            prop::collection::vec(("[a-e~/é]{0,3}", inner), 0..6)
                .prop_map(|members| Value::from(Map::from_iter(members))),
        ]
    })
}

/// Documents from so few pieces that two of them are often equal and more often nearly so.
fn small_document() -> impl Strategy<Value = Value> {
    let scalar = prop::sample::select(vec![Value::Null, Value::from(1), Value::from("a")]);
    scalar.prop_recursive(3, 5, 2, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..3).prop_map(Value::from),
            prop::collection::vec(("a|b", inner), 0..3)
                .prop_map(|members| Value::from(Map::from_iter(members))),
        ]
    })
}

/// Prints a document in one of its many spellings, drawn from a seed.
struct Printer {
    seed: u64,
    out: String,
}

impl Printer {
    fn print(value: &Value, seed: u64) -> String {
        let mut printer = Self { seed, out: String::new() };
        printer.space();
        printer.value(value);
        printer.space();
        printer.out
    }

    /// A number below `limit`; which one matters little, that the seed decides it matters.
    fn draw(&mut self, limit: u64) -> u64 {
        self.seed =
            self.seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888);
        (self.seed >> 33) % limit
    }

    fn space(&mut self) {
        for _ in 0..self.draw(3) {
            let space = [' ', '\n', '\r', '\t'][usize::try_from(self.draw(4)).unwrap()];
            self.out.push(space);
        }
    }

    fn value(&mut self, value: &Value) {
        match value {
            Value::Null | Value::Bool(_) => self.out += &value.to_string(),
            Value::Number(number) => self.number(&number.to_string()),
            Value::String(text) => self.string(text),
            Value::Array(elements) => {
                self.out.push('[');
                self.space();
                for (index, element) in elements.iter().enumerate() {
                    self.comma(index);
                    self.value(element);
                    self.space();
                }
                self.out.push(']');
            }
            Value::Object(members) => {
                let mut members: Vec<_> = members.iter().collect();
                for index in (1..members.len()).rev() {
                    let other = usize::try_from(self.draw(index as u64 + 1)).unwrap();
                    members.swap(index, other);
                }
                self.out.push('{');
                self.space();
                for (index, (name, member)) in members.into_iter().enumerate() {
                    self.comma(index);
                    self.string(name);
                    self.space();
                    self.out.push(':');
                    self.space();
                    self.value(member);
                    self.space();
                }
                self.out.push('}');
            }
        }
    }

    fn comma(&mut self, index: usize) {
        if index > 0 {
            self.out.push(',');
            self.space();
        }
    }

    fn string(&mut self, text: &str) {
        self.out.push('"');
        for character in text.chars() {
            if self.draw(4) == 0 || character < ' ' || matches!(character, '"' | '\\') {
                for unit in character.encode_utf16(&mut [0; 2]) {
                    let escape = match self.draw(2) {
                        0 => format!("\\u{unit:04x}"),
                        _ => format!("\\u{unit:04X}"),
                    };
                    self.out += &escape;
                }
            } else {
                self.out.push(character);
            }
        }
        self.out.push('"');
    }

    fn number(&mut self, plain: &str) {
        assert!(!plain.contains('e'), "the numbers drawn print without a power: {plain}");
        let point = if plain.contains('.') { "" } else { ".0" };
        // Moves the point by letting a power undo what more zeros did.
        let whole = plain.split('.').next().unwrap();
        let spelling = match self.draw(6) {
            0 => format!("{plain}{point}0"),
            1 => format!("{plain}e0"),
            2 => format!("{plain}E+00"),
            3 if whole == plain && whole != "0" => format!("{plain}00e-2"),
            4 if whole == plain && whole.len() > 2 && !whole.starts_with('-') => {
                format!("{}.{}e{}", &whole[..1], &whole[1..], whole.len() - 1)
            }
            5 if plain == "0" => "-0.00".to_owned(),
            _ => plain.to_owned(),
        };
        self.out += &spelling;
    }
}

/// Changes the leaf that a walk reaches after `steps` leaves; false if there are fewer.
fn change_leaf(value: &mut Value, steps: &mut usize) -> bool {
    match value {
        Value::Array(elements) if !elements.is_empty() => {
            return elements.iter_mut().any(|element| change_leaf(element, steps));
        }
        Value::Object(members) if !members.is_empty() => {
            return members.values_mut().any(|member| change_leaf(member, steps));
        }
        Value::Null
        | Value::Bool(_)
        | Value::Number(_)
        | Value::String(_)
        | Value::Array(_)
        | Value::Object(_) => {}
    }
    if *steps > 0 {
        *steps -= 1;
        return false;
    }
    *value = match &*value {
        Value::Null => Value::from("null"),
        Value::Bool(truth) => Value::from(!truth),
        Value::Number(number) => Value::from(number.to_string()),
        Value::String(text) => Value::from(format!("{text}x")),
        Value::Array(_) => Value::from(Map::new()),
        Value::Object(_) => Value::Null,
    };
    true
}

proptest! {
    #[test]
    fn a_document_in_two_spellings_is_one_request(
        document in document(), one in any::<u64>(), other in any::<u64>(),
    ) {
        let (one, other) = (Printer::print(&document, one), Printer::print(&document, other));
        for spelling in [&one, &other] {
            prop_assert!(serde_json::from_str::<Value>(spelling).is_ok(), "{}", spelling);
        }
        let (one_print, other_print) = (fingerprint(&one), fingerprint(&other));
        prop_assert_eq!(one_print.form(), BodyForm::Canonical);
        prop_assert_eq!(one_print, other_print, "{} and {}", one, other);
    }

    #[test]
    fn one_changed_leaf_is_another_request(
        document in document(), place in 0_usize..12, seed in any::<u64>(),
    ) {
        let mut changed = document.clone();
        if !change_leaf(&mut changed, &mut { place }) {
            change_leaf(&mut changed, &mut 0);
        }
        let before = fingerprint(&Printer::print(&document, seed));
        let after = fingerprint(&Printer::print(&changed, !seed));
        prop_assert_eq!(after.compare(&before), Comparison::Different);
    }

    #[test]
    fn two_documents_share_a_digest_only_if_they_are_equal(
        one in small_document(), other in small_document(), seed in any::<u64>(),
    ) {
        let same = fingerprint(&Printer::print(&one, seed)).compare(&fingerprint(&other.to_string()));
        prop_assert_eq!(same == Comparison::Same, one == other);
    }

    #[test]
    fn any_body_has_a_fingerprint(body in "\\PC*") {
        let again = fingerprint(&body);
        prop_assert_eq!(fingerprint(&body).compare(&again), Comparison::Same);
    }
}
