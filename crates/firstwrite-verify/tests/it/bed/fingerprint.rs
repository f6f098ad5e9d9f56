//! What makes two requests the same: method, path, query, and what the body says.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use super::connection::Request;
use super::defect::Defect;
use super::json::Json;

/// Method, path, query and body, as far as this server compares them.
pub(super) fn of(request: &Request, defect: Option<Defect>) -> Vec<u8> {
    let head = &request.head;
    let line = match &head.query {
        Some(query) => format!("{} {}?{query}\n", head.method, head.path),
        None => format!("{} {}\n", head.method, head.path),
    };
    match defect {
        Some(Defect::NoBodyComparison) => line.into_bytes(),
        Some(Defect::BodyOnlyFingerprint) => of_body(&request.body, defect),
        _ => [line.into_bytes(), of_body(&request.body, defect)].concat(),
    }
}

/// JSON in one spelling of many; anything else as it is.
pub(super) fn of_body(body: &[u8], defect: Option<Defect>) -> Vec<u8> {
    let mut canonical = String::from("json:");
    match Json::parse(body).and_then(|json| spell(&json, defect, &mut canonical)) {
        Some(()) => canonical.into_bytes(),
        None => [b"bytes:", body].concat(),
    }
}

/// Nothing where there is no telling what is meant.
fn spell(json: &Json, defect: Option<Defect>, out: &mut String) -> Option<()> {
    match json {
        Json::Word(word) => out.push_str(word),
        Json::Number(text) if defect == Some(Defect::FloatFingerprint) => {
            write!(out, "{:?}", text.parse::<f64>().ok()?).ok()?;
        }
        Json::Number(text) => *out += &decimal(text)?,
        Json::String(text) => write!(out, "{text:?}").ok()?,
        Json::Array(values) => {
            out.push('[');
            for value in values {
                spell(value, defect, out)?;
                out.push(',');
            }
            out.push(']');
        }
        Json::Object(members) => {
            let sorted: BTreeMap<_, _> =
                members.iter().map(|(name, value)| (name, value)).collect();
            // Which of two members of one name is meant, two parsers would not agree on.
            if sorted.len() < members.len() && defect != Some(Defect::LastWinsDuplicates) {
                return None;
            }
            out.push('{');
            for (name, value) in sorted {
                write!(out, "{name:?}:").ok()?;
                spell(value, defect, out)?;
                out.push(',');
            }
            out.push('}');
        }
    }
    Some(())
}

/// The exact value of a number: its digits without zeros at either end, and a power of ten.
fn decimal(text: &str) -> Option<String> {
    let (mantissa, exponent) = text.split_once(['e', 'E']).unwrap_or((text, "0"));
    let sign = if mantissa.starts_with('-') { "-" } else { "" };
    let (whole, fraction) = mantissa
        .trim_start_matches('-')
        .split_once('.')
        .unwrap_or((mantissa.trim_start_matches('-'), ""));
    let digits = format!("{whole}{fraction}");
    let kept = digits.trim_end_matches('0');
    let significant = kept.trim_start_matches('0');
    if significant.is_empty() {
        return Some("0".to_owned());
    }
    let moved =
        i64::try_from(digits.len() - kept.len()).ok()? - i64::try_from(fraction.len()).ok()?;
    let power = exponent.parse::<i64>().ok()?.checked_add(moved)?;
    Some(format!("{sign}{significant}e{power}"))
}
