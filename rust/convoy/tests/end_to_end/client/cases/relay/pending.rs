//! Connections that wait for hosts of which nothing is heard.

use std::time::Duration;

use convoy_lab::eventually;

use super::{
    super::super::{
        gateway::place::{OUTSIDE, Place, SILENT, begins_to_connect},
        userspace::ports::{ECHO, connect, echo, echoes},
    },
    ENGINES,
};

/// More than one peer may have pending.
const SILENT_HOSTS: usize = 300;
/// Less than the ten seconds after which a silent host is given up.
const LIMIT: Duration = Duration::from_secs(5);

#[test]
fn a_peer_with_many_connections_to_silent_hosts_still_opens_others() {
    let Some(place) = Place::without_gateway("") else {
        return;
    };
    echo(&place.world.net, (OUTSIDE[0], ECHO));
    for engine in ENGINES {
        place.up(&["--nat=user", engine]);
        for peer in place.peers() {
            let pending = (0..SILENT_HOSTS).map(|_| begins_to_connect(peer, SILENT));
            let _pending: Vec<_> = pending.collect();
            // Hosts have half a second to answer before their connections give way.
            let has_room = || connect(peer, (OUTSIDE[0], ECHO)).ok();
            echoes(eventually(LIMIT, has_room).unwrap());
        }
        place.down();
    }
}
