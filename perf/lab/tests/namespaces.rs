//! Namespaces, links, and programs and code inside them.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::{
    io::{Read, Write},
    net::{TcpListener, TcpStream, UdpSocket},
    time::Duration,
};

use convoy_lab::{
    Lab, UDP_SEGMENTATION, eventually, has_feature, require_lab, require_root_lab, set_feature,
};

const DEADLINE: Duration = Duration::from_secs(10);

#[test]
fn two_namespaces_talk_over_a_veth() {
    if !require_root_lab("two_namespaces_talk_over_a_veth") {
        return;
    }
    let lab = Lab::new().unwrap();
    let (left, right) = (
        lab.namespace("left").unwrap(),
        lab.namespace("right").unwrap(),
    );
    lab.veth(
        &left,
        "veth",
        &["10.9.0.1/24", "fd09::1/64"],
        &right,
        "veth",
        &["10.9.0.2/24", "fd09::2/64"],
        1_500,
    )
    .unwrap();
    for address in ["10.9.0.2:7000", "[fd09::2]:7000"] {
        let listener = right.run(|| TcpListener::bind(address)).unwrap().unwrap();
        let mut sender = left.run(|| TcpStream::connect(address)).unwrap().unwrap();
        let (mut receiver, _) = listener.accept().unwrap();
        sender.write_all(b"over the veth").unwrap();
        drop(sender);
        let mut heard = String::new();
        receiver.read_to_string(&mut heard).unwrap();
        assert_eq!(heard, "over the veth");
    }
    assert!(left.link().statistics("veth").unwrap().tx_bytes > 0);
}

#[test]
fn a_feature_of_a_veth_is_turned_off_and_on_again() {
    if !require_root_lab("a_feature_of_a_veth_is_turned_off_and_on_again") {
        return;
    }
    let lab = Lab::new().unwrap();
    let (left, right) = (
        lab.namespace("left").unwrap(),
        lab.namespace("right").unwrap(),
    );
    lab.veth(&left, "veth", &[], &right, "veth", &[], 1_500)
        .unwrap();
    let is_on = || has_feature("veth", UDP_SEGMENTATION).unwrap();
    let inside = || {
        let before = is_on();
        set_feature("veth", UDP_SEGMENTATION, false).unwrap();
        let off = !is_on();
        set_feature("veth", UDP_SEGMENTATION, true).unwrap();
        (before, off, is_on())
    };
    assert_eq!(left.run(inside).unwrap(), (true, true, true));
}

#[test]
fn a_route_leads_through_a_neighbour() {
    if !require_root_lab("a_route_leads_through_a_neighbour") {
        return;
    }
    let lab = Lab::new().unwrap();
    let (left, right) = (
        lab.namespace("left").unwrap(),
        lab.namespace("right").unwrap(),
    );
    lab.veth(
        &left,
        "veth",
        &["10.9.0.1/24"],
        &right,
        "veth",
        &["10.9.0.2/24"],
        1_500,
    )
    .unwrap();
    right.link().add_address("lo", "10.7.7.7/32").unwrap();
    let send = || {
        UdpSocket::bind("0.0.0.0:0")
            .unwrap()
            .send_to(b"hi", "10.7.7.7:7000")
    };
    assert!(left.run(send).unwrap().is_err());
    left.link()
        .add_route_through("10.7.0.0/16", "10.9.0.2".parse().unwrap())
        .unwrap();
    let receiver = right
        .run(|| UdpSocket::bind("10.7.7.7:7000"))
        .unwrap()
        .unwrap();
    receiver.set_read_timeout(Some(DEADLINE)).unwrap();
    left.run(send).unwrap().unwrap();
    assert_eq!(receiver.recv(&mut [0; 16]).unwrap(), 2);
}

#[test]
fn each_namespace_has_its_own_run_directory_and_keeps_the_working_directory() {
    if !require_lab("each_namespace_has_its_own_run_directory") {
        return;
    }
    let lab = Lab::new().unwrap();
    let (left, right) = (
        lab.namespace("left").unwrap(),
        lab.namespace("right").unwrap(),
    );
    let here = std::env::current_dir().unwrap();
    let shell = |script: &str| left.command("sh").args(["-c", script]).output().unwrap();
    assert_eq!(shell("ls /run").stdout, b"");
    assert_eq!(
        shell("pwd -P").stdout,
        format!("{}\n", here.display()).into_bytes()
    );
    assert!(shell("echo here > /var/run/note").status.success());
    assert!(left.run_directory().join("note").exists());
    assert!(!right.run_directory().join("note").exists());
    assert!(!std::path::Path::new("/var/run/note").exists());
}

#[test]
fn dropping_the_lab_kills_what_put_itself_into_the_background() {
    if !require_lab("dropping_the_lab_kills_what_put_itself_into_the_background") {
        return;
    }
    let lab = Lab::new().unwrap();
    let namespace = lab.namespace("left").unwrap();
    let script = "setsid sleep 1000 >/dev/null 2>&1 & echo $!";
    let output = namespace
        .command("sh")
        .args(["-c", script])
        .output()
        .unwrap();
    let daemon = format!(
        "/proc/{}/cmdline",
        String::from_utf8(output.stdout).unwrap().trim()
    );
    let runs = || std::fs::read(&daemon).is_ok_and(|line| !line.is_empty());
    assert!(runs());
    let holder = namespace.pid();
    drop(lab);
    assert!(!std::path::Path::new(&format!("/proc/{holder}")).exists());
    assert!(eventually(DEADLINE, || (!runs()).then_some(())).is_some());
}

#[test]
fn a_refused_change_says_what_was_asked_and_where() {
    if !require_lab("a_refused_change_says_what_was_asked_and_where") {
        return;
    }
    let lab = Lab::new().unwrap();
    let namespace = lab.namespace("left").unwrap();
    let refused = namespace.link().set_up("nothing").unwrap_err().to_string();
    assert!(
        refused.starts_with("namespace left: set nothing up: No such device"),
        "{refused}"
    );
    assert!(namespace.link().add_address("lo", "ten").is_err());
    assert!(!namespace.link().exists("nothing"));
    assert_eq!(namespace.link().mtu("lo").unwrap(), 65_536);
}

#[test]
fn a_panic_inside_continues_outside() {
    if !require_root_lab("a_panic_inside_continues_outside") {
        return;
    }
    let lab = Lab::new().unwrap();
    let namespace = lab.namespace("left").unwrap();
    let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        namespace.run(|| panic!("inside"))
    }));
    assert_eq!(outcome.unwrap_err().downcast_ref(), Some(&"inside"));
}
