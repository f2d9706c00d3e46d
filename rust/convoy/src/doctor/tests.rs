use std::{fs, path::Path};

use convoy_report::Status;

use super::*;

#[test]
fn a_name_means_the_file_of_the_running_tunnel_and_a_path_itself() {
    let mut running = Status::default();
    let path = |file: &str, status: &Status| {
        let standing = Standing::Up(Box::new(status.clone()));
        super::path(Path::new(file), &standing)
            .display()
            .to_string()
    };
    assert_eq!(path("kq", &running), "/etc/wireguard/kq.conf");
    running.config = Some("/home/ann/kq.conf".into());
    assert_eq!(path("kq", &running), "/home/ann/kq.conf");
    assert_eq!(path("./kq.conf", &running), "./kq.conf");
    let down = super::path(Path::new("kq"), &Standing::Down);
    assert_eq!(down, Path::new("/etc/wireguard/kq.conf"));
}

#[test]
fn a_tunnel_takes_all_packets_of_the_families_whose_default_route_it_has() {
    let has_default = |allowed: &str| {
        let planned = plan(config("", allowed), false, true).unwrap();
        planned.has_default
    };
    assert_eq!(has_default("0.0.0.0/0, ::/0"), [true, true]);
    assert_eq!(has_default("::/0, 10.0.0.0/8"), [false, true]);
}

#[test]
fn handshakes_pass_a_kill_switch_that_outlasts_the_tunnel_by_its_mark() {
    let mark = |interface: &str| {
        let planned = plan(config(interface, "0.0.0.0/0"), false, true).unwrap();
        (planned.mark, planned.probing_mark)
    };
    assert_eq!(mark(""), (None, None));
    assert_eq!(mark("#convoy: KillSwitch = on"), (None, None));
    assert_eq!(
        mark("#convoy: KillSwitch = persistent"),
        (None, Some(FIRST_MARK))
    );
    let own = "#convoy: KillSwitch = persistent\nFwMark = 7";
    assert_eq!(mark(own), (Some(7), Some(7)));
}

fn config(interface: &str, allowed: &str) -> Config {
    let text = format!(
        "[Interface]\nPrivateKey = 6Js1ML6BmYk4BhSiqYUEC8xTCtGFSoPDqH4LQb/MqVM=\n{interface}\n\
         [Peer]\nPublicKey = L36JdEyNlqFHxQm27ms2JdoZLDTyRFcqCYUCdT8x7iY=\nAllowedIPs = {allowed}\n"
    );
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("wg0.conf");
    fs::write(&path, text).unwrap();
    convoy_config::read(&path).expect(interface).config
}
