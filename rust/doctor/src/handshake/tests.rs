use std::net::Ipv4Addr;

use convoy_config::Located;
use convoy_proto::config::PeerUpdate;

use super::*;
use crate::finding::Severity;

/// A server that knows the public key of `client`.
struct Server {
    tunnel: Tunnel,
    _kernel: memory::Kernel,
}

impl Server {
    fn start(key: u8, client: &PrivateKey) -> Self {
        let (device, kernel) = memory::pair(Offload::default(), 1_420).unwrap();
        let tunnel = Tunnel::start(device, Options::default()).unwrap();
        let peer = PeerUpdate::new(Identity::new(client).public_key());
        let update = DeviceUpdate {
            private_key: Some(Some(PrivateKey([key; 32]))),
            peers: vec![peer],
            ..DeviceUpdate::default()
        };
        tunnel.apply(update).unwrap();
        Self {
            tunnel,
            _kernel: kernel,
        }
    }

    fn address(&self) -> SocketAddr {
        let port = self.tunnel.snapshot().unwrap().listen_port;
        (Ipv4Addr::LOCALHOST, port).into()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.tunnel.stop();
    }
}

fn peer(key: u8) -> Peer {
    let key = Identity::new(&PrivateKey([key; 32])).public_key();
    Peer::new(Located::nowhere(key))
}

fn runtime() -> Runtime {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    builder.enable_all().build().unwrap()
}

#[test]
fn a_peer_answers_each_time_it_is_called() {
    let client = PrivateKey([1; 32]);
    let server = Server::start(2, &client);
    let peer = peer(2);
    let callees = [Callee {
        peer: &peer,
        addresses: vec![server.address()],
    }];
    // A later initiation is no replay of an earlier one.
    for _ in 0..2 {
        let answered = shake_hands(&runtime(), &client, &callees, None).unwrap();
        assert_eq!(answered, [(peer.public_key.value, server.address())]);
        let findings = judge(&client, &callees, &answered);
        assert_eq!(findings[0].severity, Severity::Ok);
    }
}

#[test]
fn silence_is_an_error_that_tells_the_own_public_key() {
    let client = PrivateKey([1; 32]);
    let peer = peer(2);
    let address = SocketAddr::from(([203, 0, 113, 1], 51_820));
    let callees = [
        Callee {
            peer: &peer,
            addresses: vec![address],
        },
        Callee {
            peer: &peer,
            addresses: Vec::new(),
        },
    ];
    let findings = judge(&client, &callees, &[]);
    assert_eq!(
        findings.len(),
        1,
        "a name without an address has a finding of its own"
    );
    assert_eq!(findings[0].severity, Severity::Error);
    assert!(findings[0].what.contains("203.0.113.1:51820"));
    let own = encode_key(&Identity::new(&client).public_key().0);
    assert!(findings[0].fix.as_ref().unwrap().contains(own.as_str()));
}

#[test]
fn a_tunnel_that_is_up_tells_its_state_itself() {
    let severity = |state| {
        let status = Status {
            peers: vec![PeerStatus {
                state,
                ..PeerStatus::default()
            }],
            ..Status::default()
        };
        judge_status(&status)[0].severity
    };
    let no_route = || PeerStatus {
        state: PeerState::NoRoute,
        ..PeerStatus::default()
    };
    let through = Status {
        name: "wg0".to_owned(),
        peers: vec![no_route()],
        via: Some(convoy_report::ViaStatus {
            name: "hop".to_owned(),
            peers: vec![no_route()],
            ..Default::default()
        }),
        ..Status::default()
    };
    let fixes = judge_status(&through).into_iter().filter_map(|it| it.fix);
    let [inner, outer] = <[String; 2]>::try_from(fixes.collect::<Vec<_>>()).unwrap();
    assert!(inner.contains("`AllowedIPs` of hop"), "{inner}");
    assert_eq!(outer, "Connect to a network.");
    assert_eq!(severity(PeerState::Connected), Severity::Ok);
    assert_eq!(severity(PeerState::Idle), Severity::Ok);
    assert_eq!(severity(PeerState::Connecting), Severity::Note);
    assert_eq!(severity(PeerState::NoEndpoint), Severity::Note);
    assert_eq!(severity(PeerState::NoAnswer), Severity::Error);
    assert_eq!(severity(PeerState::NameNotFound), Severity::Error);
}
