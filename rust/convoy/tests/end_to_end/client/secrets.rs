//! Keys are in no output, log, environment, command line or file of ours.

use std::fs;

use base64::{Engine as _, prelude::BASE64_STANDARD};
use convoy_lab::wireguard::KeyPair;

use super::{process::crash, world::World};
use crate::{
    scene::{convoy_program, processes},
    twins::public_key,
};

#[test]
fn keys_are_nowhere_outside_of_memory() {
    let Some(world) = World::new() else { return };
    let mut own = KeyPair::generate().private;
    // Clamped, the form that the tunnel keeps.
    own[0] &= 248;
    own[31] = (own[31] & 127) | 64;
    let preshared = KeyPair::generate().private;
    let server = public_key(2);
    let file = |own: &str, preshared: &str, server: &str| {
        let text = format!(
            "[Interface]\nPrivateKey = {own}\nAddress = 10.8.0.2/24\nDNS = 10.8.0.1\n\
             PostUp = : {preshared}\n#convoy: KillSwitch = on\n[Peer]\nPublicKey = {server}\n\
             PresharedKey = {preshared}\nEndpoint = 203.0.113.1:51820\nAllowedIPs = 0.0.0.0/0\n"
        );
        world.write("wireguard/wg0.conf", &text);
    };
    let [own_text, preshared_text] = [own, preshared].map(|key| BASE64_STANDARD.encode(key));
    let forms: Vec<_> = [own, preshared].iter().flat_map(forms).collect();
    let is_nowhere = |when: &str| {
        for form in &forms {
            for (place, text) in everything(&world) {
                assert!(
                    !text.to_lowercase().contains(form),
                    "{when}: {place}: {text}"
                );
            }
        }
    };
    file(&own_text, &preshared_text, &server);
    traced(&world, &["up", "wg0"], 0);
    is_nowhere("up");
    traced(&world, &["status", "wg0"], 0);
    traced(&world, &["status", "wg0", "--json"], 0);
    traced(&world, &["reload", "wg0"], 0);
    crash(world.tunnel());
    world.status_becomes("state", "up");
    crash(world.supervisor());
    traced(&world, &["up", "wg0"], 0);
    is_nowhere("killed");
    // Typical mistakes: too long, too short, the wrong place.
    for (own, preshared, server) in [
        (&*format!("{own_text}0"), &*preshared_text, &*server),
        (&own_text[1..], &preshared_text, &server),
        (
            &own_text,
            &format!("{preshared_text}\n{preshared_text} = {own_text}"),
            &server,
        ),
        (&own_text, &preshared_text, &own_text[..43]),
        (&own_text, &preshared_text, &format!("{own_text}=")),
    ] {
        file(own, preshared, server);
        traced(&world, &["reload", "wg0"], 1);
        traced(&world, &["check", "wg0"], 1);
    }
    file(&own_text, &preshared_text, &server);
    is_nowhere("mistakes");
    traced(&world, &["down", "wg0"], 0);
    is_nowhere("down");
}

/// Runs `convoy` with everything logged.
pub(super) fn traced(world: &World, arguments: &[&str], code: i32) {
    let mut command = world.client.command(convoy_program());
    command.args(arguments).env("RUST_LOG", "trace");
    world.start_command(command).wait().ends_with(code);
}

/// Half of a key in every form in which it might be printed, in lower case.
fn forms(key: &[u8; 32]) -> Vec<String> {
    let list = format!("{key:?}");
    let all = [
        hex::encode(key),
        BASE64_STANDARD.encode(key),
        list[1..list.len() - 1].to_owned(),
    ];
    let halves = all.map(|form| form[..form.len() / 2].to_lowercase());
    halves.into()
}

/// Returns where a key might be: what commands wrote, our files, and what others see of our processes.
pub(super) fn everything(world: &World) -> Vec<(String, String)> {
    let mut all = vec![("log".to_owned(), world.log())];
    for name in ["convoy", "lib/convoy"] {
        let directory = world.client.run_directory().join(name);
        for file in fs::read_dir(directory).into_iter().flatten().flatten() {
            // A socket cannot be read.
            let bytes = fs::read(file.path()).unwrap_or_default();
            let text = String::from_utf8_lossy(&bytes).into_owned();
            all.push((file.path().display().to_string(), text));
        }
    }
    for pid in processes(&world.client) {
        for name in ["environ", "cmdline", "comm"] {
            let path = format!("/proc/{pid}/{name}");
            // A program of the host, such as nft, may have ended meanwhile.
            let bytes = fs::read(&path).unwrap_or_default();
            all.push((path, String::from_utf8_lossy(&bytes).into_owned()));
        }
    }
    all
}
