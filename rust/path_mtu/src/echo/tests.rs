use std::time::Duration;

use etherparse::{Icmpv4Slice, Icmpv4Type, Icmpv6Header, Icmpv6Type, IpNumber, PacketBuilder};

use super::*;

const V4: [u8; 4] = [10, 8, 0, 1];
const TOKEN: Token = Token {
    identifier: [0x12, 0x34],
    secret: *b"0123456789abcdef",
};

#[test]
fn a_request_is_an_echo_request_of_the_size_asked_for() {
    let message = TOKEN.request(Family::V4, &transmit(V4.into(), 1_420));
    assert_eq!(message.len(), 1_400);
    let sliced = Icmpv4Slice::from_slice(&message).unwrap();
    let Icmpv4Type::EchoRequest(header) = sliced.icmp_type() else {
        panic!("{sliced:?}");
    };
    assert_eq!((header.id, header.seq), (0x1234, 7));
    assert_eq!(
        sliced.checksum(),
        sliced.icmp_type().calc_checksum(sliced.payload())
    );
    let message = TOKEN.request(Family::V6, &transmit(v6(), 1_420));
    assert_eq!(message.len(), 1_380);
    let (header, _) = Icmpv6Header::from_slice(&message).unwrap();
    assert!(matches!(header.icmp_type, Icmpv6Type::EchoRequest(echo) if echo.seq == 7));
}

#[test]
fn a_reply_answers_its_request_even_if_it_is_shortened() {
    let request = TOKEN.request(Family::V4, &transmit(V4.into(), 1_420));
    let whole = reply_v4(&request);
    let expected = Some(Answer {
        from: V4.into(),
        sequence: 7,
    });
    for length in [whole.len(), MAX_READ, IPV4_HEADER + 24] {
        assert_eq!(
            TOKEN.find(Family::V4, &whole[..length], V4.into()),
            expected,
            "{length}"
        );
    }
    let mut reply = TOKEN.request(Family::V6, &transmit(v6(), 1_420));
    reply[0] = 129;
    let answer = TOKEN.find(Family::V6, &reply[..MAX_READ], v6()).unwrap();
    assert_eq!((answer.from, answer.sequence), (v6(), 7));
}

#[test]
fn what_is_forged_mutilated_or_no_reply_is_no_answer() {
    let request = TOKEN.request(Family::V4, &transmit(V4.into(), 64));
    let reply = reply_v4(&request);
    let is_answer = |bytes: &[u8]| TOKEN.find(Family::V4, bytes, V4.into()).is_some();
    assert!(is_answer(&reply));
    for length in 0..IPV4_HEADER + ICMP_HEADER + TOKEN.secret.len() {
        assert!(!is_answer(&reply[..length]), "{length}");
    }
    let important = [IPV4_HEADER, IPV4_HEADER + 4, IPV4_HEADER + 5];
    for at in important
        .into_iter()
        .chain(IPV4_HEADER + 8..IPV4_HEADER + 24)
    {
        let mut forged = reply.clone();
        forged[at] ^= 1;
        assert!(!is_answer(&forged), "{at}");
    }
    // Our own request, as a loop would bring it back.
    let mut looped = reply.clone();
    looped[IPV4_HEADER] = request_type(Family::V4);
    assert!(!is_answer(&looped));
}

#[test]
fn that_a_request_is_too_big_beyond_the_tunnel_shows_that_it_got_through() {
    let request = TOKEN.request(Family::V6, &transmit(v6(), 1_420));
    let IpAddr::V6(to) = v6() else { panic!() };
    let mut packet = Vec::new();
    PacketBuilder::ipv6([2; 16], to.octets(), 64)
        .write(&mut packet, IpNumber::IPV6_ICMP, &request)
        .unwrap();
    let error = [&[2, 0, 0, 0, 0, 0, 5, 0], &packet[..]].concat();
    let router: IpAddr = "fd08::ffff".parse().unwrap();
    let answer = TOKEN.find(Family::V6, &error[..MAX_READ], router);
    let expected = Answer {
        from: v6(),
        sequence: 7,
    };
    assert_eq!(answer, Some(expected));
    let other = Token {
        secret: [0; 16],
        ..TOKEN
    };
    assert_eq!(other.find(Family::V6, &error[..MAX_READ], router), None);
    for length in 0..ICMP_HEADER + IPV6_HEADER + 24 {
        assert_eq!(TOKEN.find(Family::V6, &error[..length], router), None);
    }
}

#[test]
fn each_probe_has_a_token_of_its_own() {
    let [one, other] = ["wg0"; 2].map(|name| Echoes::new(name).unwrap());
    assert_ne!(one.token.secret, other.token.secret);
}

/// The host itself answers. A raw socket needs a privilege.
#[test]
fn requests_are_answered_over_loopback_by_both_families_or_refused() {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    runtime.unwrap().block_on(async {
        let mut echoes = Echoes::new("lo").unwrap();
        for to in ["127.0.0.1", "::1", "127.0.0.1"] {
            let to = to.parse().unwrap();
            match echoes.send(&transmit(to, 1_420)) {
                Ok(()) => {}
                Err(error) if error.kind() == io::ErrorKind::PermissionDenied => return,
                // Not every host has IPv6.
                Err(error) => {
                    assert!(std::net::UdpSocket::bind((to, 0)).is_err(), "{to}: {error}");
                    continue;
                }
            }
            let answer = tokio::time::timeout(Duration::from_secs(20), echoes.next());
            let expected = Answer {
                from: to,
                sequence: 7,
            };
            assert_eq!(answer.await.expect("an answer"), expected);
        }
    });
}

#[test]
fn a_request_that_cannot_be_sent_is_an_error() {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    runtime.unwrap().block_on(async {
        let mut echoes = Echoes::new("no such link").unwrap();
        echoes.send(&transmit(V4.into(), 64)).unwrap_err();
    });
}

/// The answer to an ICMP message, with its IP header.
fn reply_v4(request: &[u8]) -> Vec<u8> {
    let mut reply = request.to_vec();
    reply[0] = 0;
    let mut packet = Vec::new();
    PacketBuilder::ipv4(V4, [10, 8, 0, 2], 64)
        .write(&mut packet, IpNumber::ICMP, &reply)
        .unwrap();
    packet
}

fn transmit(to: IpAddr, size: u32) -> Transmit {
    Transmit {
        to,
        sequence: 7,
        size,
    }
}

fn v6() -> IpAddr {
    "fd08::1".parse().unwrap()
}
