//! Faults of the proxy: which there are, and when one happens.

use std::collections::HashMap;
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use anyhow::{Context, ensure};
use serde_json::{Map, Value};

use crate::random::Random;

/// Longer than any client of a test waits.
const DELAY_MAX: Duration = Duration::from_mins(1);
/// Delay of the schedule where it names none.
const DELAY_MS_DEFAULT: u64 = 50;
const RETRY_AFTER_DEFAULT: u64 = 1;
/// Requests that are told apart for a header with several words; a bed lives for one run of tests.
const PLANS_MAX: usize = 1_000_000;

/// Something that happens to one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    /// Nothing.
    Ok,
    Refuse,
    CutBefore,
    CutAfter,
    CutHalf,
    /// Answered by the proxy; 502 and 504 after the request was passed on.
    Status(u16),
    Delay(Duration),
}

/// Probabilities, and the sequence that decides by them.
#[derive(Debug)]
pub(super) struct Schedule {
    random: Random,
    refuse: f64,
    /// Seconds that a 503 names.
    retry_after: u64,
    /// Without `refuse`, which is decided when a connection comes.
    rates: Vec<(Fault, f64)>,
    /// Number of requests of each kind that brought a header with several words.
    seen: HashMap<String, usize>,
}

impl FromStr for Fault {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (name, value) = text.split_once('=').unwrap_or((text, ""));
        let fault = match (name, value) {
            ("ok", "") => Some(Self::Ok),
            ("refuse", "") => Some(Self::Refuse),
            ("cut-before", "") => Some(Self::CutBefore),
            ("cut-after", "") => Some(Self::CutAfter),
            ("cut-half", "") => Some(Self::CutHalf),
            ("502", "") => Some(Self::Status(502)),
            ("503", "") => Some(Self::Status(503)),
            ("504", "") => Some(Self::Status(504)),
            ("delay", value) => value
                .parse()
                .ok()
                .map(Duration::from_millis)
                .filter(|delay| *delay <= DELAY_MAX)
                .map(Self::Delay),
            _ => None,
        };
        fault.ok_or_else(|| {
            format!(
                "`{text}` is none of ok, refuse, cut-before, cut-after, cut-half, 502, 503, 504, delay=MS"
            )
        })
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ok => f.write_str("ok"),
            Self::Refuse => f.write_str("refuse"),
            Self::CutBefore => f.write_str("cut-before"),
            Self::CutAfter => f.write_str("cut-after"),
            Self::CutHalf => f.write_str("cut-half"),
            Self::Status(status) => write!(f, "{status}"),
            Self::Delay(delay) => write!(f, "delay={}", delay.as_millis()),
        }
    }
}

impl Schedule {
    /// No faults.
    pub(super) fn quiet(seed: u64) -> Self {
        Self {
            random: Random::new(seed),
            refuse: 0.0,
            retry_after: RETRY_AFTER_DEFAULT,
            rates: Vec::new(),
            seen: HashMap::new(),
        }
    }

    /// Takes on the probabilities of a JSON object; what it leaves out is zero.
    pub(super) fn set(&mut self, members: &Map<String, Value>) -> anyhow::Result<()> {
        let delay_ms = members.get("delay_ms").map_or(Some(DELAY_MS_DEFAULT), Value::as_u64);
        let delay_ms = delay_ms.context("delay_ms is no whole number")?;
        let retry_after =
            members.get("retry_after").map_or(Some(RETRY_AFTER_DEFAULT), Value::as_u64);
        let retry_after = retry_after.context("retry_after is no whole number")?;
        let (mut refuse, mut rates) = (0.0, Vec::new());
        for (name, value) in members {
            if matches!(name.as_str(), "seed" | "delay_ms" | "retry_after") {
                continue;
            }
            let rate = value.as_f64().filter(|rate| (0.0..=1.0).contains(rate));
            let rate = rate.with_context(|| format!("{name} is no probability from 0 to 1"))?;
            let word = if name == "delay" { format!("delay={delay_ms}") } else { name.clone() };
            let fault: Fault = word.parse().map_err(anyhow::Error::msg)?;
            if fault == Fault::Refuse {
                refuse = rate;
            } else {
                rates.push((fault, rate));
            }
        }
        let sum: f64 = rates.iter().map(|(_, rate)| rate).sum();
        ensure!(sum <= 1.0, "the probabilities add up to more than 1");
        if let Some(seed) = members.get("seed") {
            self.random = Random::new(seed.as_u64().context("seed is no whole number")?);
        }
        (self.refuse, self.retry_after, self.rates) = (refuse, retry_after, rates);
        Ok(())
    }

    /// Returns the `Retry-After` of a 503, in seconds.
    pub(super) fn retry_after(&self) -> u64 {
        self.retry_after
    }

    /// Decides about a connection, before a byte of it is read.
    pub(super) fn refuses(&mut self) -> bool {
        let rate = self.refuse;
        rate > 0.0 && self.draw() < rate
    }

    /// Decides about a request; `asked` is its header, `kind` what it has in common with its retries.
    pub(super) fn decide(&mut self, asked: Option<&str>, kind: &str) -> Result<Fault, String> {
        match asked {
            Some(words) => self.planned(words, kind),
            None => Ok(self.drawn()),
        }
    }

    fn planned(&mut self, words: &str, kind: &str) -> Result<Fault, String> {
        if self.seen.len() >= PLANS_MAX {
            self.seen.clear();
        }
        let seen = self.seen.entry(kind.to_owned()).or_default();
        let at = *seen;
        *seen += 1;
        let (words, stays) = match words.strip_suffix('*') {
            Some(words) => (words, true),
            None => (words, false),
        };
        let plan: Result<Vec<Fault>, String> =
            words.split(',').map(|word| word.trim().parse()).collect();
        let plan = plan?;
        let last = if stays { plan.last().copied() } else { None };
        Ok(plan.get(at).copied().or(last).unwrap_or(Fault::Ok))
    }

    fn drawn(&mut self) -> Fault {
        if self.rates.is_empty() {
            return Fault::Ok;
        }
        let mut left = self.draw();
        for (fault, rate) in &self.rates {
            if left < *rate {
                return *fault;
            }
            left -= rate;
        }
        Fault::Ok
    }

    /// A number from 0 up to, but not, 1.
    fn draw(&mut self) -> f64 {
        let bits = u32::try_from(self.random.next() >> 32).expect("thirty-two bits are left");
        f64::from(bits) / (f64::from(u32::MAX) + 1.0)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn schedule(members: &Value) -> anyhow::Result<Schedule> {
        let mut schedule = Schedule::quiet(1);
        schedule.set(members.as_object().unwrap()).map(|()| schedule)
    }

    #[test]
    fn a_seed_repeats_its_faults() {
        let run = || {
            let members =
                json!({"seed": 7, "cut-after": 0.3, "502": 0.2, "delay": 0.1, "delay_ms": 5});
            let mut schedule = schedule(&members).unwrap();
            (0..1000).map(|_| schedule.decide(None, "").unwrap()).collect::<Vec<_>>()
        };
        let faults = run();
        assert_eq!(faults, run());
        let count = |fault| faults.iter().filter(|&&drawn| drawn == fault).count();
        assert!((250..350).contains(&count(Fault::CutAfter)));
        assert!((150..250).contains(&count(Fault::Status(502))));
        assert!((60..140).contains(&count(Fault::Delay(Duration::from_millis(5)))));
    }

    #[test]
    fn a_header_is_a_plan_for_each_request_and_its_retries() {
        let mut schedule = Schedule::quiet(1);
        let mut words = |header, kind| {
            let decide = |_| schedule.decide(Some(header), kind).unwrap().to_string();
            (0..3).map(decide).collect::<Vec<_>>().join(" ")
        };
        assert_eq!(words("cut-after", "a"), "cut-after ok ok");
        assert_eq!(words("cut-after, 503", "b"), "cut-after 503 ok");
        assert_eq!(words("cut-after, 503*", "c"), "cut-after 503 503");
        assert_eq!(words("delay=20*", "d"), "delay=20 delay=20 delay=20");
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        assert!(Schedule::quiet(1).decide(Some("cut"), "a").is_err());
        for members in [
            json!({"cut": 0.1}),
            json!({"502": 2}),
            json!({"502": "often"}),
            json!({"502": 0.6, "503": 0.6}),
            json!({"seed": "x"}),
            json!({"retry_after": -1}),
        ] {
            schedule(&members).unwrap_err();
        }
        assert_eq!(schedule(&json!({})).unwrap().decide(None, "a"), Ok(Fault::Ok));
        let named = [json!({}), json!({"retry_after": 9})];
        assert_eq!(named.map(|members| schedule(&members).unwrap().retry_after()), [1, 9]);
    }
}
