//! Sessions are renewed after two minutes.

use std::{thread, time::Duration};

use convoy_lab::eventually;

use super::{
    changes::while_exchanging,
    pair::{Pair, Role, for_each_role},
};
use crate::rekey::REKEY_DEADLINE;

for_each_role! {
    fn the_session_is_renewed_without_loss(role: Role) {
        let Some(pair) = Pair::new(role) else { return };
        pair.begin();
        let handshake = || pair.guest_dump(4).parse::<u64>().unwrap();
        let first = handshake();
        while_exchanging(&pair, || {
            let renewed = eventually(REKEY_DEADLINE, || {
                thread::sleep(Duration::from_secs(1));
                (handshake() > first + 60).then_some(())
            });
            assert!(renewed.is_some(), "{role:?}: no new handshake");
            // Continue into the new session.
            thread::sleep(Duration::from_secs(3));
        });
    }
}
