//! UDP over SOCKS5 (RFC 1928, section 7): datagrams with the target in front, for as long as the client's connection
//! lasts.

use std::{
    io::{self, ErrorKind},
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    time::Duration,
};

use fast_socks5::{new_udp_header, parse_udp_request, util::target_addr::TargetAddr};
use futures_util::stream::{FuturesUnordered, StreamExt};
use tokio::{
    io::AsyncReadExt,
    time::{Instant, sleep_until},
};

use super::{
    Networks, Request, refuse,
    targets::{Named, Names, Route, Targets},
};
use crate::{
    counters::{Counters, Refusal},
    dial::{Target, reason, resolve},
    network::{Datagrams, Network},
};

/// An association ends after this time without datagrams, although its connection lasts: some clients never close it.
const IDLE_LIMIT: Duration = Duration::from_secs(180);
const LONGEST_DATAGRAM: usize = 65_535;

/// Passes datagrams on until the client closes its connection, or sends and receives none for a while.
pub(super) async fn serve(
    request: Request<'_>,
    announced: &TargetAddr,
    near: IpAddr,
    client: IpAddr,
    networks: Networks<'_>,
    counters: &Counters,
) -> Result<(), Refusal> {
    let opened = Association::open(announced, near, client, networks).await;
    let (mut association, address) = match opened {
        Ok(opened) => opened,
        Err(error) => return Err(refuse(request, reason(&error)).await),
    };
    let connection = request.reply_success(address).await;
    let connection = connection.map_err(|error| super::reason(&error))?;
    let _open = counters.open();
    let mut byte = [0];
    tokio::select! {
        // Its end ends the association; nothing else may come.
        _ = connection.read(&mut byte) => {}
        () = association.run(networks.far, counters) => {}
    }
    Ok(())
}

struct Association {
    /// Towards the client.
    near: Datagrams,
    /// Nobody else is heard.
    client: IpAddr,
    /// The client's port, once it has sent a datagram.
    port: Option<u16>,
    /// Towards targets of each family.
    far_v4: Datagrams,
    far_v6: Option<Datagrams>,
    targets: Targets,
    names: Names,
}

impl Association {
    async fn open(
        announced: &TargetAddr,
        near: IpAddr,
        client: IpAddr,
        networks: Networks<'_>,
    ) -> io::Result<(Self, SocketAddr)> {
        let near = networks.near.datagrams((near, 0).into()).await?;
        let address = near.local_addr()?;
        let port = match announced {
            TargetAddr::Ip(announced) if announced.port() != 0 && announced.ip() == client => {
                Some(announced.port())
            }
            _ => None,
        };
        let association = Self {
            near,
            client,
            port,
            far_v4: networks
                .far
                .datagrams((Ipv4Addr::UNSPECIFIED, 0).into())
                .await?,
            // Without IPv6, targets by IPv4 still work.
            far_v6: networks
                .far
                .datagrams((Ipv6Addr::UNSPECIFIED, 0).into())
                .await
                .ok(),
            targets: Targets::default(),
            names: Names::default(),
        };
        Ok((association, address))
    }

    async fn run(&mut self, far: &dyn Network, counters: &Counters) {
        let mut outbound = vec![0; LONGEST_DATAGRAM];
        let (mut inbound, mut inbound_v6) = (outbound.clone(), outbound.clone());
        // A name that takes long holds up nothing else.
        let mut lookups = FuturesUnordered::new();
        loop {
            let expires = Instant::now() + IDLE_LIMIT;
            let outcome = tokio::select! {
                received = self.near.recv_from(&mut outbound) => match received {
                    Ok((length, from)) => {
                        let forwarded = self.forward(from, &outbound[..length], far, counters).await;
                        forwarded.map(|name| lookups.extend(name.map(|name| look_up(far, name))))
                    }
                    Err(error) => Err(error),
                },
                Some((name, found)) = lookups.next() => {
                    self.found(name, found, far, counters).await;
                    Ok(())
                }
                received = self.far_v4.recv_from(&mut inbound) => self.answer(received, &inbound, counters),
                received = receive(self.far_v6.as_ref(), &mut inbound_v6) => self.answer(received, &inbound_v6, counters),
                () = sleep_until(expires) => return,
            };
            if outcome.is_err() {
                counters.drop_datagrams(1);
            }
        }
    }

    /// Sends a client's datagram to the target that stands in front of it; returns a name that is to be looked up.
    async fn forward(
        &mut self,
        from: SocketAddr,
        datagram: &[u8],
        far: &dyn Network,
        counters: &Counters,
    ) -> io::Result<Option<Named>> {
        let is_client =
            from.ip() == self.client && self.port.is_none_or(|port| port == from.port());
        if !is_client {
            counters.refuse(Refusal::Denied);
            return Ok(None);
        }
        self.port = Some(from.port());
        let parsed = parse_udp_request(datagram).await;
        let Ok((0, target, payload)) = parsed else {
            counters.refuse(Refusal::Malformed);
            return Ok(None);
        };
        let target = match target {
            TargetAddr::Ip(address) => address,
            TargetAddr::Domain(host, port) => {
                let name = (host, port);
                match self.names.route(&name, payload) {
                    Route::To(address) => address,
                    Route::LookUp => return Ok(Some(name)),
                    Route::Waits => return Ok(None),
                    Route::Dropped => {
                        counters.drop_datagrams(1);
                        return Ok(None);
                    }
                }
            }
        };
        self.send(payload, target, far, counters).await?;
        Ok(None)
    }

    async fn send(
        &mut self,
        payload: &[u8],
        target: SocketAddr,
        far: &dyn Network,
        counters: &Counters,
    ) -> io::Result<()> {
        if let Err(refusal) = far.check(target) {
            counters.refuse(refusal);
            return Ok(());
        }
        self.targets.insert(target);
        let socket = match target {
            SocketAddr::V4(_) => &self.far_v4,
            SocketAddr::V6(_) => self.far_v6.as_ref().ok_or(ErrorKind::AddrNotAvailable)?,
        };
        counters
            .moved
            .count_outbound(socket.send_to(payload, target).await?);
        Ok(())
    }

    /// Sends the datagrams that have waited for a name.
    async fn found(
        &mut self,
        name: Named,
        found: Result<Vec<SocketAddr>, Refusal>,
        far: &dyn Network,
        counters: &Counters,
    ) {
        let is_usable = |address: &SocketAddr| address.is_ipv4() || self.far_v6.is_some();
        let address = found.and_then(|addresses| {
            let usable = addresses.into_iter().find(is_usable);
            usable.ok_or(Refusal::Unreachable)
        });
        let waiting = self.names.found(name, address.ok());
        match address {
            Ok(address) => {
                for payload in waiting {
                    if self.send(&payload, address, far, counters).await.is_err() {
                        counters.drop_datagrams(1);
                    }
                }
            }
            Err(refusal) => {
                counters.refuse(refusal);
                counters.drop_datagrams(waiting.len());
            }
        }
    }

    /// Passes a target's answer on to the client.
    fn answer(
        &mut self,
        received: io::Result<(usize, SocketAddr)>,
        bytes: &[u8],
        counters: &Counters,
    ) -> io::Result<()> {
        let (length, from) = received?;
        let (Some(port), true) = (self.port, self.targets.renew(from)) else {
            counters.refuse(Refusal::Denied);
            return Ok(());
        };
        let mut datagram = new_udp_header(from).map_err(io::Error::other)?;
        datagram.extend_from_slice(&bytes[..length]);
        self.near
            .try_send_to(&datagram, (self.client, port).into())?;
        counters.moved.count_inbound(length);
        Ok(())
    }
}

async fn look_up(far: &dyn Network, name: Named) -> (Named, Result<Vec<SocketAddr>, Refusal>) {
    let target = Target {
        host: name.0.clone(),
        port: name.1,
    };
    let found = resolve(far, &target).await;
    (name, found)
}

async fn receive(socket: Option<&Datagrams>, buffer: &mut [u8]) -> io::Result<(usize, SocketAddr)> {
    match socket {
        Some(socket) => socket.recv_from(buffer).await,
        None => std::future::pending().await,
    }
}
