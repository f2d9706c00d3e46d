//! Lowers the maximum segment size (MSS) in TCP handshakes to what the tunnel's MTU carries.
//!
//! Both ends of a connection announce an MSS that suits their own links. If a host behind the tunnel has a
//! larger MTU and ICMP errors are filtered on the way, its full segments get lost without a trace. The option
//! is only ever lowered.
//!
//! It leaves alone:
//!
//! - A SYN without the option: its sender accepts 536 bytes over IPv4 and 1,220 over IPv6 (RFC 9293 §3.7.1),
//!   which any usual tunnel carries.
//! - A SYN that TCP-AO signs (RFC 5925), or IPsec: the receiver would refuse it.
//! - Fragments, but for the first one over IPv4: only it has the TCP header. Over IPv6 no host needs to
//!   fragment a SYN.
//! - Packets inside other packets: their ends know the overhead of their own tunnel.
//! - Whatever is malformed or cut short, up to the first malformed option: a receiver reads no further.
//!
//! Checksums are complete before packets reach the state machine (`tun/src/cut.rs`).

use std::{iter, ops::Range};

use crate::packet::{self, be16_at, updated_checksum};

/// The headers before a segment's payload, without options, in bytes: IPv4 and TCP, IPv6 and TCP.
const HEADERS_V4: u16 = 40;
const HEADERS_V6: u16 = 60;

const IPV4_PROTOCOL: usize = 9;
const IPV4_FRAGMENT: usize = 6;
const IPV4_FRAGMENT_OFFSET: usize = 0x1fff;
const IPV6_NEXT_HEADER: usize = 6;
const IPV6_HEADER: usize = 40;
const TCP: u8 = 6;
/// Extension headers of IPv6 that TCP may follow: hop-by-hop options, routing, destination options.
pub(crate) const EXTENSIONS: [u8; 3] = [0, 43, 60];
/// Most of them in one packet: RFC 8200 §4.1 lists these, and destination options twice.
const MOST_EXTENSIONS: usize = 4;

const TCP_DATA_OFFSET: usize = 12;
const TCP_FLAGS: usize = 13;
const TCP_CHECKSUM: usize = 16;
const TCP_HEADER: usize = 20;
const SYN: u8 = 2;
const END_OF_OPTIONS: u8 = 0;
const NO_OPERATION: u8 = 1;
const MSS: u8 = 2;
const MSS_LEN: usize = 4;
const TCP_AO: u8 = 29;

/// Segments to clamp; by default none.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct MssClamp {
    pub(crate) is_on: bool,
    /// The interface's MTU in bytes; 0 while it is unknown, and then nothing is clamped.
    pub(crate) mtu: u16,
}

impl MssClamp {
    /// Lowers the MSS that `packet` announces, and updates the TCP checksum. Bytes behind the IP packet may follow.
    #[inline]
    pub(crate) fn apply(self, packet: &mut [u8]) {
        if self.concerns(packet) {
            self.lower(packet);
        }
    }

    /// Returns whether [`Self::apply`] may change `packet`: false for nearly every packet.
    #[inline]
    pub(crate) fn concerns(self, packet: &[u8]) -> bool {
        self.is_on && may_be_syn(packet)
    }

    #[cold]
    fn lower(self, packet: &mut [u8]) -> Option<()> {
        let len = packet::length(packet)?;
        let packet = &mut packet[..len];
        let (headers, at) = match packet[0] >> 4 {
            4 => (HEADERS_V4, tcp_over_ipv4(packet)?),
            _ => (HEADERS_V6, tcp_over_ipv6(packet)?),
        };
        let most = self.mtu.checked_sub(headers).filter(|most| *most > 0)?;
        let header = tcp_header(&mut packet[at..])?;
        if header[TCP_FLAGS] & SYN == 0 || options(header).any(|o| header[o.start] == TCP_AO) {
            return None;
        }
        let mut at = TCP_HEADER;
        while let Some(option) = next_option(header, at) {
            let value = option.start + 2;
            if header[option.start] == MSS
                && option.len() == MSS_LEN
                && be16_at(header, value) > most.into()
            {
                set_word(header, value, most);
            }
            at = option.end;
        }
        Some(())
    }
}

/// Returns whether `packet` is a TCP segment with SYN, or has extension headers, behind which one may stand.
#[inline]
fn may_be_syn(packet: &[u8]) -> bool {
    let has_syn = |at: usize| packet.get(at + TCP_FLAGS).is_some_and(|f| f & SYN != 0);
    let Some(header) = packet.first_chunk::<10>() else {
        return false;
    };
    if header[0] >> 4 == 4 {
        return header[IPV4_PROTOCOL] == TCP && has_syn(ipv4_header(packet));
    }
    match header[IPV6_NEXT_HEADER] {
        TCP => has_syn(IPV6_HEADER),
        other => EXTENSIONS.contains(&other),
    }
}

/// Returns the offset of the TCP header; `None` if `packet` has none.
fn tcp_over_ipv4(packet: &[u8]) -> Option<usize> {
    let is_first = be16_at(packet, IPV4_FRAGMENT) & IPV4_FRAGMENT_OFFSET == 0;
    is_first.then(|| ipv4_header(packet))
}

fn ipv4_header(packet: &[u8]) -> usize {
    usize::from(packet[0] & 0xf) * 4
}

/// Returns the offset of the TCP header; `None` if `packet` has none.
fn tcp_over_ipv6(packet: &[u8]) -> Option<usize> {
    let (mut next, mut at) = (packet[IPV6_NEXT_HEADER], IPV6_HEADER);
    for _ in 0..MOST_EXTENSIONS {
        if !EXTENSIONS.contains(&next) {
            break;
        }
        let &[following, units] = packet.get(at..)?.first_chunk()?;
        next = following;
        at += (usize::from(units) + 1) * 8;
    }
    (next == TCP && at <= packet.len()).then_some(at)
}

/// The TCP header with its options at the start of `segment`; `None` if it is cut short.
fn tcp_header(segment: &mut [u8]) -> Option<&mut [u8]> {
    let len = usize::from(segment.get(TCP_DATA_OFFSET)? >> 4) * 4;
    segment.get_mut(..len).filter(|h| h.len() >= TCP_HEADER)
}

/// The options of a TCP header, up to the first malformed one.
fn options(header: &[u8]) -> impl Iterator<Item = Range<usize>> {
    let first = next_option(header, TCP_HEADER);
    iter::successors(first, |option| next_option(header, option.end))
}

/// The first option from `at` on: kind, length and value.
fn next_option(header: &[u8], mut at: usize) -> Option<Range<usize>> {
    while *header.get(at)? == NO_OPERATION {
        at += 1;
    }
    let len = usize::from(*header.get(at + 1)?);
    let is_valid = header[at] != END_OF_OPTIONS && len >= 2 && at + len <= header.len();
    is_valid.then_some(at..at + len)
}

/// Replaces two bytes of a TCP header, and updates its checksum.
fn set_word(header: &mut [u8], at: usize, new: u16) {
    let old = be16_at(header, at) as u16;
    header[at..at + 2].copy_from_slice(&new.to_be_bytes());
    // At an odd offset the bytes lie in two words, each in the other half (RFC 1071 §2 (B)).
    let in_sum = |word: u16| match at.is_multiple_of(2) {
        true => word,
        false => word.swap_bytes(),
    };
    let checksum = be16_at(header, TCP_CHECKSUM) as u16;
    let updated = updated_checksum(checksum, in_sum(old), in_sum(new));
    header[TCP_CHECKSUM..TCP_CHECKSUM + 2].copy_from_slice(&updated.to_be_bytes());
}

#[cfg(test)]
mod tests;
