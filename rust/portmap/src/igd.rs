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
    mapping::{Control, Grant, Mapping, Target, is_reachable},
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

/// Asks a router to forward the port, at best by `suggested`; `None` if it is no such device, or stays silent.
pub(crate) async fn ask(
    gateway: &Gateway,
    target: Target,
    own: Ipv4Addr,
    suggested: u16,
) -> Option<Result<(Grant, Control), Refusal>> {
    let asked = timeout(PATIENCE, ask_now(gateway, target, own, suggested)).await;
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
    target: Target,
    own: Ipv4Addr,
    suggested: u16,
) -> Option<Result<(Grant, Control), Refusal>> {
    let (router, mut control) = find(gateway, target.mark).await?;
    control.client = Some(own);
    let address = match action::external_address(&router, &control).await {
        Ok(address) if is_reachable(address) => address,
        Ok(_) => return Some(Err(Refusal::Reason("it is not connected"))),
        Err(fault) => return refused(fault),
    };
    let inside = (own, target.port);
    let granted = match control.service {
        Service::Ip2 => match action::add_any(&router, &control, inside, suggested).await {
            // Some devices that say so lack it.
            Err(Fault::Code(401 | 602)) => add(&router, &control, inside, suggested).await,
            granted => granted,
        },
        Service::Ip1 | Service::Ppp1 => add(&router, &control, inside, suggested).await,
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
    inside: (Ipv4Addr, u16),
    suggested: u16,
) -> Result<u16, Fault> {
    let mut lease = LIFETIME;
    let mut port = suggested;
    let mut tried = 0;
    while tried < MOST_PORTS {
        let unanswered = lease
            .is_zero()
            .then(|| Unanswered::new(router, control, port, inside.1));
        let added = action::add(router, control, inside, port, lease).await;
        if let Some(unanswered) = unanswered
            && added != Err(Fault::Silent)
        {
            unanswered.confirm();
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

/// A mapping for good that nobody knows of yet; dropped before the router has answered, it is deleted.
struct Unanswered {
    router: Router,
    control: Control,
    /// The port outside and the one of this machine; `None` once there is an answer.
    ports: Option<(u16, u16)>,
}

impl Unanswered {
    fn new(router: &Router, control: &Control, port: u16, inside: u16) -> Self {
        Self {
            router: router.clone(),
            control: control.clone(),
            ports: Some((port, inside)),
        }
    }

    fn confirm(mut self) {
        self.ports = None;
    }
}

impl Drop for Unanswered {
    fn drop(&mut self) {
        let (Some((port, inside)), Ok(runtime)) = (self.ports, Handle::try_current()) else {
            return;
        };
        let (router, control) = (self.router.clone(), self.control.clone());
        runtime.spawn(async move {
            let deletion = delete_own(&router, &control, port, inside);
            let deleted = timeout(LAST_PATIENCE, deletion).await;
            debug!(port, ?deleted, "Deleted a mapping that had no answer");
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
