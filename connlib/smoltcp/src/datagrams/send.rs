//! Packets that carry datagrams.

use std::{
    io,
    net::{IpAddr, SocketAddr},
    ops::Range,
};

use nix::errno::Errno;

use crate::{link::Link, phy::SCRATCH, room::with_room};
use convoy_network::Train;
use convoy_packet::{
    counters::Dropped,
    datagram::UDP_HEADER,
    packet::{
        FRAGMENT, FRAGMENT_HEADER, IPV6_HEADER, LONGEST_PACKET, Packet, UDP, ip_header_len,
        pseudo_sum, seal_ipv4, set_class, transport_sum, write_ip_header,
    },
    vnet::{GSO_UDP_L4, NEEDS_CSUM, VNET_LEN, VnetHeader},
};

/// Where fragments are made, behind the longest message.
const FRAGMENTS_AT: usize = VNET_LEN + IPV6_HEADER + LONGEST_PACKET;
const _: () = assert!(FRAGMENTS_AT + VNET_LEN + LONGEST_PACKET <= SCRATCH);

/// Sends a datagram of a traffic class, in fragments if it is longer than the path's MTU.
pub(super) fn datagram(
    link: &Link,
    (from, to): (SocketAddr, SocketAddr),
    class: u8,
    datagram: &[u8],
) -> io::Result<()> {
    let (source, destination) = (from.ip(), to.ip());
    let header = ip_header_len(source);
    let length = UDP_HEADER + datagram.len();
    let is_too_long =
        length > LONGEST_PACKET || (from.is_ipv4() && header + length > LONGEST_PACKET);
    if is_too_long {
        return Err(Errno::EMSGSIZE.into());
    }
    with_room(|room| {
        let udp_at = VNET_LEN + header;
        room[udp_at + UDP_HEADER..udp_at + length].copy_from_slice(datagram);
        if header + length <= link.mtu_to(destination) {
            let message = &mut room[..udp_at + length];
            return send_packet(link, (from, to), class, message, None);
        }
        let udp = &mut room[udp_at..udp_at + length];
        write_udp_header(udp, from, to, 0);
        let sum = match !transport_sum(source, destination, UDP, udp) {
            // Zero would mean that there is none.
            0 => 0xffff,
            sum => sum,
        };
        udp[6..8].copy_from_slice(&sum.to_be_bytes());
        let datagram = udp_at..udp_at + length;
        let ends = (source, destination);
        send_fragments(link, ends, (UDP, class), room, datagram)
    })
}

/// Sends a packet without extension headers, in fragments if it is longer than the path's MTU.
pub(crate) fn packet(link: &Link, packet: &[u8], room: &mut [u8]) -> io::Result<()> {
    let message = &mut room[..VNET_LEN + packet.len()];
    message[..VNET_LEN].fill(0);
    message[VNET_LEN..].copy_from_slice(packet);
    if packet.len() <= link.mtu() && !link.path_mtus.has_any() {
        return send_message(link, message, false);
    }
    let parsed = Packet::parse(VnetHeader::default(), packet);
    let parsed = parsed.map_err(|_| io::ErrorKind::InvalidInput)?;
    if packet.len() <= link.mtu_to(parsed.destination) {
        return send_message(link, message, false);
    }
    let ends = (parsed.source, parsed.destination);
    let payload = VNET_LEN + parsed.payload_at..VNET_LEN + packet.len();
    let kind = (parsed.protocol, parsed.class());
    send_fragments(link, ends, kind, room, payload)
}

/// Sends datagrams as one super-packet, which is possible as long as each fits the MTU.
pub(super) fn train(
    link: &Link,
    (from, to): (SocketAddr, SocketAddr),
    train: &Train<'_>,
) -> io::Result<()> {
    let headers = ip_header_len(from.ip()) + UDP_HEADER;
    let mtu = link.mtu_to(to.ip());
    let fits = headers + train.segment_len() <= mtu && headers + train.bytes() <= LONGEST_PACKET;
    if !fits {
        return Err(Errno::EMSGSIZE.into());
    }
    with_room(|room| {
        let mut at = VNET_LEN + headers;
        for piece in train.pieces() {
            room[at..at + piece.len()].copy_from_slice(piece);
            at += piece.len();
        }
        let each = Some(train.segment_len());
        send_packet(link, (from, to), train.class(), &mut room[..at], each)
    })
}

/// Sends a message whose payload is in its place, with the length of its datagrams if they are several.
fn send_packet(
    link: &Link,
    (from, to): (SocketAddr, SocketAddr),
    class: u8,
    message: &mut [u8],
    segment_len: Option<usize>,
) -> io::Result<()> {
    let (source, destination) = (from.ip(), to.ip());
    let header = ip_header_len(source);
    let udp = &mut message[VNET_LEN + header..];
    let length = udp.len();
    write_udp_header(udp, from, to, pseudo_sum(source, destination, UDP, length));
    write_ip_header(&mut message[VNET_LEN..], source, destination, UDP, length);
    set_class(&mut message[VNET_LEN..], class);
    let mut vnet = VnetHeader {
        flags: NEEDS_CSUM,
        csum_start: header as u16,
        csum_offset: 6,
        ..VnetHeader::default()
    };
    if let Some(segment_len) = segment_len {
        vnet.gso_type = GSO_UDP_L4;
        vnet.hdr_len = (header + UDP_HEADER) as u16;
        vnet.gso_size = segment_len as u16;
    }
    message[..VNET_LEN].copy_from_slice(&vnet.to_bytes());
    send_message(link, message, segment_len.is_some())
}

pub(crate) fn write_udp_header(udp: &mut [u8], from: SocketAddr, to: SocketAddr, sum: u16) {
    let length = udp.len() as u16;
    udp[0..2].copy_from_slice(&from.port().to_be_bytes());
    udp[2..4].copy_from_slice(&to.port().to_be_bytes());
    udp[4..6].copy_from_slice(&length.to_be_bytes());
    udp[6..8].copy_from_slice(&sum.to_be_bytes());
}

/// Sends a payload of a protocol and traffic class, which lies at `payload` in `room`, as fragments.
fn send_fragments(
    link: &Link,
    (source, destination): (IpAddr, IpAddr),
    (protocol, class): (u8, u8),
    room: &mut [u8],
    payload: Range<usize>,
) -> io::Result<()> {
    let header = ip_header_len(source);
    let more = if source.is_ipv4() { 0 } else { FRAGMENT_HEADER };
    let each = (link.mtu_to(destination) - header - more) & !7;
    let ident: u32 = rand::random();
    let (room, message) = room.split_at_mut(FRAGMENTS_AT);
    for (index, part) in room[payload.clone()].chunks(each).enumerate() {
        let offset = index * each;
        let is_last = offset + part.len() == payload.len();
        message[..VNET_LEN].fill(0);
        let ip = &mut message[VNET_LEN..];
        let next = if source.is_ipv4() { protocol } else { FRAGMENT };
        write_ip_header(ip, source, destination, next, more + part.len());
        set_class(ip, class);
        if source.is_ipv4() {
            let flags = (offset / 8) as u16 | u16::from(!is_last) << 13;
            ip[4..6].copy_from_slice(&(ident as u16).to_be_bytes());
            ip[6..8].copy_from_slice(&flags.to_be_bytes());
            seal_ipv4(ip);
        } else {
            let fields = offset as u16 | u16::from(!is_last);
            ip[header..header + 2].copy_from_slice(&[protocol, 0]);
            ip[header + 2..header + 4].copy_from_slice(&fields.to_be_bytes());
            ip[header + 4..header + 8].copy_from_slice(&ident.to_be_bytes());
        }
        let at = header + more;
        ip[at..at + part.len()].copy_from_slice(part);
        send_message(link, &message[..VNET_LEN + at + part.len()], false)?;
    }
    Ok(())
}

fn send_message(link: &Link, message: &[u8], is_super: bool) -> io::Result<()> {
    link.device
        .try_send(message, &link.counters)
        .inspect_err(|_| {
            link.counters.drop(Dropped::DeviceFull);
        })?;
    link.counters.count_sent(message.len() - VNET_LEN, is_super);
    Ok(())
}
