//! An interface that is there already, or that somebody else makes at the same moment.

use super::{
    outcome::Running,
    world::{BEHIND, EVERYTHING, World},
};

const ROUNDS: usize = 4;

#[test]
fn what_is_up_already_stays_as_it_is() {
    let Some(world) = World::new() else { return };
    world.configure("", EVERYTHING);
    let before = world.dump();
    world.up();
    world.reaches(BEHIND[0]);
    let up = world.dump();
    world.convoy(&["up", "wg0"]).fails_with("already up");
    world.convoy(&["up", "wg0", "-f"]).fails_with("already up");
    assert_eq!(world.dump(), up);
    world.reaches(BEHIND[0]);
    world.down();
    world.is_left_as(&before);
}

#[test]
fn of_two_at_once_one_wins_and_the_other_says_so() {
    let Some(world) = World::new() else { return };
    world.configure("DNS = 10.8.0.1\n#convoy: KillSwitch = on\n", EVERYTHING);
    let before = world.dump();
    for _ in 0..ROUNDS {
        let both = [(); 2].map(|()| world.start(&["up", "wg0"]));
        let mut both = both.map(Running::wait);
        both.sort_by_key(|outcome| outcome.code);
        let [winner, loser] = both;
        winner.succeeds();
        loser.fails_with("already");
        world.reaches(BEHIND[0]);
        world.down();
        world.is_left_as(&before);
    }
}

#[test]
fn up_and_down_at_once_leave_all_or_nothing() {
    let Some(world) = World::new() else { return };
    world.configure("DNS = 10.8.0.1\n", EVERYTHING);
    let before = world.dump();
    for _ in 0..ROUNDS {
        let up = world.start(&["up", "wg0"]);
        let down = world.convoy(&["down", "wg0"]);
        let up = up.wait();
        if up.code == Some(0) && down.code != Some(0) {
            world.reaches(BEHIND[0]);
            world.down();
        }
        world.is_left_as(&before);
    }
}

#[test]
fn another_programs_interface_is_left_alone() {
    let Some(world) = World::with(&["wg-quick"]) else {
        return;
    };
    world.configure("Table = off\n", EVERYTHING);
    for (make, owner, remove) in [
        ("wg-quick up wg0", "wg-quick", "wg-quick down wg0"),
        ("wireguard-go wg0", "wireguard-go", "ip link delete wg0"),
        (
            "ip tuntap add dev wg0 mode tun",
            "wg0",
            "ip link delete wg0",
        ),
    ] {
        let before = world.dump();
        world.shell(make);
        let made = world.dump();
        let refused = world.convoy(&["up", "wg0"]).fails_with("wg0");
        eprintln!("{owner}: {}", refused.stderr);
        world.convoy(&["down", "wg0"]).fails_with("is not up");
        assert_eq!(world.dump(), made, "{make}");
        world.shell(remove);
        world.is_left_as(&before);
    }
}
