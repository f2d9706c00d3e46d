//! Servers of every program, which see datagrams from the TURN server.

use super::{SERVER, block_all_but_turn, carries_large_packets, path_becomes};
use crate::{client::world::World, pairing::Program};

#[test]
fn convoy_is_reached_by_turn() {
    is_reached_by_turn(Program::Convoy);
}

#[test]
#[ignore = "make interop"]
fn the_newest_wireguard_go_is_reached_by_turn() {
    is_reached_by_turn(Program::NewestWireguardGo);
}

#[test]
#[ignore = "make interop"]
fn boringtun_is_reached_by_turn() {
    is_reached_by_turn(Program::BoringTun);
}

#[test]
#[ignore = "make interop"]
fn gotatun_is_reached_by_turn() {
    is_reached_by_turn(Program::GotaTun);
}

fn is_reached_by_turn(program: Program) {
    let Some(world) = World::served_by(program) else {
        return;
    };
    let (world, server) = block_all_but_turn(world, "");
    world.up();
    path_becomes(&world, SERVER.into());
    world.reaches_all_behind();
    carries_large_packets(&world);
    assert!(server.relayed() > 0);
    world.down();
}
