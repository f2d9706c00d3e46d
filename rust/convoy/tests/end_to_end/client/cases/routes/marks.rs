//! Paths on which routers mark datagrams.

use crate::client::world::{BEHIND, EVERYTHING, World};

#[test]
fn a_path_that_marks_everything_as_congested_carries_every_packet_and_is_told() {
    let Some(world) = World::new() else { return };
    world.shell_at(
        &world.net,
        "nft 'table inet marks { chain forward { type filter hook forward priority 0;
             meta l4proto udp ip ecn set ce; meta l4proto udp ip6 ecn set ce; }; }'",
    );
    world.configure("", EVERYTHING);
    world.up();
    // Echo requests are not ECN-capable.
    for to in BEHIND {
        world.reaches(to);
    }
    let before = world.status()["warnings"].to_string();
    assert!(!before.contains("ECN"), "{before}");
    let said = world.shell(&format!("ping -f -c 1500 -w 20 {}", BEHIND[0]));
    assert!(said.contains("1500 received"), "{said}");
    world.warns("marked as congested (ECN CE)");
    let events = world.status()["stats"]["events"].clone();
    assert!(
        events["udp_congestion_untold"].as_u64() > Some(1_500),
        "{events}"
    );
    let found = format!("{:?}", world.convoy(&["doctor", "wg0", "--json"]));
    assert!(found.contains("ECN CE"), "{found}");
}
