//! `SaveConfig`: writes the running state back to the configuration's file, as wg-quick(8) does.

use std::{
    collections::HashMap,
    ffi::OsString,
    fs,
    io::{self, Write as _},
    os::unix::fs::{MetadataExt as _, fchown},
    path::Path,
};

use anyhow::Context;
use convoy_config::{Config, Endpoint, Host, Located, Peer, to_wg_quick};

use super::tunnel::{RunningDevice, RunningPeer};

/// The configuration as it runs. A mark that was chosen for it, `picked`, is no part of it.
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
    // In their order, which a map has not.
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

/// Replaces the file in one step; its owner and its permissions stay.
pub(crate) fn write(path: &Path, config: &Config) -> anyhow::Result<()> {
    let written = || -> io::Result<()> {
        // A link to the file stays a link.
        let path = fs::canonicalize(path)?;
        let metadata = fs::metadata(&path)?;
        remove_unfinished(&path);
        let directory = path.parent().unwrap_or(Path::new("/"));
        let mut new = tempfile::Builder::new();
        let mut file = new
            .prefix(&name_of_new(&path))
            .rand_bytes(0)
            .tempfile_in(directory)?;
        file.write_all(to_wg_quick(config).as_bytes())?;
        let (uid, gid) = (metadata.uid(), metadata.gid());
        let ours = file.as_file().metadata()?;
        // A service may be forbidden to change owners.
        if (ours.uid(), ours.gid()) != (uid, gid) {
            fchown(file.as_file(), Some(uid), Some(gid))?;
        }
        file.as_file().set_permissions(metadata.permissions())?;
        file.as_file().sync_all()?;
        file.persist(&path)?;
        Ok(())
    };
    written().with_context(|| format!("cannot save the configuration in {}", path.display()))
}

/// Removes what a crash left of a new file, which has keys in it.
pub(crate) fn remove_unfinished(path: &Path) {
    // A new file is beside the file that a link leads to.
    let path = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    // It is almost never there.
    let _ = fs::remove_file(path.with_file_name(name_of_new(&path)));
}

/// The name of a new file until it is complete. Always the same, so that one that a crash left can be found.
fn name_of_new(path: &Path) -> OsString {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(".convoy-new");
    name
}

#[cfg(test)]
mod tests;
