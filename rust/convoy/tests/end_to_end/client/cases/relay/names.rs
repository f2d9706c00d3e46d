//! Name servers that misbehave, one before one that works, for a proxy and for peers of a gateway.

use std::{
    net::{Ipv4Addr, UdpSocket},
    slice, thread,
    time::Duration,
};

use super::{
    super::super::{
        gateway::place::{Place, socket},
        user::world,
        userspace::{
            down,
            ports::{ECHO, echo, echoes, socks5, up},
        },
        world::BEHIND,
    },
    ENGINES, Namespace,
};

/// How late an answer may be without being silence.
const LATE: Duration = Duration::from_millis(30);
const NO_SUCH_NAME: u8 = 3;
/// An address behind the tunnel that nothing is heard of.
const DEAD: [u8; 4] = [10, 8, 0, 199];
/// A signature, as a record behind a question; its owner is the question's name.
const SIGNATURE: &[u8] =
    b"\xc0\x0c\0\x2e\0\x01\0\0\0\x3c\0\x17\0\x01\x0d\x02\0\0\0\x3c\x7f\xff\xff\xff\0\0\0\x01\x12\x67\0SIGN";

/// A name server's behavior.
#[derive(Clone, Copy, Debug)]
enum Server {
    /// Knows one address of every name, with a signature if that is asked for.
    Good([u8; 4]),
    /// The same, and silent about IPv6.
    OnlyIpv4([u8; 4]),
    /// The same, a little late.
    Late([u8; 4]),
    /// Knows two addresses of every name.
    Two([[u8; 4]; 2]),
    Code(u8),
    Silent,
    /// Nobody listens.
    Closed,
}

impl Server {
    fn start(self, place: &Namespace, at: &str) {
        if let Self::Closed = self {
            return;
        }
        let bind = || UdpSocket::bind((at, 53)).unwrap();
        let socket = place.run(bind).unwrap();
        thread::spawn(move || {
            let mut query = [0; 512];
            while let Ok((length, from)) = socket.recv_from(&mut query) {
                if let Some(answer) = self.answer(&query[..length]) {
                    let _ = socket.send_to(&answer, from);
                }
            }
        });
    }

    fn answer(self, query: &[u8]) -> Option<Vec<u8>> {
        let name = query[12..].iter().position(|byte| *byte == 0)?;
        let question = &query[12..12 + name + 5];
        let is_v4 = question[name + 1..name + 3] == [0, 1];
        let extension = &query[12 + name + 5..];
        // DO, behind the name, type and size of the record of EDNS.
        let is_signed = extension.get(7).is_some_and(|flags| flags & 0x80 != 0);
        let (code, addresses) = match &self {
            Self::Good(address) => (0, slice::from_ref(address)),
            Self::OnlyIpv4(address) if is_v4 => (0, slice::from_ref(address)),
            Self::Late(address) => {
                thread::sleep(LATE);
                (0, slice::from_ref(address))
            }
            Self::Two(both) => (0, &both[..]),
            Self::Code(code) => (*code, &[][..]),
            _ => return None,
        };
        let addresses = if is_v4 { addresses } else { &[] };
        let signature = if is_signed && !addresses.is_empty() {
            SIGNATURE
        } else {
            &[]
        };
        let count = addresses.len() as u8 + u8::from(!signature.is_empty());
        let flags = [0x81, 0x80 | u8::from(is_signed) << 5 | code];
        let mut answer = [&query[..2], &flags, &[0, 1, 0, count, 0, 0, 0, 0]].concat();
        answer.extend(question);
        for address in addresses {
            answer.extend(b"\xc0\x0c\0\x01\0\x01\0\0\0\x3c\0\x04");
            answer.extend(address);
        }
        answer.extend(signature);
        Some(answer)
    }
}

/// Servers that may stand before one that works.
const BEFORE: [Server; 5] = [
    Server::Silent,
    Server::Closed,
    Server::Code(2),
    Server::Code(4),
    Server::Code(5),
];

#[test]
fn a_proxy_asks_the_next_server_inside_and_does_not_wait_for_ipv6() {
    let good = Server::Good(behind());
    let all = BEFORE.into_iter().chain([Server::OnlyIpv4(behind())]);
    names_are_reached(&all.map(|before| [before, good]).collect::<Vec<_>>());
}

#[test]
fn a_proxy_believes_the_first_server_and_does_not_wait_for_a_silent_address() {
    let stranger = Server::Code(NO_SUCH_NAME);
    let late = Server::Late(behind());
    let half_dead = Server::Two([DEAD, behind()]);
    names_are_reached(&[[late, stranger], [half_dead, stranger]]);
}

/// Requires that names which these two servers are asked for lead to the server behind the tunnel, for each pair. How
/// long that may take is tested with a clock that stands still (`connlib/network/src/network/names/tests.rs`).
fn names_are_reached(pairs: &[[Server; 2]]) {
    let Some(world) = world("DNS = 10.8.0.93, 10.8.0.94\n") else {
        return;
    };
    echo(&world.server, (BEHIND[0], ECHO));
    let dead = Ipv4Addr::from(DEAD);
    world.shell_at(&world.server, &format!("ip route add blackhole {dead}"));
    let mut number = 93;
    for pair in pairs {
        let servers = [number, number + 1].map(|it| format!("10.8.0.{it}"));
        number += 2;
        for (server, at) in pair.iter().zip(&servers) {
            world.shell_at(&world.server, &format!("ip addr add {at}/32 dev lo"));
            server.start(&world.server, at);
        }
        world.shell(&format!(
            "sed -i 's/^DNS.*/DNS = {}/' /etc/wg0.conf",
            servers.join(", ")
        ));
        for engine in ENGINES {
            up(&world, &["--socks5=1080", engine]);
            for index in 0..3 {
                let stream = socks5(&world, 1080, &format!("n{index}.ex.test"));
                echoes(stream.unwrap_or_else(|code| panic!("{pair:?} {engine}: {code}")));
            }
            down(&world);
        }
    }
}

/// The address of the host behind the tunnel.
fn behind() -> [u8; 4] {
    BEHIND[0].parse::<Ipv4Addr>().unwrap().octets()
}

#[test]
fn peers_of_a_gateway_get_answers_and_signatures_of_the_next_server() {
    let Some(place) = Place::without_gateway("") else {
        return;
    };
    let world = &place.world;
    let known = [192, 0, 2, 7];
    for (number, before) in (10..).step_by(2).zip(BEFORE) {
        let servers = [number, number + 1].map(|it| format!("192.168.1.{it}"));
        for server in &servers {
            world.shell_at(&world.net, &format!("ip addr add {server}/32 dev lan"));
        }
        before.start(&world.net, &servers[0]);
        Server::Good(known).start(&world.net, &servers[1]);
        let lines = servers.map(|server| format!("nameserver {server}\n"));
        world.write("resolv.conf", &lines.concat());
        world.shell("chmod 644 /etc/resolv.conf");
        for engine in ENGINES {
            place.up(&["--nat=user", "--nat-dns", engine]);
            for (index, is_signed) in [false, true, true, false].into_iter().enumerate() {
                let answer = ask(place.peers()[index % 2], index, is_signed);
                let told = format!("{before:?} {engine} {is_signed}: {answer:?}");
                assert_eq!(answer[3] & 0x0f, 0, "{told}");
                assert_eq!(answer[3] & 0x20 != 0, is_signed, "{told}");
                let has = |bytes: &[u8]| answer.windows(bytes.len()).any(|it| it == bytes);
                assert!(has(&known), "{told}");
                assert_eq!(has(&SIGNATURE[2..]), is_signed, "{told}");
            }
            place.down();
        }
    }
}

/// Asks the gateway for the address of a name of this number, by a query that wants signatures or does not.
fn ask(peer: &Namespace, number: usize, is_signed: bool) -> Vec<u8> {
    let name = format!("\x02n{number}\x02ex\x04test\0");
    let mut query = b"\x07\x07\x01\0\0\x01\0\0\0\0\0\0".to_vec();
    query.extend(name.as_bytes());
    query.extend(b"\0\x01\0\x01");
    if is_signed {
        query[11] = 1;
        query.extend(b"\0\0\x29\x04\xd0\0\0\x80\0\0\0");
    }
    let socket = socket(peer, "10.8.0.2", 53);
    socket.send(&query).unwrap();
    let mut answer = vec![0; 1_232];
    let length = socket.recv(&mut answer).unwrap();
    answer.truncate(length);
    answer
}
