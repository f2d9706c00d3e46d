//! The device of smoltcp: one packet in, and packets out.

use std::num::{NonZeroU16, NonZeroUsize};

use smoltcp::{
    phy::{
        Checksum, Device as SmoltcpDevice, DeviceCapabilities, Medium, PacketMeta, RxToken, TxToken,
    },
    time::Instant,
};

use super::{device::Device, sending::Sending};
use convoy_packet::{
    counters::Counters,
    packet::{IPV4_HEADER, IPV6_HEADER, LONGEST_PACKET, Packet, pseudo_sum, seal_ipv4},
    segment::{ACK, FIN, PSH, RST, SYN, Segment},
    vnet::{GSO_TCPV4, GSO_TCPV6, NEEDS_CSUM, VNET_LEN, VnetHeader},
};

/// Room for a message and for a packet behind it that may continue it, or for a datagram of IPv6 and a message
/// behind it with one of its fragments.
pub(super) const SCRATCH: usize = 2 * VNET_LEN + IPV6_HEADER + 2 * LONGEST_PACKET;

/// The longest headers of IP and TCP together.
const LONGEST_HEADERS: usize = IPV6_HEADER + 60;

/// Parts of the stream to retransmit.
#[derive(Debug)]
pub(super) struct Again<'a> {
    pub(super) sending: &'a mut Sending,
    pub(super) now: i64,
    /// The last acknowledgement number and window announced to the other end.
    pub(super) told: (u32, u16),
}

/// The packets that one connection sends in one turn.
///
/// smoltcp sends everything from the first byte that was not acknowledged when it sends again; of what was sent before,
/// only what is lost leaves here.
///
/// smoltcp makes super-packets of IPv4 only (0.14 declares those of IPv6 but then discards them), so that segments
/// of IPv6 are joined here.
#[derive(Debug)]
pub(super) struct Outgoing<'a> {
    device: &'a Device,
    counters: &'a Counters,
    /// The last packet, behind room for its header, until the next one is known.
    buffer: &'a mut [u8],
    length: usize,
    /// Bytes of payload in each segment of the last packet, if it has several.
    segment: Option<u16>,
    again: Option<Again<'a>>,
    /// The sequence numbers behind the last segment, and of the last acknowledgement.
    pub(super) last: Option<(u32, u32)>,
    /// The highest sequence number that a segment ends before.
    pub(super) highest: Option<u32>,
    /// The acknowledgement and the window of the last segment.
    pub(super) told: Option<(u32, u16)>,
    /// Something had to stay, because the device has no room.
    pub(super) is_refused: bool,
}

impl<'a> Outgoing<'a> {
    /// The buffer has [`SCRATCH`] bytes.
    pub(super) fn new(
        device: &'a Device,
        counters: &'a Counters,
        buffer: &'a mut [u8],
        again: Option<Again<'a>>,
    ) -> Self {
        Self {
            device,
            counters,
            buffer,
            length: 0,
            segment: None,
            again,
            last: None,
            highest: None,
            told: None,
            is_refused: false,
        }
    }

    fn push<R>(
        &mut self,
        length: usize,
        segment: Option<u16>,
        fill: impl FnOnce(&mut [u8]) -> R,
    ) -> R {
        let may_join = segment.is_none()
            && self.buffer[VNET_LEN] >> 4 == 6
            && self.length + length <= LONGEST_PACKET;
        if !may_join {
            self.flush();
        }
        let at = VNET_LEN + self.length;
        let result = fill(&mut self.buffer[at..at + length]);
        if self.length > 0 && !self.join(length) {
            let begun = self.length;
            self.flush();
            self.buffer
                .copy_within(VNET_LEN + begun..VNET_LEN + begun + length, VNET_LEN);
        }
        if self.length == 0 {
            (self.length, self.segment) = (length, segment);
        }
        result
    }

    /// Appends the packet of this length behind the last one if it continues that.
    fn join(&mut self, length: usize) -> bool {
        let (last, next) = self.buffer[VNET_LEN..].split_at_mut(self.length);
        let next = &mut next[..length];
        let segments =
            Segment::parse(&last[IPV6_HEADER..]).zip(Segment::parse(&next[IPV6_HEADER..]));
        let Some((a, b)) = segments else {
            return false;
        };
        let each = self.segment.map_or(a.payload_len, usize::from);
        let is_plain = a.flags == ACK && b.flags & !PSH == ACK;
        let is_next = a.end() == b.sequence && a.acknowledged == b.acknowledged;
        let is_full = each > 0 && a.payload_len.is_multiple_of(each);
        let fits =
            (1..=each).contains(&b.payload_len) && self.length + b.payload_len <= LONGEST_PACKET;
        // The window, and the options.
        let [old, new] = [&last[IPV6_HEADER..], &next[IPV6_HEADER..]];
        let is_alike = a.header_len == b.header_len
            && old[14..16] == new[14..16]
            && old[20..a.header_len] == new[20..b.header_len];
        if !(is_plain && is_next && is_full && fits && is_alike) {
            return false;
        }
        let payload = self.length - IPV6_HEADER + b.payload_len;
        last[4..6].copy_from_slice(&(payload as u16).to_be_bytes());
        last[IPV6_HEADER + 13] |= b.flags;
        let from = VNET_LEN + self.length + IPV6_HEADER + b.header_len;
        self.buffer
            .copy_within(from..from + b.payload_len, VNET_LEN + self.length);
        self.length += b.payload_len;
        self.segment = Some(each as u16);
        true
    }

    /// Sends what is there.
    pub(super) fn flush(&mut self) {
        let length = std::mem::take(&mut self.length);
        if length == 0 {
            return;
        }
        let segment = self.segment.take();
        if !self.send_again(length, segment) {
            self.send(0, length, segment);
        }
    }

    /// Sends a packet of this length that lies in the buffer behind this many bytes and its header.
    fn send(&mut self, at: usize, length: usize, segment: Option<u16>) {
        let message = &mut self.buffer[at..at + VNET_LEN + length];
        if let Some(tcp) = seal(message, segment) {
            self.last = Some((tcp.end(), tcp.acknowledged));
            self.told = Some((tcp.acknowledged, tcp.window));
            let is_higher = |old: u32| (tcp.end().wrapping_sub(old) as i32) > 0;
            if self.highest.is_none_or(is_higher) {
                self.highest = Some(tcp.end());
            }
        }
        self.counters.count_sent(length, segment.is_some());
        self.device.send(message, self.counters);
    }

    /// Sends the parts of a packet that may go, if some of it was sent before; whether it was.
    fn send_again(&mut self, length: usize, segment: Option<u16>) -> bool {
        let Some(again) = &self.again else {
            return false;
        };
        let packet = &self.buffer[VNET_LEN..VNET_LEN + length];
        let at = match packet[0] >> 4 {
            4 => IPV4_HEADER,
            _ => IPV6_HEADER,
        };
        let Some(tcp) = Segment::parse(&packet[at..]) else {
            return false;
        };
        let is_data = tcp.flags & (SYN | RST) == 0 && tcp.end() != tcp.sequence;
        if !is_data || !again.sending.is_in_flight(tcp.sequence) {
            return false;
        }
        let mut headers = [0; LONGEST_HEADERS];
        let headers = &mut headers[..at + tcp.header_len];
        headers.copy_from_slice(&packet[..at + tcp.header_len]);
        if !self.send_parts(headers, &tcp, segment) {
            self.send_acknowledgement(headers, &tcp);
        }
        true
    }

    /// Sends the parts of a packet that may go; whether there are any.
    fn send_parts(&mut self, headers: &mut [u8], tcp: &Segment, segment: Option<u16>) -> bool {
        let mut from = tcp.sequence;
        while let Some(again) = &mut self.again
            && let Some((start, end)) = again.sending.next_piece(again.now, from, tcp.end())
        {
            if (start.wrapping_sub(again.sending.next()) as i32) < 0 {
                let bytes = end.wrapping_sub(start).into();
                self.counters.resent_bytes.add(bytes);
            }
            let flags = match end == tcp.end() {
                true => tcp.flags,
                false => tcp.flags & !FIN,
            };
            let offset = start.wrapping_sub(tcp.sequence) as usize;
            let behind = end.wrapping_sub(tcp.sequence) as usize;
            let payload = behind.min(tcp.payload_len) - offset.min(tcp.payload_len);
            let length = write_headers(headers, tcp, start, flags, payload);
            // What is overwritten has gone already, or does not go.
            let to = VNET_LEN + offset;
            self.buffer[to..to + headers.len()].copy_from_slice(headers);
            let each = segment.filter(|each| payload > usize::from(*each));
            self.send(offset, length, each);
            from = end;
        }
        from != tcp.sequence
    }

    /// Sends what a packet acknowledges if its payload does not go, and the other end was not told yet.
    fn send_acknowledgement(&mut self, headers: &mut [u8], tcp: &Segment) {
        let Some(again) = &self.again else {
            return;
        };
        if self.told.unwrap_or(again.told) == (tcp.acknowledged, tcp.window) {
            return;
        }
        let length = write_headers(headers, tcp, again.sending.next(), ACK, 0);
        self.buffer[VNET_LEN..VNET_LEN + length].copy_from_slice(headers);
        self.send(0, length, None);
    }
}

/// Changes the headers of a packet for another part of its payload; returns the length of the packet.
fn write_headers(
    headers: &mut [u8],
    tcp: &Segment,
    sequence: u32,
    flags: u8,
    payload: usize,
) -> usize {
    let length = headers.len() + payload;
    let at = headers.len() - tcp.header_len;
    headers[at + 4..at + 8].copy_from_slice(&sequence.to_be_bytes());
    headers[at + 13] = flags;
    if at == IPV4_HEADER {
        headers[2..4].copy_from_slice(&(length as u16).to_be_bytes());
        seal_ipv4(headers);
    } else {
        headers[4..6].copy_from_slice(&((length - at) as u16).to_be_bytes());
    }
    length
}

/// Returns the window to be announced for one of smoltcp, which must not shrink.
///
/// smoltcp rounds the window down to what its scale can express, so that the right edge moves back as segments arrive,
/// by less than one unit; then it cuts off what the other end has sent up to the former edge, which costs a timeout
/// of a second. One unit less is announced (RFC 7323, 2.4).
pub(super) fn announced(window: u16) -> u16 {
    window.saturating_sub(1)
}

/// Writes the virtio header, the sum of the pseudo-header where the checksum is to be, and the window; returns the
/// segment as it was.
fn seal(message: &mut [u8], segment: Option<u16>) -> Option<Segment> {
    let (vnet, packet) = message.split_at_mut(VNET_LEN);
    let (at, gso_type) = match packet[0] >> 4 {
        4 => (IPV4_HEADER, GSO_TCPV4),
        _ => (IPV6_HEADER, GSO_TCPV6),
    };
    let parsed = Packet::parse(VnetHeader::default(), packet).ok()?;
    let tcp = Segment::parse(parsed.payload())?;
    let length = parsed.payload().len();
    let window = match tcp.has(SYN) {
        // Not scaled.
        true => tcp.window,
        false => announced(tcp.window),
    };
    let sum = pseudo_sum(parsed.source, parsed.destination, parsed.protocol, length);
    packet[at + 14..at + 16].copy_from_slice(&window.to_be_bytes());
    packet[at + 16..at + 18].copy_from_slice(&sum.to_be_bytes());
    let header = VnetHeader {
        flags: NEEDS_CSUM,
        gso_type: segment.map_or(0, |_| gso_type),
        hdr_len: (at + tcp.header_len) as u16,
        gso_size: segment.unwrap_or(0),
        csum_start: at as u16,
        csum_offset: 16,
    };
    vnet.copy_from_slice(&header.to_bytes());
    Some(tcp)
}

/// One turn of a connection.
#[derive(Debug)]
pub(super) struct Phy<'a, 'b> {
    pub(super) received: Option<&'a [u8]>,
    pub(super) out: &'a mut Outgoing<'b>,
    pub(super) mtu: usize,
    /// Whether nothing may be sent, although something is to be.
    pub(super) is_closed: bool,
}

/// A packet that was received.
pub(super) struct Received<'a>(&'a [u8]);

/// Room for a packet.
pub(super) struct Room<'a, 'b> {
    out: &'a mut Outgoing<'b>,
    segment: Option<NonZeroU16>,
}

impl<'b> SmoltcpDevice for Phy<'_, 'b> {
    type RxToken<'a>
        = Received<'a>
    where
        Self: 'a;
    type TxToken<'a>
        = Room<'a, 'b>
    where
        Self: 'a;

    fn receive(&mut self, _: Instant) -> Option<(Received<'_>, Room<'_, 'b>)> {
        let received = Received(self.received.take()?);
        let out = &mut *self.out;
        Some((received, Room { out, segment: None }))
    }

    fn transmit(&mut self, _: Instant) -> Option<Room<'_, 'b>> {
        if self.is_closed {
            return None;
        }
        if self.out.device.is_blocked() {
            self.out.is_refused = true;
            return None;
        }
        let out = &mut *self.out;
        Some(Room { out, segment: None })
    }

    fn capabilities(&self) -> DeviceCapabilities {
        let mut capabilities = DeviceCapabilities::default();
        capabilities.medium = Medium::Ip;
        capabilities.max_transmission_unit = self.mtu;
        // Those of segments received were verified, and those of segments sent are left to the tunnel.
        capabilities.checksum.tcp = Checksum::None;
        capabilities.checksum.ipv4 = Checksum::Tx;
        capabilities.segmentation.tcpv4 = NonZeroUsize::new(LONGEST_PACKET);
        capabilities
    }
}

impl RxToken for Received<'_> {
    fn consume<R, F: FnOnce(&[u8]) -> R>(self, f: F) -> R {
        f(self.0)
    }
}

impl TxToken for Room<'_, '_> {
    fn consume<R, F: FnOnce(&mut [u8]) -> R>(self, length: usize, f: F) -> R {
        self.out.push(length, self.segment.map(NonZeroU16::get), f)
    }

    fn set_meta(&mut self, meta: PacketMeta) {
        self.segment = meta.segmentation_offload_size;
    }
}
