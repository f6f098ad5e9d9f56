//! Networks of addresses, as CIDR writes them.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

/// A network such as `10.0.0.0/8` or `fd00::/8`; an address alone is a network of one.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Network {
    address: IpAddr,
    length: u8,
}

/// Reason why a text is not a network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum NetworkError {
    /// The part before the slash is not an address.
    NotAnAddress,
    /// The part after the slash is not a number of bits that such an address has.
    NotALength,
    /// The address has bits beyond the length: it is one of the network's members, not its name.
    BitsBeyondLength,
}

impl Network {
    pub(super) const fn v4(address: [u8; 4], length: u8) -> Self {
        let [a, b, c, d] = address;
        Self { address: IpAddr::V4(Ipv4Addr::new(a, b, c, d)), length }
    }

    pub(super) const fn v6(start: [u16; 3], length: u8) -> Self {
        let [a, b, c] = start;
        Self { address: IpAddr::V6(Ipv6Addr::new(a, b, c, 0, 0, 0, 0, 0)), length }
    }

    pub(super) fn is_ipv6(&self) -> bool {
        self.address.is_ipv6()
    }

    /// Returns true if all of `other` is in this network.
    pub(super) fn covers(&self, other: &Self) -> bool {
        self.length <= other.length && self.contains(other.address)
    }

    /// Returns true if the two networks have an address in common: one of them contains the other.
    pub(super) fn meets(&self, other: &Self) -> bool {
        self.contains(other.address) || other.contains(self.address)
    }

    /// Returns true if `address` is in this network. An IPv4 network has no IPv6 members.
    pub fn contains(&self, address: IpAddr) -> bool {
        self.address.is_ipv4() == address.is_ipv4()
            && (bits(self.address) ^ bits(address)) & mask(self.length) == 0
    }
}

/// The address at the upper end of 128 bits, so that lengths count alike for both kinds.
fn bits(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(address) => u128::from(address.to_bits()) << 96,
        IpAddr::V6(address) => address.to_bits(),
    }
}

fn mask(length: u8) -> u128 {
    u128::MAX.checked_shl(128 - u32::from(length)).unwrap_or(0)
}

impl FromStr for Network {
    type Err = NetworkError;

    fn from_str(text: &str) -> Result<Self, NetworkError> {
        let (address, length) = match text.split_once('/') {
            Some((address, length)) => (address, Some(length)),
            None => (text, None),
        };
        let Ok(address) = address.parse::<IpAddr>() else { return Err(NetworkError::NotAnAddress) };
        let length_max = if address.is_ipv4() { 32 } else { 128 };
        let length = match length {
            None => length_max,
            Some(digits) => {
                let is_number = digits.bytes().all(|byte| byte.is_ascii_digit());
                let length = if is_number { digits.parse().ok() } else { None };
                length.filter(|length| *length <= length_max).ok_or(NetworkError::NotALength)?
            }
        };
        if bits(address) & !mask(length) != 0 {
            return Err(NetworkError::BitsBeyondLength);
        }
        Ok(Self { address, length })
    }
}

impl From<IpAddr> for Network {
    fn from(address: IpAddr) -> Self {
        Self { address, length: if address.is_ipv4() { 32 } else { 128 } }
    }
}

impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.length)
    }
}

impl fmt::Debug for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Network({self})")
    }
}

impl fmt::Display for NetworkError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NotAnAddress => "a network begins with an address, as 10.0.0.0/8 or fd00::/8",
            Self::NotALength => "a network's length is 0 to 32 bits, or to 128 for IPv6",
            Self::BitsBeyondLength => {
                "the address has bits beyond the network's length; write 10.0.0.0/8, not 10.0.0.1/8"
            }
        })
    }
}

impl std::error::Error for NetworkError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_share_the_first_bits() {
        for (network, inside, outside) in [
            ("10.0.0.0/8", "10.255.255.255", "11.0.0.0"),
            ("100.64.0.0/10", "100.127.255.255", "100.128.0.0"),
            ("127.0.0.1", "127.0.0.1", "127.0.0.2"),
            ("0.0.0.0/0", "255.255.255.255", "::1"),
            ("::/0", "ffff::", "10.0.0.1"),
            ("fd00::/8", "fdff::1", "fc00::1"),
            ("::1", "::1", "::2"),
        ] {
            let network: Network = network.parse().unwrap();
            assert!(network.contains(inside.parse().unwrap()), "{network}");
            assert!(!network.contains(outside.parse().unwrap()), "{network}");
            assert_eq!(network.to_string().parse(), Ok(network));
        }
    }

    #[test]
    fn what_is_no_network_is_refused() {
        for (text, error) in [
            ("", NetworkError::NotAnAddress),
            ("localhost", NetworkError::NotAnAddress),
            ("10/8", NetworkError::NotAnAddress),
            ("010.0.0.0/8", NetworkError::NotAnAddress),
            ("10.0.0.0/33", NetworkError::NotALength),
            ("10.0.0.0/+8", NetworkError::NotALength),
            ("10.0.0.0/", NetworkError::NotALength),
            ("::/129", NetworkError::NotALength),
            ("10.0.0.1/8", NetworkError::BitsBeyondLength),
            ("fd00::1/8", NetworkError::BitsBeyondLength),
        ] {
            assert_eq!(text.parse::<Network>(), Err(error), "{text}");
        }
    }
}
