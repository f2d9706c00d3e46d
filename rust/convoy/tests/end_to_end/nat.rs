//! A client behind NAT, whose router soon forgets idle flows.
//!
//! ```text
//!   client 10.8.0.1 ══════════════════════════════════════════ server 10.8.0.2
//!   192.168.0.2 ── veth ── 192.168.0.1  router  10.9.0.1 ── veth ── 10.9.0.2
//!                                  masquerade ──▶
//! ```
//!
//! The server has no route to 192.168.0.0/24. It can reach the client only while the router keeps
//! the mapping, for [`MAPPING_TIME`] after the last datagram.

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

/// How long the router keeps the mapping of an idle UDP flow.
const MAPPING_TIME: Duration = Duration::from_secs(2);
/// Seconds between persistent keepalives, if enabled: less than [`MAPPING_TIME`].
const KEEPALIVE: u16 = 1;

for_each_pairing_at_length! {
    fn persistent_keepalives_keep_the_nat_mapping_of_a_client_alive(pairing: Pairing) {
        let Some((_turn, lab)) = lab_with(&both(pairing), &["nft", "wg", "ping"]) else { return };
        let (client, server) = behind_nat(&lab, pairing, KEEPALIVE);
        ping(&client, server.inner_v4());
        // Some programs count payload bytes, and a keepalive has none: count on the veth instead.
        let received = || server.namespace.link().statistics("veth0").unwrap().recv_packets;
        let (before, keepalives) = (received(), 6 * MAPPING_TIME.as_secs() / u64::from(KEEPALIVE));
        let long_after = || (received() >= before + keepalives).then_some(());
        assert!(eventually(2 * DEADLINE, long_after).is_some(), "no keepalives");
        assert!(answers(&server, client.inner_v4()));
        // The router's address, with the port that it chose.
        assert!(wg_dump(&server, 1)[2].starts_with("10.9.0.1:"));
    }

    fn without_keepalives_the_nat_mapping_of_a_client_expires(pairing: Pairing) {
        let Some((_turn, lab)) = lab_with(&both(pairing), &["nft", "wg", "ping"]) else { return };
        let (client, server) = behind_nat(&lab, pairing, 0);
        ping(&client, server.inner_v4());
        assert!(answers(&server, client.inner_v4()));
        // A datagram from the server renews the mapping if it comes in time, and 10 seconds after the
        // last one the client sends a keepalive.
        let closed = (0..4).any(|_| {
            thread::sleep(3 * MAPPING_TIME);
            !answers(&server, client.inner_v4())
        });
        assert!(closed, "the mapping never expires");
        ping(&client, server.inner_v4());
        assert!(answers(&server, client.inner_v4()));
    }
}

fn both(pairing: Pairing) -> [Program; 2] {
    pairing.ends().into()
}

/// Starts the client (the pairing's left end) and the server; nothing has been sent yet.
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
    let seconds = MAPPING_TIME.as_secs().to_string();
    for (setting, value) in [
        ("ipv4/ip_forward", "1"),
        ("netfilter/nf_conntrack_udp_timeout", &seconds),
        ("netfilter/nf_conntrack_udp_timeout_stream", &seconds),
    ] {
        // /proc/sys/net shows each thread the settings of its own network namespace.
        let write = || fs::write(format!("/proc/sys/net/{setting}"), value);
        router.run(write).unwrap().unwrap();
    }
}
