//! Rules and routes of other programs, which stay as they are.

use convoy_host::{Desired, KillSwitch};

use crate::scene::{PATIENCE, Scene, everything, prefixes};

/// Tailscale's own rules and interface.
const TAILSCALE: &str = "
    ip tuntap add tailscale0 mode tun && ip link set tailscale0 up
    ip route add 100.64.7.7 dev tailscale0 table 52
    for f in -4 -6; do
        ip $f rule add pref 5210 fwmark 0x80000/0xff0000 lookup main
        ip $f rule add pref 5230 fwmark 0x80000/0xff0000 lookup default
        ip $f rule add pref 5250 fwmark 0x80000/0xff0000 type unreachable
        ip $f rule add pref 5270 lookup 52
    done";

#[test]
fn rules_go_before_those_of_tailscale_whose_networks_may_be_excluded() {
    let test = "rules_go_before_those_of_tailscale_whose_networks_may_be_excluded";
    let Some(scene) = Scene::new(test) else {
        return;
    };
    scene.shell(TAILSCALE);
    let before = scene.dump();
    for kill_switch in [None, Some(KillSwitch::default())] {
        scene.run(async || {
            let mut host = scene.open().await;
            let mut desired = Desired {
                kill_switch,
                excluded: prefixes(&["100.64.0.0/10"]),
                ..everything()
            };
            scene.apply(&mut host, &mut desired).await;
            let rules = scene.ip("rule");
            for (priority, end) in [
                (5_207, "lookup 51820 suppress_prefixlength 0"),
                (5_208, "lookup main suppress_prefixlength 0"),
                (5_209, "fwmark 0xca6c lookup 51820"),
                (5_270, "lookup 52"),
            ] {
                let is_it = |line: &str| {
                    let (number, rule) = line.split_once(':').unwrap();
                    number == priority.to_string() && rule.trim_end().ends_with(end)
                };
                assert!(rules.lines().any(is_it), "no {priority} {end} in {rules}");
            }
            let way = |to: &str| scene.ip(&format!("route get {to}"));
            assert!(way("100.64.7.7").contains("dev tailscale0"));
            assert!(way("203.0.113.1").contains("dev wg0"));
            host.undo().await.unwrap();
        });
        assert_eq!(scene.dump(), before);
    }
}

#[test]
fn rules_that_share_a_priority_come_back_in_their_order() {
    let test = "rules_that_share_a_priority_come_back_in_their_order";
    let Some(scene) = Scene::new(test) else {
        return;
    };
    // As on hosts with VRFs: nothing fits between the host's own addresses and the main table.
    scene.shell(
        "for f in -4 -6; do
             ip $f rule add from all lookup local pref 32765; ip $f rule del pref 0
         done",
    );
    let before = scene.dump();
    scene.run(async || {
        let mut host = scene.open().await;
        scene.apply(&mut host, &mut everything()).await;
        let rules = scene.ip("rule");
        assert_eq!(rules.matches("32765:").count(), 4, "{rules}");
        assert!(scene.ip("route get 127.0.0.1").contains("dev lo"));
        for rule in [
            "suppress_prefixlength 0 table 51820",
            "suppress_prefixlength 0 table main",
        ] {
            let mark = if rule.ends_with("51820") {
                "not fwmark 51820"
            } else {
                ""
            };
            scene.ip(&format!("rule del pref 32765 {mark} {rule}"));
            let is_back = async {
                while scene.ip("rule") != rules {
                    let _ = host.watch().await.unwrap();
                }
            };
            tokio::time::timeout(PATIENCE, is_back).await.unwrap();
        }
        host.undo().await.unwrap();
    });
    assert_eq!(scene.dump(), before);
}
