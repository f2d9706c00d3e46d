//! A killed program takes its lab with it.

use std::collections::BTreeSet;
use std::env;
use std::fs;
use std::io::{self, BufRead, BufReader, Read};
use std::os::unix::fs::MetadataExt;
use std::process::{Command, Stdio};

use convoy_lab::{eventually, require_lab, require_programs};

use crate::{CHILD, DEADLINE, Pair, is_child, only};

#[test]
fn a_killed_program_leaves_nothing_behind() {
    let test = "a_killed_program_leaves_nothing_behind";
    if !require_lab(test) || !require_programs(test, &["wireguard-go"]) {
        return;
    }
    let interfaces = interfaces();
    let mut victim = Command::new(env::current_exe().unwrap())
        .args(only("death::builds_a_lab_and_waits"))
        .env(CHILD, "1")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(victim.stdout.take().unwrap()).lines();
    let namespaces: Vec<u64> = lines
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

    let gone = || processes_in(&namespaces).is_empty().then_some(());
    let left = || processes_in(&namespaces);
    assert!(
        eventually(DEADLINE, gone).is_some(),
        "left behind: {:?}",
        left()
    );
    assert_eq!(interfaces, self::interfaces());
}

#[test]
#[ignore = "killed by a_killed_program_leaves_nothing_behind"]
fn builds_a_lab_and_waits() {
    if !is_child() {
        return;
    }
    let Pair { left, right, _lab } = Pair::new();
    // wireguard-go without -f returns once its child serves the interface in the background.
    let started = left.command("wireguard-go").arg("wg0").status().unwrap();
    assert!(started.success());
    let sleep = |inside: &convoy_lab::Namespace| inside.command("sleep").arg("1000").spawn();
    let _daemons = [&left, &right].map(|inside| sleep(inside).unwrap());
    let inode = |pid| fs::metadata(format!("/proc/{pid}/ns/net")).unwrap().ino();
    println!("\nnamespaces {} {}", inode(left.pid()), inode(right.pid()));
    io::stdin().read_to_end(&mut Vec::new()).unwrap();
}

fn processes_in(namespaces: &[u64]) -> Vec<String> {
    let is_inside = |pid: &String| {
        let network = fs::metadata(format!("/proc/{pid}/ns/net"));
        network.is_ok_and(|network| namespaces.contains(&network.ino()))
    };
    let processes = fs::read_dir("/proc").unwrap();
    processes
        .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
        .filter(|name| name.parse::<u32>().is_ok())
        .filter(is_inside)
        .collect()
}

fn interfaces() -> BTreeSet<String> {
    let entries = fs::read_dir("/sys/class/net").unwrap();
    entries
        .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
        .collect()
}
