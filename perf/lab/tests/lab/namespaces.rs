//! Namespaces, links, and programs and code inside them.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::UdpSocket;
use std::os::unix::{net::UnixStream, process::CommandExt as _};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::thread;

use convoy_lab::{Lab, UDP_SEGMENTATION, eventually, require_lab, require_programs};

use crate::{DEADLINE, Pair, talk};

#[test]
fn two_namespaces_talk_over_a_veth() {
    let Some(pair) = Pair::as_root("two_namespaces_talk_over_a_veth") else {
        return;
    };
    for address in ["10.9.0.2:7000", "[fd09::2]:7000"] {
        talk(&pair.left, &pair.right, address.parse().unwrap());
    }
    assert!(pair.left.link().statistics("veth").unwrap().sent_packets > 0);
}

#[test]
fn a_program_that_starts_keeps_no_port_that_this_one_frees() {
    let Some(pair) = Pair::as_root("a_program_that_starts_keeps_no_port_that_this_one_frees")
    else {
        return;
    };
    let bind = |address: &str| pair.left.run(|| UdpSocket::bind(address)).unwrap();
    let socket = bind("10.9.0.1:0").unwrap();
    let address = socket.local_addr().unwrap().to_string();
    let (mut here, mut forked) = UnixStream::pair().unwrap();
    let mut command = pair.left.command("true");
    let pause_before_exec = move || {
        forked.write_all(&[0])?;
        forked.read_exact(&mut [0])
    };
    // SAFETY: `pause_before_exec` makes system calls only, as required of a forked child.
    unsafe { command.pre_exec(pause_before_exec) };
    thread::scope(|scope| {
        let program = scope.spawn(|| command.status().unwrap());
        here.read_exact(&mut [0]).unwrap();
        drop(socket);
        // Other tests' programs that are just starting have copies, too, for a moment.
        let again = eventually(DEADLINE, || bind(&address).ok());
        here.write_all(&[0]).unwrap();
        assert!(program.join().unwrap().success());
        assert!(again.is_some());
    });
}

#[test]
fn a_veth_that_cuts_batches_has_no_segmentation_until_it_is_on_again() {
    let test = "a_veth_that_cuts_batches_has_no_segmentation_until_it_is_on_again";
    if !require_lab(test) || !require_programs(test, &["ethtool"]) {
        return;
    }
    let Pair { left, _lab, .. } = Pair::new();
    let segmentation = || {
        let shown = left.command("ethtool").args(["-k", "veth"]).output();
        let shown = String::from_utf8(shown.unwrap().stdout).unwrap();
        [UDP_SEGMENTATION, "tx-tcp-segmentation"]
            .map(|feature| shown.contains(&format!("{feature}: on")))
    };
    assert_eq!(segmentation(), [true, true]);
    left.link().cut_batches("veth").unwrap();
    assert_eq!(segmentation(), [false, false]);
    left.link()
        .set_feature("veth", UDP_SEGMENTATION, true)
        .unwrap();
    assert_eq!(segmentation(), [true, false]);
    let unknown = left.link().set_feature("veth", "nonsense", false);
    assert!(unknown.is_err());
}

#[test]
fn each_namespace_has_its_own_run_directory_and_keeps_the_working_directory() {
    if !require_lab("each_namespace_has_its_own_run_directory") {
        return;
    }
    let Pair { left, right, _lab } = Pair::new();
    let here = std::env::current_dir().unwrap();
    let shell = |script: &str| left.command("sh").args(["-c", script]).output().unwrap();
    assert_eq!(shell("ls /run").stdout, b"");
    let line = format!("{}\n", here.display());
    assert_eq!(shell("pwd -P").stdout, line.into_bytes());
    assert!(shell("echo here > /var/run/note").status.success());
    assert!(left.run_directory().join("note").exists());
    assert!(!right.run_directory().join("note").exists());
    assert!(!Path::new("/var/run/note").exists());
}

#[test]
fn dropping_the_lab_kills_a_process_in_the_background() {
    if !require_lab("dropping_the_lab_kills_a_process_in_the_background") {
        return;
    }
    let lab = Lab::new().unwrap();
    let namespace = lab.namespace("left").unwrap();
    let script = "setsid sleep 1000 >/dev/null 2>&1 & echo $!";
    let shell = namespace.command("sh").args(["-c", script]).output();
    let daemon = String::from_utf8(shell.unwrap().stdout).unwrap();
    let daemon = format!("/proc/{}/cmdline", daemon.trim());
    let runs = || fs::read(&daemon).is_ok_and(|line| !line.is_empty());
    assert!(eventually(DEADLINE, || runs().then_some(())).is_some());
    let holder = format!("/proc/{}", namespace.pid());
    drop(lab);
    assert!(!Path::new(&holder).exists());
    assert!(eventually(DEADLINE, || (!runs()).then_some(())).is_some());
}

#[test]
fn a_refused_change_says_what_was_asked_and_where() {
    if !require_lab("a_refused_change_says_what_was_asked_and_where") {
        return;
    }
    let lab = Lab::new().unwrap();
    let namespace = lab.namespace("left").unwrap();
    let link = namespace.link();
    let refused = link.set_up("nothing").unwrap_err().to_string();
    let expected = "namespace left: ip link set nothing up: Cannot find device";
    assert!(refused.starts_with(expected), "{refused}");
    assert!(link.add_address("lo", "ten").is_err());
    assert!(link.exists("lo") && !link.exists("nothing"));
}

#[test]
fn a_panic_inside_continues_outside() {
    let Some(pair) = Pair::as_root("a_panic_inside_continues_outside") else {
        return;
    };
    let panic = AssertUnwindSafe(|| pair.left.run(|| panic!("inside")));
    let outcome = catch_unwind(panic);
    assert_eq!(outcome.unwrap_err().downcast_ref(), Some(&"inside"));
}
