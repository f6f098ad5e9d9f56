//! The flags of `firstwrite demo-provider`.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use firstwrite_provider::{Chance, Keys};

use super::values::span;

pub(super) const EXAMPLES: &str = "\
Examples:
  firstwrite demo-provider --lose-answers every=3 \\
      --webhook-url http://127.0.0.1:8080/webhooks/provider
  firstwrite demo --provider http://127.0.0.1:8090

How often something goes wrong: a probability such as 0.25, `every=3`, `first=2`, `always`
or `never`. An amount of 666 is always declined. `PUT /control` changes all of it while it
runs. It listens and sends on loopback only: every client that reaches it can make it do anything.

Exit codes: 0 stopped, 1 failed, 2 wrong usage.";

#[derive(Debug, Args)]
pub(crate) struct ProviderFlags {
    /// Address to listen on, on loopback; port 0 takes a free one [default: 127.0.0.1:8090]
    #[arg(long, value_name = "ADDRESS:PORT")]
    pub(crate) listen: Option<String>,
    /// The file in which every payment is kept; made if it is not there
    #[arg(long, value_name = "FILE", default_value = "firstwrite-provider.jsonl")]
    pub(crate) ledger: PathBuf,
    /// Treatment of an Idempotency-Key
    #[arg(long, value_name = "honour|ignore|forget=TIME", default_value = "honour")]
    #[arg(value_parser = keys)]
    pub(crate) keys: Keys,
    /// Delay before it makes a payment
    #[arg(long, value_name = "TIME", default_value = "0s", value_parser = span)]
    pub(crate) delay: Duration,
    /// Chance that it answers 503 before it does anything
    #[arg(long, value_name = "CHANCE", default_value = "never", value_parser = chance)]
    pub(crate) fail_before_effect: Chance,
    /// Chance that it answers 500 after it made the payment
    #[arg(long, value_name = "CHANCE", default_value = "never", value_parser = chance)]
    pub(crate) fail_after_effect: Chance,
    /// Chance that it makes the payment and hangs up without an answer
    #[arg(long, value_name = "CHANCE", default_value = "never", value_parser = chance)]
    pub(crate) lose_answers: Chance,
    /// Number of calls it takes in a second before it answers 429 [default: any number]
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) rate_limit: Option<u32>,
    /// Tell this address, on loopback, of every payment
    #[arg(long, value_name = "URL")]
    pub(crate) webhook_url: Option<String>,
    /// Secret with which it signs webhooks [default: the one that `firstwrite demo` expects]
    #[arg(long, value_name = "SECRET")]
    #[arg(env = "FIRSTWRITE_WEBHOOK_SECRET", hide_env_values = true)]
    pub(crate) webhook_secret: Option<String>,
    /// Number of times it sends each webhook
    #[arg(long, value_name = "COUNT", default_value_t = 1, requires = "webhook_url")]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=100))]
    pub(crate) webhook_duplicates: u32,
    /// Hold so many webhooks back and send them in reverse
    #[arg(long, value_name = "COUNT", default_value_t = 1, requires = "webhook_url")]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=100))]
    pub(crate) webhook_out_of_order: u32,
    /// Seed of its random choices
    #[arg(long, default_value_t = 0)]
    pub(crate) seed: u64,
}

fn keys(text: &str) -> Result<Keys, &'static str> {
    const EXPECTED: &str = "a key is honoured (`honour`), ignored (`ignore`), or forgotten after a \
                            time (`forget=1h`)";
    match text.split_once('=') {
        None if text == "honour" => Ok(Keys::Honour),
        None if text == "ignore" => Ok(Keys::Ignore),
        Some(("forget", time)) => span(time).map(Keys::ForgetAfter),
        None | Some(_) => Err(EXPECTED),
    }
}

fn chance(text: &str) -> Result<Chance, &'static str> {
    const EXPECTED: &str = "a chance is a probability from 0 to 1, `every=N`, `first=N`, `always` or \
                            `never`";
    let count = |text: &str| text.parse().ok().filter(|count| *count > 0).ok_or(EXPECTED);
    match text.split_once('=') {
        None if text == "always" => Ok(Chance::Always),
        None if text == "never" => Ok(Chance::Never),
        None => match text.parse() {
            Ok(share) if (0.0..=1.0).contains(&share) => Ok(Chance::Probability(share)),
            Ok(_) | Err(_) => Err(EXPECTED),
        },
        Some(("every", number)) => count(number).map(Chance::Every),
        Some(("first", number)) => count(number).map(Chance::First),
        Some(_) => Err(EXPECTED),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chance_is_read_or_refused() {
        assert_eq!(chance("0.25"), Ok(Chance::Probability(0.25)));
        assert_eq!(chance("every=3"), Ok(Chance::Every(3)));
        assert_eq!(chance("first=2"), Ok(Chance::First(2)));
        assert_eq!(chance("always"), Ok(Chance::Always));
        for wrong in ["", "2", "-1", "NaN", "every=0", "every=", "often", "25%"] {
            assert!(chance(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn keys_are_read_or_refused() {
        assert_eq!(keys("honour"), Ok(Keys::Honour));
        assert_eq!(keys("forget=1h"), Ok(Keys::ForgetAfter(Duration::from_hours(1))));
        for wrong in ["", "forget", "forget=1", "honour=1h", "lose"] {
            assert!(keys(wrong).is_err(), "{wrong}");
        }
    }
}
