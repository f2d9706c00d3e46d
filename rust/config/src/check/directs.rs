//! Checks the peers that are met through others.

use std::collections::HashMap;

use convoy_types::{MAX_DIRECT_PEERS, Prefix};

use super::routes::own_key;
use crate::{
    config::{Direct, Interface, Peer},
    draft::Draft,
    located::{Located, Place},
    report::{Diagnostic, Report},
};

/// Refuses direct peers that cannot be met, or that contradict others.
pub(super) fn check(draft: &Draft, report: &mut Report) {
    let all = draft.peers.iter().flat_map(|peer| &peer.directs);
    if let Some(excess) = all.clone().nth(MAX_DIRECT_PEERS) {
        let title = format!("more than {MAX_DIRECT_PEERS} direct peers");
        report.push(Diagnostic::error(title, excess.at, "one too many"));
        return;
    }
    if all.clone().next().is_none() {
        warn_of_interface(&draft.interface, report);
    }
    check_keys(draft, all.clone(), report);
    check_claims(all, report);
    for hub in &draft.peers {
        for direct in &hub.directs {
            check_family(&draft.interface, direct, report);
            for prefix in &direct.allowed_ips {
                check_within(&draft.peers, hub, prefix, report);
            }
        }
    }
}

/// Warns of keys of `[Interface]` that serve direct peers alone.
fn warn_of_interface(interface: &Interface, report: &mut Report) {
    let wants_map = interface.port_map.as_ref().filter(|it| it.value);
    let useless = [
        ("Stun", interface.stun.first().map(|it| it.at)),
        ("PortMap", wants_map.map(|it| it.at)),
    ];
    for (key, at) in useless {
        if let Some(at) = at {
            let title = format!("`{key}` has no effect without a direct peer");
            let warning = Diagnostic::warning(title, at, "");
            report.push(warning.help("add `#convoy: Direct = …` to the `[Peer]` of a hub"));
        }
    }
}

/// Refuses keys that are another's, or this machine's.
fn check_keys<'a>(
    draft: &'a Draft,
    all: impl Iterator<Item = &'a Located<Direct>> + Clone,
    report: &mut Report,
) {
    if all.clone().next().is_none() {
        return;
    }
    let peers = draft.peers.iter().map(|peer| &peer.public_key);
    let mut seen: HashMap<_, _> = peers.map(|key| (key.value, key.at)).collect();
    let own = own_key(&draft.interface);
    for key in all.map(|direct| &direct.public_key) {
        if own == Some(key.value) {
            let title = "a direct peer is the machine itself";
            let label = "the public key of this `PrivateKey`";
            let error = Diagnostic::error(title, key.at, label);
            report.push(error.help("write the key of the other machine"));
        }
        if let Some(first) = seen.insert(key.value, key.at) {
            let title = "a direct peer has the public key of another peer";
            let error = Diagnostic::error(title, key.at, "used again here");
            report.push(error.also(first, "first used here"));
        }
    }
}

fn check_claims<'a>(all: impl Iterator<Item = &'a Located<Direct>>, report: &mut Report) {
    let mut seen: HashMap<Prefix, Place> = HashMap::new();
    for prefix in all.flat_map(|direct| &direct.allowed_ips) {
        if let Some(first) = seen.insert(prefix.value, prefix.at) {
            let title = "two direct peers claim the same prefix";
            let error = Diagnostic::error(title, prefix.at, "claimed again here");
            report.push(error.also(first, "first claimed here"));
        }
    }
}

/// Refuses a peer that this machine could send nothing from an address of the same family.
fn check_family(interface: &Interface, direct: &Direct, report: &mut Report) {
    let Some(address) = direct.allowed_ips.first() else {
        return;
    };
    let mut own = interface.addresses.iter();
    if own.any(|own| own.is_ipv6() == address.is_ipv6()) {
        return;
    }
    let family = if address.is_ipv6() { "IPv6" } else { "IPv4" };
    let title = format!("this machine has no {family} address for a direct peer");
    let label = "the peer's address inside the tunnel";
    let error = Diagnostic::error(title, address.at, label);
    report.push(error.help(format!("add an {family} `Address` to `[Interface]`")));
}

/// Refuses a prefix whose packets do not go to the hub.
fn check_within(peers: &[Peer], hub: &Peer, prefix: &Located<Prefix>, report: &mut Report) {
    let holding = peers.iter().filter_map(|peer| {
        let holding = peer.allowed_ips.iter().filter(|it| it.contains(prefix));
        let longest = holding.max_by_key(|allowed| allowed.length());
        Some((longest?, peer))
    });
    let Some((allowed, holder)) = holding.max_by_key(|(allowed, _)| allowed.length()) else {
        report.push(outside(prefix));
        return;
    };
    if holder.public_key == hub.public_key {
        return;
    }
    let is_within = hub.allowed_ips.iter().any(|it| it.contains(prefix));
    report.push(match is_within {
        true => {
            let title = "a direct peer's prefix belongs to another peer than its hub";
            let error = Diagnostic::error(title, prefix.at, "this prefix");
            error.also(allowed.at, "that peer gets its packets")
        }
        false => outside(prefix),
    });
}

fn outside(prefix: &Located<Prefix>) -> Diagnostic {
    let title = "a direct peer's prefix is not within `AllowedIPs` of its hub";
    let error = Diagnostic::error(title, prefix.at, "expected a part of one of them");
    error.help("packets go by the hub while there is no direct path")
}

#[cfg(test)]
mod tests;
