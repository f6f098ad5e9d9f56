//! The flags of `firstwrite verify`.

use std::path::PathBuf;
use std::time::Duration;

use axum::http::{HeaderName, Method};
use clap::Args;
use firstwrite_verify::{Grade, Header, Hint, Profile};

use super::values::{header, span};
use crate::output::Format;

pub(super) const EXAMPLES: &str = "\
Examples:
  firstwrite demo &
  firstwrite verify http://127.0.0.1:8080/payments \\
      --header 'Authorization: Bearer demo-acme' \\
      --other-tenant-header 'Authorization: Bearer demo-globex' \\
      --body '{\"amount\":1250,\"currency\":\"EUR\",\"customer\":\"cus_1\"}' --profile strict \\
      --report verify.html --report verify.xml
  firstwrite verify --list        every check, and how bad it is to fail it

It sends a few hundred requests, which change things, to the hosts that are named and to
no other. What each check asks, and how the grade is made: docs/verify.md.

Exit codes: 0 the grade was reached, 1 failed, 2 wrong usage, 7 the grade was missed.";

#[derive(Debug, Args)]
#[command(next_help_heading = "What is asked")]
pub(crate) struct VerifyFlags {
    /// The operation to check, such as `http://127.0.0.1:8080/payments`
    #[arg(value_name = "URL", required_unless_present = "list")]
    pub(crate) url: Option<String>,
    /// Its method
    #[arg(long, value_name = "METHOD", default_value = "POST")]
    pub(crate) method: Method,
    /// A body that it takes, or @FILE
    #[arg(long, value_name = "TEXT|@FILE", default_value = "{}")]
    pub(crate) body: String,
    /// A header of every request, such as 'Authorization: Bearer TOKEN'; may be repeated
    #[arg(long = "header", value_name = "NAME: VALUE", value_parser = plain_header)]
    pub(crate) headers: Vec<Header>,
    /// The header that carries the key
    #[arg(long, value_name = "NAME", default_value = "Idempotency-Key")]
    pub(crate) key_header: HeaderName,
    /// Expectations where APIs differ in good faith
    #[arg(long, value_name = "draft-07|stripe|strict", default_value = "draft-07")]
    #[arg(value_parser = profile)]
    pub(crate) profile: Profile,
    /// Say that requests without a key are taken on purpose
    #[arg(long)]
    pub(crate) optional_keys: bool,
    /// Place in the JSON body of a value that makes it another request [default: the first number]
    #[arg(long, value_name = "POINTER")]
    pub(crate) vary: Option<String>,
    /// A header that a retry must get as the first did, besides Content-Type and Location
    #[arg(long = "same-header", value_name = "NAME")]
    pub(crate) same_headers: Vec<HeaderName>,
    #[command(flatten, next_help_heading = "How effects are counted")]
    pub(crate) effects: EffectsFlags,
    #[command(flatten, next_help_heading = "What the server can be put through")]
    pub(crate) means: MeansFlags,
    #[command(flatten, next_help_heading = "Bounds and reports")]
    pub(crate) bounds: BoundsFlags,
}

#[derive(Debug, Args)]
pub(crate) struct EffectsFlags {
    /// Count by asking this URL before and after
    #[arg(long, value_name = "URL", conflicts_with_all = ["effects_webhook", "id_pointer"])]
    pub(crate) effects_url: Option<String>,
    /// Place of the number in its answer, or of a list whose length is the number
    #[arg(long, value_name = "POINTER", default_value = "/count", requires = "effects_url")]
    pub(crate) effects_pointer: String,
    /// A header of that request [default: those of --header, if the host is the same]
    #[arg(long = "effects-header", value_name = "NAME: VALUE", value_parser = plain_header)]
    #[arg(requires = "effects_url")]
    pub(crate) effects_headers: Vec<Header>,
    /// Count what arrives at this address; `{webhook}` in body and headers stands for its URL
    #[arg(long, value_name = "ADDRESS:PORT", conflicts_with = "id_pointer")]
    pub(crate) effects_webhook: Option<String>,
    /// Count by the ids that stand here in answers [default: /id]
    #[arg(long, value_name = "POINTER")]
    pub(crate) id_pointer: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct MeansFlags {
    /// A header that makes a request another tenant's; may be repeated
    #[arg(long = "other-tenant-header", value_name = "NAME: VALUE", value_parser = plain_header)]
    pub(crate) other_tenant_headers: Vec<Header>,
    /// Say that the API has one tenant, so that nothing is missing
    #[arg(long, conflicts_with = "other_tenant_headers")]
    pub(crate) single_tenant: bool,
    /// Hint that makes a request slow: a header, or a query such as '?sleep=700'
    #[arg(long, value_name = "NAME: VALUE|?QUERY", value_parser = hint)]
    pub(crate) slow: Option<Hint>,
    /// Hint that makes a request fail with a 5xx: a header
    #[arg(long, value_name = "NAME: VALUE", value_parser = hint)]
    pub(crate) fault: Option<Hint>,
    /// Ends the server at once and starts it again, in the background
    #[arg(long, value_name = "COMMAND")]
    pub(crate) restart_cmd: Option<String>,
    /// Takes the key store away
    #[arg(long, value_name = "COMMAND", requires = "store_up_cmd")]
    pub(crate) store_down_cmd: Option<String>,
    /// Brings the key store back
    #[arg(long, value_name = "COMMAND", requires = "store_down_cmd")]
    pub(crate) store_up_cmd: Option<String>,
    /// Revokes the credentials of --header; done last
    #[arg(long, value_name = "COMMAND")]
    pub(crate) revoke_cmd: Option<String>,
    /// Time for which keys are kept, if it is short enough to wait for, such as 3s
    #[arg(long, value_name = "TIME", value_parser = span)]
    pub(crate) retention: Option<Duration>,
    /// Look at the other operations of this OpenAPI document, too
    #[arg(long, value_name = "FILE")]
    pub(crate) openapi: Option<PathBuf>,
    /// Prefix of the document's paths [default: as its servers say]
    #[arg(long, value_name = "PATH", requires = "openapi")]
    pub(crate) base_path: Option<String>,
    /// Send each of them a request without a key, and with {} as its body
    #[arg(long, requires = "openapi")]
    pub(crate) ask_operations: bool,
}

#[derive(Debug, Args)]
pub(crate) struct BoundsFlags {
    /// Ask a host that is not this machine: it is mine, and may be changed
    #[arg(long)]
    pub(crate) i_own_this: bool,
    /// Believe these certificates besides the platform's
    #[arg(long, value_name = "FILE")]
    pub(crate) ca_file: Option<PathBuf>,
    /// Seed of the run's choices [default: drawn, and printed]
    #[arg(long, value_name = "NUMBER")]
    pub(crate) seed: Option<u64>,
    /// Number of requests that race at once
    #[arg(long, value_name = "COUNT", default_value_t = 10)]
    #[arg(value_parser = clap::value_parser!(u16).range(2..=100))]
    pub(crate) racers: u16,
    /// Maximum number of requests sent
    #[arg(long, value_name = "COUNT", default_value_t = 600)]
    #[arg(value_parser = clap::value_parser!(u32).range(10..=100_000))]
    pub(crate) requests_max: u32,
    /// Time to wait for an answer
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = span)]
    pub(crate) timeout: Duration,
    /// Time for which a key may be busy before it counts as blocked
    #[arg(long, value_name = "TIME", default_value = "45s", value_parser = span)]
    pub(crate) settle: Duration,
    /// Only these checks or groups, such as `race` or `key-missing`; may be repeated
    #[arg(long, value_name = "CHECK")]
    pub(crate) only: Vec<String>,
    /// Not these checks or groups; may be repeated
    #[arg(long, value_name = "CHECK")]
    pub(crate) skip: Vec<String>,
    /// The grade that must be reached
    #[arg(long, value_name = "A|B|C|D|F", default_value = "A", value_parser = grade)]
    pub(crate) min_grade: Grade,
    /// Also write the report to a file: .html, .json, or .xml (`JUnit`); may be repeated
    #[arg(long = "report", value_name = "FILE")]
    pub(crate) reports: Vec<PathBuf>,
    /// List the checks, and send nothing
    #[arg(long)]
    pub(crate) list: bool,
    /// Output format: for people, or one JSON document
    #[arg(long, value_enum, default_value = "table", value_name = "table|json")]
    #[arg(hide_possible_values = true)]
    pub(crate) format: Format,
}

fn plain_header(text: &str) -> Result<Header, &'static str> {
    const EXPECTED: &str = "a header is a name and a value, such as 'Authorization: Bearer TOKEN'";
    let Ok((name, value)) = header(text) else { return Err(EXPECTED) };
    let Ok(value) = value.to_str() else { return Err(EXPECTED) };
    // As it was written: some servers show names, and none minds.
    let written = text.split_once(':').map_or(name.as_str(), |(written, _)| written.trim());
    Ok((written.to_owned(), value.to_owned()))
}

fn hint(text: &str) -> Result<Hint, &'static str> {
    match text.strip_prefix('?') {
        Some(query) if !query.is_empty() && query.bytes().all(|byte| byte.is_ascii_graphic()) => {
            Ok(Hint::Query(query.to_owned()))
        }
        Some(_) => Err("a query is written as '?name=value'"),
        None => plain_header(text).map(Hint::Header),
    }
}

fn profile(text: &str) -> Result<Profile, &'static str> {
    text.parse()
}

fn grade(text: &str) -> Result<Grade, &'static str> {
    text.parse()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hint_is_a_header_or_a_query() {
        let header = Hint::Header(("X-Slow".to_owned(), "700".to_owned()));
        assert_eq!(hint("X-Slow: 700"), Ok(header));
        assert_eq!(hint("?sleep=700"), Ok(Hint::Query("sleep=700".to_owned())));
        for wrong in ["", "?", "?a b", "slow"] {
            assert!(hint(wrong).is_err(), "{wrong}");
        }
    }
}
