//! `wg` shows the same for Convoy as for the reference after any sequence of commands.

use crate::{
    scene::{Pairing, Scene, output_of},
    traffic::ping,
    twins::{Twins, private_key, public_key},
};

/// Every `wg` command that shows something.
const FORMS: [&str; 38] = [
    "show",
    "show wg0",
    "show all",
    "show interfaces",
    "showconf wg0",
    "showconf wg1",
    "show wg0 dump",
    "show wg0 public-key",
    "show wg0 private-key",
    "show wg0 listen-port",
    "show wg0 fwmark",
    "show wg0 peers",
    "show wg0 preshared-keys",
    "show wg0 endpoints",
    "show wg0 allowed-ips",
    "show wg0 latest-handshakes",
    "show wg0 persistent-keepalive",
    "show wg0 transfer",
    "show all dump",
    "show all public-key",
    "show all private-key",
    "show all listen-port",
    "show all fwmark",
    "show all peers",
    "show all preshared-keys",
    "show all endpoints",
    "show all allowed-ips",
    "show all latest-handshakes",
    "show all persistent-keepalive",
    "show all transfer",
    "show interfaces peers",
    "show wg7",
    "show wg7 dump",
    "showconf wg7",
    "show wg0 nonsense",
    "showconf",
    "show wg1 allowed-ips",
    "show wg1 peers",
];

#[test]
fn wg_set_shows_the_same_with_every_option() {
    history(&[
        "wg set wg0 listen-port 51820 && wg set wg1 listen-port 51821 peer $P8",
        "wg set wg0 private-key $K1",
        "wg set wg0 fwmark 0x1f",
        "wg set wg0 fwmark 4294967295",
        "wg set wg0 fwmark off",
        "wg set wg0 fwmark 31 listen-port 51822",
        "wg set wg0 peer $P2",
        "wg set wg0 peer $P2 preshared-key $K9 endpoint 192.0.2.1:51820 \
         allowed-ips 10.0.9.0/24,10.0.1.7/24,fd00::1/64,10.0.5.0/24,0.0.0.0/0,::/0",
        "wg set wg0 peer $P3 persistent-keepalive 25 allowed-ips 10.0.1.0/24,10.0.0.0/32",
        "wg set wg0 peer $P4 endpoint [2001:db8::1]:7 allowed-ips fd00::1,10.0.0.1",
        "wg set wg0 peer $P4 endpoint [fe80::1]:7 allowed-ips ''",
        "wg set wg0 peer $P5 allowed-ips 10.9.9.9/32 peer $P6 allowed-ips 10.9.9.9/32",
        "wg set wg0 peer $P2 allowed-ips 10.0.5.0/24,10.0.9.0/24,10.0.0.0/8",
        "wg set wg0 peer $P2 preshared-key /dev/null",
        "wg set wg0 peer $P3 persistent-keepalive off",
        "wg set wg0 peer $P3 persistent-keepalive 65535",
        "wg set wg0 peer $P3 remove peer $P2 remove",
        "wg set wg0 peer $P3 remove",
        "wg set wg0 peer $P3 allowed-ips 10.0.9.0/24",
        "wg set wg0 peer $P1 allowed-ips 10.0.9.0/24",
        "wg set wg0 private-key $K5",
        "wg set wg0 private-key /dev/null",
        "wg set wg0 peer $P1 allowed-ips 10.0.9.0/24",
        "wg set wg1 private-key $K1 peer $P1 peer $P2 allowed-ips 10.0.9.0/24",
    ]);
}

#[test]
fn invalid_wg_commands_fail_the_same() {
    history(&[
        "wg set wg0 listen-port 51820 private-key $K1 && wg set wg1 listen-port 51821 peer $P8",
        "wg set wg0 peer $P2 allowed-ips 10.0.0.0/8",
        "wg set wg7 listen-port 1",
        "wg set wg0 listen-port nonsense",
        "wg set wg0 fwmark 0x1ffffffff",
        "wg set wg0 private-key /nowhere",
        "wg set wg0 private-key $F1",
        "wg set wg0 peer nonsense",
        "wg set wg0 peer $P2 endpoint 192.0.2.1",
        "wg set wg0 peer $P2 endpoint 192.0.2.1:70000",
        "wg set wg0 peer $P2 allowed-ips 10.0.0.0/33",
        "wg set wg0 peer $P2 allowed-ips +10.1.0.0/16",
        "wg set wg0 peer $P2 persistent-keepalive 65536",
        "wg set wg0 peer $P2 nonsense",
        "wg set wg0 nonsense",
        "wg setconf wg0 $F1",
        "wg setconf wg7 $F2",
        "wg syncconf wg0 /nowhere",
    ]);
}

#[test]
fn wg_setconf_addconf_and_syncconf_show_the_same() {
    history(&[
        "wg setconf wg0 $F2 && wg set wg1 listen-port 51821 peer $P8",
        "wg addconf wg0 $F3",
        "wg addconf wg0 $F3",
        "wg syncconf wg0 $F2",
        "wg syncconf wg0 $F2",
        "wg syncconf wg0 $F3 && wg set wg0 listen-port 51820",
        "wg setconf wg0 $F3 && wg set wg0 listen-port 51820",
        "wg showconf wg0 > conf && wg setconf wg0 conf",
        "sed s,51820,51821, conf > conf1 && wg setconf wg1 conf1",
        "wg setconf wg0 /dev/null && wg set wg0 listen-port 51820",
    ]);
}

/// Needs traffic, so one end is compared with the other instead of Convoy with the reference.
#[test]
fn both_ends_show_the_same_transfer_and_handshake() {
    let Some(scene) = Scene::new(Pairing::ConvoyToWireguardGo) else {
        return;
    };
    ping(&scene.left, scene.right.inner_v4());
    let show = |end: &convoy_lab::wireguard::End, field| {
        let shown = output_of(&end.namespace, "wg", &["show", "wg0", field]);
        let fields = shown.split_whitespace().skip(1);
        fields.map(|f| f.parse().unwrap()).collect::<Vec<u64>>()
    };
    let counted = convoy_lab::eventually(crate::scene::DEADLINE, || {
        let (ours, theirs) = (
            show(&scene.left, "transfer"),
            show(&scene.right, "transfer"),
        );
        (ours[0] > 0 && ours[0] == theirs[1] && ours[1] == theirs[0]).then_some(())
    });
    assert!(
        counted.is_some(),
        "one end has not received what the other has sent"
    );
    let [ours, theirs] = [&scene.left, &scene.right].map(|end| show(end, "latest-handshakes")[0]);
    assert!(ours.abs_diff(theirs) <= 1, "{ours} {theirs}");
    let shown = output_of(&scene.left.namespace, "wg", &["show", "wg0"]);
    for line in ["latest handshake: ", "transfer: "] {
        assert!(shown.contains(line), "{shown}");
    }
}

/// Compares both after each step. `$K1` is a file with a private key and `$P1` its public key, `$F1`
/// a file with rubbish; `$F2` and `$F3` are configurations.
fn history(steps: &[&str]) {
    let Some(twins) = Twins::new() else { return };
    let mut variables = String::new();
    for number in 1..=9 {
        twins.write(&format!("key{number}"), &private_key(number));
        let public = public_key(number);
        variables += &format!("K{number}=/run/key{number}; P{number}={public}; ");
    }
    for (number, text) in [(1, "rubbish".to_owned()), (2, whole()), (3, partial())] {
        twins.write(&format!("file{number}"), &text);
        variables += &format!("F{number}=/run/file{number}; ");
    }
    for step in steps {
        twins.same(&format!("{variables}{step}"));
        twins.show_the_same(&FORMS, step);
    }
}

/// A configuration that uses every setting of `wg`.
fn whole() -> String {
    format!(
        "[Interface]\nListenPort = 51820\nFwMark = 0x20\nPrivateKey = {}\n\
         [Peer]\nPublicKey = {}\nPresharedKey = {}\nAllowedIPs = 10.3.0.0/16, 10.1.0.0/16\n\
         AllowedIPs = fd00::/64\nEndpoint = 192.0.2.1:7\n\
         [Peer]\nPublicKey = {}\nAllowedIPs = 10.2.0.0/16\nPersistentKeepalive = 25\n\
         [Peer]\nPublicKey = {}\n",
        private_key(1),
        public_key(2),
        private_key(9),
        public_key(3),
        public_key(4),
    )
}

/// A configuration that takes an allowed IP from a peer of [`whole`] and omits the rest.
fn partial() -> String {
    format!(
        "[Peer]\nPublicKey = {}\nAllowedIPs = 10.2.0.0/16, 10.4.0.0/16\n\
         [Peer]\nPublicKey = {}\nAllowedIPs = 10.5.0.0/16, 10.1.0.0/16\n",
        public_key(5),
        public_key(2),
    )
}
