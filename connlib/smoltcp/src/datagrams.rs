//! Datagrams of a stack, without a socket of smoltcp: they have no state.

pub(super) mod send;

use std::{
    io::{self, ErrorKind},
    net::SocketAddr,
    sync::Arc,
    task::{Context, Poll},
};

use nix::errno::Errno;

use super::{bound::Bound, shared::Shared};
use convoy_network::{Packets, Received, Train};

/// The socket that a user holds.
#[derive(Debug)]
pub(super) struct StackDatagrams {
    pub(super) shared: Arc<Shared>,
    pub(super) bound: Arc<Bound>,
}

impl StackDatagrams {
    /// Returns where a datagram comes from, and where it goes to.
    fn ends(&self, to: Option<SocketAddr>) -> io::Result<(SocketAddr, SocketAddr)> {
        if self.shared.is_over() {
            return Err(ErrorKind::NetworkDown.into());
        }
        let to = to
            .or_else(|| self.bound.peer())
            .ok_or(ErrorKind::NotConnected)?;
        let at = self.bound.at;
        if to.is_ipv4() != at.is_ipv4() {
            return Err(Errno::EAFNOSUPPORT.into());
        }
        let source = match at.ip().is_unspecified() {
            true => self.shared.source_for(to.ip())?,
            false => at.ip(),
        };
        Ok(((source, at.port()).into(), to))
    }
}

impl Packets for StackDatagrams {
    fn local_addr(&self) -> io::Result<SocketAddr> {
        Ok(self.bound.at)
    }

    fn connect(&self, to: SocketAddr) -> io::Result<()> {
        self.shared.source_for(to.ip())?;
        self.bound.connect(to);
        Ok(())
    }

    fn try_send(&self, datagram: &[u8], to: Option<SocketAddr>, class: u8) -> io::Result<usize> {
        let ends = self.ends(to)?;
        send::datagram(&self.shared, ends, class, datagram)?;
        self.shared.counters.datagrams_out.add(1);
        Ok(datagram.len())
    }

    fn try_send_train(&self, train: &Train<'_>, to: Option<SocketAddr>) -> io::Result<usize> {
        let ends = self.ends(to)?;
        send::train(&self.shared, ends, train)?;
        let sent = train.segments() as u64;
        self.shared.counters.datagrams_out.add(sent);
        Ok(train.bytes())
    }

    fn try_receive(&self, buffer: &mut [u8]) -> io::Result<Received> {
        self.bound.pop(buffer)
    }

    fn poll_readable(&self, context: &mut Context<'_>) -> Poll<()> {
        self.bound.poll_ready(context)
    }
}

impl Drop for StackDatagrams {
    fn drop(&mut self) {
        self.shared.table().unbind(&self.bound);
    }
}
