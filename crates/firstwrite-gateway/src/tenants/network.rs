//! A network of addresses, as in `10.1.0.0/16`.

use std::net::IpAddr;

/// A network of IPv4 or IPv6 addresses. IPv4 addresses in IPv6 form are IPv4 addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Network {
    first: IpAddr,
    prefix_bits: u32,
}

/// Number of bits before the IPv4 address in an IPv6 address that maps one.
const MAPPED_BITS: u32 = 96;

impl Network {
    /// `address/bits`, or one address.
    pub fn parse(text: &str) -> Result<Self, &'static str> {
        const EXPECTED: &str = "a network such as 10.1.0.0/16, fd00::/8 or 10.1.2.3 is needed";
        let (address, bits) = match text.split_once('/') {
            // `+8` is a number to the parser.
            Some((_, bits)) if !bits.bytes().all(|byte| byte.is_ascii_digit()) => {
                return Err(EXPECTED);
            }
            Some((address, bits)) => (address, Some(bits)),
            None => (text, None),
        };
        let Ok(address) = address.parse::<IpAddr>() else { return Err(EXPECTED) };
        let bits_max = if address.is_ipv4() { 32 } else { 128 };
        let prefix_bits = match bits.map(str::parse) {
            None => bits_max,
            Some(Ok(bits)) if bits <= bits_max => bits,
            Some(_) => return Err(EXPECTED),
        };
        let is_mapped = address.is_ipv6() && address.to_canonical().is_ipv4();
        let network = if is_mapped && prefix_bits >= MAPPED_BITS {
            Self { first: address.to_canonical(), prefix_bits: prefix_bits - MAPPED_BITS }
        } else {
            Self { first: address, prefix_bits }
        };
        if network.prefix_bits == 0 {
            return Err("this is everybody; name the networks of those who are trusted");
        }
        if bits_of(network.first) & !network.mask() != 0 {
            return Err("the address has bits after the network's; write the network's first one");
        }
        Ok(network)
    }

    /// Returns true if the network contains an address.
    pub fn contains(&self, address: IpAddr) -> bool {
        let address = address.to_canonical();
        address.is_ipv4() == self.first.is_ipv4()
            && (bits_of(address) ^ bits_of(self.first)) & self.mask() == 0
    }

    fn mask(&self) -> u128 {
        u128::MAX << (128 - self.prefix_bits)
    }
}

/// The bits of an address, the first one highest.
fn bits_of(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(address) => u128::from(u32::from(address)) << MAPPED_BITS,
        IpAddr::V6(address) => u128::from(address),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_network_contains_its_addresses() {
        let check = |network: &str, inside: &[&str], outside: &[&str]| {
            let parsed = Network::parse(network).unwrap();
            for (addresses, expected) in [(inside, true), (outside, false)] {
                for address in addresses {
                    let found = parsed.contains(address.parse().unwrap());
                    assert_eq!(found, expected, "{address} in {network}");
                }
            }
        };
        check(
            "10.1.0.0/16",
            &["10.1.0.0", "10.1.255.255", "::ffff:10.1.2.3"],
            &["10.0.255.255", "10.2.0.0", "::10.1.2.3", "64:ff9b::10.1.2.3", "a01::"],
        );
        check("10.1.2.3", &["10.1.2.3", "::ffff:10.1.2.3"], &["10.1.2.2", "10.1.2.4"]);
        check("128.0.0.0/1", &["255.0.0.1"], &["127.0.0.1", "8000::"]);
        check("fd00::/8", &["fd12::1", "fdff::"], &["fc00::1", "fe80::1", "253.0.0.1"]);
        check("::1", &["::1"], &["::2", "127.0.0.1", "0.0.0.1"]);
        check("::ffff:10.1.0.0/112", &["10.1.2.3", "::ffff:10.1.2.3"], &["10.2.0.0"]);
    }

    #[test]
    fn what_is_no_network_is_refused() {
        for (text, expected) in [
            ("", "such as"),
            ("localhost", "such as"),
            ("10.1.0.0/33", "such as"),
            ("10.1.0.0/", "such as"),
            ("10.1.0.0/+8", "such as"),
            ("10.1.0.0/-1", "such as"),
            ("10.1/16", "such as"),
            ("fd00::/129", "such as"),
            ("10.1.0.1/16", "bits after"),
            ("fd00::1/64", "bits after"),
            ("::ffff:10.1.0.1/112", "bits after"),
            ("0.0.0.0/0", "everybody"),
            ("::/0", "everybody"),
            ("::ffff:0.0.0.0/96", "everybody"),
        ] {
            let problem = Network::parse(text).expect_err(text);
            assert!(problem.contains(expected), "{text}: {problem}");
        }
    }
}
