//! Checks where the routes of a configuration would lead.

use std::net::IpAddr;

use convoy_types::PublicKey;
use x25519_dalek::{PublicKey as Point, StaticSecret};

use crate::{
    config::{Endpoint, Host, Interface},
    draft::Draft,
    located::{Located, Place},
    report::{Diagnostic, Report},
    routed::Routed,
};

/// Removes the peer that is this machine itself, as in one file for all machines of a mesh: its routes would take the
/// machine's own network and the internet away. WireGuard ignores it, too.
pub(super) fn ignore_this_machine(draft: &mut Draft, report: &mut Report) {
    let Some(own) = own_key(&draft.interface) else {
        return;
    };
    draft.peers.retain(|peer| {
        if peer.public_key.value != own {
            return true;
        }
        let title = "this peer is the machine itself";
        let label = "the public key of this `PrivateKey`";
        let warning = Diagnostic::warning(title, peer.public_key.at, label);
        report.push(warning.help("the section is ignored, and gets no route"));
        false
    });
}

/// Returns the public key of this machine.
pub(super) fn own_key(interface: &Interface) -> Option<PublicKey> {
    let key = interface.private_key.as_ref()?;
    let point = Point::from(&StaticSecret::from(key.value.0));
    Some(PublicKey(point.to_bytes()))
}

/// Warns of endpoints to which the routes into the tunnel lead, too.
pub(super) fn check_endpoints(draft: &Draft, report: &mut Report) {
    let routed = Routed::of(&draft.interface, &draft.peers);
    let endpoints = draft.peers.iter().flat_map(|peer| &peer.endpoints);
    for endpoint in endpoints {
        let Some(address) = address(&endpoint.value) else {
            continue;
        };
        if let Some(at) = routed.place_of(address) {
            report.push(held(at, endpoint, address));
        }
    }
}

fn held(at: Place, endpoint: &Located<Endpoint>, address: IpAddr) -> Diagnostic {
    let title = format!("the tunnel's networks hold the endpoint {address}");
    Diagnostic::warning(title, at, "holds it")
        .also(endpoint.at, "this endpoint")
        .help(format!(
            "the tunnel's datagrams to {address} stay outside; what programs send to it goes into the tunnel"
        ))
}

fn address(endpoint: &Endpoint) -> Option<IpAddr> {
    match &endpoint.host {
        Host::Ip(address) => Some(*address),
        Host::Zoned(..) | Host::Name(_) => None,
    }
}
