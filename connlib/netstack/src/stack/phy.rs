//! What smoltcp takes for its device: one packet in, and packets out.

use std::num::{NonZeroU16, NonZeroUsize};

use smoltcp::{
    phy::{
        Checksum, Device as SmoltcpDevice, DeviceCapabilities, Medium, PacketMeta, RxToken, TxToken,
    },
    time::Instant,
};

use super::{
    counters::Counters,
    device::{Device, LONGEST_PACKET},
    packet::{IPV4_HEADER, IPV6_HEADER, Packet, pseudo_sum},
    segment::{ACK, PSH, SYN, Segment},
    vnet::{GSO_TCPV4, GSO_TCPV6, NEEDS_CSUM, VNET_LEN, VnetHeader},
};

/// Room for a message and for a packet behind it that may continue it.
pub(super) const SCRATCH: usize = VNET_LEN + 2 * LONGEST_PACKET;

/// The packets that one connection sends in one turn.
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
    /// The sequence numbers behind the last segment, and of the last acknowledgement.
    pub(super) last: Option<(u32, u32)>,
    /// Something had to stay, because the device has no room.
    pub(super) is_refused: bool,
}

impl<'a> Outgoing<'a> {
    /// The buffer has [`SCRATCH`] bytes.
    pub(super) fn new(device: &'a Device, counters: &'a Counters, buffer: &'a mut [u8]) -> Self {
        Self {
            device,
            counters,
            buffer,
            length: 0,
            segment: None,
            last: None,
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
        let message = &mut self.buffer[..VNET_LEN + length];
        let segment = self.segment.take();
        self.last = seal(message, segment).or(self.last);
        self.counters.count_sent(length, segment.is_some());
        self.device.send(message, self.counters);
    }
}

/// Writes the virtio header, the sum of the pseudo-header where the checksum is to be, and a window that does not
/// shrink; returns where the segment ends and what it acknowledges.
///
/// smoltcp rounds the window down to what its scale can express, so that the right edge moves back as segments arrive,
/// by less than one unit; then it cuts off what the other end has sent up to the former edge, which costs a timeout
/// of a second. One unit less is announced (RFC 7323, 2.4).
fn seal(message: &mut [u8], segment: Option<u16>) -> Option<(u32, u32)> {
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
        false => tcp.window.saturating_sub(1),
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
    Some((tcp.end(), tcp.acknowledged))
}

/// One turn of a connection.
#[derive(Debug)]
pub(super) struct Phy<'a, 'b> {
    pub(super) received: Option<&'a [u8]>,
    pub(super) out: &'a mut Outgoing<'b>,
    pub(super) mtu: usize,
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
