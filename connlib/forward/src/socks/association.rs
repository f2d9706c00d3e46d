//! UDP over SOCKS5 (RFC 1928, section 7): datagrams with the target in front, for as long as the client's connection
//! lasts.

use std::{
    io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    pin::pin,
    sync::Arc,
};

use convoy_network::{
    Datagrams, Network, Sent, Train,
    counters::{Counters, Refusal},
    dial::{Target, reason, resolve, settle},
    expiry::Expiry,
    with_batch,
};
use fast_socks5::{new_udp_header, util::target_addr::TargetAddr};
use futures_util::stream::{FuturesUnordered, StreamExt};
use tokio::{io::AsyncReadExt, task::yield_now};

use super::{
    datagram,
    names::{LookUp, Named, Names, Route},
    networks::{Networks, Rule},
    refusal::{self, Request, refuse},
    targets::Targets,
};

/// Passes datagrams on until the client closes its connection, or sends and receives none for a while, or another flow
/// takes the place of this one.
pub(super) async fn serve(
    request: Request<'_>,
    announced: &TargetAddr,
    near: IpAddr,
    client: IpAddr,
    networks: Networks<'_>,
    rule: Rule<'_>,
) -> Result<(), Refusal> {
    let expiry = Arc::new(Expiry::of_association());
    let Some(_place) = rule.flows.admit(&expiry) else {
        return Err(refuse(request, Refusal::TooMany).await);
    };
    let targets = Targets::of(rule.flows.targets);
    let opened = Association::open(announced, near, client, networks, targets).await;
    let (mut association, address) = match opened {
        Ok(opened) => opened,
        Err(error) => return Err(refuse(request, reason(&error)).await),
    };
    let connection = request.reply_success(address).await;
    let connection = connection.map_err(|error| refusal::reason(&error))?;
    let _open = rule.counters.open();
    let mut byte = [0];
    tokio::select! {
        // Its end ends the association; nothing else may come.
        _ = connection.read(&mut byte) => {}
        () = association.run(networks.far, rule, &expiry) => {}
    }
    match expiry.is_replaced() {
        true => Err(Refusal::Replaced),
        false => Ok(()),
    }
}

struct Association {
    sockets: Sockets,
    routes: Routes,
}

struct Sockets {
    /// Towards the client.
    near: Datagrams,
    /// Towards targets of each family.
    far_v4: Datagrams,
    far_v6: Option<Datagrams>,
}

/// Destinations of datagrams.
struct Routes {
    /// Datagrams from other senders are ignored.
    client: IpAddr,
    /// The client's port, once it has sent a datagram.
    port: Option<u16>,
    targets: Targets,
    names: Names,
    /// The header that the last datagram had, and its target: the next one mostly has the same.
    latest: Option<(Vec<u8>, SocketAddr)>,
}

impl Association {
    async fn open(
        announced: &TargetAddr,
        near: IpAddr,
        client: IpAddr,
        networks: Networks<'_>,
        targets: Targets,
    ) -> io::Result<(Self, SocketAddr)> {
        let near = open(networks.near, near).await?;
        let address = near.local_addr()?;
        let port = match announced {
            TargetAddr::Ip(announced) if announced.port() != 0 && announced.ip() == client => {
                Some(announced.port())
            }
            _ => None,
        };
        let association = Self {
            sockets: Sockets {
                near,
                far_v4: open(networks.far, Ipv4Addr::UNSPECIFIED.into()).await?,
                // Without IPv6, targets by IPv4 still work.
                far_v6: open(networks.far, Ipv6Addr::UNSPECIFIED.into()).await.ok(),
            },
            routes: Routes {
                client,
                port,
                targets,
                names: Names::default(),
                latest: None,
            },
        };
        Ok((association, address))
    }

    async fn run(&mut self, far: &dyn Network, rule: Rule<'_>, expiry: &Expiry) {
        let counters = rule.counters;
        let Self { sockets, routes } = self;
        // A name that takes long holds up nothing else.
        let mut lookups = FuturesUnordered::new();
        let mut expired = pin!(expiry.reached());
        loop {
            // Receiving fails only if there is nothing: these sockets do not ask for other errors.
            let _: io::Result<()> = tokio::select! {
                ready = sockets.near.readable() => ready.and_then(|()| {
                    expiry.question();
                    let forwarded = sockets.forward(routes, far, rule);
                    lookups.extend(routes.names.unasked().map(|it| look_up(far, it)));
                    forwarded
                }),
                Some(outcome) = lookups.next() => {
                    if let Some((name, found)) = outcome {
                        sockets.found(routes, name, found, far, counters);
                    }
                    Ok(())
                }
                ready = sockets.far_v4.readable() => {
                    expiry.answer();
                    ready.and_then(|()| sockets.answer(&sockets.far_v4, routes, counters))
                }
                socket = readable(sockets.far_v6.as_ref()) => {
                    expiry.answer();
                    sockets.answer(socket, routes, counters)
                }
                () = &mut expired => return,
            };
            yield_now().await;
        }
    }
}

impl Sockets {
    /// Sends the client's datagrams to the targets that stand in front of them.
    fn forward(&self, routes: &mut Routes, far: &dyn Network, rule: Rule<'_>) -> io::Result<()> {
        with_batch(|batch| {
            self.near.try_receive(batch)?;
            routes.latest = None;
            let route =
                |from, datagram: &[u8], class| routes.route(from, (datagram, class), far, rule);
            for train in batch.routed(route) {
                self.send(&train, rule.counters);
            }
            Ok(())
        })
    }

    fn send(&self, train: &Train<'_>, counters: &Counters) {
        let Some(socket) = self.towards(train.from()) else {
            return counters.drop_datagrams(train.segments());
        };
        let Sent { bytes, lost, .. } = socket.try_send_train(train, Some(train.from()));
        counters.moved.count_outbound(bytes);
        counters.drop_datagrams(lost);
    }

    /// The socket for a target; none if there is no IPv6.
    fn towards(&self, target: SocketAddr) -> Option<&Datagrams> {
        match target {
            SocketAddr::V4(_) => Some(&self.far_v4),
            SocketAddr::V6(_) => self.far_v6.as_ref(),
        }
    }

    /// Sends the datagrams that have waited for a name.
    fn found(
        &self,
        routes: &mut Routes,
        name: Named,
        found: Result<Vec<SocketAddr>, Refusal>,
        far: &dyn Network,
        counters: &Counters,
    ) {
        let address = found.and_then(|addresses| {
            let mut refusal = Refusal::Unreachable;
            let mut addresses = addresses.into_iter();
            let usable = addresses.find(|it| {
                let check = far.check(*it).map_err(|reason| refusal = reason);
                check.is_ok() && self.towards(*it).is_some()
            });
            usable.ok_or(refusal)
        });
        let (address, waiting) = routes.names.found(name, address);
        // An address that is kept may be denied by now.
        let admitted = address.and_then(|it| routes.admit(it, far).map(|()| it));
        match admitted {
            Ok(address) => {
                for payload in waiting {
                    let socket = self.towards(address).unwrap_or(&self.far_v4);
                    match socket.try_send_to_of_class(&payload, address, payload.class()) {
                        Ok(sent) => counters.moved.count_outbound(sent),
                        Err(_) => counters.drop_datagrams(1),
                    }
                }
            }
            Err(refusal) => {
                waiting.iter().for_each(|_| counters.refuse(refusal));
                counters.drop_datagrams(waiting.len());
            }
        }
    }

    /// Passes targets' answers on to the client.
    fn answer(&self, from: &Datagrams, routes: &mut Routes, counters: &Counters) -> io::Result<()> {
        with_batch(|batch| {
            from.try_receive(batch)?;
            let client = routes.port.map(|port| (routes.client, port).into());
            let header = |train: &Train<'_>| {
                if client.is_some() && routes.targets.renew(train.from()) {
                    return new_udp_header(train.from()).ok();
                }
                (0..train.segments()).for_each(|_| counters.refuse(Refusal::Denied));
                None
            };
            batch.send_prefixed(header, |train, header| {
                let Sent { bytes, lost, .. } = self.near.try_send_train(train, client);
                let headers = header.len() * (train.segments() - lost);
                counters.moved.count_inbound(bytes - headers);
                counters.drop_datagrams(lost);
            });
            Ok(())
        })
    }
}

impl Routes {
    /// Finds the target of a datagram, and the length of the header that names it; none if it goes nowhere now.
    fn route(
        &mut self,
        from: SocketAddr,
        (datagram, class): (&[u8], u8),
        far: &dyn Network,
        rule: Rule<'_>,
    ) -> Option<(SocketAddr, usize)> {
        let counters = rule.counters;
        let is_client =
            from.ip() == self.client && self.port.is_none_or(|port| port == from.port());
        if !is_client {
            counters.refuse(Refusal::Denied);
            return None;
        }
        self.port = Some(from.port());
        if let Some((header, target)) = &self.latest
            && datagram.starts_with(header)
        {
            return Some((*target, header.len()));
        }
        let Some((named, length)) = datagram::parse(datagram) else {
            counters.refuse(Refusal::Malformed);
            return None;
        };
        let payload = (&datagram[length..], class);
        let target = match named {
            datagram::Named::Address(address) => address,
            datagram::Named::Host(host, port) => {
                self.address_of((host.to_owned(), port), payload, rule)?
            }
        };
        let target = match far.discover(target) {
            None => target,
            // It waits as for a name.
            Some(_) => {
                let name = (target.ip().to_string(), target.port());
                self.address_of(name, payload, rule)?
            }
        };
        if let Err(refusal) = self.admit(target, far) {
            counters.refuse(refusal);
            return None;
        }
        self.latest = Some((datagram[..length].to_owned(), target));
        Some((target, length))
    }

    /// The address of a name, if it is known; else the payload waits for it, or is dropped.
    fn address_of(
        &mut self,
        name: Named,
        payload: (&[u8], u8),
        rule: Rule<'_>,
    ) -> Option<SocketAddr> {
        match self.names.route(&name, payload, rule) {
            Route::To(address) => Some(address),
            Route::Refused(refusal) => {
                rule.counters.refuse(refusal);
                rule.counters.drop_datagrams(1);
                None
            }
            Route::Waits => None,
        }
    }

    /// Records a target of datagrams, if the client may reach it.
    fn admit(&mut self, target: SocketAddr, far: &dyn Network) -> Result<(), Refusal> {
        far.check(target)?;
        self.targets.insert(target);
        Ok(())
    }
}

/// A socket at any port of an address.
async fn open(network: &dyn Network, at: IpAddr) -> io::Result<Datagrams> {
    let socket = network.datagrams((at, 0).into()).await?;
    socket.prepare_for_batches();
    socket.writable().await?;
    Ok(socket)
}

/// Looks a name up; `None` if that was given up.
async fn look_up(
    far: &dyn Network,
    lookup: LookUp,
) -> Option<(Named, Result<Vec<SocketAddr>, Refusal>)> {
    let LookUp { name, given_up } = lookup;
    let target = Target {
        host: name.0.clone(),
        port: name.1,
    };
    let addresses = async {
        let found = resolve(far, &target).await;
        settle(far, found.as_deref().unwrap_or_default()).await;
        found
    };
    tokio::select! {
        biased;
        _ = given_up => None,
        found = addresses => Some((name, found)),
    }
}

/// Waits until a socket has something; for ever if there is none.
async fn readable(socket: Option<&Datagrams>) -> &Datagrams {
    match socket {
        Some(socket) if socket.readable().await.is_ok() => socket,
        _ => std::future::pending().await,
    }
}
