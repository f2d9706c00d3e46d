//! Two friends meet: `convoy up` at both, a hub of wireguard-go that knows nothing of it, and routers between them.
//!
//! ```text
//!  a 10.8.0.2 ── home ──┐
//!                       ├── internet ── hub 10.8.0.1 (wireguard-go), STUN servers (coturn)
//!  b 10.8.0.3 ── home ──┘
//! ```

mod friends;

use std::time::Duration;

use convoy_lab::{Nat, RouterOptions};
use friends::Friends;

/// How long two friends may take to meet on a machine that does much else.
const MEETS: Duration = Duration::from_secs(10);

#[test]
fn two_friends_at_the_internet_itself_meet() {
    let Some(friends) = Friends::apart([None, None]) else {
        return;
    };
    friends.up();
    let [a, b] = &friends.all;
    assert!(friends.meet() < MEETS);
    let expected = ("host".to_owned(), format!("{}:51823", b.outside.v4));
    assert_eq!(a.path(b), Ok(expected));
    let before = friends.at_hub();
    a.reaches(b);
    b.reaches(a);
    assert!(friends.at_hub() < before + 10, "data goes directly");
}
