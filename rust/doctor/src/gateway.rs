//! Judges whether this user can have a gateway (`Nat = user`), by trials of what it needs.

use std::{io, process::Command};

use convoy_config::Config;
use convoy_namespace::{Namespace, NamespaceError, Settings};
use nix::sys::socket::{AddressFamily, SockFlag, SockProtocol, SockType, socket};

use super::{engines, finding::Finding};

/// The outcomes.
pub(super) struct Trials {
    namespace: Result<(), NamespaceError>,
    ping: io::Result<()>,
}

impl Trials {
    /// Leads flows of peers out of a namespace with the addresses of a tunnel, and opens a socket for echo requests.
    pub(super) fn gather(holder: Command, config: &Config) -> Self {
        let addresses = config.interface.addresses.iter();
        let settings = Settings {
            addresses: addresses.map(|it| (it.address(), it.length())).collect(),
            is_gateway: true,
            ..engines::settings()
        };
        let flags = SockFlag::SOCK_CLOEXEC;
        let ping = socket(
            AddressFamily::Inet,
            SockType::Datagram,
            flags,
            SockProtocol::Icmp,
        );
        Self {
            namespace: Namespace::start(holder, &settings).map(drop),
            ping: ping.map(drop).map_err(io::Error::from),
        }
    }
}

/// Returns whether the file asks for a gateway.
pub(super) fn is_wanted(config: &Config) -> bool {
    let is_on = config.interface.nat.is_on.as_ref();
    is_on.is_some_and(|it| it.value)
}

/// Judges the outcomes.
pub(super) fn judge(tried: &Trials) -> [Finding; 2] {
    [judge_namespace(&tried.namespace), judge_ping(&tried.ping)]
}

fn judge_namespace(tried: &Result<(), NamespaceError>) -> Finding {
    const ID: &str = "nat";
    let Err(error) = tried else {
        return Finding::ok(ID, "Peers' flows can be forwarded by sockets of this user.");
    };
    let (reason, fix) = match error {
        NamespaceError::User { fix, source } => {
            let reason = format!("the kernel refuses a user namespace: {source}");
            (reason, &fix[..])
        }
        NamespaceError::Gateway { reason, fix } => {
            let reason = format!("this system has no NAT in user space: {reason}");
            (reason, &fix[..])
        }
        other => {
            let fix = "see the finding about tunnels without root";
            (other.to_string(), fix)
        }
    };
    Finding::warning(
        ID,
        format!("`Nat = user` takes the slower engine `smoltcp`: {reason}."),
        format!("For the faster one, {fix}."),
    )
}

fn judge_ping(tried: &io::Result<()>) -> Finding {
    const ID: &str = "nat-ping";
    let Err(error) = tried else {
        return Finding::ok(ID, "Peers can ping targets outside.");
    };
    let what = format!(
        "Peers cannot ping targets outside: this user may open no socket for that ({error})."
    );
    let fix = "`sudo sysctl -w net.ipv4.ping_group_range=\"0 2147483647\"`";
    Finding::warning(ID, what, fix)
}

#[cfg(test)]
mod tests {
    use super::{super::finding::Severity, *};

    #[test]
    fn what_is_missing_is_named_with_its_fix() {
        let [nat, ping] = judge(&Trials {
            namespace: Err(NamespaceError::Gateway {
                reason: "nft is not installed".to_owned(),
                fix: "install nftables".to_owned(),
            }),
            ping: Err(io::Error::from_raw_os_error(libc::EACCES)),
        });
        assert_eq!(
            (nat.severity, ping.severity),
            (Severity::Warning, Severity::Warning)
        );
        assert!(nat.what.ends_with("nft is not installed."), "{}", nat.what);
        assert_eq!(
            nat.fix.as_deref(),
            Some("For the faster one, install nftables.")
        );
        assert!(ping.fix.unwrap().contains("ping_group_range"));
        let fine = judge(&Trials {
            namespace: Ok(()),
            ping: Ok(()),
        });
        assert!(fine.iter().all(|it| it.severity == Severity::Ok));
    }
}
