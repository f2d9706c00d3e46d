//! Hosts that lack something: it works without and says what is missing, or fails with the fix and leaves
//! nothing.

use std::fs;

use super::world::{BEHIND, EVERYTHING, World};

const CLOSED: &str = "DNS = 10.8.0.1\n#convoy: KillSwitch = on\n";
/// Hides nft(8), also from programs that look in root's directories.
pub(super) const WITHOUT_NFT: &str =
    "mkdir /run/sbin /run/other-sbin; mount --bind /usr/sbin /run/sbin
     for file in /run/sbin/*; do ln -s $file /run/other-sbin/; done; rm /run/other-sbin/nft
     mount --bind /run/other-sbin /usr/sbin";

#[test]
fn a_read_only_etc_is_a_warning() {
    let Some(world) = World::new() else { return };
    world.configure("DNS = 10.8.0.1\n", EVERYTHING);
    world.shell("mount -o remount,bind,ro /etc");
    comes_up_with_a_warning(&world, "resolv.conf");
    assert_eq!(world.read("resolv.conf"), "nameserver 192.168.1.1\n");
}

#[test]
fn a_read_only_proc_sys_is_no_obstacle() {
    let Some(world) = World::new() else { return };
    world.configure(CLOSED, EVERYTHING);
    world.shell("mount --bind /proc/sys /proc/sys; mount -o remount,bind,ro /proc/sys");
    let before = world.dump();
    world.up();
    world.reaches_all_behind();
    world.down();
    world.is_left_as(&before);
}

#[test]
fn without_nft_a_tunnel_comes_up_with_a_warning() {
    let Some(world) = World::new() else { return };
    world.configure("", EVERYTHING);
    world.shell(WITHOUT_NFT);
    comes_up_with_a_warning(&world, "nft");
}

#[test]
fn without_nft_a_kill_switch_is_an_error_with_the_fix() {
    let Some(world) = World::new() else { return };
    world.configure(CLOSED, EVERYTHING);
    world.shell(WITHOUT_NFT);
    fails_and_leaves_nothing(&world, "apt-get install nftables");
}

#[test]
fn without_ipv6_a_tunnel_comes_up_with_a_warning() {
    let Some(world) = World::new() else { return };
    world.configure("", EVERYTHING);
    world.shell("for f in /proc/sys/net/ipv6/conf/*/disable_ipv6; do echo 1 > $f; done");
    comes_up_with_a_warning(&world, "IPv6");
}

#[test]
fn without_dev_net_tun_the_error_says_how_to_get_it() {
    let Some(world) = World::new() else { return };
    world.configure(CLOSED, EVERYTHING);
    // Where it could be made, it would be.
    world.shell("mount -t tmpfs -o ro tmpfs /dev/net");
    fails_and_leaves_nothing(&world, "/dev/net/tun");
}

#[test]
fn a_directory_of_journals_that_is_read_only_or_full_is_an_error() {
    let Some(world) = World::new() else { return };
    world.configure(CLOSED, EVERYTHING);
    world.shell("mkdir -p /run/convoy");
    for mount in [
        "mount -t tmpfs -o ro,mode=755 tmpfs /run/convoy",
        "mount -t tmpfs -o size=4k,mode=755 tmpfs /run/convoy; head -c 8k /dev/zero > /run/convoy/full || true",
    ] {
        world.shell(mount);
        fails_and_leaves_nothing(&world, "/run/convoy");
        world.shell("umount /run/convoy");
    }
    world.up();
    world.reaches(BEHIND[0]);
}

#[test]
fn an_address_that_the_host_has_already_and_a_table_in_use_are_no_obstacle() {
    let Some(world) = World::new() else { return };
    world.configure("", EVERYTHING);
    world.shell(
        "ip address add 10.8.0.2/32 dev lo; ip route add 203.0.113.128/25 via 192.168.1.1 table 51820
         ip rule add to 203.0.113.128/25 table 51820",
    );
    let before = world.dump();
    world.up();
    world.reaches(BEHIND[1]);
    assert!(world.shell("ip rule").contains("lookup 51821"));
    world.down();
    world.is_left_as(&before);
}

#[test]
fn a_hostile_file_is_an_error() {
    let Some(world) = World::new() else { return };
    let path = world.client.run_directory().join("etc/wireguard/wg0.conf");
    world.write("wireguard/wg0.conf", "");
    let before = world.dump();
    let refused = || {
        let outcome = world.plainly(&["up", "wg0"]).fails_with("wg0.conf");
        assert!(outcome.stderr.len() < 10_000, "{outcome:?}");
    };
    let contents: [&[u8]; 5] = [
        b"",
        b"\0\xff\xfe\x80",
        b"[Interface]\nPrivateKey = AAAA\n",
        b"[Interface]\nAddress = 10.8.0.2/24\n[Peer]\nPublicKey = \xc3\x28\n",
        b"[Peer]\n[Interface]\n[Interface]\nMTU = 99999999999999999999\n",
    ];
    for content in contents {
        fs::write(&path, content).unwrap();
        refused();
    }
    world.shell("mount -t tmpfs tmpfs /etc/wireguard");
    world.shell("head -c 20M /dev/zero | tr '\\0' '#' > /etc/wireguard/wg0.conf");
    refused();
    world.shell("umount /etc/wireguard");
    world.is_left_as(&before);
}

/// Requires that the tunnel comes up and that the caller sees the warning without asking for a log.
fn comes_up_with_a_warning(world: &World, words: &str) {
    let before = world.dump();
    let outcome = world.plainly(&["up", "wg0"]).succeeds();
    assert!(
        outcome.stderr.contains(words),
        "no {words:?} in {outcome:?}"
    );
    world.reaches(BEHIND[0]);
    let warnings = world.status()["warnings"].to_string();
    assert!(warnings.contains(words), "{warnings}");
    world.down();
    world.is_left_as(&before);
}

fn fails_and_leaves_nothing(world: &World, words: &str) {
    let before = world.dump();
    let outcome = world.plainly(&["up", "wg0"]).fails_with(words);
    // One clear error.
    let errors = outcome.stderr.matches("convoy: ").count();
    assert_eq!(errors, 1, "{outcome:?}");
    world.is_left_as(&before);
}
