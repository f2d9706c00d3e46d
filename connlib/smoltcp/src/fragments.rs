//! Puts packets together from their fragments.

use std::net::IpAddr;

use smoltcp::storage::Assembler;

use convoy_packet::{
    counters::{Counters, Dropped},
    packet::{Fragment, LONGEST_PACKET, Packet, ip_header_len, set_class, write_ip_header},
};

/// Packets that are put together at the same time: the oldest of the sender that has most makes room. Each takes 64 KiB at
/// most.
const MOST: usize = 16;
/// How long one may take, in microseconds.
const PATIENCE: i64 = 15_000_000;
/// The mark of congestion in a traffic class, CE.
const CONGESTED: u8 = 3;

/// The packets that lack some fragments, the oldest first.
#[derive(Debug, Default)]
pub struct Fragments(Vec<Incomplete>);

/// Fields that the fragments of a packet have in common: for IPv4 also the protocol (RFC 791, RFC 8200 §4.5).
#[derive(Debug, PartialEq, Eq)]
struct Key {
    source: IpAddr,
    destination: IpAddr,
    ident: u32,
    protocol: Option<u8>,
}

#[derive(Debug)]
struct Incomplete {
    key: Key,
    sender: u32,
    /// Protocol of the first fragment, once that is there.
    protocol: Option<u8>,
    /// The traffic class of the first fragment, and the mark of congestion if any has that (RFC 3168, section 5.3).
    class: u8,
    expires: i64,
    /// The payload, behind room for a header.
    bytes: Vec<u8>,
    known: Assembler,
    length: Option<usize>,
}

impl Fragments {
    /// Adds a fragment that a sender, by its number, has sent at a time in microseconds; returns the packet that it
    /// completes.
    pub fn add(
        &mut self,
        packet: &Packet<'_>,
        fragment: Fragment,
        sender: u32,
        now: i64,
        counters: &Counters,
    ) -> Option<Vec<u8>> {
        let before = self.0.len();
        self.0.retain(|it| it.expires > now);
        (self.0.len()..before).for_each(|_| counters.drop(Dropped::FragmentTimeout));
        let key = Key::new(packet, fragment);
        let index = match self.0.iter().position(|it| it.key == key) {
            Some(index) => index,
            None => {
                if self.0.len() >= MOST {
                    self.make_room();
                    counters.drop(Dropped::Fragment);
                }
                let expires = now + PATIENCE;
                self.0.push(Incomplete::new(key, sender, expires));
                self.0.len() - 1
            }
        };
        match self.0[index].add(packet, fragment) {
            Ok(false) => None,
            Ok(true) => {
                counters.reassembled.add(1);
                self.0.remove(index).complete()
            }
            Err(()) => {
                counters.drop(Dropped::Fragment);
                self.0.remove(index);
                None
            }
        }
    }

    /// A sender that begins packets without end displaces only its own.
    fn make_room(&mut self) {
        let held = |index: &usize| {
            let sender = self.0[*index].sender;
            self.0.iter().filter(|it| it.sender == sender).count()
        };
        // Of several that are greatest, the last is found.
        if let Some(oldest) = (0..self.0.len()).rev().max_by_key(held) {
            self.0.remove(oldest);
        }
    }
}

impl Key {
    fn new(packet: &Packet<'_>, fragment: Fragment) -> Self {
        Self {
            source: packet.source,
            destination: packet.destination,
            ident: fragment.ident,
            protocol: packet.source.is_ipv4().then_some(packet.protocol),
        }
    }
}

impl Incomplete {
    fn new(key: Key, sender: u32, expires: i64) -> Self {
        Self {
            sender,
            protocol: None,
            class: 0,
            expires,
            bytes: vec![0; ip_header_len(key.source)],
            key,
            known: Assembler::new(),
            length: None,
        }
    }

    /// Returns whether the packet is complete with this fragment; fails if that does not fit.
    fn add(&mut self, packet: &Packet<'_>, fragment: Fragment) -> Result<bool, ()> {
        let payload = packet.payload();
        let header = ip_header_len(self.key.source);
        let end = fragment.offset + payload.len();
        let is_wrong = payload.is_empty()
            || header + end > LONGEST_PACKET
            || (!fragment.is_last && !payload.len().is_multiple_of(8))
            || self
                .length
                .is_some_and(|length| end > length || (fragment.is_last && end != length));
        if is_wrong {
            return Err(());
        }
        if fragment.is_last {
            if self.bytes.len() > header + end {
                return Err(());
            }
            self.length = Some(end);
        }
        let is_overlapping = |known: (usize, usize)| fragment.offset < known.1 && known.0 < end;
        if self.known.iter_data().any(is_overlapping) {
            // One that was doubled on its way; others discard the packet, as the kernel does (RFC 5722).
            let known = self.bytes.get(header + fragment.offset..header + end);
            return if known == Some(payload) {
                Ok(false)
            } else {
                Err(())
            };
        }
        if fragment.offset == 0 {
            self.protocol = Some(packet.protocol);
            self.class |= packet.class();
        }
        if packet.class() & CONGESTED == CONGESTED {
            self.class |= CONGESTED;
        }
        let needed = header + end;
        if self.bytes.len() < needed {
            self.bytes.resize(needed, 0);
        }
        self.bytes[header + fragment.offset..needed].copy_from_slice(payload);
        let added = self.known.add(fragment.offset, payload.len());
        added.map_err(|_| ())?;
        Ok(self
            .length
            .is_some_and(|length| self.known.peek_front() == length))
    }

    fn complete(mut self) -> Option<Vec<u8>> {
        let Key {
            source,
            destination,
            ..
        } = self.key;
        let length = self.bytes.len() - ip_header_len(source);
        let protocol = self.protocol?;
        write_ip_header(&mut self.bytes, source, destination, protocol, length);
        set_class(&mut self.bytes, self.class);
        Some(self.bytes)
    }
}

#[cfg(test)]
mod fuzz;
#[cfg(test)]
mod tests;
