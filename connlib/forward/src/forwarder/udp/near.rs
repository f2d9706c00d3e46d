//! The clients' side of a rule.

use std::{
    io,
    net::{IpAddr, SocketAddr},
    sync::Arc,
};

use convoy_network::{Datagrams, Sent, dial::Target, with_batch};

use crate::forwarder::context::Context;

/// The clients' side of a rule.
pub(super) struct Near {
    pub(super) context: Arc<Context>,
    pub(super) socket: Datagrams,
    pub(super) target: Target,
}

/// The ends of a flow on the clients' side. An answer from another address than was asked would be none.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Client {
    pub(super) address: SocketAddr,
    /// The address of this host that it sends to, if there are several.
    pub(super) asked: Option<IpAddr>,
}

impl Near {
    /// Passes answers on to a client; fails if there are none for now.
    pub(super) fn answer(&self, from: &Datagrams, client: Client) -> io::Result<()> {
        with_batch(|batch| {
            from.try_receive(batch)?;
            for train in batch.trains() {
                let sent =
                    self.socket
                        .try_send_train_from(&train, Some(client.address), client.asked);
                let Sent { bytes, lost, .. } = sent;
                self.context.counters.moved.count_inbound(bytes);
                self.context.counters.drop_datagrams(lost);
            }
            Ok(())
        })
    }
}
