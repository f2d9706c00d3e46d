//! Tests of the lab without Convoy.
//!
//! ```text
//!   left                              right
//!   10.9.0.1 fd09::1 veth ── veth 10.9.0.2 fd09::2
//! ```

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod flood;
mod namespaces;
mod rootless;
mod wireguard;

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::Duration;

use convoy_lab::{Lab, Namespace, require_root_lab};

const DEADLINE: Duration = Duration::from_secs(20);

/// Two namespaces joined by a cable.
struct Pair {
    left: Namespace,
    right: Namespace,
    _lab: Lab,
}

impl Pair {
    /// `None` if the test `test` cannot have a lab as root.
    fn as_root(test: &str) -> Option<Self> {
        require_root_lab(test).then(Self::new)
    }

    fn new() -> Self {
        let lab = Lab::new().unwrap();
        let [left, right] = ["left", "right"].map(|label| lab.namespace(label).unwrap());
        let (a, b) = (["10.9.0.1/24", "fd09::1/64"], ["10.9.0.2/24", "fd09::2/64"]);
        lab.veth(&left, "veth", &a, &right, "veth", &b, 1_500)
            .unwrap();
        Self {
            left,
            right,
            _lab: lab,
        }
    }
}

/// Sends a text over TCP.
fn talk(from: &Namespace, to: &Namespace, address: SocketAddr) {
    let listener = to.run(|| TcpListener::bind(address)).unwrap().unwrap();
    let mut sender = from.run(|| TcpStream::connect(address)).unwrap().unwrap();
    let (mut receiver, _) = listener.accept().unwrap();
    sender.write_all(b"hello").unwrap();
    drop(sender);
    let mut heard = String::new();
    receiver.read_to_string(&mut heard).unwrap();
    assert_eq!(heard, "hello");
}
