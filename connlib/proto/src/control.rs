//! Control datagrams: handshake messages, cookie replies and keepalives, which are sent ahead of bulk data.

use std::{
    collections::VecDeque,
    net::{IpAddr, SocketAddr},
};

use bytes::Bytes;
use convoy_types::Destination;

use crate::messages::LONGEST_TO_HUB;

/// Most control datagrams per address family that wait for [`crate::Node::poll_control`].
const CONTROL_DATAGRAMS: usize = 2048;
/// With this many waiting, cookie replies are dropped: the rest of the queue is for handshakes.
const COOKIE_REPLIES: usize = CONTROL_DATAGRAMS / 4;
/// Bound of the memory of waiting control datagrams, in bytes, for both address families together.
pub const CONTROL_QUEUE_BYTES: usize =
    2 * CONTROL_DATAGRAMS * (size_of::<ControlDatagram>() + LONGEST_TO_HUB.next_power_of_two());

/// A datagram to be sent ahead of bulk data.
#[derive(Clone, Debug)]
pub struct ControlDatagram {
    /// Where to send it.
    pub destination: Destination,
    /// The UDP payload.
    pub datagram: Bytes,
    /// Whether it is a cookie reply. Its receiver has not proved its address: attempt to send it only once.
    pub is_cookie: bool,
}

#[derive(Debug, Default)]
pub(crate) struct ControlQueue {
    ipv4: VecDeque<ControlDatagram>,
    ipv6: VecDeque<ControlDatagram>,
}

impl ControlQueue {
    /// Queues a handshake message or a keepalive; returns whether there was room.
    pub(crate) fn push(&mut self, destination: Destination, datagram: &[u8]) -> bool {
        self.push_below(CONTROL_DATAGRAMS, destination, datagram, false)
    }

    /// Queues a cookie reply; returns whether there was room.
    pub(crate) fn push_cookie(&mut self, destination: Destination, reply: &[u8]) -> bool {
        self.push_below(COOKIE_REPLIES, destination, reply, true)
    }

    pub(crate) fn pop(&mut self, is_ipv4: bool) -> Option<ControlDatagram> {
        self.of(is_ipv4).pop_front()
    }

    /// Drops everything; returns the number of datagrams dropped.
    pub(crate) fn clear(&mut self) -> usize {
        let Self { ipv4, ipv6 } = std::mem::take(self);
        ipv4.len() + ipv6.len()
    }

    /// Unpins the source address of waiting datagrams from `source` to `to`: the kernel then chooses.
    pub(crate) fn forget_source(&mut self, to: SocketAddr, source: IpAddr) {
        for ControlDatagram { destination, .. } in self.of(to.is_ipv4()) {
            if destination.to == to && destination.source == Some(source) {
                destination.source = None;
            }
        }
    }

    fn push_below(
        &mut self,
        bound: usize,
        destination: Destination,
        datagram: &[u8],
        is_cookie: bool,
    ) -> bool {
        let waiting = self.of(destination.to.is_ipv4());
        let has_room = waiting.len() < bound;
        if has_room {
            waiting.push_back(ControlDatagram {
                destination,
                datagram: Bytes::copy_from_slice(datagram),
                is_cookie,
            });
        }
        has_room
    }

    fn of(&mut self, is_ipv4: bool) -> &mut VecDeque<ControlDatagram> {
        match is_ipv4 {
            true => &mut self.ipv4,
            false => &mut self.ipv6,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_queue_is_bounded_and_cookies_leave_room_for_handshakes() {
        let destination = Destination {
            to: ([192, 0, 2, 1], 51820).into(),
            source: None,
            ecn: 0,
        };
        let mut queue = ControlQueue::default();
        let cookies = (0..5000).filter(|_| queue.push_cookie(destination, &[3; 64]));
        assert_eq!(cookies.count(), COOKIE_REPLIES);
        let handshakes = (0..5000).filter(|_| queue.push(destination, &[1; 148]));
        assert_eq!(handshakes.count(), CONTROL_DATAGRAMS - COOKIE_REPLIES);
        assert!(!queue.push_cookie(destination, &[3; 64]));
    }
}
