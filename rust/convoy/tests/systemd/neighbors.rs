//! Other programs that change the network of the same machine: NetworkManager and firewalld.

use convoy_lab::eventually;

use crate::{
    EVERYTHING, PING, PINGS,
    machine::{DEADLINE, Machine},
};

/// NetworkManager's connection for `eth0`.
const HOME: &str = "[connection]\nid=home\nuuid=3d1f7b1e-5d0b-4b83-a39a-d1b7dc0f8a55\ntype=ethernet\n\
     interface-name=eth0\n[ipv4]\nmethod=manual\naddress1=192.168.1.2/24,192.168.1.1\ndns=192.168.1.1;\n\
     [ipv6]\nmethod=ignore\n";

/// A link that is down, as nspawn hands it over, is none of NetworkManager's business.
const LINK_UP: &str = "[Service]\nExecStartPre=ip link set eth0 up\n";

const CLOSED: &str = "#convoy: KillSwitch = on";

#[test]
#[ignore = "make test-systemd"]
fn the_tunnel_outlives_what_network_manager_does_to_the_network_below() {
    let Some(machine) = with_network_manager(CLOSED) else {
        return;
    };
    let before = machine.dump();
    let (ours, leaks) = is_up(&machine);
    for change in [
        "nmcli general reload",
        "nmcli connection down home; nmcli connection up home",
        "systemctl restart NetworkManager",
    ] {
        machine.shell(change);
        machine.waits_for(PING);
        is_again(&machine, &ours, change);
    }
    assert_eq!(machine.leaks(), leaks);
    machine.shell("systemctl stop convoy@wg0 pings");
    machine.waits_for(PING);
    machine.is_left_as(&before);
}

#[test]
#[ignore = "make test-systemd"]
fn what_network_manager_takes_from_the_tunnel_comes_back_unless_it_is_told_to_leave_it() {
    let Some(machine) = with_network_manager(CLOSED) else {
        return;
    };
    let (ours, leaks) = is_up(&machine);
    let state = "nmcli -g GENERAL.STATE device show wg0";
    for change in [
        "nmcli device disconnect wg0",
        "nmcli networking off; nmcli networking on",
    ] {
        machine.waits_for(&format!("{state} | grep -F '(connected (externally))'"));
        let before = restored(&machine, "address 10.8.0.2/24");
        machine.shell(change);
        let is_restored = || (restored(&machine, "address 10.8.0.2/24") > before).then_some(());
        assert!(eventually(DEADLINE, is_restored).is_some(), "{change}");
        machine.waits_for(PING);
        is_again(&machine, &ours, change);
    }

    machine.write(
        "etc/NetworkManager/conf.d/tunnel.conf",
        "[keyfile]\nunmanaged-devices=interface-name:wg0\n",
    );
    machine.shell("nmcli general reload");
    machine.waits_for(&format!("{state} | grep -F '(unmanaged)'"));
    is_again(&machine, &ours, "unmanaged");
    let before = restored(&machine, "address 10.8.0.2/24");
    assert!(!machine.succeeds("nmcli device disconnect wg0"));
    machine.shell("nmcli networking off; nmcli networking on");
    machine.waits_for(PING);
    is_again(&machine, &ours, "disconnect");
    assert_eq!(restored(&machine, "address 10.8.0.2/24"), before);
    assert_eq!(machine.leaks(), leaks);
}

#[test]
#[ignore = "make test-systemd"]
fn network_managers_latest_name_servers_are_what_down_leaves() {
    let Some(machine) = with_network_manager("DNS = 10.8.0.1") else {
        return;
    };
    let servers = |address: &str| format!("grep -qx 'nameserver {address}' /etc/resolv.conf");
    machine.shell(&servers("192.168.1.1"));
    machine.shell("systemctl start convoy@wg0");
    machine.shell(&servers("10.8.0.1"));
    let before = restored(&machine, "name servers");
    machine.shell("nmcli connection modify home ipv4.dns 192.168.1.77; nmcli connection up home");
    let is_restored = || (restored(&machine, "name servers") > before).then_some(());
    assert!(eventually(DEADLINE, is_restored).is_some());
    machine.waits_for(&servers("10.8.0.1"));
    machine.waits_for(PING);
    machine.shell("systemctl stop convoy@wg0");
    machine.shell(&servers("192.168.1.77"));
    assert!(!machine.shell("cat /etc/resolv.conf").contains("10.8.0.1"));
}

#[test]
#[ignore = "make test-systemd"]
fn an_interface_of_network_managers_is_not_taken_over() {
    let Some(machine) = with_network_manager("") else {
        return;
    };
    let refused = |arguments: &str| {
        let output = machine.run(&format!("convoy up wg0 {arguments}"));
        assert!(!output.status.success());
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    // The unit has it as a credential.
    machine.shell("cp /etc/credstore/convoy.wg0.key /etc/wireguard");
    let state = "nmcli -g GENERAL.STATE device show wg0";
    machine.shell("nmcli connection add type tun ifname wg0 con-name wg0 mode tun ip4 10.8.0.2/24");
    machine.waits_for(&format!("{state} | grep -F '(connected)'"));
    let theirs = machine.dump();
    for arguments in ["", "--adopt"] {
        let said = refused(arguments);
        assert!(
            said.contains("NetworkManager owns it (fix: `nmcli"),
            "{said}"
        );
    }
    assert_eq!(machine.dump(), theirs);
    machine.shell("nmcli connection delete wg0");
    machine.waits_for("! nmcli device show wg0 && ! ip link show wg0");

    // NetworkManager only looks on.
    machine.shell(
        "ip tuntap add wg0 mode tun; ip address add 10.8.0.2/24 dev wg0; ip link set wg0 up",
    );
    machine.waits_for(&format!("{state} | grep -F '(externally)'"));
    let said = refused("--adopt");
    assert!(!said.contains("NetworkManager"), "{said}");
}

#[test]
#[ignore = "make test-systemd"]
fn a_reload_of_firewalld_leaves_the_kill_switch_closed_and_the_tunnel_up() {
    let Some(mut machine) = Machine::new() else {
        return;
    };
    machine.configure(CLOSED, EVERYTHING);
    machine.enable("firewalld");
    if !machine.boot() {
        return;
    }
    machine.waits_for("test $(firewall-cmd --get-default-zone) = public");
    machine.waits_for(PING);
    let before = machine.dump();
    let (ours, leaks) = is_up(&machine);
    for change in [
        "firewall-cmd --reload",
        "firewall-cmd --complete-reload",
        "systemctl restart firewalld",
    ] {
        machine.shell(change);
        assert_eq!(tunnel(&machine), ours, "{change}");
        machine.waits_for(PING);
    }
    machine.shell("systemctl kill -s STOP convoy-tunnel@wg0; firewall-cmd --reload");
    assert!(!machine.succeeds(PING));
    assert_eq!(machine.leaks(), leaks);
    machine.shell("systemctl kill -s CONT convoy-tunnel@wg0");
    machine.waits_for(PING);
    machine.shell("systemctl stop convoy@wg0 pings");
    machine.is_left_as(&before);
}

/// A booted machine on which NetworkManager sets up `eth0` and writes `/etc/resolv.conf`.
fn with_network_manager(interface: &str) -> Option<Machine> {
    let mut machine = Machine::without_network()?;
    machine.configure(interface, EVERYTHING);
    machine.write(
        "etc/NetworkManager/system-connections/home.nmconnection",
        HOME,
    );
    machine.write(
        "etc/NetworkManager/conf.d/dns.conf",
        "[main]\ndns=default\n",
    );
    machine.write(
        "etc/systemd/system/NetworkManager.service.d/test.conf",
        LINK_UP,
    );
    machine.mask("systemd-resolved");
    // It belongs to systemd-resolved, and NetworkManager would prefer it.
    machine.remove("usr/sbin/resolvconf");
    machine.write("etc/resolv.conf", "");
    machine.enable("NetworkManager");
    if !machine.boot() {
        return None;
    }
    machine.waits_for("nmcli -g GENERAL.STATE device show eth0 | grep -F '(connected)'");
    machine.waits_for(PING);
    Some(machine)
}

/// Brings wg0 up and lets packets flow all the time; returns what it has made, and the leaks before.
fn is_up(machine: &Machine) -> (String, u64) {
    machine.shell("systemctl start convoy@wg0");
    machine.waits_for(PING);
    machine.shell(PINGS);
    (tunnel(machine), machine.leaks())
}

/// Returns what `convoy up` has made. The rules for the devices below go with the last route out.
fn tunnel(machine: &Machine) -> String {
    machine.shell(
        "ip -4 -brief address show wg0; ip -4 rule; ip -4 route show table 51820
         nft -s list table inet convoy_wg0; nft -s list table netdev convoy_wg0 || true",
    )
}

/// Returns how often the supervisor has brought this back.
fn restored(machine: &Machine, what: &str) -> usize {
    let log = machine.shell("journalctl -u convoy@wg0 -o cat");
    let lines = log.lines().filter(|line| line.contains("restored"));
    lines.filter(|line| line.contains(what)).count()
}

fn is_again(machine: &Machine, ours: &str, change: &str) {
    let is_there = || (tunnel(machine) == ours).then_some(());
    if eventually(DEADLINE, is_there).is_none() {
        assert_eq!(tunnel(machine), ours, "{change}");
    }
}
