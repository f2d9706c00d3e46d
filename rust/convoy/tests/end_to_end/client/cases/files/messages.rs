//! Messages about files that do not work.

use std::fs;

use super::{input, install};
use crate::client::{outcome::Outcome, world::World};

/// Writes a file of `inputs` to `/etc/wireguard`, whatever its bytes are, and checks it.
fn check(world: &World, file: &str) -> Outcome {
    let path = world
        .client
        .run_directory()
        .join("etc/wireguard")
        .join(file);
    fs::write(&path, input(file)).unwrap();
    world.convoy(&["check", &format!("/etc/wireguard/{file}")])
}

#[test]
fn a_name_that_is_too_long_is_said_to_be_so_with_its_length() {
    let Some(world) = World::new() else { return };
    install(&world, "C22-racknerd2_mailbox.conf", "racknerd2_mailbox");
    let long = "racknerd2_mailbox";
    for words in [
        &["up", long][..],
        &["check", long],
        &["down", long],
        &["doctor", long],
        &["reload", "/etc/wireguard/racknerd2_mailbox.conf"],
        &["status", long],
    ] {
        let said = world.convoy(words).stderr;
        assert!(
            said.contains("17 characters, at most 15"),
            "{words:?}: {said}"
        );
    }
    for (file, reason) in [
        ("C22-wg0 (1).conf", "' '"),
        ("C22-WG0.CONF", "followed by .conf (in small letters)"),
    ] {
        let said = check(&world, file).stderr;
        assert!(said.contains(reason), "{said}");
    }
}

#[test]
fn a_character_that_nobody_sees_is_named_with_its_column() {
    let Some(world) = World::new() else { return };
    for (file, place, name) in [
        ("C23-nbsp-in-key.conf", ":", "U+00A0"),
        ("C23-zwsp-after-key.conf", ":2:58", "U+200B"),
        ("C23-bom-in-the-middle.conf", ":5:1", "U+FEFF"),
        ("C23-utf16.conf", ":1:1", "UTF-16"),
    ] {
        let short = file.strip_prefix("C23-").unwrap();
        let path = world.client.run_directory().join("etc").join(short);
        // Their names are longer than those of interfaces.
        let path = path.with_file_name("wg0.conf");
        fs::write(&path, input(file)).unwrap();
        let said = world
            .convoy(&["check", "/etc/wg0.conf"])
            .ends_with(1)
            .stderr;
        assert_eq!(said.matches("error:").count(), 1, "{file}: {said}");
        assert!(
            said.contains(name) && said.contains(place),
            "{file}: {said}"
        );
    }
}

#[test]
fn a_file_for_another_program_is_one_error_with_the_reason() {
    let Some(world) = World::new() else { return };
    for (file, reason) in [
        ("C24-amnezia.conf", "AmneziaWG"),
        ("C24-amnezia-off.conf", "remove these lines"),
        ("C24-android.conf", "Android"),
        ("C24-empty-psk.conf", "`PresharedKey` has no value"),
    ] {
        let path = world.client.run_directory().join("etc/wg0.conf");
        fs::write(&path, input(file)).unwrap();
        let said = world
            .convoy(&["check", "/etc/wg0.conf"])
            .ends_with(1)
            .stderr;
        assert_eq!(said.matches("error:").count(), 1, "{file}: {said}");
        assert!(said.contains(reason), "{file}: {said}");
    }
}

#[test]
fn a_route_of_the_lan_that_is_in_the_way_is_named() {
    let Some(world) = World::new() else { return };
    world.configure(
        "",
        "Endpoint = 203.0.113.1:51820\nAllowedIPs = 10.9.0.0/16, fd0a::/64\n",
    );
    for (route, named) in [
        (
            "ip route add 10.9.0.0/16 via 192.168.1.7",
            "via 192.168.1.7 dev eth0",
        ),
        (
            "ip address add 10.9.0.5/16 dev eth0",
            "10.9.0.0/16 dev eth0 proto kernel",
        ),
    ] {
        world.shell(route);
        let said = world.convoy(&["up", "wg0"]);
        if said.code == Some(0) {
            world.down();
        } else {
            assert!(said.stderr.contains(named), "{said:?}");
            assert!(!said.stderr.contains("File exists"), "{said:?}");
        }
        world.shell(&route.replace(" add ", " delete "));
    }
}

#[test]
fn doctor_judges_the_file_that_the_running_tunnel_has() {
    let Some(world) = World::new() else { return };
    install(&world, "C20-two-namespaces.conf", "wg0");
    world.shell("mkdir /etc/home; mv /etc/wireguard/wg0.conf /etc/home/kq.conf");
    world.convoy(&["up", "/etc/home/kq.conf"]).succeeds();
    let said = world.convoy(&["doctor", "kq"]).stdout;
    assert!(said.contains("/etc/home/kq.conf is valid"), "{said}");
    assert!(!said.contains("/etc/wireguard/kq.conf"), "{said}");
    world.shell("kill -9 $(sed 's/.*\"supervisor\":\\([0-9]*\\).*/\\1/' /run/convoy/kq.state)");
    let said = world.convoy(&["doctor", "kq"]).stdout;
    assert!(said.contains("`convoy up /etc/home/kq.conf`"), "{said}");
    world.convoy(&["down", "kq"]).succeeds();
    let said = world.convoy(&["doctor", "kq"]).stdout;
    assert!(
        said.contains("/etc/wireguard/kq.conf is not valid"),
        "{said}"
    );
}
