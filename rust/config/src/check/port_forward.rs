//! Checks the gateway in the tunnel that is asked for a port.

use std::net::{IpAddr, Ipv4Addr};

use convoy_types::Prefix;

use crate::{
    draft::Draft,
    report::{Diagnostic, Report},
};

/// Refuses a gateway that no packet would reach, and warns of hooks that never run.
pub(super) fn check(draft: &Draft, report: &mut Report) {
    let interface = &draft.interface;
    let Some(wanted) = &interface.port_forward else {
        if let Some(hook) = interface.post_port_forward.first() {
            let title = "`PostPortForward` never runs without `PortForward`";
            let warning = Diagnostic::warning(title, hook.at, "");
            report.push(warning.help("add `#convoy: PortForward = nat-pmp`"));
        }
        return;
    };
    let Some(gateway) = interface.port_forward_gateway() else {
        let title = "`PortForward` has no gateway";
        let label = "neither `Address` nor `DNS` tells one";
        let error = Diagnostic::error(title, wanted.at, label);
        report.push(error.help("write its address: `nat-pmp 10.2.0.1`"));
        return;
    };
    let mut own = interface.addresses.iter();
    if own.any(|own| own.value.address() == gateway) {
        let title = "the gateway of `PortForward` is this machine";
        let label = "expected an address of the provider";
        report.push(Diagnostic::error(title, wanted.at, label));
        return;
    }
    if interface
        .addresses
        .iter()
        .any(|own| broadcast(&own.value) == Some(gateway))
    {
        let title = "the gateway of `PortForward` is a broadcast address";
        let label = "expected the address of one machine";
        report.push(Diagnostic::error(title, wanted.at, label));
        return;
    }
    let gateway = Prefix::host(gateway.into());
    let mut allowed = draft.peers.iter().flat_map(|peer| &peer.allowed_ips);
    if !allowed.any(|it| it.value.contains(&gateway)) {
        let title = "the gateway of `PortForward` is not in the tunnel";
        let label = format!("{} is in no `AllowedIPs`", gateway.address());
        let error = Diagnostic::error(title, wanted.at, label);
        report.push(error.help("add it to the `AllowedIPs` of the provider's peer"));
    }
}

/// Returns the broadcast address of a network that has one.
fn broadcast(own: &Prefix) -> Option<Ipv4Addr> {
    match own.network().address() {
        IpAddr::V4(network) if own.length() < 31 => {
            Some((u32::from(network) | u32::MAX >> own.length()).into())
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests;
