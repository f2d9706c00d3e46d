//! The reader and writer threads carry the traffic; the event loop handles sparse packets only.

use std::sync::atomic::AtomicU64;

use convoy_lab::Turn;

use crate::{
    pairing::Pairing,
    scene::Scene,
    stats::Stats,
    traffic::{ping, tcp, tcp_bytes},
};

#[test]
fn under_load_packets_pass_through_the_tun_threads() {
    let _alone = Turn::alone("how packets travel depends on the load");
    let Some(scene) = Scene::new(Pairing::ConvoyToConvoy) else {
        return;
    };
    let (left, right) = (&scene.left, &scene.right);
    ping(left, right.inner_v4());
    let before = [left, right].map(Stats::of);
    let moved = AtomicU64::new(0);
    tcp(
        &left.namespace,
        right,
        right.inner_v4(),
        tcp_bytes(),
        &moved,
    );
    for (end, before) in [left, right].into_iter().zip(&before) {
        let after = Stats::of(end);
        let sparse =
            |stats: &Stats| stats.event("tun_sparse_outbound") + stats.event("tun_sparse_inbound");
        let packets = |stats: &Stats| stats.outbound_packets() + stats.inbound_packets();
        let sparse = sparse(&after) - sparse(before);
        let packets = packets(&after) - packets(before);
        assert!(sparse * 20 <= packets, "{sparse} of {packets} packets");
    }
}
