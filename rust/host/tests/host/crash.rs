//! Work that is cut short anywhere leaves nothing that the next process does not undo.

use std::{fs, future::poll_fn, net::SocketAddr, pin::pin, task::Poll, thread};

use convoy_host::{Desired, Dns, Host, HostError, KillSwitch, Prefix};

use crate::scene::{Scene, everything, prefixes};

/// Drops `work` after `polls` polls, as a caller may: in turn before what it asked for last is done, and afterwards.
/// Returns whether it was complete; it may not fail.
async fn cut_short<T>(polls: usize, work: impl Future<Output = Result<T, HostError>>) -> bool {
    let mut work = pin!(work);
    let mut left = polls;
    let outcome = poll_fn(|context| {
        if left == 0 {
            return Poll::Ready(None);
        }
        left -= 1;
        match work.as_mut().poll(context) {
            Poll::Ready(outcome) => Poll::Ready(Some(outcome)),
            Poll::Pending if left == 0 && polls.is_multiple_of(2) => Poll::Ready(None),
            Poll::Pending => Poll::Pending,
        }
    });
    outcome.await.map(Result::unwrap).is_some()
}

/// Hosts on which work is cut short at the same time: the kernel makes each wait when it replaces rules.
const LANES: usize = 3;

/// Cuts `work` short everywhere and recovers; returns after how many polls it was complete. `None`, with a message,
/// where there can be no lab.
fn recovers_wherever_it_is_cut_short(
    test: &str,
    work: impl AsyncFn(&Scene, usize) -> bool + Sync,
) -> Option<usize> {
    let work = &work;
    thread::scope(|scope| {
        let lane =
            |first| scope.spawn(move || recovers_on_one_host(&Scene::new(test)?, first, work));
        let lanes: Vec<_> = (0..LANES).map(lane).collect();
        let complete = lanes.into_iter().map(|lane| lane.join().unwrap());
        complete.collect::<Option<Vec<_>>>()?.into_iter().min()
    })
}

/// The same after `first` polls, [`LANES`] more, and so on.
fn recovers_on_one_host(
    scene: &Scene,
    first: usize,
    work: impl AsyncFn(&Scene, usize) -> bool + Sync,
) -> Option<usize> {
    let before = scene.dump();
    let mut polls = first;
    loop {
        let is_complete = scene.run(async || work(scene, polls).await);
        // Recovery is cut short, too, at a point that differs each time.
        scene.run(async || cut_short(polls * 5 % 17, scene.open().await.undo()).await);
        scene.recover();
        assert_eq!(scene.dump(), before, "after {polls} polls");
        assert!(scene.is_clean(), "after {polls} polls");
        if is_complete {
            return Some(polls);
        }
        polls += LANES;
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
fn recovery_restores_the_host_wherever_a_start_is_cut_short() {
    let test = "recovery_restores_the_host_wherever_a_start_is_cut_short";
    let polls = recovers_wherever_it_is_cut_short(test, async |scene, polls| {
        cut_short(polls, scene.open().await.apply(&all())).await
    });
    assert!(polls.is_none_or(|polls| polls > 30), "only {polls:?} polls");
}

#[test]
fn recovery_restores_the_host_wherever_a_change_is_cut_short() {
    let test = "recovery_restores_the_host_wherever_a_change_is_cut_short";
    let polls = recovers_wherever_it_is_cut_short(test, async |scene, polls| {
        let mut host = scene.open().await;
        host.apply(&all()).await.unwrap();
        cut_short(polls, host.apply(&others())).await
    });
    assert!(polls.is_none_or(|polls| polls > 20), "only {polls:?} polls");
}

#[test]
fn the_next_process_takes_over_and_completes() {
    let Some(scene) = Scene::new("the_next_process_takes_over_and_completes") else {
        return;
    };
    let before = scene.dump();
    let complete = scene.run(async || {
        scene.open().await.apply(&all()).await.unwrap();
        scene.dump()
    });
    scene.recover();
    assert_eq!(scene.dump(), before);
    for polls in (0..40).step_by(3) {
        scene.run(async || cut_short(polls, scene.open().await.apply(&all())).await);
        scene.run(async || {
            let mut host = scene.open().await;
            let unmarked = Desired {
                fwmark: None,
                ..all()
            };
            assert_eq!(host.pick_mark(&unmarked).await.unwrap(), all().fwmark);
            host.apply(&all()).await.unwrap();
            assert_eq!(scene.dump(), complete, "after {polls} polls");
            host.undo().await.unwrap();
        });
        assert_eq!(scene.dump(), before, "after {polls} polls");
    }
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
    fs::write(scene.resolv_conf(), "nameserver 192.0.2.53\n").unwrap();
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
fn a_network_that_changes_all_the_time_fills_no_disk_with_records() {
    let Some(scene) = Scene::new("a_network_that_changes_all_the_time_fills_no_disk_with_records")
    else {
        return;
    };
    let before = scene.dump();
    let journal = scene.options().journals.join("wg0.journal");
    let networks = (0..200).map(|number| format!("172.16.{number}.0/24").parse().unwrap());
    let excluded: Vec<Prefix> = networks.collect();
    scene.run(async || {
        let mut host = scene.open().await;
        let mut longest = 0;
        for port in 1..=20 {
            let desired = Desired {
                excluded: excluded.clone(),
                streams: vec![SocketAddr::from(([192, 168, 1, 1], port))],
                ..all()
            };
            host.apply(&desired).await.unwrap();
            longest = longest.max(fs::metadata(&journal).unwrap().len());
        }
        assert!(longest < 300 << 10, "{longest} bytes");
        // The lock is that of the file that is there now.
        let second = Host::open("wg0", scene.options()).await;
        assert!(matches!(second, Err(HostError::Busy { .. })), "{second:?}");
    });
    scene.recover();
    assert_eq!(scene.dump(), before);
    assert!(scene.is_clean());
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
