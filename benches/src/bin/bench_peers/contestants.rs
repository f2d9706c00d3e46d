//! Who takes part, and how each is started.

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

/// A program with its settings.
#[derive(Debug, Clone)]
pub(crate) struct Contestant {
    pub(crate) name: String,
    pub(crate) program: PathBuf,
    pub(crate) arguments: Vec<String>,
    /// Set on its interface after the start; none leaves what the program sets.
    pub(crate) queue_length: Option<u32>,
}

/// Convoy, each peer at its defaults, and each once more with Convoy's queue length.
pub(crate) fn all(convoy: &Path, peers: &Path) -> Vec<Contestant> {
    let convoy = Contestant {
        name: CONVOY.to_owned(),
        program: convoy.to_owned(),
        arguments: Vec::new(),
        queue_length: None,
    };
    let variants = [("", None), ("+q", Some(TX_QUEUE_LEN))];
    let others = PEERS.iter().flat_map(|&(name, program, arguments)| {
        variants.map(|(suffix, queue_length)| Contestant {
            name: format!("{name}{suffix}"),
            program: peers.join(program),
            arguments: arguments.iter().map(|&one| one.to_owned()).collect(),
            queue_length,
        })
    });
    std::iter::once(convoy).chain(others).collect()
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
}
