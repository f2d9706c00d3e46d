//! Descriptors of the caller do not reach processes that stay.

use std::{fs, path::Path};

use convoy_lab::Pid;

use crate::{
    client::{
        user,
        world::{EVERYTHING, World},
    },
    scene::{DEADLINE, convoy_program, processes},
};

#[test]
fn a_tunnel_has_no_descriptor_of_the_caller_of_up() {
    let Some(world) = World::new() else { return };
    world.configure("", EVERYTHING);
    let secret = world.client.run_directory().join("secret");
    fs::write(&secret, "").unwrap();
    for words in [
        "up wg0 >/dev/null 2>&1",
        "up -f wg0 >/dev/null 2>&1 &",
        "wg0 >/dev/null 2>&1",
    ] {
        let program = convoy_program().display().to_string();
        world.shell(&format!(
            "exec 9</run/secret 8<>/run/secret; flock -n 9; {program} {words}"
        ));
        world.shell(
            "i=0; until wg show wg0 >/dev/null 2>&1; do [ $((i+=1)) -lt 200 ]; sleep 0.05; done",
        );
        nobody_has(&world, &secret);
        let lock = world.shell("flock -n /run/secret echo free");
        assert_eq!(lock, "free\n");
        world.shell(&format!(
            "{program} down wg0 >/dev/null 2>&1 || ip link delete wg0"
        ));
        world.shell("i=0; while ip link show wg0 >/dev/null 2>&1; do [ $((i+=1)) -lt 200 ]; sleep 0.05; done");
    }
}

#[test]
fn nor_has_a_process_of_exec() {
    let Some(world) = user::world("") else { return };
    let secret = world.client.run_directory().join("secret");
    fs::write(&secret, "").unwrap();
    let mut command = user::user(&world, "sh");
    let line = format!(
        "exec 9</run/secret; exec {} exec {} -- sh -c 'ls -l /proc/self/fd; echo begun; read line'",
        user::PROGRAM,
        user::FILE
    );
    command
        .args(["-c", &line])
        .stdin(std::process::Stdio::piped());
    let output = world.client.run_directory().join("listed");
    command.stdout(fs::File::create(&output).unwrap());
    let mut child = command.spawn().unwrap();
    let begun = || {
        fs::read_to_string(&output)
            .unwrap()
            .contains("begun")
            .then_some(())
    };
    assert!(convoy_lab::eventually(DEADLINE, begun).is_some());
    let listed = fs::read_to_string(&output).unwrap();
    nobody_has(&world, &secret);
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(!listed.contains("secret"), "{listed}");
}

fn nobody_has(world: &World, file: &Path) {
    let found = processes(&world.client);
    let files = |pid: &Pid| {
        let open = fs::read_dir(format!("/proc/{pid}/fd"))
            .into_iter()
            .flatten()
            .flatten();
        open.filter_map(|fd| fs::read_link(fd.path()).ok())
    };
    let name = file.file_name().unwrap();
    for pid in &found {
        let has = files(pid).any(|path| path.file_name() == Some(name));
        let command = fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        assert!(!has, "{pid}: {command:?}");
    }
}
