//! Other programs' tunnels beside ours, and a server that is reached by SSH.

use std::{
    io::{Read as _, Write as _},
    net::{TcpListener, TcpStream},
};

use crate::{
    client::{
        doctor::Diagnosis,
        world::{EVERYTHING, World},
    },
    scene::DEADLINE,
};

const TAILSCALE: &str = "
    for f in -4 -6; do
        ip $f rule add pref 5210 fwmark 0x80000/0xff0000 lookup main
        ip $f rule add pref 5230 fwmark 0x80000/0xff0000 lookup default
        ip $f rule add pref 5250 fwmark 0x80000/0xff0000 type unreachable
        ip $f rule add pref 5270 lookup 52
    done";

/// Its interface and table; rules come from [`TAILSCALE`].
fn tailnet(world: &World) {
    world.shell(
        "ip tuntap add tailscale0 mode tun; ip link set tailscale0 up
         ip address add 100.70.0.2/32 dev tailscale0
         for to in 100.70.0.3 100.100.100.100; do ip route add $to dev tailscale0 table 52; done
         ip -6 route add fd7a:115c:a1e0::/48 dev tailscale0 table 52",
    );
}

#[test]
fn tailscale_and_a_full_tunnel_go_on_beside_each_other_by_doctors_advice() {
    let Some(world) = World::new() else { return };
    tailnet(&world);
    world.shell(TAILSCALE);
    let theirs =
        || world.shell("for f in -4 -6; do ip $f rule | grep -E '80000|lookup 52 *$'; done");
    let before = theirs();
    for switch in ["", "#convoy: KillSwitch = on\n"] {
        world.configure(switch, EVERYTHING);
        let foretold = fix_of(&world, "other-tables");
        world.up();
        assert!(world.way("100.70.0.3").contains("dev wg0"));
        assert_eq!(fix_of(&world, "other-tables"), foretold);
        let advice = foretold.split('`').nth(1).unwrap();
        assert!(advice.ends_with("100.64.0.0/10"), "{advice}");
        let both = format!("{switch}{advice}, fd7a:115c:a1e0::/48\n");
        world.configure(&both, EVERYTHING);
        world.convoy(&["reload", "wg0"]).succeeds();
        for to in ["100.70.0.3", "fd7a:115c:a1e0::3"] {
            assert!(
                world.way(to).contains("dev tailscale0"),
                "{}",
                world.way(to)
            );
        }
        assert!(!has(&world, "other-tables"));
        world.reaches_all_behind();
        assert_eq!(theirs(), before);
        world.down();
    }
    // Its rules come later, and first.
    world.shell(
        "for p in 5210 5230 5250 5270; do ip rule del pref $p; ip -6 rule del pref $p; done",
    );
    world.configure("", EVERYTHING);
    world.up();
    world.shell(TAILSCALE);
    assert!(world.way("100.70.0.3").contains("dev tailscale0"));
    let diagnosis = world.doctor();
    let finding = diagnosis.finding("other-rules");
    assert_eq!(finding["severity"], "note", "{finding}");
    assert!(finding["fix"].is_null(), "{finding}");
    world.reaches_all_behind();
}

#[test]
fn a_kill_switch_beside_a_second_tunnel_is_told_and_opens_for_it_by_doctors_advice() {
    let Some(world) = World::new() else { return };
    world.configure("#convoy: KillSwitch = on\n", EVERYTHING);
    world.up();
    let own = crate::twins::private_key(3);
    let server = crate::twins::public_key(2);
    world.write(
        "wireguard/wg1.conf",
        &format!(
            "[Interface]\nPrivateKey = {own}\nAddress = 10.9.0.2/24\n[Peer]\nPublicKey = {server}\n\
             AllowedIPs = 10.9.0.0/24\nEndpoint = 203.0.113.2:51820\n"
        ),
    );
    let words = "of wg0 drops what leaves by wg1";
    let said = world.convoy(&["up", "wg1"]).succeeds().stderr;
    assert!(said.contains(words), "{said}");
    for (asked, words) in [("wg1", words), ("wg0", words)] {
        let diagnosis = Diagnosis::of(world.convoy(&["doctor", asked, "--json"]));
        let finding = diagnosis.finding("other-kill-switch");
        assert!(
            finding["what"].as_str().unwrap().contains(words),
            "{finding}"
        );
        assert!(
            finding["fix"].as_str().unwrap().contains("ExcludedIPs"),
            "{finding}"
        );
    }
    let sent = || {
        let count = "ip -s -o link show wg1";
        let before = world.shell(count);
        world.answers("10.9.0.1");
        world.shell(count) != before
    };
    assert!(!sent());
    world.configure(
        "#convoy: KillSwitch = on\n#convoy: ExcludedIPs = 10.9.0.0/24\n",
        EVERYTHING,
    );
    world.convoy(&["reload", "wg0"]).succeeds();
    assert!(sent());
    assert!(world.way("10.9.0.1").contains("dev wg1"));
    world.reaches_all_behind();
}

#[test]
fn a_server_that_is_reached_by_ssh_is_told_and_stays_reachable_by_doctors_advice() {
    let Some(world) = World::new() else { return };
    let listener = world
        .client
        .run(|| TcpListener::bind("0.0.0.0:22").unwrap())
        .unwrap();
    let connect = || TcpStream::connect("192.168.1.2:22").unwrap();
    let mut admin = world.server.run(connect).unwrap();
    let (mut session, _) = listener.accept().unwrap();
    world.configure("", EVERYTHING);
    let fix = fix_of(&world, "ssh");
    let advice = fix.split('`').nth(1).unwrap();
    world.configure(&format!("{advice}\n"), EVERYTHING);
    assert!(!has(&world, "ssh"));
    world.up();
    for stream in [&admin, &session] {
        stream.set_read_timeout(Some(DEADLINE)).unwrap();
    }
    let mut said = [0; 2];
    admin.write_all(b"ls").unwrap();
    session.read_exact(&mut said).unwrap();
    session.write_all(b"ok").unwrap();
    admin.read_exact(&mut said).unwrap();
    assert_eq!(&said, b"ok");
    world.reaches_all_behind();
}

fn fix_of(world: &World, id: &str) -> String {
    let diagnosis = world.doctor();
    let finding = diagnosis.finding(id);
    assert_eq!(finding["severity"], "warning", "{finding}");
    finding["fix"].as_str().unwrap().to_owned()
}

fn has(world: &World, id: &str) -> bool {
    world
        .doctor()
        .all()
        .iter()
        .any(|finding| finding["id"] == id)
}
