use std::net::Ipv4Addr;

use crate::{Loaded, Report};

#[test]
fn the_gateway_is_written_or_of_the_network_or_a_name_server() {
    for (lines, expected) in [
        ("Address = 10.2.0.2/32\nDNS = 10.2.0.1", [10, 2, 0, 1]),
        (
            "Address = fd00::2/64, 10.2.0.7/24\nDNS = 10.9.9.9",
            [10, 2, 0, 1],
        ),
        ("Address = 10.2.0.1/24\nDNS = 100.64.0.1", [100, 64, 0, 1]),
        (
            "Address = 10.2.0.2/31\nDNS = 1.1.1.1, fd00::1, 192.168.4.1",
            [192, 168, 4, 1],
        ),
    ] {
        let config = read(&format!("{lines}\n#convoy: PortForward = nat-pmp"));
        let gateway = config.unwrap().config.interface.port_forward_gateway();
        assert_eq!(gateway, Some(Ipv4Addr::from(expected)), "{lines}");
    }
    let lines = "Address = 10.2.0.2/24\n#convoy: PortForward = NAT-PMP   10.5.0.1 ";
    let config = read(lines).unwrap().config;
    let gateway = config.interface.port_forward_gateway();
    assert_eq!(gateway, Some([10, 5, 0, 1].into()));
    let without = read("Address = 10.2.0.2/24").unwrap().config;
    assert_eq!(without.interface.port_forward_gateway(), None);
}

#[test]
fn a_gateway_that_no_packet_would_reach_is_refused() {
    for (lines, expected) in [
        (
            "Address = 10.2.0.2/32\nDNS = 1.1.1.1\n#convoy: PortForward = nat-pmp",
            "`PortForward` has no gateway",
        ),
        (
            "Address = 10.2.0.2/32\n#convoy: PortForward = nat-pmp 10.2.0.2",
            "the gateway of `PortForward` is this machine",
        ),
        (
            "Address = 10.2.0.2/32\n#convoy: PortForward = nat-pmp 11.2.0.1",
            "the gateway of `PortForward` is not in the tunnel",
        ),
        (
            "Address = 10.2.0.2/24\n#convoy: PortForward = nat-pmp 10.2.0.255",
            "the gateway of `PortForward` is a broadcast address",
        ),
        ("#convoy: PortForward = upnp", "`nat-pmp`, or `nat-pmp` and"),
        ("#convoy: PortForward = nat-pmp 0.0.0.0", "of one machine"),
        ("#convoy: PortForward = nat-pmp fd00::1", "of one machine"),
        ("#convoy: PortForward = nat-pmp router", "an IP address"),
        ("#convoy: PortForward = nat-pmp 10.2.0.1 9", "an IP address"),
    ] {
        let report = read(lines).unwrap_err();
        assert!(report.render(false).contains(expected), "{report}");
    }
}

#[test]
fn a_hook_for_a_port_that_nobody_asks_for_is_warned_of() {
    let loaded = read("#convoy: PostPortForward = true").unwrap();
    let warnings = loaded.warnings.render(false);
    let expected = "`PostPortForward` never runs without `PortForward`";
    assert!(warnings.contains(expected), "{warnings}");
    assert!(loaded.config.interface.has_hooks());
}

fn read(lines: &str) -> Result<Loaded, Report> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("wg0.conf");
    let key = crate::encode_key(&[7; 32]);
    let peer = crate::encode_key(&[2; 32]);
    let text = format!(
        "[Interface]\nPrivateKey = {}\n{lines}\n[Peer]\nPublicKey = {}\n\
         AllowedIPs = 10.0.0.0/8, 100.64.0.0/10, 192.168.0.0/16\n",
        *key, *peer
    );
    std::fs::write(&path, text).unwrap();
    crate::read(&path)
}
