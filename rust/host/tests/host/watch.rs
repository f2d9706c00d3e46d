//! Tests that what others remove comes back, and that events of the interface are reported.

use std::{
    fs,
    time::{Duration, Instant},
};

use convoy_host::{Desired, Event, KillSwitch};
use tokio::time::timeout;

use crate::scene::{PATIENCE, Scene, SmallDisk, everything, until, watch_until};

#[test]
fn what_others_remove_comes_back() {
    let Some(scene) = Scene::new("what_others_remove_comes_back") else {
        return;
    };
    let before = scene.dump();
    // Addresses that come back are listed in another order, and the kernel adds a multicast route.
    let sorted = || {
        let dump = scene.dump();
        let mut lines: Vec<_> = dump.lines().map(str::to_owned).collect();
        lines.retain(|line| !line.starts_with("multicast ff00::/8 dev wg0"));
        lines.sort();
        lines
    };
    for sabotage in [
        "ip rule delete priority 32765",
        "ip -6 rule delete priority 32764",
        "ip route flush table 51820",
        "ip -6 route flush table 51820",
        "ip address delete 10.9.0.2/24 dev wg0",
        "ip address flush dev wg0 scope global",
        "nft flush ruleset",
        "nft flush chain inet convoy_wg0 preraw",
        "ip link set wg0 mtu 1300",
    ] {
        // A host of its own: one host pauses longer after each restoration.
        scene.run(async || {
            let mut host = scene.open().await;
            scene.apply(&mut host, &mut everything()).await;
            let complete = sorted();
            scene.shell(sabotage);
            assert_ne!(sorted(), complete, "{sabotage}");
            watch_until(&mut host, || sorted() == complete).await;
            host.undo().await.unwrap();
        });
    }
    assert_eq!(scene.dump(), before);
}

#[test]
fn a_change_that_failed_is_made_once_it_can_be() {
    let Some(scene) = Scene::new("a_change_that_failed_is_made_once_it_can_be") else {
        return;
    };
    let before = scene.dump();
    let disk = SmallDisk::at(scene.options().lasting_journals);
    scene.run(async || {
        let mut host = scene.open().await;
        let mut desired = everything();
        desired.dns.servers = vec!["10.9.0.1".parse().unwrap()];
        scene.apply(&mut host, &mut desired).await;
        let pause = Duration::from_millis(500);
        while timeout(pause, host.watch()).await.is_ok() {}
        disk.fill();
        // Longer than any room that is left.
        desired.dns.search = (0..500).map(|n| format!("domain{n}.example")).collect();
        host.apply(&desired).await.unwrap_err();
        disk.clear();
        // No news of the host says so.
        let name_servers = || fs::read_to_string(scene.resolv_conf()).unwrap();
        watch_until(&mut host, || name_servers().contains("domain499.example")).await;
        host.undo().await.unwrap();
    });
    assert_eq!(scene.dump(), before);
}

#[test]
fn whoever_keeps_the_caller_busy_delays_no_restoration() {
    let Some(scene) = Scene::new("whoever_keeps_the_caller_busy_delays_no_restoration") else {
        return;
    };
    scene.run(async || {
        let mut host = scene.open().await;
        let mut desired = Desired {
            kill_switch: Some(KillSwitch::default()),
            ..everything()
        };
        scene.apply(&mut host, &mut desired).await;
        scene.ip("rule delete priority 32765");
        let deadline = Instant::now() + PATIENCE;
        while !scene.ip("rule").contains("32765:") {
            assert!(Instant::now() < deadline, "it did not come back");
            // As a supervisor does that is asked something again and again.
            let _ = timeout(Duration::from_millis(1), host.watch()).await;
            host.catch_up().await.unwrap();
        }
        host.undo().await.unwrap();
    });
}

#[test]
fn rules_of_one_priority_come_back_in_their_order_however_often_the_work_is_cancelled() {
    let test = "rules_of_one_priority_come_back_in_their_order_however_often_the_work_is_cancelled";
    let Some(scene) = Scene::new(test) else {
        return;
    };
    // Leaves one priority for all rules.
    scene.ip("rule add priority 32765 lookup local");
    scene.ip("rule delete priority 0");
    for micros in (200..3_000).step_by(200) {
        // A host of its own: one host pauses longer after each restoration.
        scene.run(async || {
            let mut host = scene.open().await;
            scene.apply(&mut host, &mut everything()).await;
            let complete = scene.ip("rule");
            let ours = complete.lines().find(|line| line.contains("fwmark"));
            let (priority, rule) = ours.unwrap().split_once(':').unwrap();
            let rule = rule.trim();
            scene.ip(&format!("rule delete priority {priority} {rule}"));
            let deadline = Instant::now() + PATIENCE;
            let mut time = Duration::from_micros(micros);
            while scene.ip("rule") != complete {
                assert!(Instant::now() < deadline, "{}", scene.ip("rule"));
                let _ = timeout(time, host.watch()).await;
                // On a busy machine, too, it soon suffices for the whole work.
                time += time / 20;
            }
            host.undo().await.unwrap();
        });
    }
}

#[test]
fn a_restoration_is_reported_by_name() {
    let Some(scene) = Scene::new("a_restoration_is_reported_by_name") else {
        return;
    };
    scene.run(async || {
        let mut host = scene.open().await;
        scene.apply(&mut host, &mut everything()).await;
        scene.ip("rule delete priority 32765");
        let event = until(&mut host, |event| matches!(event, Event::Restored(_))).await;
        let rule = "IPv4 rule 32765: not fwmark 51820 lookup 51820";
        assert_eq!(event, Event::Restored(vec![rule.to_owned()]));
        host.undo().await.unwrap();
    });
}

#[test]
fn a_link_that_was_down_gets_its_routes_back_when_it_comes_up() {
    let Some(scene) = Scene::new("a_link_that_was_down_gets_its_routes_back_when_it_comes_up")
    else {
        return;
    };
    scene.run(async || {
        let mut host = scene.open().await;
        scene.apply(&mut host, &mut everything()).await;
        scene.ip("link set wg0 down");
        let is_settled = || scene.ip("route show table 51820").contains("unreachable");
        watch_until(&mut host, is_settled).await;
        assert!(!scene.ip("-o link show wg0").contains(",UP"));
        scene.ip("link set wg0 up");
        let is_back = || {
            let [v4, v6] = ["-4", "-6"].map(|f| scene.ip(&format!("{f} route show table 51820")));
            v4.contains("default dev wg0") && v6.contains("default dev wg0")
        };
        watch_until(&mut host, is_back).await;
        host.undo().await.unwrap();
    });
}

#[test]
fn an_interface_that_moves_or_goes_is_reported() {
    let Some(scene) = Scene::new("an_interface_that_moves_or_goes_is_reported") else {
        return;
    };
    scene.run(async || {
        let mut host = scene.open().await;
        scene.apply(&mut host, &mut everything()).await;
        scene.ip(&format!("link set wg0 netns {}", scene.router.pid()));
        let is_end = |event: &Event| matches!(event, Event::Moved | Event::Gone);
        assert_eq!(until(&mut host, is_end).await, Event::Moved);
        host.release().await.unwrap();
        assert!(!scene.ip("rule").contains("51820"));

        scene.ip("tuntap add dev wg0 mode tun");
        let mut host = scene.open().await;
        scene.apply(&mut host, &mut everything()).await;
        scene.ip("link delete wg0");
        assert_eq!(until(&mut host, is_end).await, Event::Gone);
        host.undo().await.unwrap();
        assert!(!scene.ip("rule").contains("51820"));
    });
}

#[test]
fn another_way_to_the_endpoint_is_reported() {
    let Some(scene) = Scene::new("another_way_to_the_endpoint_is_reported") else {
        return;
    };
    scene.run(async || {
        let mut host = scene.open().await;
        scene.apply(&mut host, &mut everything()).await;
        let is_change = |event: &Event| *event == Event::UnderlayChanged;
        scene.ip("route change default via 192.168.1.7");
        until(&mut host, is_change).await;
        scene.ip("link set eth0 down");
        until(&mut host, is_change).await;
        host.undo().await.unwrap();
    });
}

#[test]
fn another_way_is_reported_even_if_the_state_is_applied_anew_before_anybody_looks() {
    let test = "another_way_is_reported_even_if_the_state_is_applied_anew_before_anybody_looks";
    let Some(scene) = Scene::new(test) else {
        return;
    };
    scene.run(async || {
        let mut host = scene.open().await;
        let mut desired = everything();
        scene.apply(&mut host, &mut desired).await;
        let is_change = |event: &Event| *event == Event::UnderlayChanged;
        scene.ip("route change default via 192.168.1.7");
        // As a supervisor does when a probe has found a narrower path.
        desired.mtu_at_most = Some(1_300);
        scene.apply(&mut host, &mut desired).await;
        until(&mut host, is_change).await;
        scene.ip("route change default via 192.168.1.8");
        // Or when a peer has another address.
        desired.endpoints = vec!["192.168.1.9".parse().unwrap()];
        scene.apply(&mut host, &mut desired).await;
        until(&mut host, is_change).await;
        // Other endpoints alone are no change of the network.
        desired.endpoints = vec!["192.168.1.1".parse().unwrap()];
        scene.apply(&mut host, &mut desired).await;
        scene.ip("rule delete priority 32765");
        let is_restored = |event: &Event| {
            assert!(!is_change(event));
            matches!(event, Event::Restored(_))
        };
        until(&mut host, is_restored).await;
        host.undo().await.unwrap();
    });
}

#[test]
fn an_interface_with_another_name_is_told_of_until_it_has_its_own_again() {
    let test = "an_interface_with_another_name_is_told_of_until_it_has_its_own_again";
    let Some(scene) = Scene::new(test) else {
        return;
    };
    scene.run(async || {
        let mut host = scene.open().await;
        scene.apply(&mut host, &mut everything()).await;
        let routes = || scene.ip("route show table 51820");
        let complete = routes();
        scene.ip("link set wg0 name other0");
        scene.ip("route flush table 51820");
        let is_told = |event: &Event| matches!(event, Event::Warnings(_));
        let Event::Warnings(told) = until(&mut host, is_told).await else {
            unreachable!()
        };
        let fix = "(fix: ip link set other0 name wg0)";
        assert!(told.iter().any(|it| it.contains(fix)), "{told:?}");
        scene.ip("link set other0 name wg0");
        let Event::Warnings(told) = until(&mut host, is_told).await else {
            unreachable!()
        };
        assert!(!told.iter().any(|it| it.contains(fix)), "{told:?}");
        watch_until(&mut host, || routes() == complete).await;
        host.undo().await.unwrap();
    });
}

#[test]
fn other_addresses_of_this_machine_are_reported() {
    let Some(scene) = Scene::new("other_addresses_of_this_machine_are_reported") else {
        return;
    };
    scene.run(async || {
        let mut host = scene.open().await;
        scene.apply(&mut host, &mut everything()).await;
        let before = host.own_addresses().await.unwrap();
        assert!(
            before.contains(&"192.168.1.2".parse().unwrap()),
            "{before:?}"
        );
        let is_change = |event: &Event| matches!(event, Event::OwnAddresses(_));
        scene.ip("address add 2001:db8:7::7/64 dev eth0 nodad");
        let after = until(&mut host, is_change).await;
        let new = "2001:db8:7::7".parse().unwrap();
        let expected = std::iter::once(new).chain(before.iter().copied());
        assert_eq!(after, Event::OwnAddresses(expected.collect()));
        scene.ip("address delete 2001:db8:7::7/64 dev eth0");
        let again = until(&mut host, is_change).await;
        assert_eq!(again, Event::OwnAddresses(before));
        host.undo().await.unwrap();
    });
}

#[test]
fn a_host_that_nobody_changes_is_left_alone() {
    let Some(scene) = Scene::alone("a_host_that_nobody_changes_is_left_alone") else {
        return;
    };
    let switches = || {
        let status = fs::read_to_string("/proc/thread-self/status").unwrap();
        let line = status.lines().find(|line| line.starts_with("voluntary"));
        let count = line.and_then(|line| line.split_whitespace().last());
        count.and_then(|count| count.parse::<u64>().ok()).unwrap()
    };
    scene.run(async || {
        let mut host = scene.open().await;
        let mut desired = Desired {
            kill_switch: Some(KillSwitch::default()),
            ..everything()
        };
        scene.apply(&mut host, &mut desired).await;
        let mut idle = async || {
            let before = switches();
            let watching = timeout(Duration::from_secs(1), host.watch()).await;
            (watching.is_err(), switches() - before)
        };
        // The first look after `apply` follows at once.
        let mut seen = Vec::new();
        while !matches!(seen.last(), Some((true, 0..=2))) {
            assert!(seen.len() < 20, "{seen:?}");
            seen.push(idle().await);
        }
        host.undo().await.unwrap();
    });
}
