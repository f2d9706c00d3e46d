//! Addresses, routes, rules and MTU.

use std::net::UdpSocket;

use convoy_host::{Desired, Event, Host, HostError, Prefix, Table};
use convoy_lab::eventually;

use crate::scene::{PATIENCE, Scene, everything, prefixes, until, watch_until};

#[test]
fn a_mark_that_is_a_table_of_the_system_is_refused() {
    let Some(scene) = Scene::new("a_mark_that_is_a_table_of_the_system_is_refused") else {
        return;
    };
    scene.run(async || {
        let state = || scene.shell("ip route show table all; ip rule; nft list ruleset");
        let before = state();
        let mut host = scene.open().await;
        for mark in [253, 254, 255] {
            let desired = Desired {
                fwmark: Some(mark),
                ..everything()
            };
            let refused = host.apply(&desired).await;
            assert!(
                matches!(refused, Err(HostError::SystemTable(it)) if it == mark),
                "{refused:?}"
            );
            assert_eq!(state(), before);
        }
        host.undo().await.unwrap();
    });
}

#[test]
fn a_default_route_goes_into_its_own_table_as_with_wg_quick() {
    let Some(scene) = Scene::new("a_default_route_goes_into_its_own_table_as_with_wg_quick") else {
        return;
    };
    scene.run(async || {
        let mut host = scene.open().await;
        let applied = scene.apply(&mut host, &mut everything()).await;
        assert_eq!((applied.mtu, applied.warnings), (1420, vec![]));
        for family in ["-4", "-6"] {
            let rules = scene.ip(&format!("{family} -d rule"));
            let main = "32764:\tfrom all lookup main suppress_prefixlength 0 proto kernel";
            let marked = "32765:\tnot from all fwmark 0xca6c lookup 51820 proto kernel";
            assert!(rules.contains(main), "{rules}");
            let networks =
                "32763:\tnot from all fwmark 0xca6c lookup 51820 suppress_prefixlength 0";
            assert!(rules.contains(networks), "{rules}");
            assert!(rules.contains(marked), "{rules}");
            let own = scene.ip(&format!("{family} route show table 51820"));
            assert!(own.contains("default dev wg0"), "{own}");
            assert!(own.contains("unreachable default"), "{own}");
        }
        let main = scene.ip("route");
        assert!(main.contains("10.10.0.0/16 dev wg0"), "{main}");
        assert!(scene.ip("route get 203.0.113.1").contains("dev wg0"));
        assert!(
            scene
                .ip("route get 203.0.113.1 mark 51820")
                .contains("dev eth0")
        );
        assert!(scene.ip("route get 192.168.1.77").contains("dev eth0"));
        let firewall = scene.shell("nft list table inet convoy_wg0");
        assert!(
            firewall.contains("ip daddr 10.9.0.2 fib saddr type != local drop"),
            "{firewall}"
        );
        assert!(
            firewall.contains("ip6 daddr fd09::2 fib saddr"),
            "{firewall}"
        );
        assert_eq!(
            scene.shell("cat /proc/sys/net/ipv4/conf/all/src_valid_mark"),
            "1\n"
        );

        scene.ip("link delete wg0");
        let refused = scene.shell("ip route get 203.0.113.1 2>&1 || true");
        assert!(
            refused.contains("No route to host") || refused.contains("unreachable"),
            "{refused}"
        );
        host.undo().await.unwrap();
    });
    assert!(scene.is_clean());
}

#[test]
fn a_second_state_changes_only_the_difference() {
    let Some(scene) = Scene::new("a_second_state_changes_only_the_difference") else {
        return;
    };
    let before = scene.dump();
    scene.run(async || {
        let mut host = scene.open().await;
        let mut desired = everything();
        scene.apply(&mut host, &mut desired).await;
        let first = scene.dump();
        let mut monitor = scene.client.command("ip");
        let monitor = monitor.args(["monitor", "route", "rule", "address"]);
        let mut monitor = monitor
            .stdout(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        let wider = Desired {
            allowed: [desired.allowed.clone(), prefixes(&["10.11.0.0/16"])].concat(),
            ..desired.clone()
        };
        // The monitor prints nothing when it is ready.
        let wait = || scene.shell("ss -f netlink | grep -c ip/ || true").trim() != "0";
        eventually(PATIENCE, || wait().then_some(())).unwrap();
        host.apply(&wider).await.unwrap();
        host.apply(&desired).await.unwrap();
        assert_eq!(scene.dump(), first);
        let watched = || {
            let main = scene.ip("route show table main");
            (!main.contains("10.11.0.0/16")).then_some(())
        };
        eventually(PATIENCE, watched).unwrap();
        monitor.kill().unwrap();
        let output = monitor.wait_with_output().unwrap();
        let seen = String::from_utf8(output.stdout).unwrap();
        assert!(
            seen.lines().all(|line| line.contains("10.11.0.0/16")),
            "{seen}"
        );
        host.undo().await.unwrap();
    });
    assert_eq!(scene.dump(), before);
}

#[test]
fn excluded_networks_stay_outside() {
    let Some(scene) = Scene::new("excluded_networks_stay_outside") else {
        return;
    };
    let before = scene.dump();
    scene.run(async || {
        let mut host = scene.open().await;
        let mut desired = Desired {
            excluded: prefixes(&["10.10.128.0/17", "198.51.100.0/24", "2001:db8:1::/48"]),
            ..everything()
        };
        scene.apply(&mut host, &mut desired).await;
        let way = |to: &str| scene.ip(&format!("route get {to}"));
        for outside in ["10.10.200.1", "198.51.100.7", "2001:db8:1::7"] {
            assert!(way(outside).contains("dev eth0"), "{}", way(outside));
        }
        for inside in ["10.10.1.1", "198.51.101.7", "2001:db8:2::7"] {
            assert!(way(inside).contains("dev wg0"), "{}", way(inside));
        }
        host.undo().await.unwrap();
    });
    assert_eq!(scene.dump(), before);
}

#[test]
fn local_networks_stay_outside_and_are_followed() {
    let Some(scene) = Scene::new("local_networks_stay_outside_and_are_followed") else {
        return;
    };
    scene.run(async || {
        let mut host = scene.open().await;
        let mut desired = Desired {
            exclude_local: true,
            ..everything()
        };
        scene.apply(&mut host, &mut desired).await;
        let way = |to: &str| scene.ip(&format!("route get {to}"));
        let own = || scene.ip("route show table 51820");
        assert!(own().contains("throw 192.168.1.0/24"), "{}", own());
        assert!(way("192.168.1.200").contains("dev eth0"));
        assert!(way("172.20.0.1").contains("dev wg0"));
        scene.ip("address add 172.20.0.9/25 dev eth0");
        watch_until(&mut host, || own().contains("throw 172.20.0.0/25")).await;
        assert!(way("172.20.0.1").contains("dev eth0"));
        assert!(way("172.20.0.129").contains("dev wg0"));
        // Neither the tunnel's networks nor those of the internet are local.
        scene.ip("address add 10.10.7.9/24 dev eth0");
        scene.ip("address add 203.0.113.9/24 dev eth0");
        let mut told = Vec::new();
        while told.len() < 2 {
            let event = until(&mut host, |event| matches!(event, Event::Warnings(_))).await;
            let Event::Warnings(warnings) = event else {
                continue;
            };
            told = warnings;
        }
        let told = told.concat();
        assert!(
            told.contains("10.10.7.0/24") && told.contains("203.0.113.0/24"),
            "{told}"
        );
        assert!(way("10.10.7.7").contains("dev wg0"));
        assert!(!own().contains("throw 203.0.113.0/24"));
        host.undo().await.unwrap();
    });
}

#[test]
fn tables_off_and_by_number_are_obeyed() {
    let Some(scene) = Scene::new("tables_off_and_by_number_are_obeyed") else {
        return;
    };
    let before = scene.dump();
    for (table, routes) in [(Table::Off, 0), (Table::Number(1234), 3)] {
        scene.run(async || {
            let mut host = scene.open().await;
            let desired = Desired {
                table,
                ..everything()
            };
            host.apply(&desired).await.unwrap();
            let all = scene.ip("route show table all");
            assert_eq!(all.matches("dev wg0 table 1234").count(), routes, "{all}");
            assert!(!scene.ip("rule").contains("fwmark"));
            host.undo().await.unwrap();
        });
        assert_eq!(scene.dump(), before);
    }
}

#[test]
fn a_mark_is_chosen_whose_table_is_free_and_a_missing_one_is_an_error() {
    let Some(scene) =
        Scene::new("a_mark_is_chosen_whose_table_is_free_and_a_missing_one_is_an_error")
    else {
        return;
    };
    scene.ip("route add 203.0.113.0/24 dev eth0 table 51820");
    scene.ip("route add 2001:db8::/48 dev eth0 table 51821");
    scene.run(async || {
        let mut host = scene.open().await;
        assert_eq!(host.pick_mark(&everything()).await.unwrap(), Some(51822));
        let refused = host.apply(&everything()).await;
        assert!(matches!(refused, Err(HostError::MarkNeeded(_))));
        host.undo().await.unwrap();
    });
}

#[test]
fn without_ipv6_the_rest_works() {
    let Some(scene) = Scene::new("without_ipv6_the_rest_works") else {
        return;
    };
    scene.shell("for f in /proc/sys/net/ipv6/conf/*/disable_ipv6; do echo 1 > $f; done");
    let before = scene.dump();
    scene.run(async || {
        let mut host = scene.open().await;
        let applied = scene.apply(&mut host, &mut everything()).await;
        assert_eq!(applied.warnings.len(), 1, "{:?}", applied.warnings);
        assert!(applied.warnings[0].contains("IPv6"));
        assert!(scene.ip("route get 203.0.113.1").contains("dev wg0"));
        host.undo().await.unwrap();
    });
    assert_eq!(scene.dump(), before);
}

#[test]
fn the_mtu_fits_the_narrowest_endpoint_and_follows_its_route() {
    let Some(scene) = Scene::new("the_mtu_fits_the_narrowest_endpoint_and_follows_its_route")
    else {
        return;
    };
    scene.ip("route add 203.0.113.0/24 via 192.168.1.1 mtu 1400");
    scene.run(async || {
        let mut host = scene.open().await;
        let mut desired = everything();
        desired.endpoints.push("203.0.113.1".parse().unwrap());
        assert_eq!(scene.apply(&mut host, &mut desired).await.mtu, 1320);
        scene.ip("link set eth0 mtu 1380");
        let event = until(&mut host, |event| matches!(event, Event::MtuChanged(_))).await;
        assert_eq!(event, Event::MtuChanged(1300));
        assert!(scene.ip("link show wg0").contains("mtu 1300"));
        host.undo().await.unwrap();
    });
    assert!(scene.ip("link show wg0").contains("mtu 1500"));
}

#[test]
fn two_tunnels_keep_their_rules_and_the_last_one_resets_the_sysctl() {
    let Some(scene) = Scene::new("two_tunnels_keep_their_rules_and_the_last_one_resets_the_sysctl")
    else {
        return;
    };
    scene.ip("tuntap add dev wg1 mode tun");
    let valid_mark = || scene.shell("cat /proc/sys/net/ipv4/conf/all/src_valid_mark");
    scene.run(async || {
        let mut first = scene.open().await;
        scene.apply(&mut first, &mut everything()).await;
        let mut second = Host::open("wg1", scene.options()).await.unwrap();
        let mut desired = everything();
        desired.addresses = prefixes(&["10.8.0.2/24", "fd08::2/64"]);
        desired.allowed.pop();
        scene.apply(&mut second, &mut desired).await;
        assert_eq!(desired.fwmark, Some(51821));
        assert!(scene.ip("route get 203.0.113.1").contains("dev wg1"));
        let rules = scene.ip("rule");
        scene.ip("link set eth0 mtu 1400");
        let is_change = |event: &Event| matches!(event, Event::MtuChanged(_));
        until(&mut first, is_change).await;
        until(&mut second, is_change).await;
        assert_eq!(scene.ip("rule"), rules);
        first.undo().await.unwrap();
        assert_eq!(valid_mark(), "1\n");
        second.undo().await.unwrap();
        assert_eq!(valid_mark(), "0\n");
    });
}

#[test]
fn another_mark_replaces_rules_and_table() {
    let Some(scene) = Scene::new("another_mark_replaces_rules_and_table") else {
        return;
    };
    let before = scene.dump();
    scene.run(async || {
        let mut host = scene.open().await;
        scene.apply(&mut host, &mut everything()).await;
        let moved = Desired {
            fwmark: Some(777),
            ..everything()
        };
        host.apply(&moved).await.unwrap();
        let dump = scene.dump();
        assert!(
            dump.contains("not from all fwmark 0x309 lookup 777"),
            "{dump}"
        );
        assert!(
            !dump.contains("51820") && !dump.contains("0xca6c"),
            "{dump}"
        );
        assert!(scene.ip("route get 203.0.113.1").contains("dev wg0"));
        assert!(
            scene
                .ip("route get 203.0.113.1 mark 777")
                .contains("dev eth0")
        );
        host.undo().await.unwrap();
    });
    assert_eq!(scene.dump(), before);
}

#[test]
fn a_thousand_routes_are_made_and_undone() {
    let Some(scene) = Scene::new("a_thousand_routes_are_made_and_undone") else {
        return;
    };
    let before = scene.dump();
    scene.run(async || {
        let mut host = scene.open().await;
        let mut desired = everything();
        let networks = (0..1_000u32).map(|n| format!("100.{}.{}.0/24", n / 250, n % 250));
        desired
            .allowed
            .extend(networks.map(|text| text.parse::<Prefix>().unwrap()));
        scene.apply(&mut host, &mut desired).await;
        assert_eq!(scene.ip("route").matches("/24 dev wg0").count(), 1_001);
        scene.ip("route delete 100.3.7.0/24");
        let event = until(&mut host, |event| matches!(event, Event::Restored(_))).await;
        let route = "route 100.3.7.0/24 in table main";
        assert_eq!(event, Event::Restored(vec![route.to_owned()]));
        host.undo().await.unwrap();
    });
    assert_eq!(scene.dump(), before);
}

#[test]
fn own_addresses_are_reached_as_soon_as_they_are_there() {
    let Some(scene) = Scene::new("own_addresses_are_reached_as_soon_as_they_are_there") else {
        return;
    };
    // The kernel arranges it in the background, which is often soon enough.
    for _ in 0..20 {
        scene.run(async || {
            let mut host = scene.open().await;
            scene.apply(&mut host, &mut everything()).await;
            for own in ["10.9.0.2", "fd09::2"] {
                let socket = UdpSocket::bind((own, 0)).unwrap();
                socket.connect(socket.local_addr().unwrap()).unwrap();
                socket.set_read_timeout(Some(PATIENCE)).unwrap();
                socket.send(b"hello").unwrap();
                assert_eq!(socket.recv(&mut [0; 8]).unwrap(), 5, "{own}");
            }
            host.undo().await.unwrap();
        });
    }
}
