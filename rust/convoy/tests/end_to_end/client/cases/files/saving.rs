//! `SaveConfig` writes to no file but its own, and loses nothing.

use super::{NOBODY, install, told};
use crate::client::{
    process::crash,
    world::{EVERYTHING, World},
};

#[test]
fn an_edit_made_while_the_tunnel_is_up_is_kept_and_the_running_state_is_beside_it() {
    let Some(world) = World::new() else { return };
    install(&world, "C14-saveconfig.conf", "wg0");
    world.up();
    let another = crate::twins::public_key(9);
    world.shell(&format!(
        "wg set wg0 peer {another} allowed-ips 10.99.0.0/16
         printf '\\n# guest\\n[Peer]\\nPublicKey = {NOBODY}\\nAllowedIPs = 10.8.0.9/32\\n' \
             >> /etc/wireguard/wg0.conf"
    ));
    let edited = world.read("wireguard/wg0.conf");
    let told = told(world.down());
    assert_eq!(world.read("wireguard/wg0.conf"), edited);
    assert!(told.contains("/etc/wireguard/wg0.conf.saved"), "{told}");
    let beside = world.read("wireguard/wg0.conf.saved");
    assert!(beside.contains(&another), "{beside}");
    assert_eq!(mode(&world, "/etc/wireguard/wg0.conf.saved"), "600");
}

#[test]
fn an_edit_that_reload_has_taken_is_saved_with_the_rest() {
    let Some(world) = World::new() else { return };
    install(&world, "C14-saveconfig.conf", "wg0");
    world.up();
    world.shell("echo AllowedIPs = 10.8.0.8/32 >> /etc/wireguard/wg0.conf");
    world.convoy(&["reload", "wg0"]).succeeds();
    world.shell(&format!(
        "wg set wg0 peer {NOBODY} allowed-ips 10.99.0.0/16"
    ));
    world.down();
    let saved = world.read("wireguard/wg0.conf");
    for part in ["10.8.0.8/32", "10.99.0.0/16"] {
        assert!(saved.contains(part), "{saved}");
    }
    assert_eq!(world.shell("ls /etc/wireguard"), "wg0.conf\n");
}

#[test]
fn the_state_of_a_tunnel_whose_supervisor_has_died_is_saved_as_well() {
    let Some(world) = World::new() else { return };
    world.configure("SaveConfig = true\n", EVERYTHING);
    let another = crate::twins::public_key(9);
    let set = || {
        world.shell(&format!(
            "wg set wg0 peer {another} allowed-ips 10.99.0.0/16"
        ))
    };
    world.up();
    set();
    crash(world.supervisor());
    world.down();
    let saved = world.read("wireguard/wg0.conf");
    assert!(saved.contains(&another), "{saved}");
    assert!(!saved.contains("FwMark"), "{saved}");
    // Unless the file was edited since.
    world.configure("SaveConfig = true\n", EVERYTHING);
    world.up();
    set();
    crash(world.supervisor());
    world.shell("echo AllowedIPs = 10.8.0.8/32 >> /etc/wireguard/wg0.conf");
    let edited = world.read("wireguard/wg0.conf");
    let told = told(world.down());
    assert!(told.contains("/etc/wireguard/wg0.conf.saved"), "{told}");
    assert_eq!(world.read("wireguard/wg0.conf"), edited);
    let beside = world.read("wireguard/wg0.conf.saved");
    assert!(beside.contains(&another), "{beside}");
}

#[test]
fn a_link_that_took_the_place_of_the_file_is_not_followed() {
    let Some(world) = World::new() else { return };
    world.configure("SaveConfig = true\n", EVERYTHING);
    // In a directory of somebody else's, and in one of root's.
    world.shell(
        "mkdir -p /etc/home; cp /etc/wireguard/wg0.conf /etc/home/; chown -R 7777 /etc/home
         chmod 711 /etc/home; echo precious > /etc/victim; chmod 644 /etc/victim",
    );
    for file in ["/etc/home/wg0.conf", "/etc/wireguard/wg0.conf"] {
        world.convoy(&["up", file]).succeeds();
        world.shell(&format!("ln -sf /etc/victim {file}"));
        let told = told(world.down());
        assert!(told.contains(file), "{told}");
        assert_eq!(world.read("victim"), "precious\n");
        assert_eq!(mode(&world, "/etc/victim"), "644");
    }
    assert_eq!(world.shell("ls /etc/home"), "wg0.conf\n");
}

#[test]
fn a_file_of_somebody_else_is_not_written_to_and_up_says_so() {
    let Some(world) = World::new() else { return };
    world.configure("SaveConfig = true\n", EVERYTHING);
    world.shell("chown 7777 /etc/wireguard/wg0.conf");
    let before = world.read("wireguard/wg0.conf");
    let up = told(world.up());
    assert!(
        up.contains("will not be saved") && up.contains("7777"),
        "{up}"
    );
    world.shell(&format!(
        "wg set wg0 peer {NOBODY} allowed-ips 10.99.0.0/16"
    ));
    let down = told(world.down());
    assert!(
        down.contains("not saved") && down.contains("7777"),
        "{down}"
    );
    assert_eq!(world.read("wireguard/wg0.conf"), before);
    assert_eq!(world.shell("ls /etc/wireguard"), "wg0.conf\n");
}

#[test]
fn no_key_is_saved_where_others_can_read_it() {
    let Some(world) = World::new() else { return };
    world.shell("mkdir -m 755 /etc/open");
    let key = crate::twins::private_key(9);
    // The key was nowhere in the file.
    world.shell(&format!(
        "echo {key} > /run/another-key; chmod 600 /run/another-key
         printf '[Interface]\\nSaveConfig = true\\nAddress = 10.8.0.2/24\\n\
                 PostUp = wg set %%i private-key /run/another-key\\n' > /etc/open/wg0.conf
         chmod 644 /etc/open/wg0.conf"
    ));
    world.convoy(&["up", "/etc/open/wg0.conf"]).succeeds();
    let told = told(world.down());
    let saved = "sed -n 's/^PrivateKey = //p' /etc/open/wg0.conf | wg pubkey";
    let public = world.shell("wg pubkey < /run/another-key");
    assert_eq!(world.shell(saved), public);
    assert_eq!(mode(&world, "/etc/open/wg0.conf"), "600");
    assert!(told.contains("only its owner can read it"), "{told}");
}

fn mode(world: &World, path: &str) -> String {
    world.shell(&format!("stat -c %a {path}")).trim().to_owned()
}
