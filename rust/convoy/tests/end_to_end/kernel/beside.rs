//! wg-quick in the guest, and the static program beside the kernel's WireGuard.

use std::{env, path::PathBuf, sync::atomic::AtomicU64};

use convoy_lab::wireguard::Identity;
use serde_json::Value;

use super::{
    guest::Guest,
    pair::{Pair, Role, right_v4},
};
use crate::traffic::tcp_between;

const BYTES: u64 = 4_000_000;
/// Script that shows everything that a tunnel changes.
const HOST: &str = "ip rule; ip -6 rule; ip route show table all; ip -6 route show table all
    ip -brief address; nft list ruleset";

#[test]
#[ignore = "make interop-kernel"]
fn the_guests_wg_quick_sends_everything_through_convoy() {
    let Some(pair) = Pair::new(Role::KernelToConvoy) else {
        return;
    };
    let address = ["address", "add", "198.51.100.1/32", "dev", "lo"];
    let _ = pair
        .left
        .namespace
        .command("ip")
        .args(address)
        .output()
        .unwrap();
    pair.shell("ip link delete wg0; ip route add default via 10.9.0.1");
    write(
        &pair,
        "wg0",
        &format!(
            "[Interface]\nPrivateKey = {}\nAddress = 10.8.0.2/24, fd08::2/64\n[Peer]\nPublicKey = {}\n\
         Endpoint = 10.9.0.1:51820\nAllowedIPs = 0.0.0.0/0, ::/0\n",
            pair.keys.private_base64(),
            pair.left.keys.public_base64()
        ),
    );
    let before = pair.shell(HOST);
    for _ in 0..2 {
        pair.shell("wg-quick up wg0");
        assert!(pair.shell("ip -d link show wg0").contains("wireguard"));
        for to in ["10.8.0.1", "fd08::1", "198.51.100.1"] {
            pair.guest_pings(to);
        }
        assert!(pair.shell("ip route get 198.51.100.1").contains("dev wg0"));
        let (left, right) = (&pair.left.namespace, &pair.right);
        tcp_between(left, right, right_v4(), BYTES, &AtomicU64::new(0));
        tcp_between(right, left, pair.left.inner_v4(), BYTES, &AtomicU64::new(0));
        pair.shell("wg-quick down wg0");
        assert_eq!(pair.shell(HOST), before);
    }
}

/// A pair with a second tunnel to Convoy in `left`, q0, and the static program in the guest.
struct Beside(Pair);

impl Beside {
    /// `None` if the machine cannot provide it; the caller then skips its test.
    fn new() -> Option<Self> {
        let mut pair = Pair::new(Role::KernelToConvoy)?;
        pair.begin();
        let program = static_program();
        assert!(program.is_file(), "{} is not built", program.display());
        pair.copy(&program, "/bin/convoy");
        let (own, peer) = (Identity::new(3), pair.left.keys.public_base64());
        let mut as_peer = own.as_peer(None);
        as_peer.allowed_ips = vec!["10.6.0.3/32".to_owned()];
        pair.left.config.peers.push(as_peer);
        // Leaves the session of the kernel's tunnel alone.
        let added = format!(
            "set=1\npublic_key={}\nallowed_ip=10.6.0.3/32\n\n",
            hex::encode(own.keys.public)
        );
        assert_eq!(pair.left.daemon.request(&added).unwrap().trim(), "errno=0");
        let link = pair.left.namespace.link();
        link.add_address("wg0", "10.6.0.1/24").unwrap();
        write(
            &pair,
            "q0",
            &format!(
                "[Interface]\nPrivateKey = {}\nAddress = 10.6.0.3/24\n[Peer]\nPublicKey = {peer}\n\
                 Endpoint = 10.9.0.1:51820\nAllowedIPs = 10.6.0.0/24\n",
                own.keys.private_base64()
            ),
        );
        Some(Self(pair))
    }

    /// Requires that packets pass both tunnels, and that q0 is the kernel's or not.
    fn both_work(&self, is_q0_the_kernels: bool) {
        let pair = &self.0;
        pair.guest_pings("10.8.0.1");
        pair.guest_pings("10.6.0.1");
        let shown = pair.shell("wg show interfaces");
        let mut interfaces: Vec<_> = shown.split_whitespace().collect();
        interfaces.sort_unstable();
        assert_eq!(interfaces, ["q0", "wg0"]);
        let kinds = pair.shell("ip -d link show q0");
        assert_eq!(kinds.contains("wireguard"), is_q0_the_kernels, "{kinds}");
    }

    /// Returns the severity and the text of a finding of `convoy doctor`.
    fn doctor(&self, id: &str) -> (String, String) {
        let (said, status) = self.0.try_shell("convoy doctor q0 --json 2> /dev/null");
        let diagnosis: Value =
            serde_json::from_str(&said).unwrap_or_else(|e| panic!("{e}: {status} {said}"));
        let found = diagnosis["findings"]
            .as_array()
            .unwrap()
            .iter()
            .find(|it| it["id"] == id);
        let found = found.unwrap_or_else(|| panic!("no {id} in {said}"));
        let text = |field: &str| found[field].as_str().unwrap().to_owned();
        (text("severity"), text("what"))
    }
}

#[test]
#[ignore = "make interop-kernel"]
fn the_static_program_runs_beside_the_kernels_wireguard() {
    let Some(beside) = Beside::new() else { return };
    let pair = &beside.0;
    let before = pair.shell(HOST);
    assert_eq!(beside.doctor("handshake").0, "ok");
    pair.shell("convoy up q0");
    beside.both_work(false);
    for id in ["handshake", "state", "owner", "without-root", "config"] {
        assert_eq!(beside.doctor(id).0, "ok", "{id}");
    }
    let (_, others) = beside.doctor("other-interfaces");
    assert!(others.contains("wg0 (wireguard)"), "{others}");
    pair.shell("convoy down q0");
    assert_eq!(pair.shell(HOST), before);
    pair.guest_pings("10.8.0.1");
}

#[test]
#[ignore = "make interop-kernel"]
fn an_interface_of_the_kernel_is_refused_and_taken_over_on_request() {
    let Some(beside) = Beside::new() else { return };
    let pair = &beside.0;
    let before = pair.shell(HOST);
    pair.shell("wg-quick up q0");
    beside.both_work(true);
    let (severity, what) = beside.doctor("state");
    assert_eq!(severity, "warning");
    assert!(what.contains("it is the kernel's WireGuard"), "{what}");
    let (said, status) = pair.try_shell("convoy up q0");
    assert_ne!(status, 0);
    assert!(said.contains("it is the kernel's WireGuard"), "{said}");
    beside.both_work(true);
    pair.shell("convoy up --adopt q0");
    beside.both_work(false);
    pair.shell("convoy down q0");
    assert_eq!(pair.shell(HOST), before);
}

#[test]
#[ignore = "make interop-kernel"]
fn wg_quick_prefers_the_kernel_and_falls_back_to_the_static_program() {
    let Some(beside) = Beside::new() else { return };
    let pair = &beside.0;
    let up = "WG_QUICK_USERSPACE_IMPLEMENTATION=convoy wg-quick up q0";
    pair.shell(up);
    beside.both_work(true);
    pair.shell("wg-quick down q0; ip link delete wg0; rmmod wireguard");
    let hidden = "mount -t tmpfs none $(dirname $(find /lib/modules -name 'wireguard.ko*'))";
    pair.shell(hidden);
    let outcome = pair.try_shell(&format!(
        "{up} && ping -c 1 -W 60 10.6.0.1 && ip -d link show q0"
    ));
    let (down, status) = pair.try_shell("wg-quick down q0");
    pair.shell("umount /lib/modules/*/kernel/drivers/net/wireguard");
    let (said, fallback) = outcome;
    assert_eq!(fallback, 0, "{said}");
    assert!(said.contains("tun type tun"), "{said}");
    assert_eq!(status, 0, "{down}");
}

fn write(guest: &Guest, name: &str, text: &str) {
    guest.shell(&format!(
        "umask 077; echo '{text}' > /etc/wireguard/{name}.conf"
    ));
}

/// Returns the static program: the one of `make cross` unless another is named.
fn static_program() -> PathBuf {
    let default = || {
        let cross = "../../target/x86_64-unknown-linux-musl/cross/convoy";
        PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(cross)
    };
    env::var_os("CONVOY_TEST_STATIC_PROGRAM").map_or_else(default, PathBuf::from)
}
