//! resolv.conf, without any service.

use std::{
    fs::{self, Permissions},
    os::unix::fs::{PermissionsExt as _, symlink},
};

use convoy_host::{Desired, Dns, Event, Host, Options, resolv_conf_without_tunnels};
use nix::mount::{MntFlags, MsFlags, mount, umount2};

use crate::scene::{Scene, prefixes, until, watch_until};

fn with_servers() -> Desired {
    Desired {
        addresses: prefixes(&["10.9.0.2/24"]),
        dns: Dns {
            servers: vec!["10.9.0.1".parse().unwrap(), "fd09::1".parse().unwrap()],
            search: vec!["example.org".to_owned(), "example.net".to_owned()],
        },
        ..Desired::default()
    }
}

#[test]
fn a_link_to_resolv_conf_is_replaced_and_comes_back() {
    let Some(scene) = Scene::new("a_link_to_resolv_conf_is_replaced_and_comes_back") else {
        return;
    };
    let path = scene.resolv_conf();
    fs::rename(&path, path.with_file_name("stub")).unwrap();
    symlink("stub", &path).unwrap();
    let before = scene.dump();
    scene.run(async || {
        let mut host = scene.open().await;
        host.apply(&with_servers()).await.unwrap();
        let content = fs::read_to_string(&path).unwrap();
        let lines = "nameserver 10.9.0.1\nnameserver fd09::1\nsearch example.org example.net\n";
        assert!(content.ends_with(lines), "{content}");
        host.undo().await.unwrap();
    });
    assert_eq!(scene.dump(), before);
    assert!(scene.is_clean());
}

#[test]
fn what_another_program_writes_meanwhile_is_what_comes_back() {
    let Some(scene) = Scene::new("what_another_program_writes_meanwhile_is_what_comes_back") else {
        return;
    };
    let path = scene.resolv_conf();
    scene.run(async || {
        let mut host = scene.open().await;
        host.apply(&with_servers()).await.unwrap();
        let ours = fs::read_to_string(&path).unwrap();
        let is_ours = || fs::read_to_string(&path).is_ok_and(|now| now == ours);
        // A DHCP client renames; others truncate and write; or the file is removed.
        let new = path.with_file_name("new");
        fs::write(&new, "nameserver 192.0.2.1\n").unwrap();
        fs::rename(&new, &path).unwrap();
        until(&mut host, |event| matches!(event, Event::Restored(_))).await;
        assert!(is_ours());
        fs::write(&path, "nameserver 192.0.2.2\n").unwrap();
        watch_until(&mut host, is_ours).await;
        fs::remove_file(&path).unwrap();
        watch_until(&mut host, is_ours).await;
        host.undo().await.unwrap();
    });
    assert_eq!(fs::read_to_string(&path).unwrap(), "nameserver 192.0.2.2\n");
}

#[test]
fn the_record_that_outlives_a_power_cut_goes_with_the_name_servers() {
    let Some(scene) = Scene::new("the_record_that_outlives_a_power_cut_goes_with_the_name_servers")
    else {
        return;
    };
    let record = scene.options().lasting_journals.join("wg0.journal");
    scene.run(async || {
        let mut host = scene.open().await;
        for _ in 0..2 {
            host.apply(&with_servers()).await.unwrap();
            assert!(record.exists());
            let others = Dns {
                servers: vec!["10.9.0.3".parse().unwrap()],
                ..Dns::default()
            };
            let others = Desired {
                dns: others,
                ..with_servers()
            };
            host.apply(&others).await.unwrap();
            assert!(record.exists());
            let none = Desired {
                dns: Dns::default(),
                ..with_servers()
            };
            host.apply(&none).await.unwrap();
            assert!(!record.exists());
        }
        host.undo().await.unwrap();
    });
    assert!(scene.is_clean());
}

#[test]
fn an_empty_record_that_a_crash_left_is_removed() {
    let Some(scene) = Scene::new("an_empty_record_that_a_crash_left_is_removed") else {
        return;
    };
    let directory = scene.options().lasting_journals;
    fs::create_dir_all(&directory).unwrap();
    let record = directory.join("wg0.journal");
    fs::write(&record, "").unwrap();
    scene.run(async || {
        let host = scene.open().await;
        assert!(!record.exists());
        host.undo().await.unwrap();
    });
    assert!(scene.is_clean());
}

#[test]
fn a_new_resolv_conf_that_a_crash_left_unfinished_is_removed() {
    let Some(scene) = Scene::new("a_new_resolv_conf_that_a_crash_left_unfinished_is_removed")
    else {
        return;
    };
    let path = scene.resolv_conf();
    let before = scene.dump();
    scene.run(async || {
        scene
            .open()
            .await
            .apply(&with_servers())
            .await
            .map(drop)
            .unwrap()
    });
    // As if the process had died between writing and renaming.
    let unfinished = path.with_file_name("resolv.conf.convoy-new");
    fs::rename(&path, &unfinished).unwrap();
    fs::write(&path, "nameserver 192.168.1.1\n").unwrap();
    scene.recover();
    assert!(!unfinished.exists());
    assert_eq!(scene.dump(), before);
}

#[test]
fn a_bind_mounted_resolv_conf_is_written_in_place() {
    let Some(scene) = Scene::new("a_bind_mounted_resolv_conf_is_written_in_place") else {
        return;
    };
    let path = scene.resolv_conf();
    let source = path.with_file_name("mounted");
    fs::write(&source, "nameserver 192.0.2.9\n").unwrap();
    let none = None::<&str>;
    mount(Some(&source), &path, none, MsFlags::MS_BIND, none).unwrap();
    // Another test's program that is just starting may have the file open.
    let unmount = scopeguard(|| umount2(&path, MntFlags::MNT_DETACH).unwrap());
    scene.run(async || {
        let mut host = scene.open().await;
        let applied = host.apply(&with_servers()).await.unwrap();
        assert_eq!(applied.warnings, [""; 0]);
        assert!(fs::read_to_string(&source).unwrap().contains("10.9.0.1"));
        fs::write(&source, "nameserver 192.0.2.10\n").unwrap();
        let is_back = || fs::read_to_string(&source).unwrap().contains("10.9.0.1");
        watch_until(&mut host, is_back).await;
        host.undo().await.unwrap();
    });
    assert_eq!(
        fs::read_to_string(&source).unwrap(),
        "nameserver 192.0.2.10\n"
    );
    drop(unmount);
}

#[test]
fn what_is_behind_a_link_in_a_read_only_directory_comes_back() {
    let Some(scene) = Scene::new("what_is_behind_a_link_in_a_read_only_directory_comes_back")
    else {
        return;
    };
    let target = scene.resolv_conf();
    let directory = target.with_file_name("etc");
    fs::create_dir(&directory).unwrap();
    let options = Options {
        resolv_conf: directory.join("resolv.conf"),
        ..scene.options()
    };
    symlink(&target, &options.resolv_conf).unwrap();
    let none = None::<&str>;
    mount(Some(&directory), &directory, none, MsFlags::MS_BIND, none).unwrap();
    let unmount = scopeguard(|| umount2(&directory, MntFlags::MNT_DETACH).unwrap());
    let read_only = MsFlags::MS_BIND | MsFlags::MS_REMOUNT | MsFlags::MS_RDONLY;
    mount(none, &directory, none, read_only, none).unwrap();
    let content = || fs::read_to_string(&target).unwrap();
    scene.run(async || {
        let mut host = scene.open_with(options.clone()).await;
        let applied = host.apply(&with_servers()).await.unwrap();
        assert_eq!(applied.warnings, [""; 0]);
        assert!(content().contains("10.9.0.1"));
        let outside = resolv_conf_without_tunnels(&options);
        assert_eq!(outside, "nameserver 192.168.1.1\n");
        // Nor is it lost with the process.
        drop(host);
        let mut host = scene.open_with(options.clone()).await;
        host.apply(&with_servers()).await.unwrap();
        fs::write(&target, "nameserver 192.0.2.10\n").unwrap();
        watch_until(&mut host, || content().contains("10.9.0.1")).await;
        host.undo().await.unwrap();
    });
    assert_eq!(content(), "nameserver 192.0.2.10\n");
    assert!(scene.is_clean());
    drop(unmount);
}

#[test]
fn a_read_only_resolv_conf_is_a_warning() {
    let Some(scene) = Scene::new("a_read_only_resolv_conf_is_a_warning") else {
        return;
    };
    scene.run(async || {
        let options = Options {
            resolv_conf: "/proc/sys/kernel/version".into(),
            ..scene.options()
        };
        let mut host = Host::open("wg0", options).await.unwrap();
        let applied = host.apply(&with_servers()).await.unwrap();
        let warning = applied.warnings.concat();
        assert!(
            warning.contains("cannot write /proc/sys/kernel/version"),
            "{warning}"
        );
        assert!(scene.ip("address").contains("10.9.0.2/24"));
        host.undo().await.unwrap();
    });
    assert!(scene.is_clean());
}

#[test]
fn two_tunnels_give_way_in_any_order() {
    let Some(scene) = Scene::new("two_tunnels_give_way_in_any_order") else {
        return;
    };
    scene.ip("tuntap add dev wg1 mode tun");
    let path = scene.resolv_conf();
    let content = || fs::read_to_string(&path).unwrap();
    let original = content();
    for is_first_first in [true, false] {
        scene.run(async || {
            let mut first = scene.open().await;
            first.apply(&with_servers()).await.unwrap();
            let servers_of_first = content();
            let mut second = Host::open("wg1", scene.options()).await.unwrap();
            second.apply(&with_servers()).await.unwrap();
            assert!(content().contains("for wg1"), "{}", content());
            if is_first_first {
                first.undo().await.unwrap();
                assert!(content().contains("for wg1"), "{}", content());
                second.undo().await.unwrap();
            } else {
                second.undo().await.unwrap();
                assert_eq!(content(), servers_of_first);
                first.undo().await.unwrap();
            }
        });
        assert_eq!(content(), original);
    }
}

#[test]
fn resolvconf_gets_and_loses_the_record() {
    let Some(scene) = Scene::new("resolvconf_gets_and_loses_the_record") else {
        return;
    };
    let directory = tempfile::tempdir().unwrap();
    let program = directory.path().join("resolvconf");
    let log = directory.path().join("log");
    let script = format!("#!/bin/sh\necho \"$@\" >> {0}\ncat >> {0}\n", log.display());
    fs::write(&program, script).unwrap();
    fs::set_permissions(&program, Permissions::from_mode(0o755)).unwrap();
    let before = scene.dump();
    scene.run(async || {
        let mut options = scene.options();
        let mut programs = directory.path().as_os_str().to_owned();
        programs.push(":/usr/sbin:/usr/bin:/bin");
        options.programs = programs;
        let mut host = Host::open("wg0", options).await.unwrap();
        host.apply(&with_servers()).await.unwrap();
        let input = fs::read_to_string(&log).unwrap();
        assert!(input.starts_with("-a wg0 -m 0 -x\n"), "{input}");
        assert!(input.contains("nameserver 10.9.0.1\n"), "{input}");
        host.undo().await.unwrap();
        let calls = fs::read_to_string(&log).unwrap();
        assert!(calls.ends_with("-d wg0 -f\n"), "{calls}");
    });
    assert_eq!(scene.dump(), before);
}

/// Runs `end` when dropped, also if the test panics.
fn scopeguard(end: impl FnMut()) -> impl Drop {
    struct Guard<F: FnMut()>(F);
    impl<F: FnMut()> Drop for Guard<F> {
        fn drop(&mut self) {
            (self.0)();
        }
    }
    Guard(end)
}
