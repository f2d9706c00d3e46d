//! The units of a tunnel inside another: `convoy@wg1` runs both.

use super::{PINGS, machine::Machine};

/// Behind the second hop.
const PING: &str = "ping -qc1 -W1 10.9.0.1";
/// Lets the unit have the key of the tunnel through which it goes.
const KEYS: &str = "[Service]\nLoadCredential=convoy.wg0.key\n";

/// A booted machine with `wg1.conf`, whose tunnel goes through that of `wg0.conf`; `None` skips the test.
fn machine() -> Option<Machine> {
    let mut machine = Machine::new()?;
    machine.configure("", "10.8.0.0/24");
    machine.shell_in_net(
        "umask 077; wg genkey > /run/second; wg genkey > /run/inner
         wireguard-go wg1 > /dev/null 2>&1
         wg set wg1 listen-port 51821 private-key /run/second \
             peer $(wg pubkey < /run/inner) allowed-ips 10.9.0.2/32
         ip address add 10.9.0.1/24 dev wg1; ip link set up dev wg1",
    );
    let key = machine.shell_in_net("cat /run/inner");
    machine.write("etc/credstore/convoy.wg1.key", &key);
    let second = machine.shell_in_net("wg pubkey < /run/second");
    machine.write(
        "etc/wireguard/wg1.conf",
        &format!(
            "[Interface]\n#convoy: PrivateKeyFile = convoy.wg1.key\n#convoy: Via = wg0\nAddress = 10.9.0.2/24\n\
             [Peer]\nPublicKey = {second}Endpoint = 10.8.0.1:51821\nAllowedIPs = 10.9.0.1/32, 203.0.113.9/32\n"
        ),
    );
    machine.boot().then_some(machine)
}

#[test]
#[ignore = "make test-systemd"]
fn a_unit_starts_reloads_and_stops_both_tunnels() {
    let Some(machine) = machine() else {
        return;
    };
    // Without the other tunnel's key, it says which file is missing.
    assert!(!machine.succeeds("systemctl start convoy@wg1"));
    machine.waits_for("journalctl -u convoy@wg1 | grep -F convoy.wg0.key");
    machine.shell("systemctl stop convoy@wg1");
    machine.write("etc/systemd/system/convoy@wg1.service.d/keys.conf", KEYS);
    machine.shell("systemctl daemon-reload");

    let before = machine.dump();
    machine.shell("systemctl start convoy@wg1");
    machine.waits_for(PING);
    machine.shell(PINGS);

    // The other tunnel is up as a part of this one: its own unit fails, and disturbs nothing.
    let supervisor = "systemctl show -P MainPID convoy@wg1";
    let first = machine.shell(supervisor);
    assert!(!machine.succeeds("systemctl start convoy@wg0"));
    machine.waits_for("journalctl -u convoy@wg0 | grep -F 'goes through wg0'");
    machine.shell("systemctl stop convoy@wg0");
    // There is nothing to undo after it.
    assert!(!machine.succeeds("journalctl -u convoy@wg0 | grep -F 'already up'"));
    machine.shell(PING);
    assert_eq!(machine.shell(supervisor), first);

    let mtu = "ip link show wg1 | grep -o 'mtu [0-9]*'";
    let former = machine.shell(mtu);
    machine.shell(
        "sed -i 's/^Address.*/&\\nMTU = 1300/' /etc/wireguard/wg0.conf; systemctl reload convoy@wg1",
    );
    assert_ne!(machine.shell(mtu), former);
    machine.shell(PING);
    assert_eq!(machine.shell(supervisor), first);

    machine.shell("systemctl stop pings convoy@wg1");
    machine.is_left_as(&before);
    assert_eq!(machine.property("ActiveState"), "inactive");
}

#[test]
#[ignore = "make test-systemd"]
fn a_tunnel_that_is_up_by_itself_keeps_another_from_going_through_it() {
    let Some(machine) = machine() else {
        return;
    };
    machine.write("etc/systemd/system/convoy@wg1.service.d/keys.conf", KEYS);
    machine.shell("systemctl daemon-reload; systemctl start convoy@wg0");
    let outer = "ping -qc1 -W1 10.8.0.1";
    machine.waits_for(outer);
    let first = machine.property("MainPID");
    assert!(!machine.succeeds("systemctl start convoy@wg1"));
    machine.shell("systemctl stop convoy@wg1");
    machine.shell(outer);
    assert_eq!(machine.property("MainPID"), first);

    machine.shell("systemctl stop convoy@wg0; systemctl start convoy@wg1");
    machine.waits_for(PING);
    machine.shell("kill -KILL $(systemctl show -P MainPID convoy@wg1)");
    machine.waits_for("test $(systemctl show -P NRestarts convoy@wg1) = 1");
    machine.waits_for("systemctl -q is-active convoy@wg1");
    machine.waits_for(PING);
}
