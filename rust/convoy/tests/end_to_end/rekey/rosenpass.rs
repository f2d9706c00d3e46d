//! rosenpass at both ends, which sets a preshared key every two minutes by `wg set`. Only one end knows where the
//! other is: exchanges that both begin at a time leave different keys at the two, with any WireGuard.
//!
//! `make peers` does not install it, as its build needs CMake and libclang:
//! `cargo install --root target/peers rosenpass@0.2.3`.

use std::{
    collections::HashSet,
    fs,
    process::{Child, Stdio},
    thread,
    time::Duration,
};

use convoy_lab::{
    eventually,
    wireguard::{End, Underlay},
};

use super::{KEY_LIFETIME, handshake_time, while_exchanging};
use crate::{
    pairing::{Pairing, Program, installed},
    scene::{DEADLINE, Scene, output_of, wg_dump},
    traffic::ping,
};

const PORT: u16 = 9_999;
/// The keys that are set meanwhile.
const KEYS: usize = 3;

#[test]
#[ignore = "make interop"]
fn rosenpass_changes_keys_without_loss() {
    if !installed("CONVOY_TEST_ROSENPASS", "rosenpass").is_file() {
        eprintln!("skipped: rosenpass is not installed in target/peers/bin");
        return;
    }
    let Some(scene) = Scene::new(Pairing::ConvoyToConvoy) else {
        return;
    };
    let (left, right) = (&scene.left, &scene.right);
    let ends = [(left, right), (right, left)];
    ping(left, right.inner_v4());
    let first = handshake_time(Program::Convoy, left);
    generate_keys(left);
    generate_keys(right);
    while_exchanging(
        "rosenpass",
        [&left.namespace, &right.namespace],
        right.inner_v4(),
        || {
            let _running = [
                Rosenpass::start(right, left, None),
                Rosenpass::start(left, right, Some(address_of(right))),
            ];
            let mut seen = HashSet::new();
            let all_seen = eventually(3 * KEY_LIFETIME, || {
                thread::sleep(Duration::from_secs(1));
                let [ours, theirs] = ends.map(|(end, _)| wg_dump(end, 1)[1].clone());
                if ours == theirs && ours != "(none)" {
                    seen.insert(ours);
                }
                (seen.len() == KEYS).then_some(())
            });
            assert!(all_seen.is_some(), "{} keys", seen.len());
            // Continue into a session of the last key.
            let last = handshake_time(Program::Convoy, left);
            let is_renewed = || {
                thread::sleep(Duration::from_secs(1));
                (handshake_time(Program::Convoy, left) > last).then_some(())
            };
            assert!(eventually(KEY_LIFETIME + DEADLINE, is_renewed).is_some());
        },
    );
    assert!(handshake_time(Program::Convoy, left) > first + KEY_LIFETIME);
}

fn generate_keys(end: &End) {
    let program = installed("CONVOY_TEST_ROSENPASS", "rosenpass");
    let [public, secret] = ["--public-key=/run/public", "--secret-key=/run/secret"];
    output_of(&end.namespace, program, &["gen-keys", public, secret]);
}

fn address_of(end: &End) -> String {
    format!("{}:{PORT}", end.outer(Underlay::V4).ip())
}

/// Ends when dropped.
struct Rosenpass(Child);

impl Rosenpass {
    fn start(end: &End, other: &End, endpoint: Option<String>) -> Self {
        let place = |end: &End| end.namespace.run_directory();
        fs::copy(place(other).join("public"), place(end).join("other")).unwrap();
        let key = other.keys.public_base64();
        let program = installed("CONVOY_TEST_ROSENPASS", "rosenpass");
        let mut command = end.namespace.command(program);
        command.args(["exchange", "public-key", "/run/public", "secret-key"]);
        command.args(["/run/secret", "listen", &address_of(end)]);
        command.args(["peer", "public-key", "/run/other"]);
        if let Some(endpoint) = endpoint {
            command.args(["endpoint", &endpoint]);
        }
        command.args(["wireguard", "wg0", &key]);
        let command = command.stdin(Stdio::null()).stdout(Stdio::null());
        Self(command.spawn().unwrap())
    }
}

impl Drop for Rosenpass {
    fn drop(&mut self) {
        // Both fail only if it has ended.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
