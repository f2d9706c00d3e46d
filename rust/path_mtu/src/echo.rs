//! Echo requests through one interface, and their answers (RFC 792, RFC 4443 §4).

use std::{
    future::pending,
    io,
    net::{IpAddr, Ipv6Addr, SocketAddr},
};

use convoy_gso::udp::Family;
use rand::{TryRng, rngs::SysRng};
use rustix::net::{
    AddressFamily, SendFlags, SocketFlags, SocketType, ipproto, sendto, socket_with,
    sockopt::{
        Ipv4PathMtuDiscovery, Ipv6PathMtuDiscovery, set_ip_mtu_discover, set_ipv6_mtu_discover,
    },
};
use tokio::net::UdpSocket;
use tracing::debug;

use super::probe::Transmit;

const IPV4_HEADER: usize = 20;
const IPV6_HEADER: usize = 40;
/// Length of the header of an echo message, and of an ICMPv6 error before the packet that caused it.
const ICMP_HEADER: usize = 8;

/// How many bytes of a message to read: enough for an error that quotes the start of a request.
const MAX_READ: usize = 128;

/// Echo requests through an interface, and their answers. The sockets are open from the first request on.
#[derive(Debug)]
pub(super) struct Echoes {
    interface: String,
    token: Token,
    /// Socket of the family of the last request.
    socket: Option<(Family, UdpSocket)>,
}

/// Content of our echo messages besides type, code, checksum and sequence number. Only hosts on the path can
/// know it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Token {
    identifier: [u8; 2],
    secret: [u8; 16],
}

/// Evidence that an echo request has arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Answer {
    /// To whom it was sent.
    pub(super) from: IpAddr,
    pub(super) sequence: u16,
}

impl Echoes {
    /// # Errors
    /// If the system has no random bytes.
    pub(super) fn new(interface: &str) -> io::Result<Self> {
        let token = Token {
            identifier: random()?,
            secret: random()?,
        };
        Ok(Self {
            interface: interface.to_owned(),
            token,
            socket: None,
        })
    }

    /// Sends an echo request at once, or not at all.
    pub(super) fn send(&mut self, transmit: &Transmit) -> io::Result<()> {
        let family = Family::of(transmit.to);
        let socket = match self.socket.take().filter(|(it, _)| *it == family) {
            Some((_, socket)) => socket,
            None => open(family, &self.interface)?,
        };
        let (_, socket) = self.socket.insert((family, socket));
        let message = self.token.request(family, transmit);
        let to = SocketAddr::new(transmit.to, 0);
        sendto(socket, &message, SendFlags::DONTWAIT, &to)?;
        Ok(())
    }

    /// Waits for the next answer. Cancel-safe.
    pub(super) async fn next(&mut self) -> Answer {
        let mut bytes = [0; MAX_READ];
        while let Some((family, socket)) = &self.socket {
            match socket.recv_from(&mut bytes).await {
                Ok((length, from)) => {
                    let answer = self.token.find(*family, &bytes[..length], from.ip());
                    if let Some(answer) = answer {
                        return answer;
                    }
                }
                Err(error) => {
                    debug!("cannot receive echoes: {error}");
                    self.socket = None;
                }
            }
        }
        pending().await
    }
}

/// A socket for ICMP that sees only this interface, and whose packets are not fragmented on this host.
fn open(family: Family, interface: &str) -> io::Result<UdpSocket> {
    let (domain, protocol) = match family {
        Family::V4 => (AddressFamily::INET, ipproto::ICMP),
        Family::V6 => (AddressFamily::INET6, ipproto::ICMPV6),
    };
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(domain, SocketType::RAW, flags, Some(protocol))?;
    match family {
        // Routers beyond the tunnel may fragment: only the tunnel itself is of interest.
        Family::V4 => set_ip_mtu_discover(&socket, Ipv4PathMtuDiscovery::INTERFACE)?,
        Family::V6 => set_ipv6_mtu_discover(&socket, Ipv6PathMtuDiscovery::PROBE)?,
    }
    // tokio's type serves any socket that sends and receives whole messages.
    let socket = UdpSocket::from_std(socket.into())?;
    socket.bind_device(Some(interface.as_bytes()))?;
    Ok(socket)
}

impl Token {
    /// An echo request, without its IP header.
    fn request(&self, family: Family, transmit: &Transmit) -> Vec<u8> {
        let length = transmit.size as usize - header_len(family);
        let mut message = vec![0; length];
        message[0] = request_type(family);
        message[4..6].copy_from_slice(&self.identifier);
        message[6..8].copy_from_slice(&transmit.sequence.to_be_bytes());
        message[ICMP_HEADER..][..self.secret.len()].copy_from_slice(&self.secret);
        if family == Family::V4 {
            // The kernel adds that of ICMPv6.
            let checksum = checksum(&message);
            message[2..4].copy_from_slice(&checksum.to_be_bytes());
        }
        message
    }

    /// The answer in a received message: an echo reply, even a shortened one, or the error of a router beyond the
    /// tunnel for whose next link the request is too big.
    fn find(&self, family: Family, message: &[u8], from: IpAddr) -> Option<Answer> {
        let (kind, message, from) = match family {
            Family::V4 => {
                // Its IP header is still there.
                let words = message.first()? & 0x0f;
                (0, message.get(4 * usize::from(words)..)?, from)
            }
            Family::V6 if *message.first()? == 2 => {
                let packet = message.get(ICMP_HEADER..)?;
                let to: [u8; 16] = packet.get(24..IPV6_HEADER)?.try_into().ok()?;
                let to = Ipv6Addr::from(to).into();
                (request_type(family), packet.get(IPV6_HEADER..)?, to)
            }
            Family::V6 => (129, message, from),
        };
        let is_ours = *message.first()? == kind
            && message.get(4..6)? == self.identifier
            && message.get(ICMP_HEADER..)?.starts_with(&self.secret);
        let sequence = u16::from_be_bytes(message.get(6..8)?.try_into().ok()?);
        is_ours.then_some(Answer { from, sequence })
    }
}

/// Returns the length of an IP header without options in bytes.
fn header_len(family: Family) -> usize {
    match family {
        Family::V4 => IPV4_HEADER,
        Family::V6 => IPV6_HEADER,
    }
}

/// Returns the type of an echo request.
fn request_type(family: Family) -> u8 {
    match family {
        Family::V4 => 8,
        Family::V6 => 128,
    }
}

fn random<const N: usize>() -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    let filled = SysRng.try_fill_bytes(&mut bytes);
    filled.map_err(io::Error::other).map(|()| bytes)
}

/// The internet checksum (RFC 1071).
fn checksum(message: &[u8]) -> u16 {
    let words = message.chunks(2).map(|pair| match *pair {
        [high, low] => u32::from(u16::from_be_bytes([high, low])),
        [high] => u32::from(high) << 8,
        _ => 0,
    });
    let mut sum: u32 = words.sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}

#[cfg(test)]
mod tests;
