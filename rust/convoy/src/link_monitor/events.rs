//! The kernel's notifications about links, in other network namespaces too, and about routes and
//! rules in this one.

use std::{
    io::{self, IoSliceMut},
    os::fd::{AsRawFd, RawFd},
};

use nix::{
    cmsg_space,
    errno::Errno,
    sys::socket::{ControlMessageOwned, MsgFlags, recvmsg},
};
use rtnetlink::{
    MulticastGroup,
    packet_core::{NetlinkMessage, NetlinkPayload},
    packet_route::{RouteNetlinkMessage, link::LinkMessage},
    sys::{Socket, SocketAddr, protocols::NETLINK_ROUTE},
};
use tokio::io::unix::AsyncFd;

use super::place::Place;

/// Longer than any notification.
const BUFFER_BYTES: usize = 32 * 1024;

const GROUPS: [MulticastGroup; 5] = [
    MulticastGroup::Link,
    MulticastGroup::Ipv4Route,
    MulticastGroup::Ipv6Route,
    MulticastGroup::Ipv4Rule,
    MulticastGroup::Ipv6Rule,
];

/// A socket that is notified of every change of a link, a route or a rule.
pub(super) struct Events {
    socket: AsyncFd<Socket>,
    hears_other_namespaces: bool,
    buffer: Vec<u8>,
}

/// A change of the interface or of the routes.
pub(super) enum Event {
    /// The interface changed; this is its new state.
    Changed(Box<LinkMessage>),
    /// The interface was deleted, or moved to another network namespace.
    Gone,
    /// A route or a rule changed in this network namespace.
    Routes,
    /// Notifications were lost: the socket overflowed, or one could not be parsed.
    Lost,
}

impl Events {
    pub(super) fn listen() -> io::Result<Self> {
        let mut socket = Socket::new(NETLINK_ROUTE)?;
        let groups = GROUPS.map(|group| 1 << (group as u32 - 1));
        socket.bind(&SocketAddr::new(0, groups.into_iter().sum()))?;
        socket.set_non_blocking(true)?;
        Ok(Self {
            // SAFETY: the socket owns its descriptor, and nothing else closes it.
            socket: unsafe { AsyncFd::register(socket) }?,
            hears_other_namespaces: false,
            buffer: vec![0; BUFFER_BYTES],
        })
    }

    /// Makes `next` report what happens at `place`. Returns whether it did not before, so that
    /// earlier events there were missed.
    ///
    /// # Errors
    /// `EPERM` without `CAP_NET_BROADCAST`, which is needed only for another network namespace.
    pub(super) fn follow(&mut self, place: Place) -> io::Result<bool> {
        let is_elsewhere = place.namespace.is_some();
        if is_elsewhere == self.hears_other_namespaces {
            return Ok(false);
        }
        self.socket
            .get_ref()
            .set_listen_all_namespaces(is_elsewhere)?;
        self.hears_other_namespaces = is_elsewhere;
        Ok(true)
    }

    /// Waits for the next event of the interface at `place`, or of the routes here.
    pub(super) async fn next(&mut self, place: Place) -> io::Result<Event> {
        loop {
            let event = match self.next_of_any().await? {
                (event @ (Event::Routes | Event::Lost), None, None) => event,
                (event, namespace, Some(index)) if is(place, namespace, index) => event,
                _ => continue,
            };
            return Ok(event);
        }
    }

    /// Waits until an interface here is new or has changed, or routes here have.
    pub(super) async fn next_here(&mut self) -> io::Result<Event> {
        loop {
            let (event, namespace, _) = self.next_of_any().await?;
            if namespace.is_none() && !matches!(event, Event::Gone) {
                return Ok(event);
            }
        }
    }

    /// The next event of any interface, with its network namespace unless that is ours, and its index.
    async fn next_of_any(&mut self) -> io::Result<(Event, Option<i32>, Option<u32>)> {
        let Self { socket, buffer, .. } = self;
        loop {
            let mut ready = socket.readable().await?;
            let received = ready.try_io(|socket| receive(socket.as_raw_fd(), buffer));
            let (len, namespace) = match received {
                Ok(Ok(received)) => received,
                Ok(Err(error)) if error.raw_os_error() == Some(libc::ENOBUFS) => {
                    return Ok((Event::Lost, None, None));
                }
                Ok(Err(error)) => return Err(error),
                Err(_would_block) => continue,
            };
            if let Some((event, index)) = event_of(&buffer[..len]) {
                return Ok((event, namespace, index));
            }
        }
    }
}

/// Returns a notification's length, and its network namespace if that is not our own.
fn receive(socket: RawFd, buffer: &mut [u8]) -> io::Result<(usize, Option<i32>)> {
    let mut slices = [IoSliceMut::new(buffer)];
    let mut control = cmsg_space!(libc::c_int);
    let message = recvmsg::<()>(
        socket,
        &mut slices,
        Some(&mut control),
        MsgFlags::MSG_DONTWAIT,
    )?;
    let namespace = message.cmsgs()?.find_map(|control| match control {
        ControlMessageOwned::Unknown(control)
            if control.cmsg_header.cmsg_level == libc::SOL_NETLINK
                && control.cmsg_header.cmsg_type == libc::NETLINK_LISTEN_ALL_NSID =>
        {
            let bytes = control.data_bytes.first_chunk()?;
            Some(i32::from_ne_bytes(*bytes))
        }
        _ => None,
    });
    if message.bytes == 0 {
        return Err(Errno::ENOBUFS.into());
    }
    Ok((message.bytes, namespace))
}

fn is(place: Place, namespace: Option<i32>, index: u32) -> bool {
    place == Place { namespace, index }
}

/// Parses a notification, which is a single message, into an event and the interface it concerns.
fn event_of(notification: &[u8]) -> Option<(Event, Option<u32>)> {
    let Ok(message) = NetlinkMessage::<RouteNetlinkMessage>::deserialize(notification) else {
        return Some((Event::Lost, None));
    };
    let NetlinkPayload::InnerMessage(message) = message.payload else {
        return None;
    };
    match message {
        RouteNetlinkMessage::NewLink(link) => {
            let index = link.header.index;
            Some((Event::Changed(Box::new(link)), Some(index)))
        }
        RouteNetlinkMessage::DelLink(link) => Some((Event::Gone, Some(link.header.index))),
        RouteNetlinkMessage::NewRoute(_)
        | RouteNetlinkMessage::DelRoute(_)
        | RouteNetlinkMessage::NewRule(_)
        | RouteNetlinkMessage::DelRule(_) => Some((Event::Routes, None)),
        _ => None,
    }
}
