//! Who takes part, and how each is started.

use std::env;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use convoy_lab::wireguard::Implementation;
use convoy_tun::TX_QUEUE_LEN;

/// The contestant that the others are compared with.
const CONVOY: &str = "convoy";

/// Beside Convoy: a name, the program that `make peers` installs, and what it is started with.
const PEERS: [(&str, &str, &[&str]); 4] = [
    ("wireguard-go", "wireguard", &[]),
    ("tailscale", "wireguard-tailscale", &[]),
    // These two ask for the user who has logged in, and end where nobody has.
    ("gotatun", "gotatun", &["--disable-drop-privileges"]),
    ("boringtun", "boringtun-cli", &["--disable-drop-privileges"]),
];

/// VPNs of another protocol: a name, the program that a distribution has, and what it is started with.
const ORDINARY: [(&str, &str, &[&str]); 2] = [
    ("openvpn", "openvpn", &["--disable-dco"]),
    // Its data channel in the kernel, where the kernel has that part.
    ("openvpn-dco", "openvpn", &[]),
];
/// Where distributions put what root runs, which may not be in `PATH`.
const OF_ROOT: [&str; 2] = ["/usr/sbin", "/sbin"];

/// What a contestant speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Protocol {
    WireGuard,
    OpenVpn,
}

/// A program with its settings.
#[derive(Debug, Clone)]
pub(crate) struct Contestant {
    pub(crate) name: String,
    pub(crate) protocol: Protocol,
    pub(crate) program: PathBuf,
    pub(crate) arguments: Vec<String>,
    /// Set on its interface after the start; none leaves what the program sets.
    pub(crate) queue_length: Option<u32>,
}

/// Convoy, each peer at its defaults, and each once more with Convoy's queue length.
pub(crate) fn all(convoy: &Path, peers: &Path) -> Vec<Contestant> {
    let convoy = Contestant {
        name: CONVOY.to_owned(),
        protocol: Protocol::WireGuard,
        program: convoy.to_owned(),
        arguments: Vec::new(),
        queue_length: None,
    };
    let variants = [("", None), ("+q", Some(TX_QUEUE_LEN))];
    let others = PEERS.iter().flat_map(|&(name, program, arguments)| {
        variants.map(|(suffix, queue_length)| Contestant {
            name: format!("{name}{suffix}"),
            protocol: Protocol::WireGuard,
            program: peers.join(program),
            arguments: owned(arguments),
            queue_length,
        })
    });
    std::iter::once(convoy).chain(others).collect()
}

/// Convoy, each peer at its defaults, and the VPNs of another protocol, installed or not.
pub(crate) fn wide(convoy: &Path, peers: &Path) -> Vec<Contestant> {
    let at_defaults = all(convoy, peers)
        .into_iter()
        .filter(|one| one.queue_length.is_none());
    let ordinary = ORDINARY.map(|(name, program, arguments)| Contestant {
        name: name.to_owned(),
        protocol: Protocol::OpenVpn,
        program: find(program),
        arguments: owned(arguments),
        queue_length: None,
    });
    at_defaults.chain(ordinary).collect()
}

/// Where a program is; its name where it is nowhere.
fn find(program: &str) -> PathBuf {
    let path = env::var_os("PATH").unwrap_or_default();
    let directories = env::split_paths(&path).chain(OF_ROOT.map(PathBuf::from));
    let mut files = directories.map(|directory| directory.join(program));
    files
        .find(|file| file.is_file())
        .unwrap_or_else(|| program.into())
}

fn owned(arguments: &[&str]) -> Vec<String> {
    arguments.iter().map(|&one| one.to_owned()).collect()
}

impl Contestant {
    pub(crate) fn is_convoy(&self) -> bool {
        self.name == CONVOY
    }

    pub(crate) fn implementation(&self) -> Implementation {
        let program = Implementation::new(&self.program);
        self.arguments
            .iter()
            .fold(program, Implementation::argument)
    }

    /// The version: of a program in Go that of its module, since forks print another's.
    pub(crate) fn version(&self) -> Option<String> {
        let program = self.program.to_str()?;
        let module = first_line("go", &["version", "-m", program], |line| {
            let mut words = line.trim().split('\t');
            let is_module = words.next() == Some("mod");
            is_module.then(|| words.take(2).collect::<Vec<_>>().join(" "))
        });
        module.or_else(|| first_line(program, &["--version"], |line| Some(line.to_owned())))
    }
}

/// The first line of what `program` prints that `take` takes.
fn first_line(
    program: &str,
    arguments: &[&str],
    take: impl Fn(&str) -> Option<String>,
) -> Option<String> {
    let mut command = Command::new(program);
    let output = command.args(arguments).stdin(Stdio::null()).output().ok()?;
    String::from_utf8_lossy(&output.stdout)
        .lines()
        .find_map(take)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_peer_takes_part_twice_and_convoy_once() {
        let all = all(Path::new("convoy"), Path::new("bin"));
        let names: Vec<_> = all.iter().map(|one| one.name.as_str()).collect();
        assert_eq!(names[..3], ["convoy", "wireguard-go", "wireguard-go+q"]);
        assert_eq!(names.len(), 9);
        assert!(all[0].is_convoy() && !all[1].is_convoy());
        assert_eq!(
            all[0].arguments,
            [] as [&str; 0],
            "the default build has no switches"
        );
        assert_eq!(all[1].queue_length, None);
        assert_eq!(all[2].queue_length, Some(TX_QUEUE_LEN));
    }

    #[test]
    fn the_wide_set_has_each_program_once_and_other_vpns_behind_them() {
        let wide = wide(Path::new("convoy"), Path::new("bin"));
        let names: Vec<_> = wide.iter().map(|one| one.name.as_str()).collect();
        let expected = [
            "convoy",
            "wireguard-go",
            "tailscale",
            "gotatun",
            "boringtun",
            "openvpn",
            "openvpn-dco",
        ];
        assert_eq!(names, expected);
        assert_eq!(wide[4].protocol, Protocol::WireGuard);
        assert_eq!(wide[5].protocol, Protocol::OpenVpn);
    }
}
