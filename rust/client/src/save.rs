//! `SaveConfig`: writes the running state back to the configuration's file, as wg-quick(8) does.

use std::collections::HashMap;

use anyhow::{Context, bail};
use convoy_config::{Config, Endpoint, Host, Located, Peer, Saved, to_wg_quick};
use convoy_uapi::listing::{RunningDevice, RunningPeer};

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
        running.is_some_and(|running| {
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
        [one] => matches!(one.host, Host::Ip(_)),
        _ => false,
    };
    if let Some(address) = running.endpoint.filter(|_| is_one_address) {
        peer.endpoints = vec![Located::nowhere(Endpoint {
            host: Host::Ip(address.ip()),
            port: address.port(),
        })];
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
    let saved = match was_edited {
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
        Saved::Beside(beside) => Some(format!(
            "{path} is not the file that {name} came up with any more, so it stays as it is; the running \
             configuration is in {beside}",
            name = config.name,
            beside = beside.display(),
        )),
    })
}

/// Whether there are keys in the file itself.
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
