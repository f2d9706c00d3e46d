//! Owner of an interface that is there already.

use std::{fs, path::Path};

use convoy_process::socket::listens;
use convoy_types::InterfaceName;
use nix::net::if_::if_nametoindex;

/// Signs of who owns an interface that no tunnel of ours has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Signs {
    /// It is the kernel's WireGuard.
    pub is_kernel_wireguard: bool,
    /// A userspace WireGuard answers for it.
    pub has_uapi: bool,
    /// NetworkManager has set it up.
    pub has_network_manager: bool,
    /// systemd-networkd has set it up.
    pub has_networkd: bool,
}

/// A refusal to take an interface that is there already.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{reason} (fix: {fix})")]
pub struct Refusal {
    /// Name of the interface, and its owner.
    pub reason: String,
    /// Commands that free the name.
    pub fix: String,
}

/// Tells whether there is an interface of this name.
#[must_use]
pub fn exists(name: &InterfaceName) -> bool {
    if_nametoindex(name.as_str()).is_ok()
}

/// Looks at an interface, whose userspace WireGuard would listen at `uapi`.
#[must_use]
pub fn signs(name: &InterfaceName, uapi: &Path) -> Signs {
    let index = if_nametoindex(name.as_str()).unwrap_or_default();
    let read = |path: &Path| fs::read_to_string(path).unwrap_or_default();
    let kind = read(
        &Path::new("/sys/class/net")
            .join(name.as_str())
            .join("uevent"),
    );
    let manager = read(Path::new(&format!("/run/NetworkManager/devices/{index}")));
    let networkd = read(Path::new(&format!("/run/systemd/netif/links/{index}")));
    Signs {
        is_kernel_wireguard: kind.lines().any(|line| line == "DEVTYPE=wireguard"),
        has_uapi: listens(uapi),
        has_network_manager: made_by_network_manager(&manager),
        has_networkd: networkd.contains("NETWORK_FILE="),
    }
}

/// Returns whether NetworkManager has made the link that this state of a device describes. It gives a connection to
/// links of others, too, which `nmcli` shows as "connected (externally)".
fn made_by_network_manager(state: &str) -> bool {
    let has = |start: &str| state.lines().any(|line| line.starts_with(start));
    has("connection-uuid=") && !has("nm-owned=false")
}

/// Says why `convoy up` leaves the interface alone, and what to do.
#[must_use]
pub fn refusal(name: &InterfaceName, signs: Signs) -> Refusal {
    let is_up = format!("{name} is up already");
    let (reason, fix) = if signs.has_network_manager {
        (
            format!("{is_up}: NetworkManager owns it"),
            format!("`nmcli connection down {name}`, or choose another name"),
        )
    } else if signs.has_networkd {
        (
            format!("{is_up}: systemd-networkd owns it"),
            format!(
                "remove its .netdev and .network files, `networkctl delete {name}`, or choose another name"
            ),
        )
    } else if signs.is_kernel_wireguard {
        (
            format!("{is_up}: it is the kernel's WireGuard, as wg-quick sets it up"),
            format!("`wg-quick down {name}`, or `convoy up --adopt`"),
        )
    } else if signs.has_uapi {
        (
            format!("{is_up}: another WireGuard program owns it, as wg-quick starts it"),
            format!("`wg-quick down {name}`, `convoy up --adopt`, or end that program"),
        )
    } else {
        (
            format!("there is another interface {name}, which is no WireGuard"),
            format!("`ip link delete {name}`, or choose another name"),
        )
    };
    Refusal { reason, fix }
}

#[cfg(test)]
mod tests {
    use std::{
        os::unix::net::{UnixListener, UnixStream},
        sync::mpsc,
        thread,
        time::Duration,
    };

    use nix::sys::socket::{Backlog, listen};

    use super::*;

    #[test]
    fn a_userspace_wireguard_that_hangs_is_seen_without_waiting_for_it() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("lo.sock");
        let listener = UnixListener::bind(&path).unwrap();
        listen(&listener, Backlog::new(0).unwrap()).unwrap();
        let _only = UnixStream::connect(&path).unwrap();
        let (seen, told) = mpsc::channel();
        thread::spawn(move || seen.send(signs(&"lo".parse().unwrap(), &path)));
        let signs = told.recv_timeout(Duration::from_secs(20));
        assert!(signs.expect("it does not wait").has_uapi);
    }

    #[test]
    fn the_owner_that_brings_the_interface_back_is_named_first() {
        let name = "wg0".parse().unwrap();
        let kernel = Signs {
            is_kernel_wireguard: true,
            ..Signs::default()
        };
        for (signs, remedy) in [
            (Signs::default(), "ip link delete wg0"),
            (
                Signs {
                    has_uapi: true,
                    ..Signs::default()
                },
                "wg-quick down wg0",
            ),
            (kernel, "wg-quick down wg0"),
            (
                Signs {
                    has_networkd: true,
                    ..kernel
                },
                "networkctl",
            ),
            (
                Signs {
                    has_network_manager: true,
                    ..kernel
                },
                "nmcli connection down wg0",
            ),
        ] {
            let refusal = refusal(&name, signs).to_string();
            assert!(refusal.contains(remedy), "{refusal}");
        }
    }

    #[test]
    fn network_manager_owns_what_it_has_made_and_not_what_it_looks_on_at() {
        let connection =
            "[device]\nmanaged=true\nconnection-uuid=3d1f7b1e-5d0b-4b83-a39a-d1b7dc0f8a55\n";
        assert!(made_by_network_manager(&format!(
            "{connection}nm-owned=true\n"
        )));
        // Of a version that does not tell.
        assert!(made_by_network_manager(connection));
        assert!(!made_by_network_manager(&format!(
            "{connection}nm-owned=false\n"
        )));
        assert!(!made_by_network_manager("[device]\nmanaged=false\n"));
        assert!(!made_by_network_manager(""));
    }

    #[test]
    fn a_link_of_another_kind_shows_no_sign() {
        let name = "lo".parse().unwrap();
        assert!(exists(&name));
        assert!(!signs(&name, Path::new("/nowhere")).is_kernel_wireguard);
        assert!(!exists(&"no-such-link".parse().unwrap()));
    }
}
