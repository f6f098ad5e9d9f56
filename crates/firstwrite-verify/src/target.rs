//! The target of requests: one address, resolved once. No request goes anywhere else.

use std::fmt;
use std::net::SocketAddr;

use http::Uri;
use http::uri::Scheme;
use tokio::net::lookup_host;

use crate::error::Error;

/// A URL and the addresses of its host.
///
/// The addresses are looked up once, so that a name that changes its mind in the middle of a run cannot
/// lead it somewhere else.
#[derive(Clone, Debug)]
pub struct Target {
    url: Uri,
    addresses: Vec<SocketAddr>,
}

/// Hosts that may be sent requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reach {
    /// Only loopback addresses.
    Loopback,
    /// Any: the user said that the host is theirs.
    Owned,
}

impl Target {
    /// Checks the URL, looks its host up and refuses what is out of reach.
    pub async fn resolve(url: &str, reach: Reach) -> Result<Self, Error> {
        let url: Uri =
            url.parse().map_err(|error| Error::usage(format!("`{url}` is no URL: {error}")))?;
        let scheme = url.scheme().cloned();
        let (Some(scheme), Some(host)) = (scheme, url.host()) else {
            return Err(Error::usage(format!("`{url}` lacks http:// or https:// and a host")));
        };
        let port = match url.port_u16() {
            Some(port) => port,
            None if scheme == Scheme::HTTP => 80,
            None if scheme == Scheme::HTTPS => 443,
            None => {
                return Err(Error::usage(format!("`{scheme}` is not spoken; http and https are")));
            }
        };
        if scheme != Scheme::HTTP && scheme != Scheme::HTTPS {
            return Err(Error::usage(format!("`{scheme}` is not spoken; http and https are")));
        }
        let host = host.trim_start_matches('[').trim_end_matches(']');
        let addresses: Vec<SocketAddr> = lookup_host((host, port))
            .await
            .map_err(|error| Error::failed(format!("cannot find {host}: {error}")))?
            .collect();
        if addresses.is_empty() {
            return Err(Error::failed(format!("{host} has no address")));
        }
        if reach == Reach::Loopback && !addresses.iter().all(|address| address.ip().is_loopback()) {
            return Err(Error::usage(format!(
                "{host} is not this machine: the checks change things there; say --i-own-this if it is yours"
            )));
        }
        Ok(Self { url, addresses })
    }

    /// The same host, another path.
    pub(crate) fn path_and_query(&self) -> &str {
        self.url.path_and_query().map_or("/", http::uri::PathAndQuery::as_str)
    }

    pub(crate) fn authority(&self) -> &str {
        self.url.authority().map_or("", http::uri::Authority::as_str)
    }

    pub(crate) fn host(&self) -> &str {
        self.url.host().unwrap_or_default()
    }

    pub(crate) fn is_tls(&self) -> bool {
        self.url.scheme() == Some(&Scheme::HTTPS)
    }

    pub(crate) fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }
}

impl fmt::Display for Target {
    /// Without the name and password that a URL may carry.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let authority = self.authority();
        let host = authority.rsplit_once('@').map_or(authority, |(_, host)| host);
        let scheme = self.url.scheme_str().unwrap_or_default();
        write!(f, "{scheme}://{host}{}", self.path_and_query())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn refused(url: &str) -> String {
        Target::resolve(url, Reach::Loopback).await.unwrap_err().to_string()
    }

    #[tokio::test]
    async fn only_this_machine_is_asked_unless_the_user_owns_the_host() {
        assert!(refused("http://192.0.2.1/orders").await.contains("--i-own-this"));
        let owned = Target::resolve("http://192.0.2.1/orders", Reach::Owned).await.unwrap();
        assert_eq!(owned.addresses()[0].to_string(), "192.0.2.1:80");
        let own = Target::resolve("https://127.0.0.1/a?b=c", Reach::Loopback).await.unwrap();
        assert_eq!((own.path_and_query(), own.addresses()[0].port()), ("/a?b=c", 443));
        assert!(Target::resolve("http://[::1]:8080/", Reach::Loopback).await.is_ok());
    }

    #[tokio::test]
    async fn what_is_no_url_is_refused_in_words() {
        assert!(refused("orders").await.contains("lacks http://"));
        assert!(refused("ftp://127.0.0.1/").await.contains("not spoken"));
        assert!(refused("ftp://127.0.0.1:21/").await.contains("not spoken"));
        assert!(refused("http://a b/").await.contains("no URL"));
    }

    #[tokio::test]
    async fn passwords_are_not_shown() {
        let target = Target::resolve("http://me:secret@127.0.0.1:1/x", Reach::Loopback).await;
        assert_eq!(target.unwrap().to_string(), "http://127.0.0.1:1/x");
    }
}
