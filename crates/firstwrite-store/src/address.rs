//! Reader of the addresses of database servers:
//! `SCHEME://USER:PASSWORD@HOST:PORT,HOST:PORT/DATABASE?NAME=VALUE&NAME=VALUE`.
//!
//! An error repeats no more of an address than the name of a parameter, and an address is shown without its
//! password.

use std::fmt;

use firstwrite_core::codec::percent;

use crate::OpenError;

/// An address, taken apart and decoded.
#[derive(Clone)]
pub(crate) struct Address {
    product: &'static Product,
    pub(crate) scheme: String,
    pub(crate) user: Option<String>,
    pub(crate) password: Option<String>,
    pub(crate) hosts: Vec<Host>,
    pub(crate) database: String,
    parameters: Vec<(String, String)>,
}

/// One server's name and port.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Host {
    pub(crate) name: String,
    pub(crate) port: u16,
}

/// A kind of server, in the words of its addresses.
#[derive(Debug)]
pub(crate) struct Product {
    pub(crate) name: &'static str,
    pub(crate) schemes: &'static [&'static str],
    pub(crate) port: u16,
    /// The form of an address, for people who wrote another.
    pub(crate) form: &'static str,
}

impl Product {
    /// The error for an address in which something is wrong. `what` repeats nothing of it.
    pub(crate) fn error(&self, what: impl fmt::Display) -> OpenError {
        let Self { name, form, .. } = self;
        OpenError::new(format!("the {name} address {what}; write {form}"))
    }

    /// The error for a parameter that no part of the store knows.
    #[cfg(any(feature = "mysql", feature = "redis"))]
    pub(crate) fn unknown_parameter(&self, name: &str, known: &str) -> OpenError {
        OpenError::new(format!(
            "the {} address has a parameter `{}` that is not known; there are {known}",
            self.name,
            name.escape_debug()
        ))
    }
}

impl Address {
    pub(crate) fn parse(url: &str, product: &'static Product) -> Result<Self, OpenError> {
        let (scheme, rest) = url.split_once("://").ok_or_else(|| product.error("has no host"))?;
        if !product.schemes.contains(&scheme) {
            return Err(product.error("has another scheme"));
        }
        let (place, query) = rest.split_once('?').unwrap_or((rest, ""));
        let (server, database) = place.split_once('/').unwrap_or((place, ""));
        let pairs = || query.split('&').filter(|pair| !pair.is_empty());
        let pairs = || pairs().map(|pair| pair.split_once('=').unwrap_or((pair, "")));
        // The end of a password with a / or a ? in it would be shown as the database or as a parameter.
        if database.contains('@') || pairs().any(|(name, _)| name.contains('@')) {
            return Err(product.error(
                "has an @ where none belongs (in a password, %40 stands for @, %2F for / and %3F for ?)",
            ));
        }
        let decoded = |text: &str| {
            let wrong = || product.error("has a % that stands for no byte (%25 stands for %)");
            percent::decode(text).ok_or_else(wrong)
        };
        let given = |text: &str| (!text.is_empty()).then(|| decoded(text)).transpose();
        let (login, hosts) = server.rsplit_once('@').unwrap_or(("", server));
        let (user, password) = login.split_once(':').unwrap_or((login, ""));
        let host = |text| {
            let (name, port) = split_host(text)?;
            let port = if port.is_empty() { product.port } else { port.parse().ok()? };
            (!name.is_empty()).then_some((name, port))
        };
        let host = |text| {
            let (name, port) =
                host(text).ok_or_else(|| product.error("names a host that cannot be one"))?;
            Ok(Host { name: decoded(name)?, port })
        };
        let hosts = hosts.split(',').filter(|_| !hosts.is_empty());
        Ok(Self {
            product,
            scheme: scheme.to_owned(),
            user: given(user)?,
            password: given(password)?,
            hosts: hosts.map(host).collect::<Result<_, OpenError>>()?,
            database: decoded(database)?,
            parameters: pairs()
                .map(|(name, value)| Ok((name.to_owned(), decoded(value)?)))
                .collect::<Result<_, OpenError>>()?,
        })
    }

    /// The parameters in their order, each with its decoded value.
    pub(crate) fn parameters(&self) -> impl Iterator<Item = (&str, &str)> {
        self.parameters.iter().map(|(name, value)| (&**name, &**value))
    }

    /// The error for an address that names no host.
    pub(crate) fn hostless(&self) -> OpenError {
        self.product.error("names no host")
    }
}

/// Splits `name`, `name:port`, `[address]` or `[address]:port`.
fn split_host(text: &str) -> Option<(&str, &str)> {
    let Some(rest) = text.strip_prefix('[') else {
        return Some(text.split_once(':').unwrap_or((text, "")));
    };
    let (name, rest) = rest.split_once(']')?;
    Some((name, rest.strip_prefix(':').or_else(|| rest.is_empty().then_some(""))?))
}

/// Reads the value of the parameter `fail_over`: true if a server that takes over is trusted to have all
/// acknowledged writes.
pub(crate) fn trusts_fail_over(value: &str) -> Result<bool, OpenError> {
    match value {
        "untrusted" => Ok(false),
        "trusted" => Ok(true),
        _ => Err(OpenError::new("fail_over is untrusted or trusted; leave it out for untrusted")),
    }
}

impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, port } = self;
        if name.contains(':') { write!(f, "[{name}]:{port}") } else { write!(f, "{name}:{port}") }
    }
}

/// Without the password and the parameters.
impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}://", self.scheme)?;
        if let Some(user) = &self.user {
            write!(f, "{user}@")?;
        }
        for (place, host) in self.hosts.iter().enumerate() {
            write!(f, "{}{host}", if place > 0 { "," } else { "" })?;
        }
        if self.database.is_empty() { Ok(()) } else { write!(f, "/{}", self.database) }
    }
}

impl fmt::Debug for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

#[cfg(test)]
mod tests;
