//! Checks a configuration as a whole.

mod directs;
mod port_forward;
mod routes;

use std::collections::{HashMap, HashSet};

use convoy_types::Prefix;

use crate::{
    config::{Interface, Peer},
    draft::Draft,
    forward::{Side, refuse_unguarded},
    located::{Located, Place},
    report::{Diagnostic, Report},
};

/// Checks a draft and removes repetitions and lost claims from it.
pub(crate) fn check(draft: &mut Draft, report: &mut Report) {
    check_private_key(draft, report);
    check_mtu(draft, report);
    check_lan(&draft.interface, report);
    remove_repetitions(&mut draft.interface.addresses, "address", report);
    check_forwarding(&draft.interface, report);
    check_nat(&draft.interface, report);
    for peer in &mut draft.peers {
        remove_repetitions(&mut peer.allowed_ips, "prefix", report);
        check_preshared_key(peer, report);
        for direct in &mut peer.directs {
            remove_repetitions(&mut direct.value.allowed_ips, "prefix", report);
        }
    }
    check_public_keys(&draft.peers, report);
    routes::ignore_this_machine(draft, report);
    settle_claims(&mut draft.peers, report);
    directs::check(draft, report);
    port_forward::check(draft, report);
    routes::check_endpoints(draft, report);
}

fn check_private_key(draft: &Draft, report: &mut Report) {
    let interface = &draft.interface;
    match (&interface.private_key, &interface.private_key_file) {
        (Some(key), Some(file)) if key.at != file.at => {
            report.push(key_and_file("PrivateKey", key.at, file.at))
        }
        (None, None) => {
            // A documented way to keep the key elsewhere: `PostUp = wg set %i private-key <(…)`.
            let by_hook = interface.hooks().any(|it| it.contains("private-key"));
            // An invalid or misspelt `PrivateKey` is reported already.
            let is_certain = !by_hook && !report.has_errors();
            if let (Some(header), true) = (draft.header, is_certain) {
                let title = "no `PrivateKey`";
                let label = "the tunnel carries no traffic without a key";
                report.push(Diagnostic::warning(title, header, label));
            }
        }
        _ => {}
    }
}

fn check_preshared_key(peer: &Peer, report: &mut Report) {
    if let (Some(key), Some(file)) = (&peer.preshared_key, &peer.preshared_key_file)
        && key.at != file.at
    {
        report.push(key_and_file("PresharedKey", key.at, file.at));
    }
}

/// A key that was read from a file has the place of the file's path.
fn key_and_file(name: &str, key: Place, file: Place) -> Diagnostic {
    let title = format!("`{name}` and `{name}File` are both set");
    Diagnostic::error(title, key, "the key")
        .also(file, "the file with the key")
        .help("remove one of them")
}

fn check_mtu(draft: &Draft, report: &mut Report) {
    let Some(mtu) = &draft.interface.mtu else {
        return;
    };
    let own = draft.interface.addresses.iter().map(|it| it.address());
    let allowed = draft.peers.iter().flat_map(|peer| &peer.allowed_ips);
    let mut addresses = own.chain(allowed.map(|it| it.address()));
    let has_ipv6 = addresses.any(|address| address.is_ipv6());
    if mtu.value < 1280 && has_ipv6 {
        let title = "an MTU below 1280 disables IPv6 on the interface";
        let warning = Diagnostic::warning(title, mtu.at, "IPv6 needs at least 1280 bytes");
        let help = "without it, packets for IPv6 networks of `AllowedIPs` are refused";
        report.push(warning.help(help));
    }
}

fn check_lan(interface: &Interface, report: &mut Report) {
    let is_on = interface
        .kill_switch
        .as_ref()
        .is_some_and(|it| it.value != Default::default());
    if let (Some(allow), false) = (&interface.allow_lan, is_on) {
        let title = "`AllowLAN` has no effect without the kill switch";
        let warning = Diagnostic::warning(title, allow.at, "");
        report.push(warning.help("add `#convoy: KillSwitch = on`"));
    }
}

fn check_forwarding(interface: &Interface, report: &mut Report) {
    refuse_unguarded(&interface.forwarding, report);
    let own: Vec<_> = interface.addresses.iter().map(|it| it.address()).collect();
    let listeners = interface.forwarding.listeners.iter();
    for listener in listeners.filter(|it| it.side == Side::Inside) {
        if listener.inside(&own).is_none() {
            let title = "`Reverse` listens on an address that the tunnel does not have";
            let label = "expected one of `Address`, or none for all of them";
            report.push(Diagnostic::error(title, listener.addresses.at, label));
        }
    }
}

fn check_nat(interface: &Interface, report: &mut Report) {
    let nat = &interface.nat;
    if nat.is_on.as_ref().is_some_and(|it| it.value) {
        return;
    }
    let lists = nat.allow.iter().chain(&nat.deny).map(|it| it.at);
    let dns = nat.dns.iter().filter(|it| it.value).map(|it| it.at);
    for at in lists.chain(dns) {
        let title = "`NatAllow`, `NatDeny` and `NatDNS` have no effect without `Nat`";
        let warning = Diagnostic::warning(title, at, "");
        report.push(warning.help("add `#convoy: Nat = user`"));
    }
}

/// Keeps the first of several equal items.
fn remove_repetitions<T>(list: &mut Vec<Located<T>>, what: &str, report: &mut Report)
where
    T: Copy + Eq + std::hash::Hash,
{
    let mut seen = HashMap::new();
    list.retain(|item| match seen.insert(item.value, item.at) {
        None => true,
        Some(first) => {
            let title = format!("duplicate {what}");
            let warning = Diagnostic::warning(title, item.at, "ignored");
            report.push(warning.also(first, "first listed here"));
            false
        }
    });
}

/// Refuses two sections for one peer: wg would replace the allowed IPs of the first by those of the second.
fn check_public_keys(peers: &[Peer], report: &mut Report) {
    let mut seen = HashMap::new();
    for peer in peers {
        let key = &peer.public_key;
        if let Some(first) = seen.insert(key.value, key.at) {
            let error = Diagnostic::error(
                "two peers have the same public key",
                key.at,
                "used again here",
            );
            report.push(
                error
                    .also(first, "first used here")
                    .help("merge the two sections"),
            );
        }
    }
}

/// Gives each prefix to one peer.
///
/// Within `NAME.conf` the last peer that lists it has it, as in wg. Files in `NAME.d` come from
/// different authors, and their order means nothing, so a clash with one of them is an error.
fn settle_claims(peers: &mut [Peer], report: &mut Report) {
    let mut owners: HashMap<Prefix, (usize, Place)> = HashMap::new();
    let mut lost: HashSet<(usize, Prefix)> = HashSet::new();
    for (index, peer) in peers.iter().enumerate() {
        for prefix in &peer.allowed_ips {
            let Some((loser, first)) = owners.insert(prefix.value, (index, prefix.at)) else {
                continue;
            };
            lost.insert((loser, prefix.value));
            let title = "two peers claim the same prefix";
            let is_error = prefix.at.is_drop_in() || first.is_drop_in();
            report.push(match is_error {
                true => Diagnostic::error(title, prefix.at, "claimed again here")
                    .also(first, "first claimed here"),
                false => Diagnostic::warning(title, prefix.at, "this peer gets it")
                    .also(first, "ignored"),
            });
        }
    }
    for (index, peer) in peers.iter_mut().enumerate() {
        let keeps = |it: &Located<Prefix>| !lost.contains(&(index, it.value));
        peer.allowed_ips.retain(keeps);
    }
}
