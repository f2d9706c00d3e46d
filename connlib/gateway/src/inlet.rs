//! The way from an engine into a gateway.

mod inside;
mod namespace;
mod stack;

use std::{io, sync::Arc};

use convoy_network::{Listener, OpenSockets, set_options};
use convoy_smoltcp::Stack;
pub(super) use inside::Inside;
use namespace::Tun;

/// Beginnings of peers' flows to addresses outside, and the way back.
#[derive(Debug)]
pub struct Inlet {
    pub(super) inside: Box<dyn Inside>,
    /// They accept the connections that were admitted, each at its target's address.
    pub(super) listeners: Vec<Listener>,
}

impl Inlet {
    /// Takes that of a namespace, in which `sockets` are opened; packets in the tunnel have `mtu` bytes at most.
    ///
    /// # Errors
    /// If this process cannot wait for the device or the listeners.
    pub fn of_namespace(
        inlet: convoy_namespace::Inlet,
        sockets: Arc<dyn OpenSockets>,
        mtu: u16,
    ) -> io::Result<Self> {
        let listeners = inlet.listeners.into_iter().map(|given| {
            set_options(&given)?;
            let listener = tokio::net::TcpListener::from_std(given.into())?;
            Ok(Listener::Kernel(listener))
        });
        Ok(Self {
            inside: Box::new(Tun::new(inlet.device, sockets, mtu)?),
            listeners: listeners.collect::<io::Result<_>>()?,
        })
    }

    /// Takes that of a stack, which has one; `None` if it was taken.
    #[must_use]
    pub fn of_stack(stack: &Stack) -> Option<Self> {
        let inlet = stack.inlet()?;
        Some(Self {
            listeners: vec![inlet.listener()],
            inside: Box::new(inlet),
        })
    }
}
