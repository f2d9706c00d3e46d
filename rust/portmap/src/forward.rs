//! A port of a VPN provider's gateway, for UDP and TCP, by NAT-PMP through the tunnel.
//!
//! The gateway chooses the port and forwards it to the same port of this machine, for a minute at a time.

use std::{net::Ipv4Addr, time::Duration};

use serde::{Deserialize, Serialize};
use tokio::{
    net::UdpSocket,
    sync::watch,
    task::JoinHandle,
    time::{Instant, sleep_until},
};
use tracing::debug;

use crate::{
    exchange::{LAST_WAITS, WAITS, exchange, socket},
    mapping::{Transport, is_reachable},
    nat_pmp::{self, ANY_PORT},
    problem::Refusal,
};

/// Time for which the gateway is asked to forward, as providers want it.
const LEASE: Duration = Duration::from_secs(60);
/// Time until a lease is renewed, unless it is shorter than asked for.
const RENEWAL: Duration = Duration::from_secs(45);
/// Shortest lease that is believed: a shorter one would have the gateway asked without end.
const SHORTEST_LEASE: Duration = Duration::from_secs(20);
/// Longest lease that is believed.
const LONGEST_LEASE: Duration = Duration::from_secs(24 * 60 * 60);
/// Time until a gateway that is silent is asked again while its lease lasts.
const SHORT_PAUSE: Duration = Duration::from_secs(5);
/// Times until a gateway that grants nothing is asked again; each is twice the one before.
const PAUSES: [Duration; 2] = [Duration::from_secs(10), Duration::from_secs(320)];

/// The gateway to be asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ForwardTarget {
    /// Its address inside the tunnel.
    pub gateway: Ipv4Addr,
    /// The tunnel's interface.
    pub interface: String,
}

/// A port that a gateway forwards to the same port of this machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ForwardedPort {
    /// The gateway's address inside the tunnel.
    pub gateway: Ipv4Addr,
    /// The tunnel's interface.
    pub interface: String,
    /// The port, of UDP and TCP.
    pub port: u16,
    /// The address at which the internet finds it, if the gateway tells.
    pub address: Option<Ipv4Addr>,
}

/// The state of a port that is wanted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ForwardState {
    /// The gateway is being asked for the first time.
    Asking,
    /// The gateway forwards the port.
    Forwarded(ForwardedPort),
    /// No port is forwarded; the gateway is asked again later.
    Failed(ForwardProblem),
}

/// A reason why no port is forwarded.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ForwardProblem {
    /// The tunnel does not reach the gateway, or the provider has no such service at this server.
    #[error("the gateway {0} in the tunnel does not answer NAT-PMP")]
    Silent(Ipv4Addr),
    /// The gateway refuses.
    #[error("the gateway {gateway} in the tunnel refuses a port for {transport}: {reason}")]
    Refused {
        /// Its address.
        gateway: Ipv4Addr,
        /// The protocol of the port.
        transport: Transport,
        /// The reason in words.
        reason: &'static str,
    },
    /// The answer is of no use.
    #[error("the answer of the gateway {gateway} in the tunnel is refused: {reason}")]
    Unbelievable {
        /// Its address.
        gateway: Ipv4Addr,
        /// The reason in words.
        reason: &'static str,
    },
    /// This machine cannot ask.
    #[error("the gateway in the tunnel cannot be asked: {0}")]
    System(String),
}

impl ForwardProblem {
    /// Returns whether the gateway may still forward the port: an answer was lost, the tunnel has another session
    /// to begin, or its interface is not there for a moment.
    fn is_passing(&self) -> bool {
        matches!(self, Self::Silent(_) | Self::System(_))
    }
}

/// Keeps a port forwarded. Dropping it withdraws nothing.
#[derive(Debug)]
pub struct PortForwarding {
    target: ForwardTarget,
    again: watch::Sender<()>,
    state: watch::Receiver<ForwardState>,
    task: JoinHandle<()>,
}

impl PortForwarding {
    /// Begins to ask for a port: the one of `former`, if it is still to be had.
    ///
    /// # Panics
    /// Outside of a runtime of tokio.
    #[must_use]
    pub fn begin(target: ForwardTarget, former: Option<ForwardedPort>) -> Self {
        let (again, wanted) = watch::channel(());
        let (told, state) = watch::channel(ForwardState::Asking);
        let task = tokio::spawn(keep(target.clone(), former, wanted, told));
        Self {
            target,
            again,
            state,
            task,
        }
    }

    /// Returns the gateway that is asked.
    #[must_use]
    pub fn target(&self) -> &ForwardTarget {
        &self.target
    }

    /// Asks at once: the gateway may have forgotten the port.
    pub fn ask_again(&self) {
        self.again.send_replace(());
    }

    /// Returns the present state.
    #[must_use]
    pub fn state(&self) -> ForwardState {
        self.state.borrow().clone()
    }

    /// Waits until the state is another than the one that was last waited for. May be cancelled.
    pub async fn changed(&mut self) {
        if self.state.changed().await.is_err() {
            // The task goes on until this is dropped.
            std::future::pending().await
        }
    }
}

impl Drop for PortForwarding {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Gives a port back, as far as its gateway still hears of it. Takes two thirds of a second at most.
pub async fn withdraw_port(port: &ForwardedPort) {
    let socket = match socket(&port.interface, port.gateway, None).await {
        Ok(socket) => socket,
        Err(error) => {
            debug!("cannot give the port back: {error}");
            return;
        }
    };
    for transport in [Transport::Udp, Transport::Tcp] {
        let request = nat_pmp::Request {
            transport,
            port: ANY_PORT,
            suggested: 0,
            lifetime: Duration::ZERO,
        };
        let read = |answer: &[u8]| request.answer(answer).map(drop);
        let answered = exchange(&socket, &request.bytes(), &LAST_WAITS, read).await;
        debug!(port.port, %transport, ?answered, "Gave the port back");
    }
}

async fn keep(
    target: ForwardTarget,
    mut known: Option<ForwardedPort>,
    mut wanted: watch::Receiver<()>,
    told: watch::Sender<ForwardState>,
) {
    let mut until = Instant::now();
    let [mut pause, longest] = PAUSES;
    loop {
        wanted.borrow_and_update();
        let asked = Instant::now();
        let outcome = ask(&target, known.as_ref()).await;
        debug!(?outcome, "Asked the gateway in the tunnel for a port");
        let now = Instant::now();
        let next = match outcome {
            Ok((port, lease)) => {
                [pause, _] = PAUSES;
                until = asked + lease;
                known = Some(port.clone());
                say(&told, ForwardState::Forwarded(port));
                asked + RENEWAL.min(lease * 3 / 4)
            }
            Err(problem) if problem.is_passing() && now < until => until.min(now + SHORT_PAUSE),
            Err(problem) => {
                until = now;
                let next = now + pause;
                pause = longest.min(pause * 2);
                say(&told, ForwardState::Failed(problem));
                next
            }
        };
        tokio::select! {
            () = sleep_until(next) => {}
            changed = wanted.changed() => if changed.is_err() { return },
        }
    }
}

/// Asks once, for the port that is known already or any other; returns it with its lease.
async fn ask(
    target: &ForwardTarget,
    known: Option<&ForwardedPort>,
) -> Result<(ForwardedPort, Duration), ForwardProblem> {
    let gateway = target.gateway;
    let socket = socket(&target.interface, gateway, None).await;
    let socket = socket.map_err(system)?;
    let suggested = known.map_or(0, |known| known.port);
    let (port, for_udp) = map(&socket, gateway, Transport::Udp, suggested).await?;
    let (for_both, for_tcp) = map(&socket, gateway, Transport::Tcp, port).await?;
    if for_both != port {
        return Err(ForwardProblem::Unbelievable {
            gateway,
            reason: "it has one port for UDP and another for TCP",
        });
    }
    let address = match known.filter(|known| known.port == port) {
        Some(ForwardedPort {
            address: Some(address),
            ..
        }) => Some(*address),
        _ => address(&socket).await,
    };
    let forwarded = ForwardedPort {
        gateway,
        interface: target.interface.clone(),
        port,
        address,
    };
    Ok((forwarded, for_udp.min(for_tcp)))
}

/// Asks for a port for one protocol; returns it with its lease.
async fn map(
    socket: &UdpSocket,
    gateway: Ipv4Addr,
    transport: Transport,
    suggested: u16,
) -> Result<(u16, Duration), ForwardProblem> {
    let request = nat_pmp::Request {
        transport,
        port: ANY_PORT,
        suggested,
        lifetime: LEASE,
    };
    let read = |answer: &[u8]| request.answer(answer);
    let answer = exchange(socket, &request.bytes(), &WAITS, read).await;
    let (port, lease) = match answer.map_err(system)? {
        None | Some(Err(Refusal::OtherProtocol)) => return Err(ForwardProblem::Silent(gateway)),
        Some(Err(Refusal::Reason(reason))) => {
            return Err(ForwardProblem::Refused {
                gateway,
                transport,
                reason,
            });
        }
        Some(Ok(granted)) => granted,
    };
    let reason = match () {
        () if port == 0 => "it has the port 0",
        () if lease < SHORTEST_LEASE => "it forwards the port for less than 20 s",
        () if lease > LONGEST_LEASE => "it forwards the port for more than a day",
        () => return Ok((port, lease)),
    };
    Err(ForwardProblem::Unbelievable { gateway, reason })
}

/// Asks for the address outside, without which a port is still of use.
async fn address(socket: &UdpSocket) -> Option<Ipv4Addr> {
    let request = nat_pmp::ADDRESS_REQUEST;
    let answer = exchange(socket, &request, &WAITS[..2], nat_pmp::address).await;
    let address = answer.ok()??.ok()?;
    is_reachable(address).then_some(address)
}

fn system(error: std::io::Error) -> ForwardProblem {
    ForwardProblem::System(error.to_string())
}

fn say(told: &watch::Sender<ForwardState>, state: ForwardState) {
    told.send_if_modified(|former| {
        let is_other = *former != state;
        *former = state;
        is_other
    });
}

#[cfg(test)]
mod tests;
