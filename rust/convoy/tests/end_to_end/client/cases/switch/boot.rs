//! A persistent kill switch closes at boot, whatever else is wrong.

use super::{BEHIND, EVERYTHING, Leaks, OUTSIDE, PERSISTENT, World};

/// Writes a flawed file.
type Spoil = fn(&World);

/// The flaw that makes the file useless for a tunnel.
const FLAWS: [(&str, Spoil); 9] = [
    ("no key", |world| {
        let text = format!("[Interface]\n#convoy: PrivateKeyFile = missing\n{PERSISTENT}");
        world.write("wireguard/wg0.conf", &text);
    }),
    ("no credential", |world| {
        let text = format!("[Interface]\n#convoy: PrivateKeyFile = convoy.wg0.key\n{PERSISTENT}");
        world.write("wireguard/wg0.conf", &text);
    }),
    ("a bad file in NAME.d", |world| {
        world.configure(PERSISTENT, EVERYTHING);
        world.shell("mkdir /etc/wireguard/wg0.d; echo '[Peer' > /etc/wireguard/wg0.d/x.conf");
    }),
    ("a NAME.d that is no directory", |world| {
        world.configure(PERSISTENT, EVERYTHING);
        world.shell("touch /etc/wireguard/wg0.d");
    }),
    ("another bad key", |world| {
        world.configure(
            &format!("MTU = many\nPrivateKey = x\n{PERSISTENT}"),
            EVERYTHING,
        );
    }),
    ("hooks that somebody else may write", |world| {
        world.configure(&format!("PostUp = true\n{PERSISTENT}"), EVERYTHING);
        world.shell("chmod 666 /etc/wireguard/wg0.conf");
    }),
    ("an unknown section", |world| {
        world.write("wireguard/wg0.conf", &format!("[Interfaces]\n{PERSISTENT}"));
    }),
    ("an unknown value", |world| {
        let switch = "#convoy: KillSwitch = persistent yes\n#convoy: AllowLAN = yes\n";
        world.configure(switch, EVERYTHING);
    }),
    ("UTF-16", |world| {
        let text = format!("[Interface]\n{PERSISTENT}");
        let text: String = text.chars().flat_map(|c| [c, '\0']).collect();
        world.write("wireguard/wg0.conf", &text);
    }),
];

#[test]
fn it_closes_before_there_is_a_network_whatever_else_is_wrong_with_the_file() {
    let Some(world) = World::new() else { return };
    let leaks = Leaks::watch(&world);
    for (name, spoil) in FLAWS {
        spoil(&world);
        world
            .convoy(&["up", "wg0", "--only-kill-switch"])
            .succeeds();
        leaks.begin();
        for outside in OUTSIDE {
            assert!(!world.answers(outside), "{name}");
        }
        assert!(!world.answers("192.168.1.1"), "{name}");
        leaks.none(name);
        world.shell("rm -rf /etc/wireguard/wg0.d");
        // Mended, the file brings the tunnel up, without a gap.
        world.configure(PERSISTENT, EVERYTHING);
        world.up();
        world.reaches(BEHIND[0]);
        leaks.none(name);
        world
            .convoy(&["down", "wg0", "--open-kill-switch"])
            .succeeds();
        leaks.begins();
    }
}

#[test]
fn its_exceptions_are_those_of_the_file_if_that_is_understood() {
    let Some(world) = World::new() else { return };
    world.configure(
        &format!("{PERSISTENT}#convoy: AllowLAN = yes\nFwMark = 0x77\nMTU = many\n"),
        EVERYTHING,
    );
    world
        .convoy(&["up", "wg0", "--only-kill-switch"])
        .succeeds();
    let rules = world.shell("nft list table inet convoy_wg0");
    assert!(rules.contains("mark 0x00000077"), "{rules}");
    assert!(rules.contains("224.0.0.0/4"), "{rules}");
    assert!(!world.answers(OUTSIDE[0]));
}

#[test]
fn without_a_file_that_wants_it_nothing_is_closed() {
    let Some(world) = World::new() else { return };
    world.configure(
        "MTU = many\n#convoy: KillSwitch = on\n# not persistent\n",
        EVERYTHING,
    );
    world
        .convoy(&["up", "wg0", "--only-kill-switch"])
        .succeeds();
    world.reaches(OUTSIDE[0]);
    let missing = world.convoy(&["up", "wg1", "--only-kill-switch"]);
    missing.fails_with("/etc/wireguard/wg1.conf");
    world.reaches(OUTSIDE[0]);
}
