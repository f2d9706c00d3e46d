use std::{
    fmt,
    future::poll_fn,
    io,
    net::{IpAddr, SocketAddr},
    os::fd::AsFd as _,
    task::{Context, Poll},
};

use nix::sys::socket::{setsockopt, sockopt::ReusePort};
use tokio::{io::Interest, net::UdpSocket};

use super::{
    batch::Batch,
    errors::{self, Report},
    hops,
    kernel::messages,
    train::{Received, Train},
};

/// Sends and receives datagrams.
#[derive(Debug)]
pub enum Datagrams {
    /// A UDP socket of the kernel.
    Kernel(UdpSocket),
    /// Datagrams that no socket carries.
    Other(Box<dyn Packets>),
}

/// Sends datagrams, and receives them for one task. Nothing here waits except [`Packets::poll_readable`].
pub trait Packets: fmt::Debug + Send + Sync {
    /// The address that it is bound to.
    ///
    /// # Errors
    /// The errors of getsockname(2).
    fn local_addr(&self) -> io::Result<SocketAddr>;

    /// From now on, hears this address only, and sends to it what is sent without an address.
    ///
    /// # Errors
    /// The errors of connect(2).
    fn connect(&self, to: SocketAddr) -> io::Result<()>;

    /// Sends a datagram of a traffic class to an address, or to the one that it is connected to.
    ///
    /// # Errors
    /// `WouldBlock` if it was discarded because too much waits already; those of send(2).
    fn try_send(&self, datagram: &[u8], to: Option<SocketAddr>, class: u8) -> io::Result<usize>;

    /// Sends a train, all of it or nothing, to an address or to the one that it is connected to. After an error other
    /// than `WouldBlock`, its datagrams are sent one by one.
    ///
    /// # Errors
    /// `Unsupported` unless there is a faster way than that; those of [`Self::try_send`].
    fn try_send_train(&self, train: &Train<'_>, to: Option<SocketAddr>) -> io::Result<usize> {
        let _ = (train, to);
        Err(io::ErrorKind::Unsupported.into())
    }

    /// Receives the next datagram, as much of it as fits.
    ///
    /// # Errors
    /// `WouldBlock` if there is none.
    fn try_receive(&self, buffer: &mut [u8]) -> io::Result<Received>;

    /// Waits until there is a datagram. Wakes the task that has called it last.
    fn poll_readable(&self, context: &mut Context<'_>) -> Poll<()>;
}

/// Outcome of datagrams that were to be sent.
#[derive(Debug, Default)]
pub struct Sent {
    /// Bytes that were sent.
    pub bytes: usize,
    /// Number of discarded datagrams.
    pub lost: usize,
    /// Error of the network about this datagram or an earlier one.
    pub error: Option<io::Error>,
}

impl Sent {
    /// Records the outcome of one datagram.
    pub fn note(&mut self, outcome: io::Result<usize>) {
        match outcome {
            Ok(bytes) => self.bytes += bytes,
            Err(error) => {
                self.lost += 1;
                if error.kind() != io::ErrorKind::WouldBlock {
                    self.error = Some(error);
                }
            }
        }
    }
}

impl Datagrams {
    /// The address that it is bound to.
    ///
    /// # Errors
    /// The errors of getsockname(2).
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        match self {
            Self::Kernel(socket) => socket.local_addr(),
            Self::Other(packets) => packets.local_addr(),
        }
    }

    /// Connects to an address; then nothing that can be sent has to wait.
    pub async fn connect(&self, to: SocketAddr) -> io::Result<()> {
        match self {
            Self::Kernel(socket) => {
                socket.connect(to).await?;
                self.writable().await
            }
            Self::Other(packets) => packets.connect(to),
        }
    }

    /// Waits until the runtime knows that there is room, without which nothing could be sent without waiting.
    pub async fn writable(&self) -> io::Result<()> {
        match self {
            Self::Kernel(socket) => socket.writable().await,
            Self::Other(_) => Ok(()),
        }
    }

    /// Waits until there may be a datagram, or an error of the socket.
    pub async fn readable(&self) -> io::Result<()> {
        match self {
            Self::Kernel(socket) => socket.readable().await,
            Self::Other(packets) => {
                poll_fn(|context| packets.poll_readable(context)).await;
                Ok(())
            }
        }
    }

    /// Waits until there is a datagram or an error of the socket; returns the latter. May be cancelled.
    pub async fn ready(&self) -> Vec<Report> {
        match self {
            Self::Kernel(socket) => errors::ready(socket).await,
            Self::Other(packets) => {
                poll_fn(|context| packets.poll_readable(context)).await;
                Vec::new()
            }
        }
    }

    /// Lets more datagrams wait, and lets the kernel join some. From now on, only [`Self::try_receive`] receives them.
    pub fn prepare_for_batches(&self) {
        if let Self::Kernel(socket) = self {
            messages::prepare(socket);
        }
    }

    /// Makes [`Self::try_receive`] tell the traffic class of datagrams, as [`Self::prepare_for_batches`] also does.
    pub fn ask_for_classes(&self) {
        if let Self::Kernel(socket) = self {
            messages::ask_for_classes(socket);
        }
    }

    /// Lets sockets of the same user have the same port ([`Network::datagrams_beside`](super::Network)).
    pub fn share_port(&self) {
        if let Self::Kernel(socket) = self {
            // Without it, they get another one.
            let _ = setsockopt(socket, ReusePort, &true);
        }
    }

    /// Makes the kernel report transient errors, too.
    pub fn ask_for_errors(&self) {
        if let Self::Kernel(socket) = self {
            errors::ask_for(socket);
        }
    }

    /// Returns the kernel's reports about an error of a call, or else the error itself.
    pub fn reports(&self, error: io::Error) -> Vec<Report> {
        let mut reports = match self {
            Self::Kernel(socket) => errors::take(socket),
            Self::Other(_) => Vec::new(),
        };
        if reports.is_empty() {
            reports.push(error.into());
        }
        reports
    }

    /// Sets the hop limit of datagrams from now on; `None` restores the usual one.
    pub fn set_hops(&self, hops: Option<u8>) {
        if let Self::Kernel(socket) = self {
            hops::set(socket, hops);
        }
    }

    /// Receives the next datagram and its sender; fails if there is none.
    pub fn try_recv_from(&self, buffer: &mut [u8]) -> io::Result<(usize, SocketAddr)> {
        match self {
            Self::Kernel(socket) => socket.try_recv_from(buffer),
            Self::Other(packets) => packets.try_receive(buffer).map(of_sender),
        }
    }

    /// Refills the batch with the waiting datagrams, as far as they fit; fails if there are none.
    pub fn try_receive(&self, batch: &mut Batch) -> io::Result<()> {
        batch.clear();
        match self {
            Self::Kernel(socket) => receive(socket, batch),
            Self::Other(packets) => batch
                .fill_one_by_one(|room| packets.try_receive(room))
                .map(drop),
        }
    }

    /// Receives the next datagram, as much of it as fits, and its sender.
    ///
    /// # Errors
    /// The errors of recv(2).
    pub async fn recv_from(&self, buffer: &mut [u8]) -> io::Result<(usize, SocketAddr)> {
        let packets = match self {
            Self::Kernel(socket) => return socket.recv_from(buffer).await,
            Self::Other(packets) => packets,
        };
        loop {
            self.readable().await?;
            match packets.try_receive(buffer) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                received => return received.map(of_sender),
            }
        }
    }

    /// Sends a datagram to the address that it is connected to.
    ///
    /// # Errors
    /// The errors of send(2), and `WouldBlock` if it was discarded.
    pub fn try_send(&self, datagram: &[u8]) -> io::Result<usize> {
        match self {
            Self::Kernel(socket) => socket.try_send(datagram),
            Self::Other(packets) => packets.try_send(datagram, None, 0),
        }
    }

    /// Sends a datagram of a traffic class to the address that it is connected to.
    ///
    /// # Errors
    /// As [`Self::try_send`].
    pub fn try_send_of_class(&self, datagram: &[u8], class: u8) -> io::Result<usize> {
        self.try_send_one(datagram, None, None, class)
    }

    /// Sends a train to an address, or to the one that it is connected to: in one call, or else one by one.
    pub fn try_send_train(&self, train: &Train<'_>, to: Option<SocketAddr>) -> Sent {
        self.try_send_train_from(train, to, None)
    }

    /// Does the same from an address of this host, or from the one that the kernel chooses.
    pub fn try_send_train_from(
        &self,
        train: &Train<'_>,
        to: Option<SocketAddr>,
        from: Option<IpAddr>,
    ) -> Sent {
        let mut sent = Sent::default();
        if train.segments() > 1 {
            match self.try_send_whole(train, to, from) {
                Ok(bytes) => {
                    sent.bytes = bytes;
                    return sent;
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    sent.lost = train.segments();
                    return sent;
                }
                // Datagrams that are refused together, for example because they exceed the MTU, may be sent one by one.
                Err(error) => sent.error = Some(error).filter(|it| !is_about_trains(it)),
            }
        }
        for datagram in train.datagrams() {
            sent.note(self.try_send_one(datagram, to, from, train.class()));
        }
        sent
    }

    fn try_send_whole(
        &self,
        train: &Train<'_>,
        to: Option<SocketAddr>,
        from: Option<IpAddr>,
    ) -> io::Result<usize> {
        match self {
            Self::Kernel(socket) => socket.try_io(Interest::WRITABLE, || {
                messages::send(socket.as_fd(), train, to, from)
            }),
            Self::Other(packets) => packets.try_send_train(train, to),
        }
    }

    fn try_send_one(
        &self,
        datagram: &[u8],
        to: Option<SocketAddr>,
        from: Option<IpAddr>,
        class: u8,
    ) -> io::Result<usize> {
        let socket = match self {
            Self::Kernel(socket) => socket,
            Self::Other(packets) => return packets.try_send(datagram, to, class),
        };
        match to {
            None if class == 0 => socket.try_send(datagram),
            Some(to) if class == 0 && from.is_none() => socket.try_send_to(datagram, to),
            _ => socket.try_io(Interest::WRITABLE, || {
                messages::send_one(socket.as_fd(), datagram, (to, from), class)
            }),
        }
    }

    /// Sends a datagram to an address, if there is room.
    ///
    /// # Errors
    /// The errors of send(2), and `WouldBlock` if it was discarded.
    pub fn try_send_to(&self, datagram: &[u8], to: SocketAddr) -> io::Result<usize> {
        match self {
            Self::Kernel(socket) => socket.try_send_to(datagram, to),
            Self::Other(packets) => packets.try_send(datagram, Some(to), 0),
        }
    }

    /// Sends a datagram of a traffic class to an address, if there is room.
    ///
    /// # Errors
    /// As [`Self::try_send_to`].
    pub fn try_send_to_of_class(
        &self,
        datagram: &[u8],
        to: SocketAddr,
        class: u8,
    ) -> io::Result<usize> {
        self.try_send_one(datagram, Some(to), None, class)
    }

    /// Sends a datagram to an address. Only the kernel's sockets wait for room.
    ///
    /// # Errors
    /// The errors of send(2), and `WouldBlock` if it was discarded.
    pub async fn send_to(&self, datagram: &[u8], to: SocketAddr) -> io::Result<usize> {
        match self {
            Self::Kernel(socket) => socket.send_to(datagram, to).await,
            Self::Other(packets) => packets.try_send(datagram, Some(to), 0),
        }
    }
}

fn of_sender(received: Received) -> (usize, SocketAddr) {
    (received.length, received.from)
}

/// Returns whether sending several datagrams together is all that an error is about.
fn is_about_trains(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::Unsupported
        || [libc::EINVAL, libc::EIO, libc::EMSGSIZE]
            .map(Some)
            .contains(&error.raw_os_error())
}

fn receive(socket: &UdpSocket, batch: &mut Batch) -> io::Result<()> {
    let received = socket.try_io(Interest::READABLE, || {
        let may_be_more =
            batch.fill(|headers, room, messages| headers.receive(socket.as_fd(), room, messages));
        match may_be_more? {
            true => Ok(()),
            // The runtime waits for more only after this, which saves the call that would find nothing.
            false => Err(io::ErrorKind::WouldBlock.into()),
        }
    });
    match batch.is_empty() {
        true => received,
        false => Ok(()),
    }
}

#[cfg(test)]
mod tests;
