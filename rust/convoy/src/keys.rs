//! `convoy genkey`, `genpsk` and `pubkey`: the same output as wg's.

use std::{
    io::{Read, Write},
    os::fd::AsFd,
};

use anyhow::{Context, ensure};
use convoy_config::{ENCODED_KEY_LENGTH, decode_key, encode_key};
use nix::sys::stat::{Mode, SFlag, fstat};
use rand::{TryRng, rngs::SysRng};
use x25519_dalek::{PublicKey, StaticSecret};
use zeroize::Zeroizing;

use crate::logging::say;

/// Prints a new private key.
pub(crate) fn generate_private() -> anyhow::Result<()> {
    let mut key = random()?;
    // The canonical form of a Curve25519 scalar (RFC 7748 §5).
    key[0] &= 248;
    key[31] = (key[31] & 127) | 64;
    warn_if_stdout_is_public();
    print(&key)
}

/// Prints a new preshared key.
pub(crate) fn generate_preshared() -> anyhow::Result<()> {
    let key = random()?;
    warn_if_stdout_is_public();
    print(&key)
}

/// Reads a private key and prints its public key.
pub(crate) fn print_public() -> anyhow::Result<()> {
    let mut text = Zeroizing::new(Vec::with_capacity(MAX_INPUT_BYTES + 1));
    let input = std::io::stdin().lock();
    let mut input = input.take(MAX_INPUT_BYTES as u64 + 1);
    input
        .read_to_end(&mut text)
        .context("cannot read standard input")?;
    let (key, rest) = text
        .split_at_checked(ENCODED_KEY_LENGTH)
        .unwrap_or((&text, &[]));
    let key = std::str::from_utf8(key).ok().and_then(decode_key);
    let key = key.context("expected a key on standard input: 32 bytes in base64")?;
    let is_space = |byte: &u8| matches!(byte, b' ' | b'\t'..=b'\r');
    ensure!(
        rest.iter().all(is_space),
        "characters follow the key on standard input"
    );
    let public = PublicKey::from(&StaticSecret::from(*key));
    print(public.as_bytes())
}

/// The most bytes that are read for one key and white space.
const MAX_INPUT_BYTES: usize = 4096;

fn random() -> anyhow::Result<Zeroizing<[u8; 32]>> {
    let mut key = Zeroizing::new([0; 32]);
    SysRng
        .try_fill_bytes(&mut key[..])
        .context("the system has no random bytes")?;
    Ok(key)
}

fn print(key: &[u8; 32]) -> anyhow::Result<()> {
    let mut line = encode_key(key);
    line.push('\n');
    let mut stdout = std::io::stdout().lock();
    stdout.write_all(line.as_bytes())?;
    Ok(stdout.flush()?)
}

/// In wg's words, since scripts may look for them.
fn warn_if_stdout_is_public() {
    let Ok(stat) = fstat(std::io::stdout().as_fd()) else {
        return;
    };
    let is_file = stat.st_mode & SFlag::S_IFMT.bits() == SFlag::S_IFREG.bits();
    if is_file && stat.st_mode & Mode::S_IRWXO.bits() != 0 {
        say("Warning: writing to world accessible file.\n\
             Consider setting the umask to 077 and trying again.");
    }
}
