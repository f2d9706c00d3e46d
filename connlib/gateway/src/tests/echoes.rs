//! Echo requests and replies.

use nix::sys::socket::{AddressFamily, SockFlag, SockProtocol, SockType, socket};

use super::*;
use convoy_packet::packet::{IPV6_HEADER, LONGEST_PACKET, set_class};

/// This host answers an echo request in its class.
#[tokio::test]
async fn requests_and_replies_keep_their_class() {
    if !has_ping_sockets() {
        return;
    }
    let scene = Scene::new(Target::Silent);
    for (ident, class) in (1..).zip([0, 1, 2, 3, 0xbb]) {
        let ends = Ends {
            target: (Ipv4Addr::LOCALHOST, 0).into(),
            ..outward(0, ident)
        };
        let mut request = echo_request(ends);
        set_class(&mut request, class);
        scene.send(&request).await;
        let reply = scene.receive().await;
        assert_eq!(parsed(&reply).class(), class);
        assert_eq!(reply[20..22], [0, 0], "an echo reply");
    }
}

#[tokio::test]
async fn a_burst_of_requests_is_answered_whole() {
    if !has_ping_sockets() {
        return;
    }
    let scene = Scene::new(Target::Silent);
    let ends = Ends {
        target: (Ipv4Addr::LOCALHOST, 0).into(),
        ..outward(0, 1)
    };
    for _ in 0..20 {
        scene.send(&echo_request(ends)).await;
    }
    for _ in 0..20 {
        assert_eq!(scene.receive().await[20..22], [0, 0], "an echo reply");
    }
    assert_eq!(scene.gateway.carried().icmp.dropped, 0);
}

/// The kernel passes on 65,535 bytes of ICMP, before which a header of IPv6 has no room.
#[tokio::test]
async fn a_reply_that_is_too_long_for_a_packet_counts_as_dropped() {
    let scene = Scene::new(Target::Silent);
    let ends = Ends {
        peer: ("2001:db8::1".parse::<IpAddr>().unwrap(), 1).into(),
        target: ("2001:db8::2".parse::<IpAddr>().unwrap(), 0).into(),
    };
    for length in [LONGEST_PACKET - IPV6_HEADER, LONGEST_PACKET] {
        assert_eq!(scene.gateway.carried().icmp.dropped, 0);
        echo::answer(&scene.gateway.shared, ends, &vec![0; length], 0);
    }
    assert_eq!(scene.gateway.carried().icmp.dropped, 1);
}

/// Returns whether this user may ping.
fn has_ping_sockets() -> bool {
    let flags = SockFlag::SOCK_CLOEXEC;
    let opened = socket(
        AddressFamily::Inet,
        SockType::Datagram,
        flags,
        SockProtocol::Icmp,
    );
    if opened.is_err() {
        println!("SKIPPED: net.ipv4.ping_group_range leaves this user out");
    }
    opened.is_ok()
}
