//! The kernel's notifications about links, those of other network namespaces included.

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

/// Longer than any notification about one link.
const BUFFER_BYTES: usize = 32 * 1024;

/// A socket that hears of every change of a link.
pub(super) struct Events(AsyncFd<Socket>);

/// What happened to the interface.
pub(super) enum Event {
    /// It is now so.
    Changed(Box<LinkMessage>),
    /// It was deleted, or moved to another network namespace.
    Gone,
    /// More happened than the socket could hold.
    Lost,
}

impl Events {
    pub(super) fn listen() -> io::Result<Self> {
        let mut socket = Socket::new(NETLINK_ROUTE)?;
        socket.bind(&SocketAddr::new(0, 1 << (MulticastGroup::Link as u32 - 1)))?;
        socket.set_non_blocking(true)?;
        // SAFETY: the socket owns its descriptor, and nothing else closes it.
        Ok(Self(unsafe { AsyncFd::register(socket) }?))
    }

    /// From now on `next` is to hear of `place`.
    pub(super) fn follow(&self, place: Place) -> io::Result<()> {
        let is_elsewhere = place.namespace.is_some();
        self.0.get_ref().set_listen_all_namespaces(is_elsewhere)
    }

    /// The next thing that happens to the interface at `place`.
    pub(super) async fn next(&self, place: Place) -> io::Result<Event> {
        let mut buffer = vec![0; BUFFER_BYTES];
        loop {
            let mut ready = self.0.readable().await?;
            let received = ready.try_io(|socket| receive(socket.as_raw_fd(), &mut buffer));
            let (len, namespace) = match received {
                Ok(Ok(received)) => received,
                Ok(Err(error)) if error.raw_os_error() == Some(libc::ENOBUFS) => {
                    return Ok(Event::Lost);
                }
                Ok(Err(error)) => return Err(error),
                Err(_would_block) => continue,
            };
            if namespace != place.namespace {
                continue;
            }
            if let Some(event) = event_of(&buffer[..len], place.index) {
                return Ok(event);
            }
        }
    }
}

/// A notification's length, and the network namespace that it is from if that is another one.
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

/// What a notification says of the interface `index`; each is a message of its own.
fn event_of(notification: &[u8], index: u32) -> Option<Event> {
    let message = NetlinkMessage::<RouteNetlinkMessage>::deserialize(notification).ok()?;
    match message.payload {
        NetlinkPayload::InnerMessage(RouteNetlinkMessage::NewLink(link)) => {
            (link.header.index == index).then(|| Event::Changed(Box::new(link)))
        }
        NetlinkPayload::InnerMessage(RouteNetlinkMessage::DelLink(link)) => {
            (link.header.index == index).then_some(Event::Gone)
        }
        _ => None,
    }
}
