//! Changes of the configuration while packets pass.

use std::{thread, time::Duration};

use super::pair::{Pair, Role, for_each_role, right_v4};
use crate::rekey;

for_each_role! {
    fn preshared_keys_change_under_traffic_without_loss(role: Role) {
        let Some(pair) = Pair::new(role) else { return };
        pair.begin();
        while_exchanging(&pair, || {
            for key in 1..=5 {
                pair.set_preshared_key([key; 32]);
                thread::sleep(Duration::from_millis(500));
                pair.guest_sets_preshared_key([key; 32]);
                thread::sleep(Duration::from_millis(500));
            }
        });
        // The last one holds for the next handshake, and no other.
        pair.guest_forgets_sessions();
        pair.is_answered();
        pair.guest_sets_preshared_key([77; 32]);
        pair.guest_forgets_sessions();
        assert!(!pair.answers());
        pair.set_preshared_key([77; 32]);
        pair.is_answered();
    }
}

/// Exchanges echoes between `left` and `right` while `act` runs; none may be lost.
pub(super) fn while_exchanging(pair: &Pair, act: impl FnOnce()) {
    let ends = [&pair.left.namespace, &pair.right];
    rekey::while_exchanging(pair.role, ends, right_v4(), act);
}
