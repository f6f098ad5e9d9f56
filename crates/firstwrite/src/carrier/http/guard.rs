//! Restricts the addresses at which a destination may be reached.
//!
//! A user who may name a destination could otherwise make the worker, which runs inside the network, talk to
//! what is not meant for outsiders: its own host, the network behind it, a cloud's metadata service. So only
//! addresses of the public internet pass, and the networks that the destination's settings allow.
//!
//! The check is made on the very address that is connected to, after name resolution. A name that resolves
//! differently the next time gains nothing.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;

use super::destination::HttpDestinationError;
use super::network::Network;

/// Lets addresses pass, or not.
#[derive(Clone, Debug)]
pub(super) struct Guard {
    allowed: Arc<[Network]>,
}

/// Nothing that a name stands for may be connected to.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct AddressRefused {
    address: IpAddr,
    kind: &'static str,
}

/// IPv4 networks outside the public internet (IANA's registry of special-purpose addresses).
const CLOSED_V4: &[(Network, &str)] = &[
    (Network::v4([0, 0, 0, 0], 8), "an unspecified address"),
    (Network::v4([10, 0, 0, 0], 8), "a private address"),
    (Network::v4([100, 64, 0, 0], 10), "an address shared behind a carrier's NAT"),
    (Network::v4([127, 0, 0, 0], 8), "a loopback address"),
    // Public by its number, but on Azure it is the host's own agent.
    (Network::v4([168, 63, 129, 16], 32), "a cloud's metadata address"),
    (Network::v4([169, 254, 0, 0], 16), "a link-local address"),
    (Network::v4([172, 16, 0, 0], 12), "a private address"),
    (Network::v4([192, 0, 0, 0], 24), "a reserved address"),
    (Network::v4([192, 0, 2, 0], 24), "an address for documentation"),
    (Network::v4([192, 88, 99, 0], 24), "a reserved address"),
    (Network::v4([192, 168, 0, 0], 16), "a private address"),
    (Network::v4([198, 18, 0, 0], 15), "an address for benchmarks"),
    (Network::v4([198, 51, 100, 0], 24), "an address for documentation"),
    (Network::v4([203, 0, 113, 0], 24), "an address for documentation"),
    (Network::v4([224, 0, 0, 0], 4), "a multicast address"),
    (Network::v4([240, 0, 0, 0], 4), "a reserved address"),
];

/// IPv6 networks outside the public internet; the last row is everything else.
const CLOSED_V6: &[(Network, &str)] = &[
    (Network::v6([0xfc00, 0, 0], 7), "a unique-local address"),
    (Network::v6([0xfe80, 0, 0], 10), "a link-local address"),
    (Network::v6([0xff00, 0, 0], 8), "a multicast address"),
    // Among them Teredo, which carries IPv4 addresses to a relay.
    (Network::v6([0x2001, 0, 0], 23), "a reserved address"),
    (Network::v6([0x2001, 0xdb8, 0], 32), "an address for documentation"),
    (Network::v6([0x3fff, 0, 0], 20), "an address for documentation"),
];

const GLOBAL_V6: Network = Network::v6([0x2000, 0, 0], 3);
const SIX_TO_FOUR: Network = Network::v6([0x2002, 0, 0], 16);
const NAT64: Network = Network::v6([0x64, 0xff9b, 0], 96);

impl Guard {
    /// `allowed` networks pass whatever they are.
    pub(super) fn new(allowed: Vec<Network>) -> Self {
        Self { allowed: allowed.into() }
    }

    /// Checks that `address` may be connected to.
    pub(super) fn check(&self, address: IpAddr) -> Result<(), AddressRefused> {
        let carried = carried(address).map(IpAddr::V4);
        let is_allowed = |address: IpAddr| self.allowed.iter().any(|each| each.contains(address));
        if is_allowed(address) || carried.is_some_and(is_allowed) {
            return Ok(());
        }
        let kind = match (address, carried) {
            (_, Some(IpAddr::V4(inner))) | (IpAddr::V4(inner), _) => closed_v4(inner),
            (IpAddr::V6(address), _) => closed_v6(address),
        };
        kind.map_or(Ok(()), |kind| Err(AddressRefused { address, kind }))
    }

    /// Leaves those that may be connected to; an error if there were addresses and none is left.
    pub(super) fn leave_allowed(
        &self,
        addresses: impl Iterator<Item = SocketAddr>,
    ) -> Result<Vec<SocketAddr>, AddressRefused> {
        let mut allowed = Vec::new();
        let mut refused = None;
        for address in addresses {
            match self.check(address.ip()) {
                Ok(()) => allowed.push(address),
                Err(error) => refused = refused.or(Some(error)),
            }
        }
        match refused {
            Some(error) if allowed.is_empty() => Err(error),
            _ => Ok(allowed),
        }
    }
}

/// Checks that each of `allowed` has an address that would be closed without it.
pub(super) fn check_allowed(allowed: &[Network]) -> Result<(), HttpDestinationError> {
    let is_closed = |network: &Network| {
        let closed = CLOSED_V4.iter().chain(CLOSED_V6).any(|(closed, _)| closed.meets(network));
        // Outside of the global IPv6 addresses all are closed, and these two carry IPv4 addresses.
        let is_other = network.is_ipv6() && !GLOBAL_V6.covers(network);
        closed || is_other || [SIX_TO_FOUR, NAT64].iter().any(|carrying| carrying.meets(network))
    };
    match allowed.iter().find(|network| !is_closed(network)) {
        None => Ok(()),
        Some(public) => Err(HttpDestinationError::new(format!(
            "allow_networks: {public} is public, and is reached without being allowed; leave it out"
        ))),
    }
}

/// The IPv4 address that an IPv6 address leads to: mapped, or carried by NAT64 or 6to4.
fn carried(address: IpAddr) -> Option<Ipv4Addr> {
    let IpAddr::V6(inner) = address else { return None };
    let [_, one, two, _, _, _, six, seven] = inner.segments();
    let join = |high: u16, low: u16| Ipv4Addr::from_bits(u32::from(high) << 16 | u32::from(low));
    if NAT64.contains(address) {
        return Some(join(six, seven));
    }
    if SIX_TO_FOUR.contains(address) {
        return Some(join(one, two));
    }
    inner.to_ipv4_mapped()
}

fn closed_v4(address: Ipv4Addr) -> Option<&'static str> {
    let found = CLOSED_V4.iter().find(|(network, _)| network.contains(IpAddr::V4(address)));
    found.map(|(_, kind)| *kind)
}

fn closed_v6(address: Ipv6Addr) -> Option<&'static str> {
    if address.is_loopback() {
        return Some("a loopback address");
    }
    if address.is_unspecified() {
        return Some("an unspecified address");
    }
    let address = IpAddr::V6(address);
    let found = CLOSED_V6.iter().find(|(network, _)| network.contains(address));
    let kind = found.map(|(_, kind)| *kind);
    // What has not been given out cannot be a destination.
    kind.or_else(|| (!GLOBAL_V6.contains(address)).then_some("a reserved address"))
}

impl fmt::Display for AddressRefused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { address, kind } = self;
        write!(
            f,
            "{address} is {kind}; if it is meant, add it to the destination's allowed networks"
        )
    }
}

impl std::error::Error for AddressRefused {}

#[cfg(test)]
mod tests {
    use super::*;

    fn guard(allowed: &[&str]) -> Guard {
        Guard::new(allowed.iter().map(|text| text.parse().unwrap()).collect())
    }

    fn passes(guard: &Guard, address: &str) -> bool {
        guard.check(address.parse().unwrap()).is_ok()
    }

    #[test]
    fn only_the_public_internet_passes() {
        let guard = guard(&[]);
        for (address, kind) in [
            ("0.0.0.0", "unspecified"),
            ("10.1.2.3", "private"),
            ("100.64.0.1", "NAT"),
            ("100.127.255.255", "NAT"),
            ("127.0.0.1", "loopback"),
            ("127.255.255.254", "loopback"),
            ("168.63.129.16", "metadata"),
            ("169.254.169.254", "link-local"),
            ("172.16.0.1", "private"),
            ("172.31.255.255", "private"),
            ("192.0.0.8", "reserved"),
            ("192.0.2.1", "documentation"),
            ("192.88.99.1", "reserved"),
            ("192.168.1.1", "private"),
            ("198.18.0.1", "benchmarks"),
            ("198.51.100.1", "documentation"),
            ("203.0.113.1", "documentation"),
            ("224.0.0.1", "multicast"),
            ("240.0.0.1", "reserved"),
            ("255.255.255.255", "reserved"),
            ("::", "unspecified"),
            ("::1", "loopback"),
            ("::2", "reserved"),
            // IPv4-compatible, long given up.
            ("::127.0.0.1", "reserved"),
            ("::ffff:127.0.0.1", "loopback"),
            ("::ffff:10.0.0.1", "private"),
            ("::ffff:169.254.169.254", "link-local"),
            ("64:ff9b::10.0.0.1", "private"),
            ("64:ff9b:1::1", "reserved"),
            ("100::1", "reserved"),
            ("2001::1", "reserved"),
            ("2001:db8::1", "documentation"),
            ("2002:7f00:1::", "loopback"),
            ("2002:a9fe:a9fe::1", "link-local"),
            ("3fff::1", "documentation"),
            ("4000::1", "reserved"),
            ("fc00::1", "unique-local"),
            ("fd00:ec2::254", "unique-local"),
            ("fe80::1", "link-local"),
            ("fec0::1", "reserved"),
            ("ff02::1", "multicast"),
        ] {
            let refused = guard.check(address.parse().unwrap()).unwrap_err();
            assert!(refused.to_string().contains(kind), "{refused}");
        }
        for address in [
            "1.1.1.1",
            "100.63.255.255",
            "172.32.0.1",
            "223.255.255.255",
            "2606:4700::1111",
            "2a00::1",
            "::ffff:1.1.1.1",
            "64:ff9b::1.1.1.1",
            "2002:101:101::1",
        ] {
            assert!(passes(&guard, address), "{address}");
        }
    }

    #[test]
    fn allowed_networks_pass_in_every_spelling_and_nothing_beside_them() {
        let guard = guard(&["10.0.0.0/8", "::1"]);
        assert!(passes(&guard, "10.1.2.3"));
        assert!(passes(&guard, "::ffff:10.1.2.3"));
        assert!(passes(&guard, "64:ff9b::10.1.2.3"));
        assert!(passes(&guard, "::1"));
        assert!(!passes(&guard, "127.0.0.1"));
        assert!(!passes(&guard, "192.168.0.1"));
    }

    #[test]
    fn of_several_addresses_only_the_allowed_are_left() {
        let addresses = ["127.0.0.1:1", "1.1.1.1:1"]
            .map(|text| text.parse::<SocketAddr>().unwrap())
            .into_iter();
        let left = guard(&[]).leave_allowed(addresses.clone()).unwrap();
        assert_eq!(left, ["1.1.1.1:1".parse::<SocketAddr>().unwrap()]);
        let refused = guard(&[]).leave_allowed(addresses.take(1)).unwrap_err();
        assert!(refused.to_string().starts_with("127.0.0.1 is a loopback address"), "{refused}");
        assert_eq!(guard(&[]).leave_allowed(std::iter::empty()), Ok(Vec::new()));
    }
}
