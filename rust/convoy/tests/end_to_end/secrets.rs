//! Removed keys leave no copy in the daemon's memory, and keys never appear in its log.

mod memory;
mod session;

use base64::{Engine, prelude::BASE64_STANDARD};
use convoy_lab::{
    eventually,
    wireguard::{Daemon, KeyPair},
};

use crate::scene::{Bed, DEADLINE, convoy, lab, output_of};
use memory::{Secret, places};
use session::Peer;

/// Enough that the parser's vectors grow while it reads them.
const PEERS: usize = 40;

#[test]
fn keys_that_were_removed_are_nowhere_in_memory() {
    let Some(bed) = Bed::new() else { return };
    let keys = Keys::generate();
    let pid = bed.daemon.pid();
    assert_eq!(places(pid, &keys.all()), "");

    bed.file("setconf", &keys.configuration());
    bed.wg("setconf wg0 /run/setconf");
    // The answer contains all keys as text.
    assert!(bed.wg("show wg0 dump").contains(&keys.preshared_base64()));
    assert_eq!(places(pid, &keys.texts()), "");
    let found = places(pid, &keys.all());
    for secret in keys.all() {
        assert!(
            found.contains(secret.name),
            "no {} in:\n{found}",
            secret.name
        );
    }

    for peer in &keys.peers {
        bed.wg(&format!(
            "set wg0 peer {} preshared-key /dev/null",
            peer.public_base64()
        ));
    }
    assert_eq!(places(pid, &[keys.preshared()]), "");
    bed.wg(&format!(
        "set wg0 peer {} remove",
        keys.peers[0].public_base64()
    ));
    assert_eq!(places(pid, &[keys.shared()]), "");

    bed.file(
        "another",
        &BASE64_STANDARD.encode(KeyPair::generate().private),
    );
    bed.wg("set wg0 private-key /run/another");
    bed.wg("show wg0 dump");
    assert_eq!(places(pid, &keys.all()), "");
}

#[test]
fn keys_of_sessions_that_have_ended_are_nowhere_in_memory() {
    let Some(bed) = Bed::new() else { return };
    let keys = Keys::generate();
    let mut peer = Peer::new(&bed.namespace, &keys.own, keys.preshared);
    bed.file("private", &BASE64_STANDARD.encode(keys.own.private));
    bed.file("preshared", &keys.preshared_base64());
    let public = peer.keys().public_base64();
    let add = format!(
        "set wg0 private-key /run/private listen-port 7777 peer {public} \
         preshared-key /run/preshared endpoint {} allowed-ips 10.8.0.0/24",
        peer.address()
    );
    let link = bed.namespace.link();
    link.set_up("wg0").unwrap();
    link.add_address("wg0", "10.8.0.1/24").unwrap();
    let ends: [(&str, &dyn Fn()); 4] = [
        ("the link is set down", &|| {
            link.set_down("wg0").unwrap();
            link.set_up("wg0").unwrap();
        }),
        ("the peer is removed", &|| {
            bed.wg(&format!("set wg0 peer {public} remove"));
        }),
        ("the private key is taken away", &|| {
            bed.wg("set wg0 private-key /dev/null");
        }),
        ("all peers are replaced", &|| {
            bed.wg("setconf wg0 /dev/null");
        }),
    ];
    for (what, end) in ends {
        bed.wg(&add);
        bed.daemon.wait_until_listening(7_777).unwrap();
        let session = peer.session(7_777);
        // Once the keepalive has arrived, the session seals the packet of a ping.
        let has_sent = || {
            let mut ping = bed.namespace.command("ping");
            let _ = ping.args(["-c", "1", "-W", "1", "10.8.0.2"]).output();
            peer.has_received_data().then_some(())
        };
        assert!(eventually(DEADLINE, has_sent).is_some(), "{what}");
        let found = places(bed.daemon.pid(), &session);
        for key in &session {
            assert!(
                found.contains(key.name),
                "{what}: no {} in:\n{found}",
                key.name
            );
        }
        end();
        let mut found = String::new();
        let is_gone = eventually(DEADLINE, || {
            found = places(bed.daemon.pid(), &session);
            found.is_empty().then_some(())
        });
        assert!(is_gone.is_some(), "{what}:\n{found}");
    }
}

#[test]
fn a_replaced_preshared_key_is_gone_after_the_next_handshake() {
    let Some(bed) = Bed::new() else { return };
    let keys = Keys::generate();
    let mut peer = Peer::new(&bed.namespace, &keys.own, keys.preshared);
    let public = peer.keys().public_base64();
    bed.file("private", &BASE64_STANDARD.encode(keys.own.private));
    bed.namespace.link().set_up("wg0").unwrap();
    bed.wg("set wg0 private-key /run/private listen-port 7777");
    bed.daemon.wait_until_listening(7_777).unwrap();
    let mut former = Vec::new();
    for _ in 0..3 {
        bed.file("preshared", &BASE64_STANDARD.encode(peer.preshared()));
        bed.wg(&format!(
            "set wg0 peer {public} preshared-key /run/preshared"
        ));
        former.push(Secret::new("preshared key", peer.preshared()));
        former.extend(peer.session(7_777));
        let found = places(bed.daemon.pid(), &former[former.len() - 3..]);
        assert!(found.contains("preshared key") && found.contains("sending key"));
        let mut found = String::new();
        let is_gone = eventually(DEADLINE, || {
            found = places(bed.daemon.pid(), &former[..former.len() - 3]);
            found.is_empty().then_some(())
        });
        assert!(is_gone.is_some(), "{found}");
        peer.change_preshared();
    }
}

#[test]
fn no_log_contains_a_key() {
    let Some((_turn, lab)) = lab(&["wg"]) else {
        return;
    };
    let namespace = lab.namespace("left").unwrap();
    for filter in [("RUST_LOG", "trace"), ("LOG_LEVEL", "debug")] {
        let keys = Keys::generate();
        let mut peer = Peer::new(&namespace, &keys.own, keys.preshared);
        let convoy = convoy().variable(filter.0, filter.1);
        let mut daemon = Daemon::start(&namespace, &convoy, "wg0").unwrap();
        namespace.link().set_up("wg0").unwrap();
        let [own, preshared] = [keys.own.private, keys.preshared].map(hex::encode);
        let public = hex::encode(peer.keys().public);
        let of_peer = format!("public_key={public}\npreshared_key=");
        let peer_in_full = format!("{of_peer}{preshared}\nendpoint={}\n", peer.address());
        let texts = [own.clone(), preshared.clone(), keys.preshared_base64()];
        let mut requests = vec![format!(
            "private_key={own}\nlisten_port=7777\n{peer_in_full}"
        )];
        for text in &texts {
            for line in [
                "private_key=",
                "private_key =",
                "=",
                "",
                "listen_port=",
                &of_peer,
            ] {
                // Typical mistakes: too long, too short, under the wrong key.
                requests.push(format!("{line}{text}0\n"));
                requests.push(format!("{line}{}\n", &text[1..]));
                requests.push(format!("{line}{text}\n"));
            }
        }
        requests.push(format!(
            "private_key={own}\n{of_peer}{}\n",
            hex::encode([1; 32])
        ));
        requests.push(peer_in_full.clone());
        let mut session = Vec::new();
        for request in &requests {
            let answer = daemon.request(&format!("set=1\n{request}\n")).unwrap();
            if *request == requests[0] {
                assert_eq!(answer, "errno=0\n\n");
                daemon.wait_until_listening(7_777).unwrap();
                session = peer.session(7_777);
            }
        }
        daemon.request(&format!("{own}\n{preshared}\n\n")).unwrap();
        daemon.request(&format!("get=1\n{own}\n\n")).unwrap();
        daemon.signal(nix::sys::signal::Signal::SIGTERM).unwrap();
        daemon.wait().unwrap();
        let log = daemon.log().to_lowercase();
        assert!(
            log.contains("refused") && log.contains("handshake"),
            "{log}"
        );
        session.extend(keys.all());
        for Secret { name, bytes } in session {
            for form in [
                hex::encode(&bytes),
                BASE64_STANDARD.encode(&bytes),
                list(&bytes),
            ] {
                let part = &form[..form.len() / 2].to_lowercase();
                assert!(!log.contains(part), "{name}: {part} in:\n{log}");
            }
        }
    }
}

/// Bytes as `{:?}` prints them.
fn list(bytes: &[u8]) -> String {
    let list = format!("{bytes:?}");
    list[1..list.len() - 1].to_owned()
}

/// The device's keys and its peers'.
struct Keys {
    own: KeyPair,
    preshared: [u8; 32],
    peers: Vec<KeyPair>,
}

impl Keys {
    fn generate() -> Self {
        let mut own = KeyPair::generate();
        // Clamped, the form that the daemon keeps.
        own.private[0] &= 248;
        own.private[31] = (own.private[31] & 127) | 64;
        Self {
            own,
            preshared: KeyPair::generate().private,
            peers: (0..PEERS).map(|_| KeyPair::generate()).collect(),
        }
    }

    /// A configuration file of wg(8).
    fn configuration(&self) -> String {
        let own = BASE64_STANDARD.encode(self.own.private);
        let peers = self.peers.iter().map(|peer| {
            let (public, preshared) = (peer.public_base64(), self.preshared_base64());
            format!("[Peer]\nPublicKey = {public}\nPresharedKey = {preshared}\n")
        });
        format!(
            "[Interface]\nPrivateKey = {own}\n{}",
            peers.collect::<String>()
        )
    }

    fn preshared_base64(&self) -> String {
        BASE64_STANDARD.encode(self.preshared)
    }

    fn private(&self) -> Secret {
        Secret::new("private key", self.own.private)
    }

    fn preshared(&self) -> Secret {
        Secret::new("preshared key", self.preshared)
    }

    /// The shared secret of the static keys in the first peer's handshakes.
    fn shared(&self) -> Secret {
        let own = x25519_dalek::StaticSecret::from(self.own.private);
        let shared = own.diffie_hellman(&self.peers[0].public.into());
        Secret::new("static shared secret", shared.to_bytes())
    }

    fn all(&self) -> Vec<Secret> {
        vec![self.private(), self.preshared(), self.shared()]
    }

    /// The private and preshared keys as text, in the UAPI's and in `wg`'s format.
    fn texts(&self) -> Vec<Secret> {
        let all = self.all().into_iter().take(2);
        all.flat_map(|Secret { name, bytes }| {
            let texts = [hex::encode(&bytes), BASE64_STANDARD.encode(&bytes)];
            texts.map(|text| Secret::new(name, text))
        })
        .collect()
    }
}

impl Bed {
    /// Runs `wg` and returns its output.
    fn wg(&self, arguments: &str) -> String {
        let arguments: Vec<_> = arguments.split(' ').collect();
        output_of(&self.namespace, "wg", &arguments)
    }

    /// Writes `/run/NAME`.
    fn file(&self, name: &str, text: &str) {
        std::fs::write(self.namespace.run_directory().join(name), text).unwrap();
    }
}
