//! The units under a real systemd: a Debian that boots in a container (`make test-systemd`).

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod machine;
mod neighbors;
mod package;
mod root;
mod servers;
mod via;

use std::{fs, path::Path, process::Command};

use convoy_lab::{eventually, require_programs};

use machine::{DEADLINE, Machine};

const EVERYTHING: &str = "0.0.0.0/0";
const PING: &str = "ping -qc1 -W1 203.0.113.9";
/// Packets for the server, all the time; without a route or with a closed kill switch, `ping` goes on.
const PINGS: &str = "systemd-run --quiet --unit=pings ping -qi 0.02 203.0.113.9";

/// A booted machine with `wg0.conf`; `None` skips the test.
fn machine(interface: &str) -> Option<Machine> {
    let mut machine = Machine::new()?;
    machine.configure(interface, EVERYTHING);
    machine.boot().then_some(machine)
}

#[test]
#[ignore = "make test-systemd"]
fn the_units_expose_little() {
    if !require_programs("the_units_expose_little", &["systemd-analyze"]) {
        return;
    }
    let units = Path::new(env!("CARGO_MANIFEST_DIR")).join("systemd");
    for unit in fs::read_dir(units).unwrap().flatten() {
        if unit.path().extension().is_none_or(|kind| kind != "service") {
            continue;
        }
        let mut analyze = Command::new("systemd-analyze");
        let analyze = analyze.args(["security", "--no-pager", "--offline=true", "--threshold=20"]);
        let output = analyze.arg(unit.path()).output().unwrap();
        let table = String::from_utf8_lossy(&output.stdout);
        assert!(
            output.status.success(),
            "{}:\n{table}",
            unit.path().display()
        );
    }
}

#[test]
#[ignore = "make test-systemd"]
fn a_unit_starts_reloads_and_stops_without_a_trace() {
    let hooks = "PostUp = echo 1 > /proc/sys/net/ipv4/ip_forward; touch /run/hook-of-%i\n\
         PostUp = ! touch /usr/hook\nPostDown = rm /run/hook-of-%i";
    let Some(machine) = machine(hooks) else {
        return;
    };
    let before = machine.dump();
    machine.shell("systemctl start convoy@wg0; test -e /run/hook-of-wg0");
    machine.waits_for(PING);
    machine.shell("systemctl status convoy@wg0; convoy status wg0");
    let leaks = machine.leaks();

    let change = "sed -i s,0.0.0.0/0,10.8.0.0/24, /etc/wireguard/wg0.conf";
    machine.shell(&format!("{change}; systemctl reload convoy@wg0"));
    assert!(!machine.shell("ip rule").contains("fwmark"));
    machine.shell(PING);
    assert!(machine.leaks() > leaks);
    assert!(
        !machine.succeeds("echo nonsense >> /etc/wireguard/wg0.conf; systemctl reload convoy@wg0")
    );
    let change = "sed -i -e s,10.8.0.0/24,0.0.0.0/0, -e /nonsense/d /etc/wireguard/wg0.conf";
    machine.shell(&format!(
        "{change}; systemctl kill -s HUP --kill-whom=main convoy@wg0"
    ));
    machine.waits_for("ip rule | grep fwmark");
    assert_eq!(machine.property("NRestarts"), "0");

    machine.shell("systemctl stop convoy@wg0; echo 0 > /proc/sys/net/ipv4/ip_forward");
    machine.is_left_as(&before);
    assert_eq!(machine.property("Result"), "success");

    machine.shell(
        "systemctl start convoy@wg0; convoy down wg0; echo 0 > /proc/sys/net/ipv4/ip_forward",
    );
    machine.waits_for("test $(systemctl is-active convoy@wg0) = inactive");
    machine.is_left_as(&before);
}

#[test]
#[ignore = "make test-systemd"]
fn the_tunnel_has_few_privileges() {
    let Some(machine) = machine("") else {
        return;
    };
    machine.shell("systemctl start convoy@wg0");
    let status = machine.shell("convoy status wg0 --json");
    let status: serde_json::Value = serde_json::from_str(&status).unwrap();
    let of = |process: &str| {
        let pid = &status["interfaces"][0][process];
        machine.shell(&format!("cat /proc/{pid}/status"))
    };
    let (tunnel, supervisor) = (of("tunnel_pid"), of("supervisor_pid"));
    let value = |status: &str, key: &str| -> String {
        let line = status.lines().find_map(|line| line.strip_prefix(key));
        line.unwrap().split_whitespace().next().unwrap().to_owned()
    };
    assert_ne!(value(&tunnel, "Uid:"), "0");
    assert_eq!(value(&supervisor, "Uid:"), "0");
    for (status, most) in [(&tunnel, 3), (&supervisor, 8)] {
        let capabilities = u64::from_str_radix(&value(status, "CapEff:"), 16).unwrap();
        assert!(capabilities.count_ones() <= most, "{status}");
        assert_eq!(value(status, "NoNewPrivs:"), "1");
        assert_eq!(value(status, "Seccomp:"), "2");
    }
    // The tunnel's own filter comes on top of the unit's, which must let it.
    let log = machine.shell("journalctl -u convoy-tunnel@wg0 -o cat");
    assert!(!log.contains("continuing without"), "{log}");
}

#[test]
#[ignore = "make test-systemd"]
fn the_journal_gets_fields_and_another_level_for_a_time() {
    let Some(machine) = machine("") else {
        return;
    };
    machine.shell("systemctl start convoy@wg0");
    for unit in ["convoy@wg0", "convoy-tunnel@wg0"] {
        machine.waits_for(&format!(
            "journalctl -u {unit} CONVOY_INTERFACE=wg0 PRIORITY=6 -o cat | grep ."
        ));
        assert!(!machine.succeeds(&format!("journalctl -u {unit} PRIORITY=7 -o cat | grep .")));
    }
    machine.shell("convoy log wg0 debug; convoy reload wg0");
    let requests = "journalctl -u convoy-tunnel@wg0 CONVOY_THREAD=uapi PRIORITY=7 -o cat";
    machine.waits_for(&format!("{requests} | grep -x 'UAPI: set'"));
}

#[test]
#[ignore = "make test-systemd"]
fn a_killed_supervisor_is_restarted_behind_its_kill_switch() {
    let Some(machine) = machine("#convoy: KillSwitch = on\nPostDown = echo >> /run/hooks") else {
        return;
    };
    machine.shell(PING);
    let leaks = machine.leaks();
    assert!(leaks > 0);
    machine.shell(&format!("systemctl start convoy@wg0; {PINGS}"));
    machine.waits_for(PING);
    let first = machine.property("MainPID");
    machine.shell(&format!("kill -KILL {first}"));
    machine.waits_for("test $(systemctl show -P NRestarts convoy@wg0) = 1");
    machine.waits_for("systemctl -q is-active convoy@wg0");
    assert_ne!(machine.property("MainPID"), first);
    machine.waits_for(PING);
    assert_eq!(machine.leaks(), leaks);
    machine.shell(
        "test $(wc -l < /run/hooks) = 1; systemctl stop convoy@wg0; test $(wc -l < /run/hooks) = 2",
    );
    machine.waits_for(PING);
    assert!(machine.leaks() > leaks);
}

#[test]
#[ignore = "make test-systemd"]
fn the_watchdog_restarts_a_supervisor_that_hangs() {
    let Some(machine) = machine("") else {
        return;
    };
    machine.write(
        "etc/systemd/system/convoy@.service.d/test.conf",
        "[Service]\nWatchdogSec=3\n",
    );
    machine.shell("systemctl daemon-reload; systemctl start convoy@wg0");
    let first = machine.property("MainPID");
    let started = machine.property("ActiveEnterTimestampMonotonic");
    let patience = "systemctl show -P WatchdogTimestampMonotonic convoy@wg0";
    machine.waits_for(&format!("test $({patience}) -gt $(({started} + 4000000))"));
    assert_eq!(machine.property("MainPID"), first);

    machine.shell(&format!("kill -STOP {first}"));
    machine.waits_for("journalctl -u convoy@wg0 | grep -i 'watchdog timeout'");
    machine.waits_for("test $(systemctl show -P NRestarts convoy@wg0) = 1");
    machine.waits_for(PING);
}

#[test]
#[ignore = "make test-systemd"]
fn resolved_and_networkd_work_beside_it() {
    let Some(machine) = machine("DNS = 10.8.0.1, corp.example") else {
        return;
    };
    machine.shell("systemctl start convoy@wg0");
    let has_dns = "resolvectl dns wg0 | grep -F 10.8.0.1 && resolvectl domain wg0 | grep -F 'corp.example ~.'";
    machine.shell(has_dns);
    machine.shell("systemctl restart systemd-resolved");
    machine.waits_for(has_dns);

    machine.shell("systemd-run --quiet --unit=rules sh -c 'ip monitor rule > /run/rules'");
    // Whether networkd removes foreign rules at all.
    machine.shell("ip rule add priority 20000 table 77 protocol static");
    machine.shell("systemctl restart systemd-networkd; networkctl reconfigure eth0");
    machine.waits_for("grep -F '20000:' /run/rules | grep -F Deleted");
    machine.waits_for(PING);
    assert!(!machine.succeeds("grep Deleted /run/rules | grep fwmark"));
    machine.shell("ip rule | grep fwmark");

    machine.shell("systemctl stop convoy@wg0; ! resolvectl dns | grep -F 10.8.0.1");
}

#[test]
#[ignore = "make test-systemd"]
fn a_machine_that_wakes_up_makes_a_handshake_at_once() {
    let Some(machine) = machine("") else {
        return;
    };
    let bus = "unix:path=/run/logind-bus";
    machine.write(
        "etc/systemd/system/convoy@.service.d/test.conf",
        &format!("[Service]\nEnvironment=DBUS_SYSTEM_BUS_ADDRESS={bus}\n"),
    );
    machine.shell(&format!(
        "systemctl daemon-reload
         systemd-run --quiet --unit=bus dbus-daemon --session --nofork --address={bus}
         systemd-run --quiet --unit=logind --setenv=DBUS_SYSTEM_BUS_ADDRESS={bus} \
             python3 -m dbusmock --system --template logind"
    ));
    machine.waits_for(&format!(
        "busctl --address={bus} status org.freedesktop.login1"
    ));
    machine.shell("systemctl start convoy@wg0");
    machine.waits_for(PING);
    let handshakes = || -> u64 {
        let line = machine.shell_in_net("wg show wg0 latest-handshakes");
        line.split_whitespace().last().unwrap().parse().unwrap()
    };
    let first = handshakes();
    // The times are whole seconds, and handshakes are seconds apart.
    machine.waits_for(&format!("test $(date +%s) -gt {}", first + 6));
    assert_eq!(handshakes(), first);
    for about_to_sleep in [true, false] {
        machine.shell(&format!(
            "busctl --address={bus} call org.freedesktop.login1 /org/freedesktop/login1 \
             org.freedesktop.DBus.Mock EmitSignal sssav org.freedesktop.login1.Manager PrepareForSleep b \
             1 b {about_to_sleep}"
        ));
    }
    let again = eventually(DEADLINE, || (handshakes() > first).then_some(()));
    assert!(again.is_some());
    // An ordinary rekey comes after 120 s.
    assert!(handshakes() < first + 60);
}

#[test]
#[ignore = "make test-systemd"]
fn a_persistent_kill_switch_is_closed_before_the_network_starts() {
    let Some(mut machine) = Machine::new() else {
        return;
    };
    machine.configure("#convoy: KillSwitch = persistent", EVERYTHING);
    machine.enable("convoy@wg0");
    machine.write(
        "etc/systemd/system/pings.service",
        "[Unit]\nDefaultDependencies=no\n[Service]\nRestart=always\nRestartSec=0.02\n\
         ExecStart=ping -qi 0.02 203.0.113.9\n[Install]\nWantedBy=sysinit.target\n\
         [Unit]\nStartLimitIntervalSec=0\n",
    );
    machine.enable("pings");
    if !machine.boot() {
        return;
    }
    machine.waits_for(PING);
    assert_eq!(machine.leaks(), 0);
    machine.shell("systemctl -q is-active convoy-kill-switch@wg0; systemctl stop convoy@wg0");
    assert!(!machine.succeeds(PING));
    assert_eq!(machine.leaks(), 0);
    machine.shell("convoy down wg0 --open-kill-switch");
    machine.shell(PING);
    assert!(machine.leaks() > 0);
}
