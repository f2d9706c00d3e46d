//! The header of a datagram, which names its target (RFC 1928, section 7).

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};

use fast_socks5::consts::{
    SOCKS5_ADDR_TYPE_DOMAIN_NAME, SOCKS5_ADDR_TYPE_IPV4, SOCKS5_ADDR_TYPE_IPV6,
};

/// A target, as a client names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Named<'a> {
    Address(SocketAddr),
    Host(&'a str, u16),
}

/// Reads the header of a datagram that is no fragment; also returns the header's length.
pub(super) fn parse(datagram: &[u8]) -> Option<(Named<'_>, usize)> {
    let ([0, 0, 0, kind], rest) = datagram.split_first_chunk()? else {
        return None;
    };
    let (target, behind) = match *kind {
        SOCKS5_ADDR_TYPE_IPV4 => {
            let (address, rest) = rest.split_first_chunk::<4>()?;
            let (port, rest) = port(rest)?;
            let address = Ipv4Addr::from(*address);
            (Named::Address((address, port).into()), rest)
        }
        SOCKS5_ADDR_TYPE_IPV6 => {
            let (address, rest) = rest.split_first_chunk::<16>()?;
            let (port, rest) = port(rest)?;
            let address = Ipv6Addr::from(*address).to_canonical();
            (Named::Address((address, port).into()), rest)
        }
        SOCKS5_ADDR_TYPE_DOMAIN_NAME => {
            let (length, rest) = rest.split_first()?;
            let (host, rest) = rest.split_at_checked(usize::from(*length))?;
            let (port, rest) = port(rest)?;
            (Named::Host(str::from_utf8(host).ok()?, port), rest)
        }
        _ => return None,
    };
    Some((target, datagram.len() - behind.len()))
}

fn port(bytes: &[u8]) -> Option<(u16, &[u8])> {
    let (port, rest) = bytes.split_first_chunk()?;
    Some((u16::from_be_bytes(*port), rest))
}

#[cfg(test)]
mod tests {
    use fast_socks5::{new_udp_header, parse_udp_request};
    use futures_util::FutureExt as _;
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn headers_name_addresses_of_both_families_and_hosts() {
        let v4 = SocketAddr::from(([192, 0, 2, 1], 7));
        let v6 = SocketAddr::from((Ipv6Addr::LOCALHOST, 65_535));
        let mapped = SocketAddr::from((Ipv4Addr::new(192, 0, 2, 1).to_ipv6_mapped(), 7));
        for (header, target) in [
            (new_udp_header(v4), Named::Address(v4)),
            (new_udp_header(v6), Named::Address(v6)),
            (new_udp_header(mapped), Named::Address(v4)),
            (
                new_udp_header(("a.example", 53)),
                Named::Host("a.example", 53),
            ),
        ] {
            let header = header.unwrap();
            for payload in [&b""[..], b"payload"] {
                let datagram = [&header, payload].concat();
                assert_eq!(parse(&datagram), Some((target, header.len())));
            }
            for length in 0..header.len() {
                assert_eq!(parse(&header[..length]), None);
            }
            let mut fragment = header.clone();
            fragment[2] = 1;
            assert_eq!(parse(&fragment), None);
        }
    }

    proptest! {
        #[test]
        fn datagrams_of_any_kind_are_read_as_by_another_implementation(
            behind in prop::collection::vec(any::<u8>(), 0..40),
            kind in 0..6_u8,
        ) {
            let datagram = [&[0, 0, 0, kind], &behind[..]].concat();
            let other = parse_udp_request(&datagram).now_or_never().unwrap();
            let length = other.ok().map(|(_, _, payload)| datagram.len() - payload.len());
            prop_assert_eq!(parse(&datagram).map(|(_, length)| length), length);
        }
    }
}
