//! JSON numbers by exact decimal value, never through a float.
//!
//! A number is written as its digits without zeros at either end, then `e` and the power of ten
//! they are multiplied by, if that is not zero: `1`, `1.0` and `10e-1` all become `1`; `1200`
//! becomes `12e2`; zero has no sign.

/// Appends the number at the start of `text` and returns its length there.
///
/// Returns `None` if it is not a number by JSON's grammar, or if its power of ten does not fit 64 bits:
/// such a number has a value, but no client means it.
pub(super) fn append(text: &[u8], out: &mut Vec<u8>) -> Option<usize> {
    let is_negative = text.first() == Some(&b'-');
    let mut rest = if is_negative { &text[1..] } else { text };

    let whole = take_digits(&mut rest);
    if whole.is_empty() || (whole.len() > 1 && whole[0] == b'0') {
        return None;
    }
    let mut fraction: &[u8] = &[];
    if let Some((b'.', after)) = rest.split_first() {
        rest = after;
        fraction = take_digits(&mut rest);
        if fraction.is_empty() {
            return None;
        }
    }
    let mut power = 0;
    if let Some((b'e' | b'E', after)) = rest.split_first() {
        rest = after;
        power = take_exponent(&mut rest)?;
    }

    let start = out.len();
    if is_negative {
        out.push(b'-');
    }
    if whole == b"0" {
        let zeros = fraction.iter().take_while(|&&digit| digit == b'0').count();
        out.extend_from_slice(&fraction[zeros..]);
    } else {
        out.extend_from_slice(whole);
        out.extend_from_slice(fraction);
    }
    power = power.checked_sub(i64::try_from(fraction.len()).ok()?)?;
    while out.len() > start && out[out.len() - 1] == b'0' {
        out.pop();
        power = power.checked_add(1)?;
    }
    if matches!(out[start..], [] | [b'-']) {
        out.truncate(start);
        out.push(b'0');
    } else if power != 0 {
        out.push(b'e');
        append_integer(power, out);
    }
    Some(text.len() - rest.len())
}

/// The value of a text that is a number and nothing else.
pub(crate) fn canonical_number(text: &str) -> Option<String> {
    let mut out = Vec::new();
    let length = append(text.as_bytes(), &mut out)?;
    if length != text.len() {
        return None;
    }
    String::from_utf8(out).ok()
}

fn take_digits<'t>(text: &mut &'t [u8]) -> &'t [u8] {
    let length = text.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let (digits, rest) = text.split_at(length);
    *text = rest;
    digits
}

fn take_exponent(text: &mut &[u8]) -> Option<i64> {
    let is_negative = text.first() == Some(&b'-');
    if let Some((b'+' | b'-', after)) = text.split_first() {
        *text = after;
    }
    let digits = take_digits(text);
    if digits.is_empty() {
        return None;
    }
    let size = digits.iter().try_fold(0_i64, |size, digit| {
        size.checked_mul(10)?.checked_add(i64::from(digit - b'0'))
    })?;
    Some(if is_negative { -size } else { size })
}

/// Appends what `write!` would, at a fraction of its cost: most amounts of money pass here.
fn append_integer(value: i64, out: &mut Vec<u8>) {
    if value < 0 {
        out.push(b'-');
    }
    let mut rest = value.unsigned_abs();
    let start = out.len();
    loop {
        out.push(b"0123456789"[(rest % 10) as usize]);
        rest /= 10;
        if rest == 0 {
            break;
        }
    }
    out[start..].reverse();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spellings_of_one_value_are_one() {
        for (value, spellings) in [
            ("0", &["0", "-0", "0.0", "-0.000", "0e5", "0E-5", "-0e+0", "0.0e7"][..]),
            ("1", &["1", "1.0", "1e0", "10e-1", "0.1e1", "1E+0", "1.000e0", "0.001e0003"]),
            ("-1", &["-1", "-1.0", "-10e-1", "-0.1e1"]),
            ("12e2", &["1200", "12e2", "1.2e3", "1200.00", "0.12e4", "120000e-2"]),
            ("125e-1", &["12.5", "12.50", "1.25e1", "0.0125e3"]),
            ("5e-3", &["0.005", "5e-3", "0.5e-2", "50e-4"]),
            ("1e400", &["1e400", "10e399", "0.1e401"]),
            ("9007199254740993", &["9007199254740993", "9007199254740993.0"]),
            ("1e9223372036854775807", &["1e9223372036854775807"]),
        ] {
            for spelling in spellings {
                assert_eq!(canonical_number(spelling).as_deref(), Some(value), "{spelling}");
            }
        }
    }

    #[test]
    fn different_values_stay_different() {
        for (one, other) in [
            ("9007199254740993", "9007199254740992"),
            ("1e400", "1e401"),
            ("1e-400", "0"),
            ("0.1", "0.10000000000000001"),
            ("1", "-1"),
            ("1", "10"),
            ("1", "0.1"),
            ("12", "1e2"),
        ] {
            assert_ne!(
                canonical_number(one).unwrap(),
                canonical_number(other).unwrap(),
                "{one} and {other}"
            );
        }
    }

    #[test]
    fn what_is_not_a_number_or_too_large_to_count_is_refused() {
        for text in [
            "",
            "-",
            "+1",
            ".5",
            "1.",
            "1.e5",
            "01",
            "-01",
            "00",
            "1e",
            "1e+",
            "1e-",
            "0x1",
            "1_0",
            "--1",
            "1.5.5",
            "1e5.5",
            "Infinity",
            "NaN",
            "1e9223372036854775808",
            "10e9223372036854775807",
            "0.01e-9223372036854775807",
            "1e99999999999999999999",
            "1e-99999999999999999999",
        ] {
            assert_eq!(canonical_number(text), None, "{text}");
        }
    }

    #[test]
    fn the_power_is_written_in_full() {
        for value in [1, -1, 9, 10, -10, 12345, i64::MAX, i64::MIN] {
            let mut out = Vec::new();
            append_integer(value, &mut out);
            assert_eq!(String::from_utf8(out).unwrap(), value.to_string());
        }
    }
}
