//! Friends who meet by the kernel's WireGuard, or one of whom it is.
//!
//! ```text
//!  a 10.5.2.2 ── lan2 ┐
//!                     ├ left ── tap ── outside 10.9.0.2, guest: the hub 10.8.0.1, or b
//!  b 10.5.3.2 ── lan3 ┘
//! ```

use convoy_lab::{Lab, Namespace, Turn, eventually, wireguard::Daemon};

use super::guest::{PATIENCE, Visit};
use crate::{
    client::paths::{friend::Friend, friends::set_up_hub, meeting::meet},
    hub::forward,
    router::Joined,
    scene::{convoy, output_of},
    twins::{private_key, public_key},
};

#[test]
#[ignore = "make interop-kernel"]
fn friends_meet_through_the_kernels_wireguard() {
    let (_turn, Some(guest)) = (Turn::together(), Visit::new()) else {
        return;
    };
    let lab = Lab::new().unwrap();
    let [own, a, b] = [private_key(1), public_key(2), public_key(3)];
    guest.shell(&format!(
        "ip link add wg0 mtu 1420 type wireguard; echo {own} > /run/key
         wg set wg0 listen-port 51820 private-key /run/key \
             peer {a} allowed-ips 10.8.0.2/32 peer {b} allowed-ips 10.8.0.3/32
         ip address add 10.8.0.1/24 dev wg0; ip link set wg0 up
         ip route add 10.5.0.0/16 via 10.9.0.1"
    ));
    let friends = [2, 3].map(|number| friend(&lab, &guest.left, number));
    for friend in &friends {
        friend.configure([10, 9, 0, 2].into(), "", "10.8.0.0/24", &friend.direct());
        friend.convoy(&["up", "wg0"]).succeeds();
    }
    let [a, b] = &friends;
    meet([a, b], ["host", "host"]).lose_nothing();
    assert_eq!(a.path(b).unwrap().1, "10.5.3.2:51823");
    let carried = || -> u64 {
        let count = guest.shell("cat /sys/class/net/wg0/statistics/rx_packets");
        count.trim().parse().unwrap()
    };
    let before = carried();
    a.reaches(b);
    b.reaches(a);
    let by_hub = carried() - before;
    assert!(by_hub < 10, "{by_hub} packets went by the hub");
}

#[test]
#[ignore = "make interop-kernel"]
fn a_friend_with_the_kernels_wireguard_stays_at_the_hub_and_the_status_says_why() {
    let (_turn, Some(guest)) = (Turn::together(), Visit::new()) else {
        return;
    };
    let lab = Lab::new().unwrap();
    let a = friend(&lab, &guest.left, 2);
    let _hub = Daemon::start(&guest.left, &convoy(), "wg0").unwrap();
    set_up_hub(&guest.left);
    let (own, hub) = (private_key(3), public_key(1));
    guest.shell(&format!(
        "ip link add wg0 mtu 1420 type wireguard; echo {own} > /run/key
         wg set wg0 private-key /run/key peer {hub} allowed-ips 10.8.0.0/24 \
             endpoint 10.9.0.1:51820 persistent-keepalive 25
         ip address add 10.8.0.3/24 dev wg0; ip link set wg0 up"
    ));
    a.configure([10, 9, 0, 1].into(), "", "10.8.0.0/24", &a.direct());
    a.convoy(&["up", "wg0"]).succeeds();
    a.reaches_hub();
    guest.shell("ping -c 1 -W 60 10.8.0.2");
    let ping = a.start_ping_to("10.8.0.3");
    let is_told = || (a.path_to("10.8.0.3") == Err("no_answer".to_owned())).then_some(());
    let found = eventually(PATIENCE, is_told);
    assert!(found.is_some(), "{:?}", a.path_to("10.8.0.3"));
    drop(ping);
    let text = a.convoy(&["status", "wg0"]).succeeds().stdout;
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    let said = "direct 10.8.0.3: by the hub: it does not answer";
    assert!(text.contains(said), "{text}");
    let lossless = ["-n", "-q", "-i", "0.02", "-c", "50", "-W", "10", "10.8.0.3"];
    let echoed = output_of(&a.place, "ping", &lossless);
    assert!(echoed.contains(" 0% packet loss"), "{echoed}");
    guest.shell("ping -c 1 -W 60 10.8.0.2");
}

/// Makes a friend behind `left`.
fn friend(lab: &Lab, left: &Namespace, number: u8) -> Friend {
    forward(left);
    let cable = format!("lan{number}");
    // A former test's may still be about to vanish.
    let removal = format!("ip link delete {cable} 2>/dev/null || true");
    output_of(left, "sh", &["-c", &removal]);
    let place = lab.namespace(["a", "b"][usize::from(number) - 2]).unwrap();
    let [near, far] = [1, 2].map(|host| format!("10.5.{number}.{host}/24"));
    lab.veth(left, &cable, &[&near], &place, "eth0", &[&far], 1_500)
        .unwrap();
    let gateway = [10, 5, number, 1].into();
    place.link().add_route_through("default", gateway).unwrap();
    let outside = Joined {
        v4: [10, 5, number, 2].into(),
        v6: None,
    };
    Friend::new(place, outside, number)
}
