//! Messages to the tunnel's process about its outer tunnel.

use std::{collections::BTreeSet, net::SocketAddr};

use convoy_config::{Config, Peer};
use convoy_daemon::supervised::{
    outer::{OuterPeer, OuterTunnel, OwnSecret},
    protocol::{Key, Secret},
};
use convoy_proto::config::PublicKey;

/// Remembers the last message about the outer tunnel that the tunnel's process got.
#[derive(Debug, Default)]
pub(crate) struct Outer {
    /// `None` if the process has none, or one of an earlier supervisor.
    told: Option<OuterTunnel>,
    /// Peers to move back from where they have roamed, not yet announced to the process.
    moved: BTreeSet<PublicKey>,
}

impl Outer {
    /// Records a new process, which has received nothing from this supervisor yet.
    pub(crate) fn begin(&mut self) {
        self.told = None;
    }

    /// Moves these peers to their present addresses, even if the process already has them.
    pub(crate) fn move_peers(&mut self, peers: &[PublicKey]) {
        self.moved.extend(peers);
    }

    /// Returns the message that the process lacks, if any. `address` gives a peer's current endpoint.
    pub(crate) fn news(
        &self,
        config: &Config,
        address: impl Fn(&Peer) -> Option<SocketAddr>,
    ) -> Option<OuterTunnel> {
        let mut outer = worded(&config.via.as_ref()?.config, address)?;
        let is_known = self.told.as_ref() == Some(&outer);
        for peer in &mut outer.peers {
            peer.is_moved = self.moved.contains(&peer.peer.0);
        }
        let has_moved = outer.peers.iter().any(|it| it.is_moved);
        (has_moved || !is_known).then_some(outer)
    }

    /// Records a message that the process has received.
    pub(crate) fn note_told(&mut self, mut outer: OuterTunnel) {
        outer.peers.iter_mut().for_each(|it| it.is_moved = false);
        self.moved.clear();
        self.told = Some(outer);
    }
}

/// Makes the message for an outer tunnel; `None` without a private key, which the configuration rules out.
fn worded(outer: &Config, address: impl Fn(&Peer) -> Option<SocketAddr>) -> Option<OuterTunnel> {
    let it = &outer.interface;
    let peers = outer.peers.iter().map(|peer| OuterPeer {
        peer: Key(peer.public_key.value),
        preshared_key: peer
            .preshared_key
            .as_ref()
            .map(|key| Secret(key.value.clone())),
        endpoint: address(peer),
        is_moved: false,
        persistent_keepalive: peer.persistent_keepalive.as_ref().map_or(0, |it| it.value),
        allowed_ips: peer.allowed_ips.iter().map(|it| it.value).collect(),
    });
    Some(OuterTunnel {
        private_key: OwnSecret(it.private_key.as_ref()?.value.clone()),
        addresses: it.addresses.iter().map(|own| own.address()).collect(),
        peers: peers.collect(),
    })
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::PermissionsExt as _};

    use super::*;

    const INNER: &str = "[Interface]\nPrivateKey = yAnz5TF+lXXJte14tji3zlMNq+hd2rYUIgJBgB3fBmk=\n#convoy: Via = hop\n\
        [Peer]\nPublicKey = TrMvSoP4jYQlY6RIzBgbssQqY3vxI2Pi+y71lOWWXX0=\nEndpoint = 203.0.113.7:1\n";
    const OUTER: &str = "[Interface]\nPrivateKey = 2AnoYzJg3Rcx8LtVbAs4eSpnkDWbMRmCCyALgGBmFXk=\nAddress = 10.9.0.2/32\n\
        [Peer]\nPublicKey = xTIBA5rboUvnH4htodjb6e697QjLERt1NAB4mZqp8Dg=\nEndpoint = 192.0.2.1:2\n\
        AllowedIPs = 0.0.0.0/0\n";

    #[test]
    fn the_process_is_told_once_of_each_state_and_again_if_it_is_another_one() {
        let config = read();
        let address = |peer: &Peer| peer.endpoints.first().and_then(|it| it.value.address());
        let mut outer = Outer::default();
        let news = outer.news(&config, address).expect("news");
        assert_eq!(
            news.addresses,
            ["10.9.0.2".parse::<std::net::IpAddr>().unwrap()]
        );
        assert_eq!(news.peers[0].endpoint, Some("192.0.2.1:2".parse().unwrap()));
        outer.note_told(news);
        assert_eq!(outer.news(&config, address), None);
        let moved = outer.news(&config, |_| Some("192.0.2.9:2".parse().unwrap()));
        // It has roamed and must return.
        outer.note_told(moved.expect("news"));
        outer.move_peers(&[config.outer_peers()[0].public_key.value]);
        let back = outer.news(&config, |_| Some("192.0.2.9:2".parse().unwrap()));
        let back = back.expect("news");
        assert!(back.peers[0].is_moved);
        outer.note_told(back);
        assert_eq!(
            outer.news(&config, |_| Some("192.0.2.9:2".parse().unwrap())),
            None
        );
        outer.begin();
        assert!(outer.news(&config, address).is_some());
    }

    #[test]
    fn a_tunnel_that_goes_through_no_other_tells_nothing() {
        let mut config = read();
        config.via = None;
        assert_eq!(Outer::default().news(&config, |_| None), None);
        assert!(config.outer_peers().is_empty());
    }

    fn read() -> Config {
        let directory = tempfile::tempdir().unwrap();
        for (name, text) in [("hop.conf", OUTER), ("wg0.conf", INNER)] {
            let path = directory.path().join(name);
            fs::write(&path, text).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        }
        convoy_config::read(&directory.path().join("wg0.conf"))
            .unwrap()
            .config
    }
}
