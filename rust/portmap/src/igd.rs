//! UPnP's Internet Gateway Device (IGD:1, IGD:2): a router that forwards ports by SOAP over HTTP.
//!
//! Any machine of the network can answer a search, so only the default gateway is believed: it must be the source of the
//! answer and the host of every address that follows. Nothing is asked anywhere else, redirects are not followed, and all
//! that is read is bounded.

mod action;
mod description;
#[cfg(test)]
mod fuzz;
mod http;
mod place;
mod search;
mod xml;

use std::{
    net::{Ipv4Addr, SocketAddrV4},
    time::Duration,
};

use tokio::{runtime::Handle, time::timeout};
use tracing::debug;

use crate::{
    LIFETIME,
    gateway::Gateway,
    ledger::Ledger,
    mapping::{Control, Grant, Mapping, Protocol, Target, is_reachable},
    problem::Refusal,
};
use action::Fault;
pub use action::Service;
use http::{HttpError, Router};
pub use place::Place;

/// Time for all of it: some routers answer slowly.
const PATIENCE: Duration = Duration::from_secs(20);
/// The same to withdraw a mapping.
const LAST_PATIENCE: Duration = Duration::from_secs(2);
/// Most ports that are tried if others have mappings there.
const MOST_PORTS: u16 = 8;
/// Lowest port that is tried after the one that would be best.
const FIRST_PORT: u16 = 1024;

/// A port to be forwarded.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Request {
    /// The port of this machine.
    pub(crate) target: Target,
    /// This machine's address.
    pub(crate) own: Ipv4Addr,
    /// The best port outside.
    pub(crate) suggested: u16,
    /// The secret of the same mapping by PCP.
    pub(crate) nonce: [u8; 12],
}

/// Asks a router to forward a port; `None` if it is no such device, or stays silent.
pub(crate) async fn ask(
    gateway: &Gateway,
    request: Request,
    ledger: &Ledger,
) -> Option<Result<(Grant, Control), Refusal>> {
    let asked = timeout(PATIENCE, ask_now(gateway, request, ledger)).await;
    asked.ok().flatten()
}

/// Returns whether a router is such a device; asks for nothing.
pub(crate) async fn is_there(gateway: &Gateway, mark: Option<u32>) -> bool {
    let Some((router, place)) = search(gateway, mark).await else {
        return false;
    };
    match router.get(&place).await {
        Ok(document) => description::control(&document, &place, gateway.address).is_some(),
        // A kill switch lets only UDP out to a router that is not asked for ports.
        Err(HttpError::Late) => true,
        Err(_) => false,
    }
}

/// Ends a mapping, as far as its router still hears of it.
pub(crate) async fn withdraw(mapping: &Mapping, control: &Control) {
    let router = Router {
        address: mapping.router,
        interface: mapping.interface.clone(),
        mark: mapping.mark,
    };
    let (port, inside) = (mapping.external.port(), mapping.port);
    let deleted = timeout(LAST_PATIENCE, delete_own(&router, control, port, inside)).await;
    debug!(%mapping.external, ?deleted, "Withdrew the mapping");
}

/// Deletes the mapping of an external port, unless the router now forwards that port to another machine: its user may
/// have deleted this mapping, or the router may have restarted. Returns whether the mapping was this machine's.
async fn delete_own(
    router: &Router,
    control: &Control,
    port: u16,
    inside: u16,
) -> Result<bool, Fault> {
    let is_own = match action::entry(router, control, port).await {
        Ok((client, to)) => {
            let is_other = control
                .client
                .zip(client)
                .is_some_and(|(own, it)| own != it);
            to == inside && !is_other
        }
        // Some devices lack the question.
        Err(Fault::Code(401 | 402 | 602)) => true,
        Err(Fault::Code(NO_ENTRY | NOT_AUTHORIZED)) => false,
        Err(fault) => return Err(fault),
    };
    if is_own {
        action::delete(router, control, port).await?;
    }
    Ok(is_own)
}

async fn ask_now(
    gateway: &Gateway,
    request: Request,
    ledger: &Ledger,
) -> Option<Result<(Grant, Control), Refusal>> {
    let (router, mut control) = find(gateway, request.target.mark).await?;
    control.client = Some(request.own);
    let address = match action::external_address(&router, &control).await {
        Ok(address) if is_reachable(address) => address,
        Ok(_) => return Some(Err(Refusal::Reason("it is not connected"))),
        Err(fault) => return refused(fault),
    };
    let (inside, suggested) = (request.inside(), request.suggested);
    let mapping = request.mapping(&router, &control, address);
    let granted = match control.service {
        Service::Ip2 => match action::add_any(&router, &control, inside, suggested).await {
            // Some devices that say so lack it.
            Err(Fault::Code(401 | 602)) => add(&router, &control, request, mapping, ledger).await,
            granted => granted,
        },
        Service::Ip1 | Service::Ppp1 => add(&router, &control, request, mapping, ledger).await,
    };
    match granted {
        Ok(port) => {
            let grant = Grant {
                external: SocketAddrV4::new(address, port),
                lifetime: LIFETIME,
            };
            Some(Ok((grant, control)))
        }
        Err(fault) => refused(fault),
    }
}

/// Finds the service of a router that forwards ports.
async fn find(gateway: &Gateway, mark: Option<u32>) -> Option<(Router, Control)> {
    let (router, place) = search(gateway, mark).await?;
    let document = match router.get(&place).await {
        Ok(document) => document,
        Err(error) => {
            debug!("cannot read the router's description: {error}");
            return None;
        }
    };
    let control = description::control(&document, &place, gateway.address)?;
    Some((router, control))
}

/// Finds the description of a router.
async fn search(gateway: &Gateway, mark: Option<u32>) -> Option<(Router, Place)> {
    let place = match search::search(gateway, mark).await {
        Ok(place) => place?,
        Err(error) => {
            debug!("cannot search for a router: {error}");
            return None;
        }
    };
    let router = Router {
        address: gateway.address,
        interface: gateway.interface.clone(),
        mark,
    };
    Some((router, place))
}

/// Adds a mapping: of the next port if somebody else has the first one, and for good if the router has no other ones.
async fn add(
    router: &Router,
    control: &Control,
    request: Request,
    mut mapping: Mapping,
    ledger: &Ledger,
) -> Result<u16, Fault> {
    let mut lease = LIFETIME;
    let mut port = request.suggested;
    let mut tried = 0;
    while tried < MOST_PORTS {
        mapping.external.set_port(port);
        let is_for_good = lease.is_zero();
        let unanswered = is_for_good.then(|| Unanswered::new(router, &mapping, ledger));
        let added = action::add(router, control, request.inside(), port, lease).await;
        if let Some(unanswered) = unanswered {
            unanswered.handle(added);
        }
        match added {
            Err(Fault::Code(ONLY_PERMANENT)) if !lease.is_zero() => lease = Duration::ZERO,
            Err(Fault::Code(CONFLICT)) => {
                tried += 1;
                port = port.checked_add(1).unwrap_or(FIRST_PORT);
            }
            outcome => return outcome.map(|()| port),
        }
    }
    Err(Fault::Code(CONFLICT))
}

impl Request {
    fn inside(&self) -> (Ipv4Addr, u16) {
        (self.own, self.target.port)
    }

    /// Returns the mapping that an answer would confirm, if it were of the best port.
    fn mapping(&self, router: &Router, control: &Control, outside: Ipv4Addr) -> Mapping {
        Mapping {
            protocol: Protocol::Upnp,
            router: router.address,
            interface: router.interface.clone(),
            mark: self.target.mark,
            port: self.target.port,
            external: SocketAddrV4::new(outside, self.suggested),
            nonce: self.nonce,
            control: Some(control.clone()),
        }
    }
}

/// A mapping for good that was asked for. Dropped before the router has answered, it is deleted; it stays in the ledger
/// until it has been.
struct Unanswered {
    router: Router,
    ledger: Ledger,
    /// The mapping; `None` once there is an answer.
    mapping: Option<Mapping>,
    /// The note before.
    former: Option<Mapping>,
}

impl Unanswered {
    fn new(router: &Router, mapping: &Mapping, ledger: &Ledger) -> Self {
        Self {
            router: router.clone(),
            ledger: ledger.clone(),
            mapping: Some(mapping.clone()),
            former: ledger.asked(mapping),
        }
    }

    fn handle(mut self, added: Result<(), Fault>) {
        match added {
            Ok(()) => self.mapping = None,
            Err(Fault::Code(_)) => {
                self.mapping = None;
                self.ledger.refused(self.former.take());
            }
            Err(Fault::Silent) => {}
        }
    }
}

impl Drop for Unanswered {
    fn drop(&mut self) {
        let (Some(mapping), Ok(runtime)) = (self.mapping.take(), Handle::try_current()) else {
            return;
        };
        let (router, ledger) = (self.router.clone(), self.ledger.clone());
        runtime.spawn(async move {
            let Some(control) = &mapping.control else {
                return;
            };
            let (port, inside) = (mapping.external.port(), mapping.port);
            let deletion = delete_own(&router, control, port, inside);
            let deleted = timeout(LAST_PATIENCE, deletion).await;
            debug!(port, ?deleted, "Deleted a mapping that had no answer");
            if let Ok(Ok(_)) = deleted {
                ledger.deleted(&mapping);
            }
        });
    }
}

/// Error codes of `GetSpecificPortMappingEntry`; the latter is also of other actions.
const NO_ENTRY: u16 = 714;
const NOT_AUTHORIZED: u16 = 606;
/// Error codes of `AddPortMapping`.
const CONFLICT: u16 = 718;
const ONLY_PERMANENT: u16 = 725;

fn refused<T>(fault: Fault) -> Option<Result<T, Refusal>> {
    match fault {
        Fault::Code(code) => Some(Err(Refusal::Reason(reason(code)))),
        Fault::Silent => None,
    }
}

/// Words an error code (UPnP Device Architecture §3.2.2, WANIPConnection:2 §2.5).
fn reason(code: u16) -> &'static str {
    match code {
        401 | 602 => "it cannot forward ports",
        402 => "it does not understand the request",
        NOT_AUTHORIZED => "it is not allowed",
        CONFLICT | 728 => "it has no free port",
        _ => "it has another reason",
    }
}

#[cfg(test)]
mod tests;
