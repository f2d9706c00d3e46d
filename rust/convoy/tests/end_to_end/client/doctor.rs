//! `convoy doctor`: what it finds at a client whose server answers, and whose network is in its way.

use convoy_lab::eventually;
use nix::sys::signal::Signal;
use serde_json::Value;

use super::{
    outcome::Outcome,
    world::{BEHIND, EVERYTHING, World},
};
use crate::{scene::DEADLINE, twins::public_key};

/// Output of `convoy doctor --json`.
pub(super) struct Diagnosis(Value);

impl Diagnosis {
    /// Requires that the exit status is that of the greatest severity.
    pub(super) fn of(outcome: Outcome) -> Self {
        let parsed = serde_json::from_str::<Value>(&outcome.stdout);
        let diagnosis = parsed.unwrap_or_else(|error| panic!("{error}: {outcome:?}"));
        let expected = match diagnosis["severity"].as_str() {
            Some("ok" | "note") => 0,
            Some("warning") => 3,
            Some("error") => 4,
            _ => panic!("no severity in {diagnosis}"),
        };
        outcome.ends_with(expected);
        Self(diagnosis)
    }

    pub(super) fn all(&self) -> &[Value] {
        self.0["findings"].as_array().unwrap()
    }

    /// The finding of a check.
    pub(super) fn finding(&self, id: &str) -> &Value {
        let found = self.all().iter().find(|finding| finding["id"] == id);
        found.unwrap_or_else(|| panic!("no {id} in {}", self.0))
    }

    fn severity(&self, id: &str) -> &str {
        self.finding(id)["severity"].as_str().unwrap()
    }
}

impl World {
    pub(super) fn doctor(&self) -> Diagnosis {
        Diagnosis::of(self.convoy(&["doctor", "wg0", "--json"]))
    }
}

#[test]
fn doctor_finds_that_the_server_answers_and_changes_nothing() {
    let Some(world) = World::new() else { return };
    world.configure(
        "DNS = 10.8.0.1\n",
        &format!("# friendly_name = Office\n{EVERYTHING}"),
    );
    let before = world.dump();
    let diagnosis = world.doctor();
    assert_eq!(diagnosis.0["tunnel"], "wg0");
    assert_eq!(diagnosis.finding("handshake")["peer"], "Office");
    for id in [
        "handshake",
        "endpoint-route",
        "endpoint-mtu",
        "config",
        "tun-device",
        "tun-super-packets",
        "udp-gso",
        "udp-gro",
        "without-root",
        "rp-filter",
        "dns",
        "other-rules",
    ] {
        assert_eq!(diagnosis.severity(id), "ok", "{}", diagnosis.0);
    }
    world.is_left_as(&before);
    // Its handshake does not make those of the tunnel replays.
    world.up();
    world.reaches_all_behind();
    let diagnosis = world.doctor();
    for id in ["handshake", "dns-tunnel", "state", "owner", "tx-queue"] {
        assert_eq!(diagnosis.severity(id), "ok", "{}", diagnosis.0);
    }
    world.reaches(BEHIND[0]);
}

#[test]
fn doctor_finds_that_nobody_answers() {
    let Some(world) = World::new() else { return };
    world.configure("", EVERYTHING);
    world.shell_at(&world.server, "ip link set eth0 down");
    let diagnosis = world.doctor();
    let finding = diagnosis.finding("handshake");
    assert_eq!(finding["severity"], "error");
    assert!(
        finding["what"]
            .as_str()
            .unwrap()
            .contains("203.0.113.1:51820")
    );
    let fix = finding["fix"].as_str().unwrap();
    assert!(fix.contains(&public_key(1)), "{fix}");
}

#[test]
fn doctor_tells_a_key_that_the_server_does_not_know() {
    let Some(world) = World::new() else { return };
    world.configure("", EVERYTHING);
    let remove = format!("wg set wg0 peer {} remove", public_key(1));
    world.shell_at(&world.server, &remove);
    assert_eq!(world.doctor().severity("handshake"), "error");
}

#[test]
fn doctor_finds_the_filter_that_drops_what_the_server_sends() {
    let Some(world) = World::new() else { return };
    let strict = "for it in all eth0; do echo 1 > /proc/sys/net/ipv4/conf/$it/rp_filter; done";
    world.configure("", EVERYTHING);
    world.shell(strict);
    // `convoy up` copes with it.
    assert_eq!(world.doctor().severity("rp-filter"), "ok");
    world.up();
    world.reaches(BEHIND[0]);
    assert_eq!(world.doctor().severity("rp-filter"), "ok");
    let is_found = || {
        world.shell("echo 0 > /proc/sys/net/ipv4/conf/all/src_valid_mark");
        (world.doctor().severity("rp-filter") == "error").then_some(())
    };
    assert!(eventually(DEADLINE, is_found).is_some());
}

#[test]
fn doctor_finds_an_mtu_that_the_route_does_not_carry() {
    let Some(world) = World::new() else { return };
    for (mtu, expected) in [
        ("MTU = 1500\n", "warning"),
        ("MTU = 1440\n", "ok"),
        ("", "ok"),
    ] {
        world.configure(mtu, EVERYTHING);
        assert_eq!(world.doctor().severity("endpoint-mtu"), expected, "{mtu}");
    }
    // An MTU of the route itself counts, not only that of its device.
    world.configure("MTU = 1420\n", EVERYTHING);
    world.shell("ip route replace default via 192.168.1.1 mtu 1400");
    assert_eq!(world.doctor().severity("endpoint-mtu"), "warning");
}

#[test]
fn doctor_finds_rules_and_routes_of_another_vpn() {
    let Some(world) = World::new() else { return };
    world.configure("", EVERYTHING);
    world.up();
    assert_eq!(world.doctor().severity("other-rules"), "ok");
    world.shell("ip rule add priority 100 lookup 7");
    assert_eq!(world.doctor().severity("other-rules"), "warning");
    world.shell("ip rule delete priority 100");
    world.shell(
        "ip tuntap add other mode tun; ip link set other up
         ip route add 0.0.0.0/1 dev other; ip route add 128.0.0.0/1 dev other",
    );
    let diagnosis = world.doctor();
    assert_eq!(diagnosis.severity("other-interfaces"), "note");
    assert_eq!(diagnosis.severity("other-routes"), "warning");
}

#[test]
fn doctor_finds_rules_that_only_legacy_iptables_shows() {
    let Some(world) = World::with(&["iptables-legacy"]) else {
        return;
    };
    world.configure("", EVERYTHING);
    let has_found = |diagnosis: &Diagnosis| {
        let mut found = diagnosis.all().iter();
        found.any(|finding| finding["id"] == "firewall-legacy")
    };
    // Tables without rules do no harm.
    world.shell("iptables-legacy -t mangle -L");
    assert!(!has_found(&world.doctor()));
    world.shell("iptables-legacy -A INPUT -p udp --sport 51820 -j DROP");
    let diagnosis = world.doctor();
    assert!(has_found(&diagnosis), "{}", diagnosis.0);
    let finding = diagnosis.finding("firewall-legacy");
    let what = finding["what"].as_str().unwrap();
    assert!(what.ends_with(": filter (IPv4)."), "{what}");
}

#[test]
fn doctor_finds_that_another_program_took_the_name_servers() {
    let Some(world) = World::new() else { return };
    world.configure("DNS = 10.8.0.1\n", EVERYTHING);
    world.up();
    // The supervisor sets its own again and again.
    let insist = "while sleep 0.02; do echo nameserver 192.168.1.1 > /etc/resolv.conf; done";
    let mut other = world.client.command("sh");
    let mut other = other.args(["-c", insist]).spawn().unwrap();
    let is_found = || (world.doctor().severity("dns-tunnel") == "warning").then_some(());
    let found = eventually(DEADLINE, is_found);
    other.kill().unwrap();
    other.wait().unwrap();
    assert!(found.is_some());
}

#[test]
fn doctor_finds_mistakes_and_names_without_an_address() {
    let Some(world) = World::new() else { return };
    world.configure("MTU = x\n", EVERYTHING);
    assert_eq!(world.doctor().severity("config"), "error");
    let named = "Endpoint = vpn.example.org:51820\nAllowedIPs = 0.0.0.0/0\n";
    world.configure("", named);
    world.shell("echo > /etc/resolv.conf");
    let diagnosis = world.doctor();
    assert_eq!(diagnosis.severity("endpoint-name"), "error");
    assert_eq!(diagnosis.severity("dns"), "warning");
    world.shell("ip route delete default; ip route add unreachable default metric 9");
    world.configure("", EVERYTHING);
    assert_eq!(world.doctor().severity("endpoint-route"), "error");
}

#[test]
fn doctor_does_not_take_the_server_away_from_wg_quick() {
    let Some(world) = World::with(&["wg-quick", "wireguard-go"]) else {
        return;
    };
    world.configure("", EVERYTHING);
    world.shell("WG_QUICK_USERSPACE_IMPLEMENTATION=wireguard-go wg-quick up wg0");
    let diagnosis = world.doctor();
    assert_eq!(diagnosis.severity("state"), "warning");
    assert_eq!(diagnosis.severity("handshake"), "note");
}

#[test]
fn doctor_names_what_a_gateway_lacks() {
    let Some(world) = World::new() else { return };
    world.configure("#convoy: Nat = user\n", EVERYTHING);
    world.shell("echo 1 0 > /proc/sys/net/ipv4/ping_group_range");
    world.shell("mount --bind /dev/null /usr/sbin/nft");
    let lacking = world.doctor();
    assert_eq!(lacking.severity("nat-ping"), "warning");
    let fix = &lacking.finding("nat")["fix"];
    assert_eq!(fix, "For the faster one, install nftables.");
    world.shell("umount /usr/sbin/nft");
    assert_eq!(world.doctor().severity("nat"), "ok");
}

#[test]
fn doctor_works_without_root_and_says_what_it_did_not_see() {
    let Some(world) = World::with(&["setpriv"]) else {
        return;
    };
    world.configure("", EVERYTHING);
    world.admit_nobody();
    let before = world.dump();
    let diagnosis = Diagnosis::of(world.as_nobody(&["doctor", "/etc/wg0.conf", "--json"]));
    assert_eq!(diagnosis.severity("handshake"), "ok");
    assert_eq!(diagnosis.severity("firewall"), "note");
    let errors = diagnosis
        .all()
        .iter()
        .filter(|it| it["severity"] == "error");
    assert_eq!(errors.count(), 0, "{}", diagnosis.0);
    world.is_left_as(&before);
}

#[test]
fn doctor_leaves_nothing_behind_when_it_is_killed() {
    let Some(world) = World::new() else { return };
    world.configure("", EVERYTHING);
    world.shell_at(&world.server, "ip link set eth0 down");
    let before = world.dump();
    let mut running = world.start(&["doctor", "wg0"]);
    let opens_sockets = || {
        let sockets = world.shell("ss --no-header --udp --all --processes");
        sockets.contains("convoy").then_some(())
    };
    assert!(eventually(DEADLINE, opens_sockets).is_some());
    running.signal(Signal::SIGKILL);
    assert!(eventually(DEADLINE, || running.has_ended().then_some(())).is_some());
    world.is_left_as(&before);
}

#[test]
fn doctor_prints_lines_that_fit_a_terminal_without_colours_in_a_file() {
    let Some(world) = World::new() else { return };
    world.configure("MTU = 1500\n", EVERYTHING);
    let text = world.convoy(&["doctor", "wg0"]).stdout;
    assert!(text.contains("endpoint-mtu: "), "{text}");
    assert!(
        text.lines().all(|line| line.chars().count() <= 80),
        "{text}"
    );
    assert!(!text.contains('\u{1b}'), "{text}");
    world.convoy(&["doctor", "--nonsense"]).ends_with(2);
    world
        .convoy(&["doctor", "no interface"])
        .fails_with("no interface");
    Diagnosis::of(world.convoy(&["doctor", "--json"]));
}
