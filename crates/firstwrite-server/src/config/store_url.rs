//! The address of a store, and the same address fit to be shown.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use serde::Deserialize;

/// Address of a store. Shown without its password.
#[derive(Clone, Deserialize, PartialEq, Eq)]
#[serde(try_from = "String")]
pub(crate) enum StoreUrl {
    /// `sqlite:` and the path of a file.
    Sqlite(PathBuf),
    /// `postgres://` and what a PostgreSQL client understands.
    Postgres(String),
    /// `mysql://` and where a MySQL or MariaDB server is.
    Mysql(String),
    /// `redis://` or `rediss://` and where Redis or Valkey servers are.
    Redis(String),
    /// `dynamodb:` and the name of a table.
    Dynamodb(String),
}

const EXPECTED: &str = "a store is `sqlite:` and a path, such as sqlite:firstwrite.db, \
                        postgres://USER@HOST/DATABASE, mysql://USER@HOST/DATABASE, \
                        redis://HOST:PORT or dynamodb:TABLE";

impl StoreUrl {
    /// A store in this file.
    pub(crate) fn sqlite(path: impl Into<PathBuf>) -> Self {
        Self::Sqlite(path.into())
    }

    /// The whole address, its password included: for opening the store, never to be shown.
    pub(crate) fn address(&self) -> String {
        match self {
            Self::Sqlite(path) => format!("sqlite:{}", path.display()),
            Self::Postgres(url) | Self::Mysql(url) | Self::Redis(url) | Self::Dynamodb(url) => {
                url.clone()
            }
        }
    }
}

impl StoreUrl {
    /// Returns the parameter `name` of the address, if it has one.
    pub(crate) fn parameter(&self, name: &str) -> Option<&str> {
        let Self::Postgres(url) = self else { return None };
        let (_, query) = url.split_once('?')?;
        let mut pairs = query.split('&').filter_map(|pair| pair.split_once('='));
        pairs.find(|(found, _)| *found == name).map(|(_, value)| value)
    }

    /// The same address, saying `value` under `name`.
    pub(crate) fn with_parameter(self, name: &str, value: &str) -> Self {
        let (is_redis, url) = match self {
            Self::Postgres(url) => (false, url),
            Self::Redis(url) => (true, url),
            Self::Sqlite(_) | Self::Mysql(_) | Self::Dynamodb(_) => return self,
        };
        let (place, query) = url.split_once('?').unwrap_or((&url, ""));
        let is_other = |pair: &&str| !pair.is_empty() && pair.split('=').next() != Some(name);
        let mut pairs: Vec<String> = query.split('&').filter(is_other).map(str::to_owned).collect();
        pairs.push(format!("{name}={value}"));
        let url = format!("{place}?{}", pairs.join("&"));
        if is_redis { Self::Redis(url) } else { Self::Postgres(url) }
    }

    /// The one port that the address leads to; `None` if there are several, or none at all.
    pub(crate) fn port(&self) -> Option<u16> {
        const USUAL: u16 = 5432;
        let Self::Postgres(url) = self else { return None };
        let (_, rest) = url.split_once("://")?;
        let place = rest.split(['/', '?', '#']).next()?;
        let host = place.rsplit_once('@').map_or(place, |(_, host)| host);
        if host.is_empty() || host.contains([',', '%']) {
            return None;
        }
        // The colons of an IPv6 address stand in brackets.
        match host.rsplit_once(':') {
            Some((_, port)) if !port.contains(']') => port.parse().ok(),
            Some(_) | None => Some(USUAL),
        }
    }
}

impl FromStr for StoreUrl {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        // The text is never repeated: it may carry a password.
        if text.starts_with("postgres://") || text.starts_with("postgresql://") {
            if text.contains(char::is_control) || text.contains(' ') {
                return Err("a PostgreSQL address holds no spaces; write %20 for one");
            }
            return Ok(Self::Postgres(text.to_owned()));
        }
        if text.starts_with("mysql://") || text.starts_with("mariadb://") {
            if text.contains(char::is_control) || text.contains(' ') {
                return Err("a MySQL address holds no spaces; write %20 for one");
            }
            return Ok(Self::Mysql(text.to_owned()));
        }
        if ["redis://", "rediss://", "valkey://", "valkeys://"]
            .iter()
            .any(|known| text.starts_with(known))
        {
            if text.contains(char::is_control) || text.contains(' ') {
                return Err("a Redis address holds no spaces; write %20 for one");
            }
            return Ok(Self::Redis(text.to_owned()));
        }
        if text.starts_with("dynamodb:") {
            if text.contains(char::is_control) || text.contains(' ') {
                return Err("a DynamoDB address holds no spaces");
            }
            return Ok(Self::Dynamodb(text.to_owned()));
        }
        let Some(path) = text.strip_prefix("sqlite:") else { return Err(EXPECTED) };
        let path = path.strip_prefix("//").unwrap_or(path);
        // With two slashes left, the address would name another file when it is passed on.
        let bare = path.trim_start_matches('/');
        let path = if path.starts_with("//") { &format!("/{bare}") } else { path };
        if path.is_empty() || path.contains(['\0', '?']) {
            return Err("`sqlite:` is followed by a plain path, such as sqlite:firstwrite.db");
        }
        // An in-memory database would forget every key at the end of the process.
        if path.starts_with(':') {
            return Err("records must outlive the process; name a file, such as sqlite:demo.db");
        }
        Ok(Self::sqlite(path))
    }
}

impl TryFrom<String> for StoreUrl {
    type Error = &'static str;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        text.parse()
    }
}

impl fmt::Display for StoreUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Sqlite(path) => write!(f, "sqlite:{}", path.display()),
            Self::Postgres(url) | Self::Mysql(url) | Self::Redis(url) => {
                f.write_str(&without_secrets(url))
            }
            Self::Dynamodb(url) => f.write_str(&shown_table(url)),
        }
    }
}

impl fmt::Debug for StoreUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

/// Parameters that say where and how, and nothing secret.
const SHOWN: [&str; 9] =
    ["schema", "pooler", "sslmode", "sslrootcert", "user", "host", "port", "dbname", "prefix"];

/// A server's address without its password. Of its parameters, only those stay that are known to
/// hold no secret.
fn without_secrets(url: &str) -> String {
    let (scheme, rest) = url.split_once("://").unwrap_or(("postgres", url));
    let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
    let rest = rest.split('#').next().unwrap_or_default();
    let is_shown = |pair: &&str| SHOWN.contains(&pair.split('=').next().unwrap_or_default());
    let shown: Vec<&str> = query.split('&').filter(is_shown).collect();
    let query = if shown.is_empty() { String::new() } else { format!("?{}", shown.join("&")) };
    // A password may hold any character but these when it is written unescaped; the last `@` ends it.
    let (user, place) = match rest.rsplit_once('@') {
        Some((credentials, place)) => {
            let user = credentials.split(':').next().unwrap_or_default();
            (format!("{user}@"), place)
        }
        None => (String::new(), rest),
    };
    format!("{scheme}://{user}{place}{query}")
}

/// A table's address without what does not belong there: it has no credentials in it.
fn shown_table(url: &str) -> String {
    const SHOWN: [&str; 3] = ["region", "endpoint", "shards"];
    let (place, query) = url.split_once('?').unwrap_or((url, ""));
    let table = place.rsplit(['@', ':', '/']).next().unwrap_or_default();
    let is_shown = |pair: &&str| {
        SHOWN.contains(&pair.split('=').next().unwrap_or_default()) && !pair.contains('@')
    };
    let shown: Vec<&str> = query.split('&').filter(is_shown).collect();
    let query = if shown.is_empty() { String::new() } else { format!("?{}", shown.join("&")) };
    format!("dynamodb:{table}{query}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_store_url_names_a_plain_file_or_a_server() {
        assert_eq!("sqlite:/tmp/a.db".parse(), Ok(StoreUrl::sqlite("/tmp/a.db")));
        assert_eq!("sqlite:///tmp/a.db".parse(), Ok(StoreUrl::sqlite("/tmp/a.db")));
        assert_eq!("sqlite:////tmp/a.db".parse(), Ok(StoreUrl::sqlite("/tmp/a.db")));
        for url in [
            "postgres://u@h/d",
            "postgresql://h:5432/d?sslmode=require",
            "mysql://u@a,b/d",
            "dynamodb:keys?region=eu-west-1",
        ] {
            assert_eq!(url.parse::<StoreUrl>().unwrap().address(), url);
        }
        for wrong in [
            "",
            "a.db",
            "sqlite:",
            "sqlite://",
            "sqlite::memory:",
            "sqlite:a?mode=ro",
            "oracle://h",
        ] {
            assert!(wrong.parse::<StoreUrl>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_parameter_is_read_and_replaced() {
        let store: StoreUrl = "postgres://h/d?sslmode=require&schema=a".parse().unwrap();
        assert_eq!(store.parameter("schema"), Some("a"));
        assert_eq!(store.parameter("pooler"), None);
        let other = store.with_parameter("schema", "b");
        assert_eq!(other.address(), "postgres://h/d?sslmode=require&schema=b");
        let plain: StoreUrl = "postgres://h/d".parse().unwrap();
        assert_eq!(plain.with_parameter("schema", "b").address(), "postgres://h/d?schema=b");
        let redis: StoreUrl = "redis://h?prefix=a".parse().unwrap();
        let accepting = redis.with_parameter("accept_key_loss", "true");
        assert_eq!(accepting.address(), "redis://h?prefix=a&accept_key_loss=true");
    }

    #[test]
    fn the_port_is_known_where_there_is_one() {
        for (url, port) in [
            ("postgres://h/d", Some(5432)),
            ("postgres://u:p@h:6432/d", Some(6432)),
            ("postgres://[::1]/d", Some(5432)),
            ("postgres://u@[::1]:7/d", Some(7)),
            ("postgres://a:1,b:2/d", None),
            ("postgres:///d?host=/run", None),
            ("sqlite:a.db", None),
        ] {
            assert_eq!(url.parse::<StoreUrl>().unwrap().port(), port, "{url}");
        }
    }

    #[test]
    fn what_is_shown_holds_no_password() {
        for (url, shown) in [
            ("postgres://u:secret@h:5432/d", "postgres://u@h:5432/d"),
            ("postgres://u:sec@ret@h/d?password=secret", "postgres://u@h/d"),
            ("postgres://h/d?user=u&password=secret&schema=s", "postgres://h/d?user=u&schema=s"),
            ("postgresql://u@h/d#secret", "postgresql://u@h/d"),
            ("mysql://u:sec@ret@a:1,b:2/d?sslmode=require", "mysql://u@a:1,b:2/d?sslmode=require"),
            ("rediss://u:secret@a:1,b:2?prefix=shop", "rediss://u@a:1,b:2?prefix=shop"),
            ("redis://:secret@h", "redis://@h"),
            ("dynamodb:keys?region=eu-west-1&token=secret", "dynamodb:keys?region=eu-west-1"),
            ("dynamodb://AKIA:secret@keys", "dynamodb:keys"),
            ("dynamodb:keys?endpoint=http://u:secret@h", "dynamodb:keys"),
        ] {
            let store: StoreUrl = url.parse().unwrap();
            assert_eq!(store.to_string(), shown);
            assert_eq!(format!("{store:?}"), shown);
        }
        let refusal = "oracle://user:secret@host/".parse::<StoreUrl>().unwrap_err();
        assert!(!refusal.contains("secret"));
    }
}
