//! Friends without data: a path that is kept costs little, and one that has been given up nothing.

use std::fs;

use super::friends::Friends;
use crate::client::idle::{MINUTES, MOST, least};

/// How often both processes may run in a minute in which a path is kept.
const KEPT: u64 = 300;

#[test]
#[ignore = "make interop"]
fn friends_without_data_seldom_run_and_hardly_ever_without_a_path() {
    let Some(mut friends) = Friends::apart([None, None]) else {
        return;
    };
    friends.use_stun();
    for friend in &friends.all {
        let path = friend.place.run_directory().join("etc/wireguard/wg0.conf");
        let text = fs::read_to_string(&path).unwrap();
        // It alone wakes a tunnel every 25 s.
        fs::write(path, text.replace("PersistentKeepalive = 25\n", "")).unwrap();
    }
    friends.up();
    let [a, b] = &friends.all;
    // Without a keepalive, the hub learns of the second friend by its first packet.
    b.reaches_hub();
    friends.meet_by("host", "host");
    let kept = least(&a.place, 1);
    assert!(
        kept <= KEPT,
        "{kept} context switches in a minute with a path"
    );
    for friend in [a, b] {
        let used = least(&friend.place, MINUTES);
        assert!(used <= MOST, "{used} context switches in a minute");
    }
    let idle = || Err("idle".to_owned());
    assert_eq!([a.path(b), b.path(a)], [idle(), idle()]);
}
