//! UDP over SOCKS5 (RFC 1928, section 7): datagrams with the target in front, for as long as the client's connection
//! lasts.

use std::{
    collections::{HashMap, HashSet},
    io::{self, ErrorKind},
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    time::Duration,
};

use fast_socks5::{new_udp_header, parse_udp_request, util::target_addr::TargetAddr};
use tokio::{
    io::AsyncReadExt,
    time::{Instant, sleep_until},
};

use super::{Networks, Request, refuse};
use crate::{
    counters::{Counters, Refusal},
    dial::{Target, reason, resolve},
    network::{Datagrams, Network},
};

/// Targets that one client may have; only they can answer.
const MAX_TARGETS: usize = 1024;
/// Names that are remembered for one client.
const MAX_NAMES: usize = 64;
/// How long a name's address is remembered.
const NAME_LIFE: Duration = Duration::from_secs(60);
/// An association ends after this time without datagrams, although its connection lasts: some clients never close it.
const IDLE_LIMIT: Duration = Duration::from_secs(180);
const LONGEST_DATAGRAM: usize = 65_535;

/// Passes datagrams on until the client closes its connection, or sends and receives none for a while.
pub(super) async fn serve(
    request: Request,
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
    let mut connection = connection.map_err(|error| super::reason(&error))?;
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
    targets: HashSet<SocketAddr>,
    names: HashMap<(String, u16), (SocketAddr, Instant)>,
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
            targets: HashSet::new(),
            names: HashMap::new(),
        };
        Ok((association, address))
    }

    async fn run(&mut self, far: &dyn Network, counters: &Counters) {
        let mut outbound = vec![0; LONGEST_DATAGRAM];
        let (mut inbound, mut inbound_v6) = (outbound.clone(), outbound.clone());
        loop {
            let expires = Instant::now() + IDLE_LIMIT;
            let outcome = tokio::select! {
                received = self.near.recv_from(&mut outbound) => match received {
                    Ok((length, from)) => self.forward(from, &outbound[..length], far, counters).await,
                    Err(error) => Err(error),
                },
                received = self.far_v4.recv_from(&mut inbound) => self.answer(received, &inbound, counters),
                received = receive(self.far_v6.as_ref(), &mut inbound_v6) => self.answer(received, &inbound_v6, counters),
                () = sleep_until(expires) => return,
            };
            if outcome.is_err() {
                counters.drop_datagrams(1);
            }
        }
    }

    /// Sends a client's datagram to the target that stands in front of it.
    async fn forward(
        &mut self,
        from: SocketAddr,
        datagram: &[u8],
        far: &dyn Network,
        counters: &Counters,
    ) -> io::Result<()> {
        let is_client =
            from.ip() == self.client && self.port.is_none_or(|port| port == from.port());
        if !is_client {
            counters.refuse(Refusal::Denied);
            return Ok(());
        }
        self.port = Some(from.port());
        let parsed = parse_udp_request(datagram).await;
        let Ok((0, target, payload)) = parsed else {
            counters.refuse(Refusal::Malformed);
            return Ok(());
        };
        let target = match self.address(target, far).await {
            Ok(target) => target,
            Err(refusal) => {
                counters.refuse(refusal);
                return Ok(());
            }
        };
        if self.targets.len() >= MAX_TARGETS && !self.targets.contains(&target) {
            counters.refuse(Refusal::TooMany);
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

    /// Resolves a target's name, unless that was done lately.
    async fn address(
        &mut self,
        target: TargetAddr,
        far: &dyn Network,
    ) -> Result<SocketAddr, Refusal> {
        let (host, port) = match target {
            TargetAddr::Ip(address) => return Ok(address),
            TargetAddr::Domain(host, port) => (host, port),
        };
        let now = Instant::now();
        let key = (host, port);
        if let Some((address, end)) = self.names.get(&key)
            && now < *end
        {
            return Ok(*address);
        }
        let target = Target {
            host: key.0.clone(),
            port,
        };
        let addresses = resolve(far, &target).await?;
        let is_usable = |address: &&SocketAddr| address.is_ipv4() || self.far_v6.is_some();
        let address = *addresses
            .iter()
            .find(is_usable)
            .ok_or(Refusal::Unreachable)?;
        if self.names.len() >= MAX_NAMES {
            self.names.clear();
        }
        self.names.insert(key, (address, now + NAME_LIFE));
        Ok(address)
    }

    /// Passes a target's answer on to the client.
    fn answer(
        &self,
        received: io::Result<(usize, SocketAddr)>,
        bytes: &[u8],
        counters: &Counters,
    ) -> io::Result<()> {
        let (length, from) = received?;
        let (Some(port), true) = (self.port, self.targets.contains(&from)) else {
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

async fn receive(socket: Option<&Datagrams>, buffer: &mut [u8]) -> io::Result<(usize, SocketAddr)> {
    match socket {
        Some(socket) => socket.recv_from(buffer).await,
        None => std::future::pending().await,
    }
}
