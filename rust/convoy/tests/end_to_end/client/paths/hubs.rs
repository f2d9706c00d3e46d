//! Hubs of every program: each carries the first packets and all that the friends tell each other.

use super::{HOME, friends::Friends, friends_meet_by};
use crate::pairing::Program;

#[test]
fn friends_meet_by_a_hub_of_convoy() {
    friends_meet_by_a_hub_of(Program::Convoy);
}

#[test]
#[ignore = "make interop"]
fn friends_meet_by_a_hub_of_the_newest_wireguard_go() {
    friends_meet_by_a_hub_of(Program::NewestWireguardGo);
}

#[test]
#[ignore = "make interop"]
fn friends_meet_by_a_hub_of_boringtun() {
    friends_meet_by_a_hub_of(Program::BoringTun);
}

#[test]
#[ignore = "make interop"]
fn friends_meet_by_a_hub_of_gotatun() {
    friends_meet_by_a_hub_of(Program::GotaTun);
}

fn friends_meet_by_a_hub_of(program: Program) {
    let friends = Friends::around(program, [Some(HOME), Some(HOME)]);
    friends_meet_by(friends, Some(Friends::use_stun), ["reflexive", "reflexive"]);
}
