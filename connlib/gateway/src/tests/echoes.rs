//! Echo requests and replies.

use nix::sys::socket::{AddressFamily, SockFlag, SockProtocol, SockType, socket};

use super::*;
use convoy_packet::packet::set_class;

/// This host answers an echo request in its class.
#[tokio::test]
async fn requests_and_replies_keep_their_class() {
    let flags = SockFlag::SOCK_CLOEXEC;
    if socket(
        AddressFamily::Inet,
        SockType::Datagram,
        flags,
        SockProtocol::Icmp,
    )
    .is_err()
    {
        println!("SKIPPED: net.ipv4.ping_group_range leaves this user out");
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
