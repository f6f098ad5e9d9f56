//! Settings of a DynamoDB store, and the parser of its address.

use std::fmt;
use std::time::Duration;

use crate::{Clock, OpenError};

/// Settings of a DynamoDB store, each with a default.
#[derive(Clone)]
#[non_exhaustive]
pub struct DynamoOptions {
    /// Time limit for connecting. Default: 3 s.
    pub connect_for: Duration,
    /// Time the store waits for the answer to one call. Default: 5 s.
    pub call_timeout: Duration,
    /// Clock of the store, for tests. Default: the host's clock, corrected where it contradicts the
    /// service's.
    pub clock: Option<Clock>,
}

/// Location of a table, as parsed from the address string.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Address {
    pub(super) table: String,
    pub(super) region: Option<String>,
    pub(super) endpoint: Option<String>,
    /// Number of partition keys over which a table that is made from here spreads its records.
    pub(super) shards: u16,
}

const SPELLING: &str = "write dynamodb:TABLE?region=REGION";

/// Each takes 1000 writes a second before the service has to split it by itself, and a walk over all
/// records asks each of them.
const SHARDS_DEFAULT: u16 = 16;

impl Default for DynamoOptions {
    fn default() -> Self {
        Self {
            connect_for: Duration::from_secs(3),
            call_timeout: Duration::from_secs(5),
            clock: None,
        }
    }
}

impl Address {
    /// Reads `dynamodb:TABLE?region=…&endpoint=…&shards=…`. It never holds a credential.
    pub(super) fn parse(url: &str) -> Result<Self, OpenError> {
        let wrong = |what: &str| OpenError::new(format!("the DynamoDB address {what}; {SPELLING}"));
        let rest = url.strip_prefix("dynamodb:").ok_or_else(|| wrong("has another scheme"))?;
        let rest = rest.strip_prefix("//").unwrap_or(rest);
        let (table, query) = rest.split_once('?').unwrap_or((rest, ""));
        if table.contains('@') {
            return Err(wrong("holds no credentials: they come from the environment"));
        }
        if !is_table_name(table) {
            return Err(wrong("names no table: 3 to 255 letters, digits, '_', '-' and '.'"));
        }
        let mut address =
            Self { table: table.to_owned(), region: None, endpoint: None, shards: SHARDS_DEFAULT };
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            match pair.split_once('=') {
                Some(("region", region)) if is_region(region) => {
                    address.region = Some(region.to_owned());
                }
                Some(("region", _)) => return Err(wrong("names a region that cannot be one")),
                Some(("endpoint", endpoint)) if is_endpoint(endpoint) => {
                    address.endpoint = Some(endpoint.trim_end_matches('/').to_owned());
                }
                Some(("endpoint", _)) => {
                    return Err(wrong("has an endpoint that is not http(s)://HOST:PORT"));
                }
                Some(("shards", shards)) => {
                    let shards = shards.parse().ok().filter(|count| (1..=256).contains(count));
                    address.shards =
                        shards.ok_or_else(|| wrong("has a number of shards not from 1 to 256"))?;
                }
                _ => {
                    return Err(wrong("has a parameter other than region, endpoint and shards"));
                }
            }
        }
        Ok(address)
    }

    /// Returns true if the endpoint is an emulator on this machine, which must not see real credentials.
    pub(super) fn is_local(&self) -> bool {
        let Some(host) = self.endpoint.as_deref().and_then(|url| url.strip_prefix("http://"))
        else {
            return false;
        };
        ["127.0.0.1", "localhost", "[::1]"].iter().any(|local| {
            host.strip_prefix(local).is_some_and(|rest| rest.is_empty() || rest.starts_with(':'))
        })
    }
}

fn is_table_name(name: &str) -> bool {
    (3..=255).contains(&name.len())
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_-.".contains(&byte))
}

fn is_region(name: &str) -> bool {
    (1..=64).contains(&name.len())
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
}

fn is_endpoint(url: &str) -> bool {
    let host = url.strip_prefix("https://").or_else(|| url.strip_prefix("http://"));
    host.is_some_and(|host| {
        let host = host.trim_end_matches('/');
        !host.is_empty()
            && host.bytes().all(|byte| byte.is_ascii_alphanumeric() || b".-:[]".contains(&byte))
    })
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "dynamodb:{}", self.table)?;
        let mut mark = '?';
        let parameters = [("region", &self.region), ("endpoint", &self.endpoint)];
        for (name, value) in parameters {
            if let Some(value) = value {
                write!(f, "{mark}{name}={value}")?;
                mark = '&';
            }
        }
        Ok(())
    }
}

impl fmt::Debug for DynamoOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DynamoOptions")
            .field("connect_for", &self.connect_for)
            .field("call_timeout", &self.call_timeout)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_names_a_table_and_where_it_is() {
        let address = Address::parse("dynamodb:firstwrite").unwrap();
        assert_eq!((address.region, address.endpoint, address.shards), (None, None, 16));
        let url = "dynamodb:keys-1?region=eu-central-1&endpoint=http://127.0.0.1:4566/&shards=64";
        let address = Address::parse(url).unwrap();
        assert_eq!(address.shards, 64);
        let shown = "dynamodb:keys-1?region=eu-central-1&endpoint=http://127.0.0.1:4566";
        assert_eq!(address.to_string(), shown);
        assert_eq!(Address::parse("dynamodb://firstwrite").unwrap().table, "firstwrite");
    }

    #[test]
    fn what_cannot_be_one_is_refused_and_credentials_are_not_repeated() {
        for wrong in [
            "dynamodb:",
            "dynamodb:a",
            "dynamodb:a b c",
            "dynamodb:table?region=",
            "dynamodb:table?region=a b",
            "dynamodb:table?endpoint=127.0.0.1:1",
            "dynamodb:table?endpoint=http://user:secret@host",
            "dynamodb:table?shards=0",
            "dynamodb:table?shards=257",
            "dynamodb:table?token=secret",
            "dynamodb://AKIA:secret@table",
        ] {
            let error = Address::parse(wrong).unwrap_err().to_string();
            assert!(!error.contains("secret") && error.contains("dynamodb:TABLE"), "{error}");
        }
    }

    #[test]
    fn only_plain_http_to_this_machine_is_an_emulator() {
        for (endpoint, is_local) in [
            ("http://127.0.0.1:4566", true),
            ("http://localhost", true),
            ("http://[::1]:1", true),
            ("https://127.0.0.1:4566", false),
            ("http://127.0.0.1.example.com:1", false),
            ("http://localhost.example.com", false),
            ("http://10.0.0.1", false),
        ] {
            let address = Address::parse(&format!("dynamodb:table?endpoint={endpoint}")).unwrap();
            assert_eq!(address.is_local(), is_local, "{endpoint}");
        }
        assert!(!Address::parse("dynamodb:table").unwrap().is_local());
    }
}
