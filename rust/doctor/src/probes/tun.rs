//! A TUN device with all its offload, and a super-packet of each kind.

use std::{net::Ipv4Addr, process};

use convoy_tun::{Device, OpenError, Switch};
use etherparse::PacketBuilder;
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use super::namespace::bring_up;

/// Addresses for documentation (RFC 5737), to which no route leads.
const SOURCE: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);
const DESTINATION: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 2);

/// Two segments, of which the last is so short that kernels with the bug of e269d79c7d35 refuse it.
const SEGMENT: u16 = 100;
const PAYLOAD: usize = 190;

/// Abilities of the device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Tun {
    /// Offload of TCP and of UDP.
    pub(crate) tcp: bool,
    pub(crate) udp: bool,
    /// Whether super-packets were written. They are not in the host's own namespace.
    pub(crate) is_tried: bool,
    /// The kernel's answer to the first that it refused.
    pub(crate) refusal: Option<i32>,
}

/// Why there is no device.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct TunFailure {
    /// The reason.
    pub(crate) reason: String,
    /// The fix, if it is known.
    pub(crate) fix: Option<String>,
    /// Whether only the right is missing.
    pub(crate) is_permission: bool,
}

/// Creates a device, which vanishes again at the end; writes to it if the namespace `is_own`.
pub(super) async fn probe(is_own: bool) -> Result<Tun, TunFailure> {
    let name = format!("probe{}", process::id());
    let device = Device::open(&name, Switch::Auto)?;
    let offload = device.offload();
    let mut tun = Tun {
        tcp: offload.tcp,
        udp: offload.udp,
        ..Tun::default()
    };
    if is_own && offload.tcp && bring_up(&name).await.is_ok() {
        tun.is_tried = true;
        let packets = [(true, Kind::Tcp), (offload.udp, Kind::Udp)];
        let packets = packets.iter().filter(|(has_offload, _)| *has_offload);
        let written = packets.map(|(_, kind)| rustix::io::write(&device, &super_packet(*kind)));
        let mut refused = written.filter_map(Result::err);
        tun.refusal = refused.next().map(Errno::raw_os_error);
    }
    Ok(tun)
}

impl From<OpenError> for TunFailure {
    fn from(error: OpenError) -> Self {
        let is_permission = matches!(error, OpenError::NotPermitted(_) | OpenError::NodeForbidden);
        Self {
            reason: error.reason(),
            fix: error.fix(),
            is_permission,
        }
    }
}

/// A transport protocol, as a super-packet names it.
#[derive(Clone, Copy)]
enum Kind {
    Tcp,
    Udp,
}

/// A virtio header, then a packet of zeros. The kernel, which is to complete the checksum, drops it before.
fn super_packet(kind: Kind) -> Vec<u8> {
    const NEEDS_CSUM: u8 = 1;
    const IP: u16 = 20;
    // Of `struct virtio_net_hdr`; then the transport header's length, and the offset of the checksum in it.
    let (gso_type, header, checksum) = match kind {
        Kind::Tcp => (1, 20, 16),
        Kind::Udp => (5, 8, 6),
    };
    let mut packet = vec![NEEDS_CSUM, gso_type];
    for field in [IP + header, SEGMENT, IP, checksum] {
        packet.extend(field.to_ne_bytes());
    }
    let ip = PacketBuilder::ipv4(SOURCE.octets(), DESTINATION.octets(), 64);
    let built = match kind {
        Kind::Tcp => ip
            .tcp(0, 0, 0, 0)
            .ack(0)
            .write_to_vec(&mut packet, &[0; PAYLOAD]),
        Kind::Udp => ip.udp(0, 0).write_to_vec(&mut packet, &[0; PAYLOAD]),
    };
    // INVARIANT: it is shorter than 64 KiB.
    built.expect("the length fits its field");
    packet
}

#[cfg(test)]
mod tests {
    use etherparse::{PacketHeaders, TransportHeader};

    use super::*;

    #[test]
    fn a_super_packet_is_well_formed() {
        for kind in [Kind::Tcp, Kind::Udp] {
            let packet = super_packet(kind);
            let headers = PacketHeaders::from_ip_slice(&packet[10..]).unwrap();
            let net = headers.net.unwrap();
            let (ip, _) = net.ipv4_ref().unwrap();
            assert_eq!(ip.header_checksum, ip.calc_header_checksum());
            assert_eq!(headers.payload.slice().len(), PAYLOAD);
            match headers.transport.unwrap() {
                TransportHeader::Tcp(tcp) => assert!(tcp.ack),
                TransportHeader::Udp(udp) => assert_eq!(usize::from(udp.length), 8 + PAYLOAD),
                other => panic!("{other:?}"),
            }
        }
    }

    #[test]
    fn only_a_missing_right_is_no_fault_of_the_host() {
        let failure = TunFailure::from(OpenError::NotPermitted("probe1".to_owned()));
        assert!(failure.is_permission);
        let failure = TunFailure::from(OpenError::Missing);
        assert!(!failure.is_permission && failure.fix.unwrap().contains("modprobe tun"));
    }
}
