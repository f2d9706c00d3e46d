//! The Debian package, installed, upgraded under a running tunnel, removed and purged (`make test-deb`).

use std::{
    env,
    fs::{self, File},
    path::PathBuf,
    time::Duration,
};

use convoy_lab::eventually;

use super::{
    EVERYTHING, PING,
    machine::{DEADLINE, Machine},
};

/// A directory with two packages, the first of which has a lower version.
const PACKAGES: &str = "CONVOY_TEST_PACKAGES";

/// How long the tunnel may carry nothing.
const PAUSE: Duration = Duration::from_secs(2);

/// All files that tell of the package.
const TRACES: &str =
    "find / -xdev -path /proc -prune -o -path /sys -prune -o -iname '*convoy*' -print | sort";

/// Writes the time of each reply to `/run/replies`.
const REPLIES: &str = "systemd-run --quiet --unit=replies sh -c \
     'exec ping -D -i 0.02 203.0.113.9 > /run/replies'";

/// A booted machine with this in `[Interface]` and the lower version installed.
fn machine(interface: &str) -> Option<Machine> {
    let mut machine = Machine::without_program()?;
    for (name, file) in ["1.deb", "2.deb"].iter().zip(packages()) {
        let mut copy = File::create(machine.root().join("root").join(name)).unwrap();
        std::io::copy(&mut File::open(file).unwrap(), &mut copy).unwrap();
    }
    machine.configure(interface, EVERYTHING);
    if !machine.boot() {
        return None;
    }
    machine.waits_for(PING);
    Some(machine)
}

fn packages() -> Vec<PathBuf> {
    let directory = env::var_os(PACKAGES).unwrap_or_else(|| panic!("{PACKAGES} is not set"));
    let files = fs::read_dir(directory).unwrap().flatten();
    let mut packages: Vec<_> = files.map(|file| file.path()).collect();
    packages.sort();
    assert_eq!(packages.len(), 2, "{packages:?}");
    packages
}

#[test]
#[ignore = "make test-deb"]
fn an_upgrade_keeps_a_running_tunnel() {
    let Some(machine) = machine("#convoy: KillSwitch = on\nPostDown = touch /run/went-down") else {
        return;
    };
    machine.shell("dpkg -i /root/1.deb; systemctl start convoy@wg0");
    machine.waits_for(PING);
    let leaks = machine.leaks();
    let supervisor = machine.property("MainPID");
    let tunnel = || machine.shell("systemctl show -P MainPID convoy-tunnel@wg0");
    let first = tunnel();
    machine.shell(&format!("{REPLIES}; sleep 1"));

    machine.shell("dpkg -i /root/2.deb");
    assert!(eventually(DEADLINE, || (tunnel() != first).then_some(())).is_some());
    machine.waits_for(PING);
    machine.shell("systemctl stop replies");

    let gap = longest_gap(&machine.shell("cat /run/replies"));
    eprintln!("without packets for {gap:?}");
    assert!(gap < PAUSE, "{gap:?}");
    assert_eq!(machine.leaks(), leaks);
    assert_eq!(machine.property("MainPID"), supervisor);
    assert_eq!(machine.property("NRestarts"), "0");
    machine.shell(&format!(
        "test $(readlink /proc/{supervisor}/exe) = /usr/bin/convoy; test ! -e /run/went-down
         systemctl -q is-active convoy@wg0; convoy status wg0"
    ));
    machine.shell("systemctl restart convoy@wg0");
    machine.waits_for(PING);
}

#[test]
#[ignore = "make test-deb"]
fn a_version_that_refuses_the_configuration_leaves_the_tunnel_to_the_former_one() {
    let Some(machine) = machine("") else { return };
    machine.shell("dpkg -i /root/1.deb; systemctl start convoy@wg0");
    machine.waits_for(PING);
    let supervisor = machine.property("MainPID");
    machine.shell("echo nonsense >> /etc/wireguard/wg0.conf; dpkg -i /root/2.deb");
    machine.waits_for("journalctl -u convoy@wg0 | grep 'this version stays'");
    machine.shell(PING);
    assert_eq!(machine.property("MainPID"), supervisor);
    assert_eq!(machine.property("NRestarts"), "0");
}

#[test]
#[ignore = "make test-deb"]
fn removal_ends_tunnels_and_a_purge_leaves_nothing() {
    let Some(machine) = machine("#convoy: KillSwitch = persistent\nDNS = 10.8.0.1") else {
        return;
    };
    let (before, traces) = (machine.dump(), machine.shell(TRACES));
    machine.shell("dpkg -i /root/1.deb; systemctl --quiet enable --now convoy@wg0");
    machine.waits_for(PING);
    machine.shell("dpkg -r convoy; ! systemctl -q is-active convoy@wg0");
    machine.shell(PING);
    machine.shell("dpkg -P convoy");
    machine.is_left_as(&before);
    assert_eq!(machine.shell(TRACES), traces);

    machine.shell(
        "dpkg -i /root/2.deb; CREDENTIALS_DIRECTORY=/etc/credstore convoy up wg0; dpkg -P convoy",
    );
    machine.is_left_as(&before);
    assert_eq!(machine.shell(TRACES), traces);
}

/// Between two replies, from lines such as `[1700000000.123456] 64 bytes from …`.
fn longest_gap(replies: &str) -> Duration {
    let times = replies.lines().filter_map(|line| {
        let (time, rest) = line.strip_prefix('[')?.split_once(']')?;
        rest.contains("bytes from")
            .then(|| time.parse::<f64>().ok())?
    });
    let times: Vec<_> = times.collect();
    let gaps = times.windows(2).map(|pair| pair[1] - pair[0]);
    Duration::from_secs_f64(gaps.fold(0.0, f64::max))
}
