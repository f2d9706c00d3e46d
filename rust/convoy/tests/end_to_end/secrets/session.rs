//! A peer that reveals its session keys, built on another implementation of Noise.

use std::{
    net::{SocketAddr, UdpSocket},
    time::Duration,
};

use blake2::{
    Blake2s256, Blake2sMac, Digest,
    digest::{FixedOutput, KeyInit, Update, consts::U16},
};
use convoy_lab::{Namespace, eventually, wireguard::KeyPair};
use snow::{Builder, HandshakeState};

use crate::{scene::DEADLINE, secrets::memory::Secret};

/// The paper, section 5.4.
const PATTERN: &str = "Noise_IKpsk2_25519_ChaChaPoly_BLAKE2s";
const PROLOGUE: &[u8] = b"WireGuard v1 zx2c4 Jason@zx2c4.com";
const LABEL_MAC1: &[u8] = b"mac1----";

/// A peer that initiates handshakes.
pub(super) struct Peer {
    keys: KeyPair,
    preshared: [u8; 32],
    daemon: KeyPair,
    socket: UdpSocket,
    /// Seconds of the last timestamp.
    time: u64,
}

impl Peer {
    pub(super) fn new(namespace: &Namespace, daemon: &KeyPair, preshared: [u8; 32]) -> Self {
        let bind = || UdpSocket::bind("127.0.0.1:0");
        let socket = namespace.run(bind).unwrap().unwrap();
        Self {
            keys: KeyPair::generate(),
            preshared,
            daemon: daemon.clone(),
            socket,
            time: 1 << 62,
        }
    }

    pub(super) fn keys(&self) -> &KeyPair {
        &self.keys
    }

    pub(super) fn preshared(&self) -> [u8; 32] {
        self.preshared
    }

    pub(super) fn change_preshared(&mut self) {
        self.preshared = KeyPair::generate().private;
    }

    pub(super) fn address(&self) -> SocketAddr {
        self.socket.local_addr().unwrap()
    }

    /// Sets up a session with the daemon on `port`, confirms it by a keepalive and returns its keys.
    pub(super) fn session(&mut self, port: u16) -> Vec<Secret> {
        let daemon = SocketAddr::from(([127, 0, 0, 1], port));
        let mut response = [0; 2_048];
        // The daemon does not answer an initiation too soon after the last.
        let answered = eventually(DEADLINE, || {
            let noise = self.initiate(daemon);
            let shortly = Some(Duration::from_millis(500));
            self.socket.set_read_timeout(shortly).unwrap();
            let length = self.socket.recv(&mut response).ok()?;
            Some((noise, length))
        });
        let (mut noise, length) = answered.expect("the daemon answers");
        assert_eq!((length, response[0]), (92, 2));
        noise.read_message(&response[12..60], &mut []).unwrap();
        let (sending, receiving) = noise.dangerously_get_raw_split();
        let transport = noise.into_stateless_transport_mode().unwrap();
        let mut keepalive = [&[4, 0, 0, 0], &response[4..8], &[0; 8]].concat();
        append(&mut keepalive, |rest| {
            transport.write_message(0, &[], rest).unwrap()
        });
        self.socket.send_to(&keepalive, daemon).unwrap();
        vec![
            Secret::new("receiving key", sending),
            Secret::new("sending key", receiving),
        ]
    }

    /// Sends an initiation.
    fn initiate(&mut self, daemon: SocketAddr) -> HandshakeState {
        let mut noise = self.handshake();
        let mut message = [vec![1, 0, 0, 0], 7_u32.to_le_bytes().to_vec()].concat();
        self.time += 1;
        let timestamp = [&self.time.to_be_bytes()[..], &[0; 4]].concat();
        append(&mut message, |rest| {
            noise.write_message(&timestamp, rest).unwrap()
        });
        let mac = mac1(&self.daemon.public, &message);
        message.extend(mac);
        message.extend([0; 16]);
        self.socket.send_to(&message, daemon).unwrap();
        noise
    }

    /// Returns whether the daemon has sent a packet since.
    pub(super) fn has_received_data(&self) -> bool {
        let mut datagram = [0; 2_048];
        let shortly = Some(Duration::from_millis(100));
        self.socket.set_read_timeout(shortly).unwrap();
        let mut received = || {
            self.socket
                .recv(&mut datagram)
                .map(|length| (datagram[0], length))
        };
        // Keepalives are shorter.
        std::iter::from_fn(|| received().ok()).any(|(kind, length)| kind == 4 && length > 32)
    }

    fn handshake(&self) -> HandshakeState {
        Builder::new(PATTERN.parse().unwrap())
            .prologue(PROLOGUE)
            .and_then(|noise| noise.local_private_key(&self.keys.private))
            .and_then(|noise| noise.remote_public_key(&self.daemon.public))
            .and_then(|noise| noise.psk(2, &self.preshared))
            .and_then(Builder::build_initiator)
            .unwrap()
    }
}

fn append(message: &mut Vec<u8>, write: impl FnOnce(&mut [u8]) -> usize) {
    let start = message.len();
    message.resize(start + 256, 0);
    let written = write(&mut message[start..]);
    message.truncate(start + written);
}

fn mac1(receiver: &[u8; 32], message: &[u8]) -> [u8; 16] {
    let key = Blake2s256::new_with_prefix(LABEL_MAC1)
        .chain_update(receiver)
        .finalize();
    let mut mac = <Blake2sMac<U16> as KeyInit>::new_from_slice(&key).unwrap();
    Update::update(&mut mac, message);
    mac.finalize_fixed().into()
}
