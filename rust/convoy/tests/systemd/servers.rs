//! Units of tunnels that need more than their peer: a TURN server, or a router that forwards a port.

use std::{
    io::Write as _,
    net::{Ipv4Addr, TcpListener, UdpSocket},
    sync::mpsc::{self, Receiver},
    thread,
};

use convoy_lab::eventually;
use convoy_turn_server::{RelayIdentity, RelayOptions, RelayServer, RelayTransport};
use serde_json::Value;
use socket2::{Domain, Protocol, Socket, Type};

use super::{
    EVERYTHING, PING,
    machine::{DEADLINE, Machine},
};

const ROUTER: Ipv4Addr = Ipv4Addr::new(192, 168, 1, 1);
/// The group of SSDP.
const GROUP: Ipv4Addr = Ipv4Addr::new(239, 255, 255, 250);
/// The key of a peer whose direct path wants a port; it is never there.
const FRIEND: &str = "xTIBA5rboUvnH4htodjb6e697QjLERt1NAB4mZqp8Dg=";
const PASSWORD: &str = "correct-horse-battery";
/// Lets TCP to port 443 through, and nothing else of the machine.
const BLOCKED: &str = "
    nft 'table inet firewall { chain arriving { type filter hook prerouting priority -400; }; }'
    nft 'add rule inet firewall arriving iifname lan meta l4proto { udp, icmp } drop'
    nft 'add rule inet firewall arriving iifname lan tcp dport != 443 drop'";

#[test]
#[ignore = "make test-systemd"]
fn a_turn_server_is_reached_by_tls_with_a_password_from_a_credential() {
    let Some(mut machine) = Machine::new() else {
        return;
    };
    let identity = RelayIdentity::new(&ROUTER.to_string()).unwrap();
    machine.write("etc/ssl/certs/ca-certificates.crt", &identity.authority);
    machine.write("etc/credstore/convoy.turn", PASSWORD);
    machine.write(
        "etc/systemd/system/convoy@wg0.service.d/turn.conf",
        "[Service]\nLoadCredential=convoy.turn\n",
    );
    machine.configure(
        "#convoy: Turn = turns:192.168.1.1:443 Username = alice PasswordFile = convoy.turn\n\
         #convoy: KillSwitch = on",
        EVERYTHING,
    );
    let options = RelayOptions {
        transport: RelayTransport::Tls(identity),
        user: ("alice".to_owned(), PASSWORD.to_owned()),
        alias: None,
        other: None,
    };
    let start = || RelayServer::start((ROUTER, 443).into(), &options);
    let server = machine.net.run(start).unwrap().unwrap();
    machine.shell_in_net(BLOCKED);
    if !machine.boot() {
        return;
    }
    machine.shell("systemctl start convoy@wg0");
    machine.waits_for(PING);
    assert!(server.relayed() > 0);
    let status = status(&machine);
    assert_eq!(status["relays"][0]["transport"], "tls", "{status}");
    machine.shell("systemctl reload convoy@wg0; systemctl restart convoy@wg0");
    machine.waits_for(PING);
    machine.shell("systemctl stop convoy@wg0");
}

#[test]
#[ignore = "make test-systemd"]
fn a_router_is_asked_for_a_port_in_every_protocol() {
    let Some(mut machine) = Machine::new() else {
        return;
    };
    machine.configure(
        "ListenPort = 51820\n#convoy: PortMap = yes\n#convoy: KillSwitch = on",
        &format!("{EVERYTHING}\n#convoy: Direct = {FRIEND} 10.8.0.3/32"),
    );
    let searched = hears_searches(&machine);
    if !machine.boot() {
        return;
    }
    // Nobody answers PCP or NAT-PMP yet: UPnP searches for the router, then asks it by TCP.
    machine.shell("systemctl start convoy@wg0");
    for expected in ["to the group", "by TCP"] {
        let heard = eventually(DEADLINE, || searched.try_iter().find(|it| *it == expected));
        assert!(heard.is_some(), "nothing {expected}: {}", status(&machine));
    }
    grants_by_nat_pmp(&machine);
    machine.shell("systemctl restart convoy@wg0");
    let mapping = || {
        let mapping = status(&machine)["port_mapping"].clone();
        (mapping["protocol"] == "NAT-PMP").then_some(mapping)
    };
    let mapping = eventually(DEADLINE, mapping);
    assert_eq!(mapping.unwrap()["external"], "198.51.100.7:51820");
    machine.waits_for(PING);
    machine.shell("systemctl stop convoy@wg0");
}

fn status(machine: &Machine) -> Value {
    let status = machine.shell("convoy status wg0 --json");
    let status: Value = serde_json::from_str(&status).unwrap();
    status["interfaces"][0].clone()
}

/// Tells of searches to SSDP's group and of TCP connections to the place that their answers name.
fn hears_searches(machine: &Machine) -> Receiver<&'static str> {
    let open = || {
        let listener = TcpListener::bind((ROUTER, 5000)).unwrap();
        let group = Socket::new(Domain::IPV4, Type::DGRAM, Some(Protocol::UDP)).unwrap();
        group
            .bind(&std::net::SocketAddr::from((GROUP, 1900)).into())
            .unwrap();
        group.join_multicast_v4(&GROUP, &ROUTER).unwrap();
        let answers = UdpSocket::bind((ROUTER, 1900)).unwrap();
        (listener, UdpSocket::from(group), answers)
    };
    let (listener, group, answers) = machine.net.run(open).unwrap();
    let (sender, heard) = mpsc::channel();
    let by_tcp = sender.clone();
    thread::spawn(move || {
        let mut buffer = [0; 2_048];
        while let Ok((length, from)) = group.recv_from(&mut buffer) {
            let request = String::from_utf8_lossy(&buffer[..length]).into_owned();
            let target = request.lines().find_map(|line| line.strip_prefix("ST: "));
            let answer = format!(
                "HTTP/1.1 200 OK\r\nLOCATION: http://{ROUTER}:5000/\r\nST: {}\r\nUSN: uuid:1\r\n\r\n",
                target.unwrap_or_default()
            );
            let _ = answers.send_to(answer.as_bytes(), from);
            let _ = sender.send("to the group");
        }
    });
    thread::spawn(move || {
        for connection in listener.incoming().flatten() {
            let _ = (&connection).write_all(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n");
            let _ = by_tcp.send("by TCP");
        }
    });
    heard
}

/// Starts a server of NAT-PMP that grants all that it is asked for.
fn grants_by_nat_pmp(machine: &Machine) {
    let open = || UdpSocket::bind((ROUTER, 5351)).unwrap();
    let socket = machine.net.run(open).unwrap();
    thread::spawn(move || {
        let mut request = [0; 2_048];
        while let Ok((length, from)) = socket.recv_from(&mut request) {
            let answer = match &request[..length] {
                [0, 0] => vec![0, 128, 0, 0, 0, 0, 0, 9, 198, 51, 100, 7],
                [0, operation @ (1 | 2), _, _, inner @ .., _, _, _, _, _, _] => {
                    let mut answer = vec![0, 128 | operation, 0, 0, 0, 0, 0, 9];
                    answer.extend(inner);
                    answer.extend(inner);
                    answer.extend(&request[8..12]);
                    answer
                }
                // Its version is not known here (RFC 6886 §3.5).
                _ => vec![0, 128 | request[1], 0, 1, 0, 0, 0, 9],
            };
            let _ = socket.send_to(&answer, from);
        }
    });
}
