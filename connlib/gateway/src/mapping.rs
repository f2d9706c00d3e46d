//! Ports outside: all flows of a peer's port have one (RFC 4787, REQ-1), and a socket each.
//!
//! The sockets of a port share it (`SO_REUSEPORT`), and each is connected: the kernel gives it what its own target
//! sends, as fast as if it were alone, and answers everybody else with "port unreachable". The first one takes its port
//! before it shares it, so that no other mapping and no other user gets the same.

use std::{
    collections::HashMap,
    io,
    net::SocketAddr,
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
};

use convoy_network::{Datagrams, Network, any_of};

/// The mappings in use, by the peers' addresses and ports. Clones are the same.
#[derive(Clone, Debug, Default)]
pub(super) struct Mappings(Arc<Mutex<HashMap<SocketAddr, Weak<Mapping>>>>);

/// The port outside of a peer's port, for as long as any of its flows exists.
#[derive(Debug)]
pub(super) struct Mapping {
    all: Mappings,
    inner: SocketAddr,
    /// Once a flow has a socket.
    outer: tokio::sync::Mutex<Option<SocketAddr>>,
}

impl Mappings {
    /// The mapping of a peer's port, a new one if it has no flow.
    pub(super) fn of(&self, inner: SocketAddr) -> Arc<Mapping> {
        let mut all = self.all();
        if let Some(mapping) = all.get(&inner).and_then(Weak::upgrade) {
            return mapping;
        }
        let mapping = Arc::new(Mapping {
            all: self.clone(),
            inner,
            outer: tokio::sync::Mutex::default(),
        });
        all.insert(inner, Arc::downgrade(&mapping));
        mapping
    }

    fn all(&self) -> MutexGuard<'_, HashMap<SocketAddr, Weak<Mapping>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Mapping {
    /// Opens a socket to a target. It may hold a datagram of another sender, from before it was connected.
    pub(super) async fn open(
        &self,
        network: &dyn Network,
        target: SocketAddr,
    ) -> io::Result<Datagrams> {
        let mut outer = self.outer.lock().await;
        if let Some(outer) = *outer {
            let beside = network.datagrams_beside(outer).await;
            // Otherwise the network does not know how, or the port was lost: any other one is better than none.
            if let Ok(socket) = beside {
                return connected(socket, target).await;
            }
        }
        let socket = network.datagrams(any_of(&target)).await?;
        if let Ok(bound) = socket.local_addr() {
            socket.share_port();
            *outer = Some(bound);
        }
        connected(socket, target).await
    }
}

async fn connected(socket: Datagrams, target: SocketAddr) -> io::Result<Datagrams> {
    socket.prepare_for_batches();
    socket.connect(target).await?;
    socket.ask_for_errors();
    Ok(socket)
}

impl Drop for Mapping {
    fn drop(&mut self) {
        let mut all = self.all.all();
        // There may be a new one in its place.
        if all
            .get(&self.inner)
            .is_some_and(|it| it.strong_count() == 0)
        {
            all.remove(&self.inner);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{collections::BTreeMap, net::UdpSocket, time::Duration};

    use proptest::prelude::*;
    use rustix::net::SocketType;

    use super::*;
    use convoy_network::{Host, Kernel};

    fn inner(port: u16) -> SocketAddr {
        ([10, 8, 0, 1], port).into()
    }

    fn server(address: &str) -> UdpSocket {
        let socket = UdpSocket::bind(address).unwrap();
        socket
            .set_read_timeout(Some(Duration::from_secs(10)))
            .unwrap();
        socket
    }

    /// Returns where a server sees a datagram of this socket come from.
    fn seen_by(server: &UdpSocket, socket: &Datagrams) -> SocketAddr {
        socket.try_send(b"where am I?").unwrap();
        server.recv_from(&mut [0; 20]).unwrap().1
    }

    #[tokio::test]
    async fn all_targets_see_one_port_and_nobody_else_is_heard() {
        for any in ["127.0.0.1:0", "[::1]:0"] {
            let servers = [server(any), server(any), server(any)];
            let targets = servers.each_ref().map(|it| it.local_addr().unwrap());
            let mappings = Mappings::default();
            let [first, other] = [1, 2].map(|port| mappings.of(inner(port)));
            let network = Kernel(Host);
            let mut sockets = Vec::new();
            for target in targets {
                sockets.push(first.open(&network, target).await.unwrap());
            }
            let pairs = || servers.iter().zip(&sockets);
            let seen: Vec<_> = pairs().map(|(server, it)| seen_by(server, it)).collect();
            assert_eq!(seen, [seen[0]; 3]);
            let stranger = server(any);
            stranger.connect(seen[0]).unwrap();
            stranger.send(b"spam").unwrap();
            let refused = stranger.recv(&mut [0; 4]).unwrap_err();
            assert_eq!(refused.kind(), io::ErrorKind::ConnectionRefused);
            for (index, (server, socket)) in pairs().enumerate() {
                server.send_to(&[index as u8], seen[0]).unwrap();
                let mut answer = [9; 4];
                let (length, from) = socket.recv_from(&mut answer).await.unwrap();
                assert_eq!((length, from), (1, targets[index]));
                assert_eq!(usize::from(answer[0]), index);
            }
            // Another port of the peer is another port outside, to the same target.
            let socket = other.open(&network, targets[0]).await.unwrap();
            assert_ne!(seen_by(&servers[0], &socket), seen[0]);
            // One target after the other leaves, and the mapping with the last.
            sockets.remove(0);
            assert_eq!(seen_by(&servers[1], &sockets[0]), seen[0]);
            sockets.clear();
            drop(first);
            stranger.send(b"spam").unwrap();
            stranger.recv(&mut [0; 4]).unwrap_err();
            assert_eq!(mappings.all().len(), 1);
        }
    }

    #[tokio::test]
    async fn a_port_outside_is_never_given_twice() {
        let target = server("127.0.0.1:0");
        let mappings = Mappings::default();
        let mut held = Vec::new();
        for port in 1..=200 {
            let mapping = mappings.of(inner(port));
            let socket = mapping.open(&Kernel(Host), target.local_addr().unwrap());
            let socket = socket.await.unwrap();
            held.push((seen_by(&target, &socket), socket, mapping));
        }
        let mut ports: Vec<_> = held.iter().map(|(at, ..)| at.port()).collect();
        ports.sort_unstable();
        ports.dedup();
        assert_eq!(ports.len(), 200);
    }

    #[tokio::test]
    async fn another_user_does_not_get_the_port() {
        let target = server("127.0.0.1:0");
        let mapping = Mappings::default().of(inner(1));
        let socket = mapping.open(&Kernel(Host), target.local_addr().unwrap());
        let socket = socket.await.unwrap();
        let at: SocketAddr = ([0; 4], seen_by(&target, &socket).port()).into();
        let open =
            || rustix::net::socket(rustix::net::AddressFamily::INET, SocketType::DGRAM, None);
        let stranger = open().unwrap();
        rustix::net::sockopt::set_socket_reuseaddr(&stranger, true).unwrap();
        rustix::net::bind(&stranger, &at).unwrap_err();
    }

    proptest! {
        #[test]
        fn a_peers_port_has_one_mapping_until_its_last_flow_ends(
            events in prop::collection::vec((0..4_u16, any::<bool>()), 0..100),
        ) {
            let mappings = Mappings::default();
            let mut flows: BTreeMap<u16, Vec<Arc<Mapping>>> = BTreeMap::new();
            for (port, begins) in events {
                let held = flows.entry(port).or_default();
                if begins {
                    let mapping = mappings.of(inner(port));
                    prop_assert!(held.iter().all(|it| Arc::ptr_eq(it, &mapping)));
                    held.push(mapping);
                } else {
                    held.pop();
                }
                let used = flows.values().filter(|it| !it.is_empty()).count();
                prop_assert_eq!(mappings.all().len(), used);
            }
        }
    }
}
