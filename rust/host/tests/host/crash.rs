//! A process that dies at any step leaves nothing that the next one does not undo.

use convoy_host::{Desired, Dns, Host, HostError, KillSwitch};

use crate::scene::{Scene, everything, prefixes};

/// Dies after `steps` of `apply`; returns whether it got to the end.
async fn die_while_applying(scene: &Scene, desired: &Desired, steps: usize) -> bool {
    let mut host = scene.open().await;
    host.stop_after(steps);
    match host.apply(desired).await {
        Ok(_) => true,
        Err(HostError::Stopped) => false,
        Err(error) => panic!("{error}"),
    }
}

fn all() -> Desired {
    Desired {
        fwmark: Some(51820),
        excluded: prefixes(&["10.20.0.0/16", "10.10.128.0/17"]),
        kill_switch: Some(KillSwitch::default()),
        dns: Dns {
            servers: vec!["10.9.0.1".parse().unwrap()],
            search: vec!["example.org".to_owned()],
        },
        ..everything()
    }
}

/// Differs from `all` in everything that can.
fn others() -> Desired {
    Desired {
        mtu: Some(1400),
        fwmark: Some(777),
        kill_switch: None,
        dns: Dns {
            servers: vec!["10.9.0.3".parse().unwrap()],
            search: Vec::new(),
        },
        ..all()
    }
}

#[test]
fn recovery_after_a_crash_at_any_step_restores_the_host() {
    let Some(scene) = Scene::new("recovery_after_a_crash_at_any_step_restores_the_host") else {
        return;
    };
    let before = scene.dump();
    let mut steps = 0;
    loop {
        let is_last = scene.run(async || die_while_applying(&scene, &all(), steps).await);
        // Recovery dies, too, at a step that differs each time.
        scene.run(async || {
            let mut host = scene.open().await;
            host.stop_after(steps * 5 % 17);
            match host.undo().await {
                Ok(()) | Err(HostError::Stopped) => {}
                Err(error) => panic!("{error}"),
            }
        });
        scene.recover();
        assert_eq!(scene.dump(), before, "after {steps} steps");
        assert!(scene.is_clean(), "after {steps} steps");
        if is_last {
            break;
        }
        steps += 1;
    }
    assert!(steps > 30, "only {steps} steps");
}

#[test]
fn a_process_that_starts_after_a_crash_takes_over_and_completes() {
    let Some(scene) = Scene::new("a_process_that_starts_after_a_crash_takes_over_and_completes")
    else {
        return;
    };
    let before = scene.dump();
    let complete = scene.run(async || {
        scene.open().await.apply(&all()).await.unwrap();
        scene.dump()
    });
    scene.recover();
    assert_eq!(scene.dump(), before);
    for steps in (0..40).step_by(3) {
        scene.run(async || die_while_applying(&scene, &all(), steps).await);
        scene.run(async || {
            let mut host = scene.open().await;
            host.apply(&all()).await.unwrap();
            assert_eq!(scene.dump(), complete, "after {steps} steps");
            host.undo().await.unwrap();
        });
        assert_eq!(scene.dump(), before, "after {steps} steps");
    }
}

#[test]
fn recovery_after_a_crash_at_any_step_of_a_change_restores_the_host() {
    let Some(scene) =
        Scene::new("recovery_after_a_crash_at_any_step_of_a_change_restores_the_host")
    else {
        return;
    };
    let before = scene.dump();
    let mut steps = 0;
    loop {
        let is_last = scene.run(async || {
            scene.open().await.apply(&all()).await.unwrap();
            die_while_applying(&scene, &others(), steps).await
        });
        scene.recover();
        assert_eq!(scene.dump(), before, "after {steps} steps");
        assert!(scene.is_clean(), "after {steps} steps");
        if is_last {
            break;
        }
        steps += 1;
    }
    assert!(steps > 20, "only {steps} steps");
}

#[test]
fn what_others_changed_since_is_left_alone() {
    let Some(scene) = Scene::new("what_others_changed_since_is_left_alone") else {
        return;
    };
    scene.run(async || drop(scene.open().await.apply(&all()).await.unwrap()));
    scene.shell("echo 0 > /proc/sys/net/ipv4/conf/all/src_valid_mark");
    scene.ip("link set wg0 mtu 1300");
    scene.ip("route replace default dev eth0 table 51820");
    std::fs::write(scene.resolv_conf(), "nameserver 192.0.2.53\n").unwrap();
    scene.recover();
    let after = scene.dump();
    assert!(after.contains("nameserver 192.0.2.53"), "{after}");
    assert!(after.contains("mtu 1300"), "{after}");
    assert!(after.contains("default dev eth0 table 51820"), "{after}");
    assert!(!after.contains("lookup 51820"), "{after}");
}

#[test]
fn a_second_process_for_the_same_interface_is_refused() {
    let Some(scene) = Scene::new("a_second_process_for_the_same_interface_is_refused") else {
        return;
    };
    scene.run(async || {
        let _first = scene.open().await;
        let second = Host::open("wg0", scene.options()).await;
        assert!(matches!(second, Err(HostError::Busy { .. })), "{second:?}");
    });
}

#[test]
fn nothing_leaves_while_the_interface_is_gone_and_a_new_one_takes_its_place() {
    let Some(scene) =
        Scene::new("nothing_leaves_while_the_interface_is_gone_and_a_new_one_takes_its_place")
    else {
        return;
    };
    let way = |to: &str| scene.shell(&format!("ip route get {to} 2>&1 || true"));
    scene.run(async || drop(scene.open().await.apply(&all()).await.unwrap()));
    scene.ip("link delete wg0");
    for outside in ["203.0.113.1", "2001:db8::1"] {
        assert!(!way(outside).contains("eth0"), "{}", way(outside));
    }
    scene.ip("tuntap add dev wg0 mode tun");
    scene.run(async || {
        let mut host = scene.open().await;
        host.apply(&all()).await.unwrap();
        for inside in ["203.0.113.1", "2001:db8::1"] {
            assert!(way(inside).contains("dev wg0"), "{}", way(inside));
        }
        host.undo().await.unwrap();
    });
    assert!(way("203.0.113.1").contains("dev eth0"));
    assert!(scene.is_clean());
    assert_eq!(scene.shell("nft list ruleset"), "");
}
