//! Whatever kills the program, its lab goes with it.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::{
    collections::BTreeSet,
    env, fs,
    io::{BufRead, BufReader, Read},
    os::unix::fs::MetadataExt,
    process::{Command, Stdio},
    time::Duration,
};

use convoy_lab::{Lab, eventually, require_lab, require_programs};

const DEADLINE: Duration = Duration::from_secs(10);
/// Set for the child that [`a_killed_program_leaves_nothing_behind`] kills.
const VICTIM: &str = "CONVOY_LAB_VICTIM";

#[test]
fn a_killed_program_leaves_nothing_behind() {
    let test = "a_killed_program_leaves_nothing_behind";
    if !require_lab(test) || !require_programs(test, &["wireguard-go"]) {
        return;
    }
    let interfaces = interfaces();
    let mut victim = Command::new(env::current_exe().unwrap())
        .args([
            "--exact",
            "builds_a_lab_and_waits",
            "--ignored",
            "--nocapture",
        ])
        .env(VICTIM, "1")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let namespaces: Vec<u64> = BufReader::new(victim.stdout.take().unwrap())
        .lines()
        .map_while(Result::ok)
        .find_map(|line| line.strip_prefix("namespaces ").map(str::to_owned))
        .unwrap()
        .split(' ')
        .map(|inode| inode.parse().unwrap())
        .collect();
    // Two holders, two daemons in the foreground, one in the background.
    assert_eq!(processes_in(&namespaces).len(), 5);

    victim.kill().unwrap();
    victim.wait().unwrap();

    let gone = eventually(DEADLINE, || {
        processes_in(&namespaces).is_empty().then_some(())
    });
    assert!(
        gone.is_some(),
        "left behind: {:?}",
        processes_in(&namespaces)
    );
    assert_eq!(interfaces, self::interfaces());
}

#[test]
#[ignore = "killed by a_killed_program_leaves_nothing_behind"]
fn builds_a_lab_and_waits() {
    if env::var_os(VICTIM).is_none() {
        return;
    }
    let lab = Lab::new().unwrap();
    let (left, right) = (
        lab.namespace("left").unwrap(),
        lab.namespace("right").unwrap(),
    );
    lab.veth(
        &left,
        "veth0",
        &["10.9.0.1/24"],
        &right,
        "veth0",
        &["10.9.0.2/24"],
        1_500,
    )
    .unwrap();
    // wireguard-go without -f returns once its child serves the interface in the background.
    assert!(
        left.command("wireguard-go")
            .arg("wg0")
            .status()
            .unwrap()
            .success()
    );
    let _daemons: Vec<_> = [&left, &right]
        .map(|namespace| namespace.command("sleep").arg("1000").spawn().unwrap())
        .into();
    let inode = |pid| fs::metadata(format!("/proc/{pid}/ns/net")).unwrap().ino();
    println!("\nnamespaces {} {}", inode(left.pid()), inode(right.pid()));
    std::io::stdin().read_to_end(&mut Vec::new()).unwrap();
}

fn processes_in(namespaces: &[u64]) -> Vec<String> {
    fs::read_dir("/proc")
        .unwrap()
        .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
        .filter(|pid| pid.parse::<u32>().is_ok())
        .filter(|pid| {
            let network = fs::metadata(format!("/proc/{pid}/ns/net"));
            network.is_ok_and(|network| namespaces.contains(&network.ino()))
        })
        .collect()
}

fn interfaces() -> BTreeSet<String> {
    let entries = fs::read_dir("/sys/class/net").unwrap();
    entries
        .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
        .collect()
}
