//! Configuration files, keys, name servers and messages.

mod exec;
mod live;
mod messages;
mod name_servers;
mod namespaces;
mod saving;

use std::{fs, path::PathBuf};

use super::super::{outcome::Outcome, world::World};

/// A public key of nobody.
const NOBODY: &str = "QOXxvncO9cOG4Zk45QUz73zwJPZp7r9vPgVPJQh2q1Y=";

/// The content of a file of `inputs`.
fn input(name: &str) -> Vec<u8> {
    let inputs =
        PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/end_to_end/client/cases/inputs");
    fs::read(inputs.join(name)).unwrap()
}

/// Installs a file of `inputs` as that of the interface `name`.
fn install(world: &World, file: &str, name: &str) {
    let text = String::from_utf8(input(file)).unwrap();
    world.write(&format!("wireguard/{name}.conf"), &text);
}

/// Runs a command that must succeed; returns what it said.
fn told(outcome: Outcome) -> String {
    let outcome = outcome.succeeds();
    outcome.stdout + &outcome.stderr
}
