//! Questions to a router, by sockets outside of the tunnel.

use std::{
    io,
    net::{IpAddr, Ipv4Addr, SocketAddrV4},
    time::Duration,
};

use tokio::net::UdpSocket;
use tracing::debug;

use crate::{
    LIFETIME,
    exchange::{LAST_WAITS, WAITS, exchange, socket},
    gateway::Gateway,
    igd,
    ledger::Ledger,
    mapping::{Grant, Mapping, Protocol, Target, Transport, is_reachable},
    nat_pmp, pcp,
    problem::{Problem, Refusal},
};

/// The secret of PCP, and the address that a router granted the last time, and how.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Memory {
    pub(crate) nonce: [u8; 12],
    pub(crate) external: Option<SocketAddrV4>,
    pub(crate) protocol: Option<Protocol>,
}

/// Asks a router to forward the port: by PCP or, if it knows or answers nothing of that, by NAT-PMP, else by UPnP.
/// A router that has granted the last mapping by UPnP is asked by that first.
pub(crate) async fn ask(
    gateway: &Gateway,
    target: Target,
    memory: Memory,
    ledger: &Ledger,
) -> Result<(Mapping, Duration), Problem> {
    let is_known = memory.protocol == Some(Protocol::Upnp);
    if is_known && let Some(answer) = ask_by_upnp(gateway, target, memory, ledger).await {
        return answer;
    }
    match ask_by_udp(gateway, target, memory).await {
        Err(problem @ Problem::Silent(_)) if !is_known => {
            let answer = ask_by_upnp(gateway, target, memory, ledger).await;
            answer.unwrap_or(Err(problem))
        }
        answer => answer,
    }
}

async fn ask_by_udp(
    gateway: &Gateway,
    target: Target,
    memory: Memory,
) -> Result<(Mapping, Duration), Problem> {
    let router = gateway.address;
    let socket = socket(&gateway.interface, router, target.mark);
    let socket = socket.await.map_err(system)?;
    let suggested = SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, target.port);
    let suggested = memory.external.unwrap_or(suggested);
    let mut protocol = Protocol::Pcp;
    let mut granted = by_pcp(&socket, target.port, memory.nonce, suggested).await?;
    if matches!(granted, None | Some(Err(Refusal::OtherProtocol))) {
        protocol = Protocol::NatPmp;
        granted = by_nat_pmp(&socket, target.port, suggested.port()).await?;
    }
    let grant = match granted {
        None | Some(Err(Refusal::OtherProtocol)) => return Err(Problem::Silent(router)),
        Some(Err(Refusal::Reason(reason))) => return Err(refused(router, protocol, reason)),
        Some(Ok(grant)) => grant,
    };
    mapping(gateway, target, memory, protocol, grant)
}

/// Returns `None` if the router does not speak UPnP.
async fn ask_by_upnp(
    gateway: &Gateway,
    target: Target,
    memory: Memory,
    ledger: &Ledger,
) -> Option<Result<(Mapping, Duration), Problem>> {
    let socket = socket(&gateway.interface, gateway.address, target.mark).await;
    let own = own_address(&socket.ok()?).ok()?;
    let request = igd::Request {
        target,
        own,
        suggested: memory.external.map_or(target.port, |it| it.port()),
        nonce: memory.nonce,
    };
    Some(match igd::ask(gateway, request, ledger).await? {
        Ok((grant, control)) => {
            let mapping = mapping(gateway, target, memory, Protocol::Upnp, grant);
            mapping.map(|(mapping, lifetime)| {
                let control = Some(control);
                (Mapping { control, ..mapping }, lifetime)
            })
        }
        Err(Refusal::Reason(reason)) => Err(refused(gateway.address, Protocol::Upnp, reason)),
        Err(Refusal::OtherProtocol) => return None,
    })
}

fn refused(router: Ipv4Addr, protocol: Protocol, reason: &'static str) -> Problem {
    Problem::Refused {
        router,
        protocol,
        reason,
    }
}

/// Notes a grant, if it is of use.
fn mapping(
    gateway: &Gateway,
    target: Target,
    memory: Memory,
    protocol: Protocol,
    grant: Grant,
) -> Result<(Mapping, Duration), Problem> {
    if !is_reachable(*grant.external.ip()) || grant.external.port() == 0 {
        return Err(Problem::NoAddress(gateway.address));
    }
    if grant.lifetime.is_zero() {
        // The answer to a request that ends a mapping.
        let reason = "it forwards the port for no time";
        return Err(refused(gateway.address, protocol, reason));
    }
    let mapping = Mapping {
        protocol,
        router: gateway.address,
        interface: gateway.interface.clone(),
        mark: target.mark,
        port: target.port,
        external: grant.external,
        nonce: memory.nonce,
        control: None,
    };
    Ok((mapping, grant.lifetime))
}

/// Ends a mapping, as far as its router still hears of it. Takes a third of a second at most, or two seconds by UPnP.
pub async fn withdraw(mapping: &Mapping) {
    if let Some(control) = &mapping.control {
        return igd::withdraw(mapping, control).await;
    }
    let socket = match socket(&mapping.interface, mapping.router, mapping.mark).await {
        Ok(socket) => socket,
        Err(error) => {
            debug!("cannot withdraw the mapping: {error}");
            return;
        }
    };
    let answered = match mapping.protocol {
        Protocol::Pcp => {
            let request = pcp::Request {
                client: own_address(&socket).unwrap_or(Ipv4Addr::UNSPECIFIED),
                port: mapping.port,
                nonce: mapping.nonce,
                suggested: mapping.external,
                lifetime: Duration::ZERO,
            };
            let read = |answer: &[u8]| request.answer(answer).map(drop);
            exchange(&socket, &request.bytes(), &LAST_WAITS, read).await
        }
        // It would have a service.
        Protocol::Upnp => return,
        Protocol::NatPmp => {
            let request = nat_pmp::Request {
                transport: Transport::Udp,
                port: mapping.port,
                suggested: 0,
                lifetime: Duration::ZERO,
            };
            let read = |answer: &[u8]| request.answer(answer).map(drop);
            exchange(&socket, &request.bytes(), &LAST_WAITS, read).await
        }
    };
    debug!(%mapping.external, ?answered, "Withdrew the mapping");
}

/// `None` if the router is silent.
type Answer<T> = Option<Result<T, Refusal>>;

async fn by_pcp(
    socket: &UdpSocket,
    port: u16,
    nonce: [u8; 12],
    suggested: SocketAddrV4,
) -> Result<Answer<Grant>, Problem> {
    let request = pcp::Request {
        client: own_address(socket).map_err(system)?,
        port,
        nonce,
        suggested,
        lifetime: LIFETIME,
    };
    let read = |answer: &[u8]| request.answer(answer);
    let granted = exchange(socket, &request.bytes(), &WAITS, read).await;
    granted.map_err(system)
}

async fn by_nat_pmp(
    socket: &UdpSocket,
    port: u16,
    suggested: u16,
) -> Result<Answer<Grant>, Problem> {
    let request = nat_pmp::ADDRESS_REQUEST;
    let address = exchange(socket, &request, &WAITS, nat_pmp::address).await;
    let address = match address.map_err(system)? {
        Some(Ok(address)) => address,
        Some(Err(refusal)) => return Ok(Some(Err(refusal))),
        None => return Ok(None),
    };
    let request = nat_pmp::Request {
        transport: Transport::Udp,
        port,
        suggested,
        lifetime: LIFETIME,
    };
    let read = |answer: &[u8]| request.answer(answer);
    let granted = exchange(socket, &request.bytes(), &WAITS, read).await;
    let granted = granted.map_err(system)?;
    let grant = |(port, lifetime)| Grant {
        external: SocketAddrV4::new(address, port),
        lifetime,
    };
    Ok(granted.map(|granted| granted.map(grant)))
}

fn own_address(socket: &UdpSocket) -> io::Result<Ipv4Addr> {
    match socket.local_addr()?.ip() {
        IpAddr::V4(address) => Ok(address),
        IpAddr::V6(_) => Err(io::ErrorKind::AddrNotAvailable.into()),
    }
}

fn system(error: io::Error) -> Problem {
    Problem::System(error.to_string())
}

#[cfg(test)]
mod tests;
