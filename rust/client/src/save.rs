//! `SaveConfig`: writes the running state back to the configuration's file, as wg-quick(8) does.

use std::{collections::HashMap, net::SocketAddr};

use anyhow::{Context, bail};
use convoy_config::{Config, Endpoint, Host, Located, Peer, Saved, flaw_of_saved, to_wg_quick};
use convoy_uapi::listing::{RunningDevice, RunningPeer};
use nix::net::if_::if_indextoname;

/// Returns the configuration as it runs, without the mark that was chosen for it (`picked`).
///
/// A peer with a name or with several endpoints keeps them: the address in use is only the last answer.
pub(crate) fn saved(config: &Config, running: &RunningDevice, picked: Option<u32>) -> Config {
    let mut saved = config.clone();
    let it = &mut saved.interface;
    it.private_key = running.private_key.clone().map(Located::nowhere);
    let port = Some(running.listen_port).filter(|port| *port != 0);
    it.listen_port = port.map(Located::nowhere);
    let mark = Some(running.fwmark).filter(|mark| *mark != 0 && Some(*mark) != picked);
    it.fwmark = mark.map(Located::nowhere);

    let left = running.peers.iter().map(|peer| (peer.public_key, peer));
    let mut left: HashMap<_, _> = left.collect();
    saved.peers.retain_mut(|peer| {
        let running = left.remove(&peer.public_key.value);
        // Its file stays as it is.
        peer.public_key.at.is_drop_in()
            || running.is_some_and(|running| {
                update(peer, running);
                true
            })
    });
    // In their order, which a map would lose.
    for new in &running.peers {
        if left.contains_key(&new.public_key) {
            let mut peer = Peer::new(Located::nowhere(new.public_key));
            update(&mut peer, new);
            saved.peers.push(peer);
        }
    }
    saved
}

fn update(peer: &mut Peer, running: &RunningPeer) {
    peer.preshared_key = running.preshared_key.clone().map(Located::nowhere);
    let allowed = running.allowed_ips.iter().copied();
    peer.allowed_ips = allowed.map(Located::nowhere).collect();
    let keepalive = Some(running.persistent_keepalive).filter(|seconds| *seconds != 0);
    peer.persistent_keepalive = keepalive.map(Located::nowhere);
    let is_one_address = match &peer.endpoints[..] {
        [] => true,
        [one] => !matches!(one.host, Host::Name(_)),
        _ => false,
    };
    let running = running.endpoint.filter(|_| is_one_address);
    if let Some(endpoint) = running.and_then(endpoint_of) {
        peer.endpoints = vec![Located::nowhere(endpoint)];
    }
}

/// Returns an address as a file has it; `None` if no datagram could reach it: it has no port, or its interface is gone.
fn endpoint_of(address: SocketAddr) -> Option<Endpoint> {
    let host = match address {
        SocketAddr::V6(v6) if v6.scope_id() != 0 => Host::Zoned(*v6.ip(), zone_of(v6.scope_id())?),
        _ => Host::Ip(address.ip()),
    };
    let port = address.port();
    (port != 0).then_some(Endpoint { host, port })
}

/// Returns the name of an interface, or its index if the name would not be read again.
fn zone_of(index: u32) -> Option<String> {
    let name = if_indextoname(index).ok()?.into_string().ok()?;
    let is_plain = |b: u8| b.is_ascii_alphanumeric() || b"-_.".contains(&b);
    match name.bytes().all(is_plain) {
        // nix returns an empty name for an unknown index.
        true => Some(name).filter(|name| !name.is_empty()),
        false => Some(index.to_string()),
    }
}

/// Saves the configuration to the file it came from, as far as that is safe, or beside one that `was_edited` since the
/// tunnel got it; returns remarks for the user.
pub(crate) fn write(config: &Config, was_edited: bool) -> anyhow::Result<Option<String>> {
    const FAILED: &str = "cannot save the configuration";
    let Some(source) = &config.source else {
        bail!("{FAILED}: its file was replaced while it was read");
    };
    let text = to_wg_quick(config);
    let flaw = flaw_of_saved(config, &text);
    let saved = match was_edited || flaw.is_some() {
        true => source.save_beside(&text),
        false => source.save(&text, has_keys(config)),
    };
    let path = source.path().display();
    Ok(match saved.context(FAILED)? {
        Saved::InPlace { narrowed_to: None } => None,
        Saved::InPlace {
            narrowed_to: Some(mode),
        } => Some(format!(
            "{path} has keys, so only its owner can read it now (mode {mode:04o})"
        )),
        Saved::Beside(beside) => {
            let name = &config.name;
            let why = match flaw {
                None => format!("is not the file that {name} came up with any more"),
                Some(flaw) => format!("would not be valid with the running settings ({flaw})"),
            };
            let beside = beside.display();
            Some(format!(
                "{path} {why}, so it stays as it is; the running configuration is in {beside}"
            ))
        }
    })
}

/// Returns whether there are keys in the file itself.
fn has_keys(config: &Config) -> bool {
    let it = &config.interface;
    let is_within = |peer: &Peer| {
        peer.preshared_key.is_some()
            && peer.preshared_key_file.is_none()
            && !peer.public_key.at.is_drop_in()
    };
    it.private_key.is_some() && it.private_key_file.is_none() || config.peers.iter().any(is_within)
}

#[cfg(test)]
mod tests;
