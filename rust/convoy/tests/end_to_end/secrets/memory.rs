//! Searches the memory of a process for secrets.

use std::{
    fmt::Write,
    fs::{self, File},
    os::unix::fs::FileExt,
};

use memchr::memmem::Finder;
use nix::unistd::Pid;

/// Bytes to search for, and their name.
pub(super) struct Secret {
    pub(super) name: &'static str,
    pub(super) bytes: Vec<u8>,
}

impl Secret {
    pub(super) fn new(name: &'static str, bytes: impl Into<Vec<u8>>) -> Self {
        let bytes = bytes.into();
        Self { name, bytes }
    }
}

/// Lists, one per line, where either half of a secret is in the writable memory of `pid`.
pub(super) fn places(pid: Pid, secrets: &[Secret]) -> String {
    let halves = secrets.iter().flat_map(|secret| {
        let halves = secret.bytes.chunks(secret.bytes.len().div_ceil(2));
        halves.map(|half| (secret.name, Finder::new(half)))
    });
    let halves: Vec<_> = halves.collect();
    let memory = File::open(format!("/proc/{pid}/mem")).unwrap();
    let maps = fs::read_to_string(format!("/proc/{pid}/maps")).unwrap();
    let mut found = String::new();
    for map in maps.lines() {
        let mut fields = map.split_whitespace();
        let (range, rights) = (fields.next().unwrap(), fields.next().unwrap());
        if !rights.starts_with("rw") {
            continue;
        }
        let (start, end) = range.split_once('-').unwrap();
        let [start, end] = [start, end].map(|address| u64::from_str_radix(address, 16).unwrap());
        let mut bytes = vec![0; (end - start) as usize];
        // Memory unmapped in the meantime holds nothing any more.
        let Ok(length) = memory.read_at(&mut bytes, start) else {
            continue;
        };
        for (name, half) in &halves {
            for at in half.find_iter(&bytes[..length]) {
                let region = fields.clone().nth(3).unwrap_or("anonymous");
                writeln!(found, "{name} at {region} {range} +{at:#x}").unwrap();
            }
        }
    }
    found
}
