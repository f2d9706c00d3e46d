//! A client behind a router that translates addresses, and soon forgets for whom.
//!
//! ```text
//!   client 10.8.0.1 ══════════════════════════════════════════ server 10.8.0.2
//!   192.168.0.2 ── veth ── 192.168.0.1  router  10.9.0.1 ── veth ── 10.9.0.2
//!                                  masquerade ──▶
//! ```
//!
//! The server has no route to 192.168.0.0/24: it can reach the client only while the router
//! remembers to whom what comes back is to go, which is [`MEMORY`] after the last datagram.

use std::{fs, thread, time::Duration};

use convoy_lab::{
    Lab, Namespace, eventually,
    wireguard::{End, Identity},
};

use crate::{
    pairing::{Pairing, Program, for_each_pairing_at_length},
    scene::{DEADLINE, lab_with, wg_dump},
    traffic::{answers, ping},
};

/// How long the router remembers a UDP flow.
const MEMORY: Duration = Duration::from_secs(2);
/// Seconds between persistent keepalives where there are some: less than [`MEMORY`].
const KEEPALIVE: u16 = 1;

for_each_pairing_at_length! {
    fn persistent_keepalives_keep_the_way_to_a_client_behind_nat_open(pairing: Pairing) {
        let Some((lab, _turn)) = lab_with(&both(pairing), &["nft", "wg", "ping"]) else { return };
        let (client, server) = behind_nat(&lab, pairing, KEEPALIVE);
        ping(&client, server.inner_v4());
        // Some programs count what was in a datagram, so none of a keepalive: the cable counts all.
        let received = || server.namespace.link().statistics("veth0").unwrap().rx_packets;
        let (before, keepalives) = (received(), 6 * MEMORY.as_secs() / u64::from(KEEPALIVE));
        let long_after = || (received() >= before + keepalives).then_some(());
        assert!(eventually(2 * DEADLINE, long_after).is_some(), "no keepalives");
        assert!(answers(&server, client.inner_v4()));
        // From the router's address, and from whatever port it chose.
        assert!(wg_dump(&server, 1)[2].starts_with("10.9.0.1:"));
    }

    fn without_keepalives_the_way_to_a_client_behind_nat_closes(pairing: Pairing) {
        let Some((lab, _turn)) = lab_with(&both(pairing), &["nft", "wg", "ping"]) else { return };
        let (client, server) = behind_nat(&lab, pairing, 0);
        ping(&client, server.inner_v4());
        assert!(answers(&server, client.inner_v4()));
        // What the server sends may keep the way open, if it comes in time; and 10 seconds after
        // it has last heard from the server the client says so, once.
        let closed = (0..4).any(|_| {
            thread::sleep(3 * MEMORY);
            !answers(&server, client.inner_v4())
        });
        assert!(closed, "the router never forgets");
        ping(&client, server.inner_v4());
        assert!(answers(&server, client.inner_v4()));
    }
}

fn both(pairing: Pairing) -> [Program; 2] {
    pairing.ends().into()
}

/// The client is the left one of the pairing; nothing has been sent yet.
fn behind_nat(lab: &Lab, pairing: Pairing, keepalive: u16) -> (End, End) {
    let [inside, router, outside] =
        ["client", "router", "server"].map(|label| lab.namespace(label).unwrap());
    let cable = |a, a_name, a_address, b, b_name, b_address| {
        lab.veth(a, a_name, &[a_address], b, b_name, &[b_address], 1_500)
            .unwrap();
    };
    cable(
        &inside,
        "veth0",
        "192.168.0.2/24",
        &router,
        "lan",
        "192.168.0.1/24",
    );
    cable(
        &router,
        "wan",
        "10.9.0.1/24",
        &outside,
        "veth0",
        "10.9.0.2/24",
    );
    let gateway = "192.168.0.1".parse().unwrap();
    inside
        .link()
        .add_route_through("0.0.0.0/0", gateway)
        .unwrap();
    translate(&router);

    let (left, right) = pairing.ends();
    let (client, server) = (Identity::new(1), Identity::new(2));
    let mut to_server = server.as_peer(Some(([10, 9, 0, 2], 51_820).into()));
    to_server.persistent_keepalive = keepalive;
    let to_client = client.as_peer(None);
    let start = |namespace, program: Program, identity, peer| {
        End::start(
            namespace,
            &program.implementation(),
            identity,
            vec![peer],
            1_420,
        )
        .unwrap()
    };
    (
        start(&inside, left, &client, to_server),
        start(&outside, right, &server, to_client),
    )
}

fn translate(router: &Namespace) {
    const RULES: &str = "table ip nat { chain out { \
        type nat hook postrouting priority srcnat; oifname \"wan\" masquerade; }; }";
    let mut nft = router.command("nft");
    assert!(nft.arg(RULES).status().unwrap().success());
    let seconds = MEMORY.as_secs().to_string();
    for (setting, value) in [
        ("ipv4/ip_forward", "1"),
        ("netfilter/nf_conntrack_udp_timeout", &seconds),
        ("netfilter/nf_conntrack_udp_timeout_stream", &seconds),
    ] {
        // Below /proc/sys/net every thread sees the settings of its own namespace.
        let write = || fs::write(format!("/proc/sys/net/{setting}"), value);
        router.run(write).unwrap().unwrap();
    }
}
