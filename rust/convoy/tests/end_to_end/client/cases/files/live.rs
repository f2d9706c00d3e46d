//! Changes by `wg set` outlive processes, as they outlive `reload`.

use convoy_lab::eventually;
use nix::sys::signal::{Signal, kill};

use super::{NOBODY, input, install};
use crate::{
    client::{process::crash, world::World},
    scene::DEADLINE,
    twins::public_key,
};

/// Ways to end a process of the tunnel, after which the tunnel goes on.
const WAYS: [&str; 4] = [
    "reload",
    "SIGUSR2",
    "the tunnel is killed",
    "the supervisor is killed",
];

#[test]
fn a_key_that_a_hook_has_set_stays() {
    for way in WAYS {
        let Some(world) = World::new() else { return };
        install(&world, "C03-key-by-hook.conf", "wg0");
        let key = String::from_utf8(input("C03-key-by-hook.key")).unwrap();
        world.write("wireguard/wg0.key", &key);
        world.up();
        let before = world.shell("wg show wg0 public-key");
        assert_ne!(before, "(none)\n");
        let tunnel = goes_on_after(&world, way);
        assert_eq!(
            world.shell("wg show wg0 public-key"),
            before,
            "{way}, {tunnel}"
        );
        world.down();
    }
}

#[test]
fn peers_that_were_added_removed_and_changed_stay_so() {
    for way in WAYS {
        let Some(world) = World::new() else { return };
        install(&world, "C10-peers-added-live.conf", "wg0");
        let [first, second] = [8, 9].map(public_key);
        world.shell(&format!(
            "printf '[Peer]\\nPublicKey = {first}\\nAllowedIPs = 10.8.0.5/32\\n\
                     [Peer]\\nPublicKey = {second}\\nAllowedIPs = 10.8.0.6/32\\n' >> /etc/wireguard/wg0.conf"
        ));
        world.up();
        world.shell(&format!(
            "echo {key} > /run/psk; chmod 600 /run/psk
             wg set wg0 peer {NOBODY} allowed-ips 10.8.0.3/32 endpoint 192.0.2.7:7 persistent-keepalive 9
             wg set wg0 peer {first} remove
             wg set wg0 peer {second} preshared-key /run/psk allowed-ips 10.8.0.6/32,10.9.0.0/16",
            key = crate::twins::private_key(7)
        ));
        let before = settings(&world);
        goes_on_after(&world, way);
        assert_eq!(settings(&world), before, "{way}");
        world.down();
    }
}

#[test]
fn what_the_file_changes_meanwhile_prevails_and_the_rest_stays() {
    for way in WAYS {
        let Some(world) = World::new() else { return };
        install(&world, "C10-peers-added-live.conf", "wg0");
        world.up();
        let from_file = world.shell("wg show wg0 peers").trim().to_owned();
        world.shell(&format!(
            "wg set wg0 peer {NOBODY} allowed-ips 10.8.0.3/32
             wg set wg0 peer {from_file} allowed-ips 10.8.0.7/32
             sed -i 's/10.8.0.2/10.8.0.4/' /etc/wireguard/wg0.conf"
        ));
        // The supervisor that lives on does not read the file.
        let is_read = way != "the tunnel is killed";
        let expected = match is_read {
            true => ["10.8.0.4/32", "10.8.0.7/32"].as_slice(),
            false => &["10.8.0.7/32"],
        };
        goes_on_after(&world, way);
        let shown = world.shell("wg show wg0 allowed-ips");
        let line = shown
            .lines()
            .find_map(|line| line.strip_prefix(from_file.as_str()));
        let mut prefixes: Vec<_> = line.unwrap().split_whitespace().collect();
        prefixes.sort_unstable();
        assert_eq!(prefixes, expected, "{way}");
        assert!(
            shown.contains(&format!("{NOBODY}\t10.8.0.3/32")),
            "{way}: {shown}"
        );
        world.down();
    }
}

/// The tunnel's settings as `wg` shows them, sorted.
fn settings(world: &World) -> String {
    let shown = [
        "public-key",
        "allowed-ips",
        "preshared-keys",
        "persistent-keepalive",
        "endpoints",
    ];
    let shown = shown.map(|what| format!("wg show wg0 {what} | sort"));
    world.shell(&shown.join("; "))
}

/// Ends a process in this way, and waits until the tunnel goes on; returns the tunnel's process.
fn goes_on_after(world: &World, way: &str) -> i64 {
    let (supervisor, tunnel) = (world.supervisor(), world.tunnel());
    let pid = |which: &str| world.status()[which].as_i64();
    let is_another_tunnel = || pid("tunnel_pid").filter(|pid| *pid != i64::from(tunnel.as_raw()));
    match way {
        "reload" => drop(world.convoy(&["reload", "wg0"]).succeeds()),
        "SIGUSR2" => {
            let log = world.log().matches("Taking over the tunnel").count();
            kill(supervisor, Signal::SIGUSR2).unwrap();
            let is_over = || world.log().matches("Taking over the tunnel").count() > log;
            assert!(eventually(DEADLINE, || is_over().then_some(())).is_some());
        }
        "the tunnel is killed" => {
            // The supervisor has seen the latest change.
            world.convoy(&["status", "wg0"]).succeeds();
            crash(tunnel);
            assert!(eventually(DEADLINE, is_another_tunnel).is_some());
        }
        "the supervisor is killed" => {
            crash(supervisor);
            world.up();
        }
        other => panic!("{other}"),
    }
    // A supervisor that is just coming up does not tell.
    let is_up = || {
        world
            .convoy(&["status", "wg0"])
            .stdout
            .contains("state: up")
    };
    assert!(
        eventually(DEADLINE, || is_up().then_some(())).is_some(),
        "{way}"
    );
    pid("tunnel_pid").unwrap()
}
