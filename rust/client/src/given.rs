//! Digests of a file's settings: tell what somebody has changed in the running tunnel from what
//! another version of the file changes.

use std::collections::{HashMap, HashSet};

use blake2::{Blake2s256, Digest as _};
use convoy_config::{Config, Peer, decode_key, encode_key};
use convoy_proto::config::{Prefix, PublicKey};

/// Settings that a configuration gave a tunnel. Digests replace secrets, so it may be kept in a file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Given {
    private_key: Digest,
    listen_port: u16,
    peers: HashMap<PublicKey, GivenPeer>,
}

/// Settings of a peer.
#[derive(Clone, Debug, PartialEq, Eq)]
struct GivenPeer {
    preshared_key: Digest,
    allowed_ips: HashSet<Prefix>,
    persistent_keepalive: u16,
}

/// The digest of a value; zeros for none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Digest([u8; 16]);

/// The first line of the text.
const HEAD: &str = "convoy-given 1";

impl Given {
    /// Summarises `config`.
    pub(crate) fn of(config: &Config) -> Self {
        let it = &config.interface;
        let peers = config.peers.iter();
        Self {
            private_key: Digest::of(it.private_key.as_ref().map(|key| &key.0[..])),
            listen_port: it.listen_port.as_ref().map_or(0, |port| port.value),
            peers: peers
                .map(|peer| (peer.public_key.value, GivenPeer::of(peer)))
                .collect(),
        }
    }

    /// `new` with what differs between `running` and this, as somebody else has changed it there, unless `new` changes
    /// the same.
    pub(crate) fn merged(&self, new: &Config, running: &Config) -> Config {
        let wanted = Self::of(new);
        let found = Self::of(running);
        let mut merged = new.clone();
        if found.private_key != self.private_key && wanted.private_key == self.private_key {
            let key = running.interface.private_key.clone();
            merged.interface.private_key = key;
        }
        let is_kept = wanted.listen_port == self.listen_port && self.listen_port != 0;
        if is_kept && found.listen_port != 0 {
            let port = running.interface.listen_port.clone();
            merged.interface.listen_port = port;
        }
        let present = running.peers.iter().map(|it| (it.public_key.value, it));
        let mut present: HashMap<_, _> = present.collect();
        let mut claimed = HashMap::new();
        merged.peers.retain_mut(|peer| {
            let key = peer.public_key.value;
            let now = present.remove(&key);
            let former = self.peers.get(&key);
            let had = |it: &Prefix| former.is_some_and(|former| former.allowed_ips.contains(it));
            let gained = peer.allowed_ips.iter().map(|it| it.value);
            claimed.extend(gained.filter(|it| !had(it)).map(|it| (it, key)));
            match (former, now) {
                (Some(former), Some(now)) => {
                    former.merge(peer, now);
                    true
                }
                // Somebody has removed it.
                (Some(former), None) => *former != GivenPeer::of(peer),
                (None, _) => true,
            }
        });
        let is_added = |peer: &&Peer| {
            let key = &peer.public_key.value;
            present.contains_key(key) && !self.peers.contains_key(key)
        };
        let added: Vec<_> = running.peers.iter().filter(is_added).cloned().collect();
        merged.peers.extend(added);
        for peer in &mut merged.peers {
            let key = peer.public_key.value;
            let is_anothers = |it: &Prefix| claimed.get(it).is_some_and(|owner| *owner != key);
            peer.allowed_ips.retain(|it| !is_anothers(&it.value));
        }
        merged
    }

    /// As if the file had not had a private key.
    pub(crate) fn forget_private_key(&mut self) {
        self.private_key = Digest::default();
    }

    /// The text of a file, which contains no secret.
    pub(crate) fn to_text(&self) -> String {
        let mut text = format!("{HEAD}\n{} {}\n", self.private_key.text(), self.listen_port);
        for (key, peer) in &self.peers {
            let prefixes = peer.allowed_ips.iter();
            let prefixes: Vec<_> = prefixes.map(|it| format!(" {it}")).collect();
            text += &format!(
                "{} {} {}{}\n",
                encode_key(&key.0).as_str(),
                peer.preshared_key.text(),
                peer.persistent_keepalive,
                prefixes.concat()
            );
        }
        text
    }

    /// Parses what [`Given::to_text`] has made; `None` if it is something else.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let mut lines = text.lines();
        if lines.next()? != HEAD {
            return None;
        }
        let (key, port) = lines.next()?.split_once(' ')?;
        let mut given = Self {
            private_key: Digest::parse(key)?,
            listen_port: port.parse().ok()?,
            peers: HashMap::new(),
        };
        for line in lines {
            let mut words = line.split(' ');
            let mut next = || words.next();
            let key = PublicKey(*decode_key(next()?)?);
            let peer = GivenPeer {
                preshared_key: Digest::parse(next()?)?,
                persistent_keepalive: next()?.parse().ok()?,
                allowed_ips: words.map(str::parse).collect::<Result<_, _>>().ok()?,
            };
            given.peers.insert(key, peer);
        }
        Some(given)
    }
}

impl GivenPeer {
    fn of(peer: &Peer) -> Self {
        Self {
            preshared_key: Digest::of(peer.preshared_key.as_ref().map(|key| &key.0[..])),
            allowed_ips: peer.allowed_ips.iter().map(|it| it.value).collect(),
            persistent_keepalive: peer.persistent_keepalive.as_ref().map_or(0, |it| it.value),
        }
    }

    /// Gives `new` what somebody has changed in `running`, unless the file changes it, too.
    fn merge(&self, new: &mut Peer, running: &Peer) {
        let (wanted, found) = (Self::of(new), Self::of(running));
        if found.preshared_key != self.preshared_key && wanted.preshared_key == self.preshared_key {
            new.preshared_key.clone_from(&running.preshared_key);
        }
        let is_lost =
            |it: &Prefix| self.allowed_ips.contains(it) && !wanted.allowed_ips.contains(it);
        let is_gained =
            |it: &Prefix| !self.allowed_ips.contains(it) && !found.allowed_ips.contains(it);
        let stays = running.allowed_ips.iter().filter(|it| !is_lost(&it.value));
        let gained = new.allowed_ips.iter().filter(|it| is_gained(&it.value));
        new.allowed_ips = stays.chain(gained).cloned().collect();
        let keepalive = self.persistent_keepalive;
        if found.persistent_keepalive != keepalive && wanted.persistent_keepalive == keepalive {
            let running = &running.persistent_keepalive;
            new.persistent_keepalive.clone_from(running);
        }
    }
}

impl Digest {
    fn of(value: Option<&[u8]>) -> Self {
        let Some(value) = value else {
            return Self::default();
        };
        let mut digest = [0; 16];
        digest.copy_from_slice(&Blake2s256::digest(value)[..16]);
        Self(digest)
    }

    fn text(self) -> String {
        self.0.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    fn parse(text: &str) -> Option<Self> {
        let number = u128::from_str_radix(text, 16).ok()?;
        (text.len() == 32).then(|| Self(number.to_be_bytes()))
    }
}

#[cfg(test)]
mod tests;
