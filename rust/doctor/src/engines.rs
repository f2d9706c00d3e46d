//! Judges whether this user can have a tunnel without root, by a trial.

use std::{net::Ipv4Addr, process::Command};

use convoy_namespace::{Files, Namespace, NamespaceError, Settings};
use convoy_tun::Switch;

use super::finding::Finding;

/// Makes a namespace with a TUN as `convoy exec` does, held by `holder`, and removes it.
pub(super) fn gather(holder: Command) -> Result<(), NamespaceError> {
    let settings = Settings {
        files: Some(Files {
            resolv_conf: String::new(),
            hidden: Vec::new(),
            replaced: Vec::new(),
        }),
        ..settings()
    };
    Namespace::start(holder, &settings).map(drop)
}

/// Returns the settings of a namespace for a trial.
pub(super) fn settings() -> Settings {
    Settings {
        interface: "trial".to_owned(),
        offload: Switch::Auto,
        // Of TEST-NET-1 (RFC 5737): nobody outside sees it.
        addresses: vec![(Ipv4Addr::new(192, 0, 2, 1).into(), 32)],
        mtu: 1280,
        routes: Vec::new(),
        is_gateway: false,
        files: None,
    }
}

/// Judges the outcome.
pub(super) fn judge(tried: &Result<(), NamespaceError>) -> Finding {
    const ID: &str = "without-root";
    let Err(error) = tried else {
        let what =
            "This user can have tunnels without root: `convoy exec`, `convoy up --userspace`.";
        return Finding::ok(ID, what);
    };
    let (reason, fix) = match error {
        NamespaceError::User { fix, source } => {
            let reason = format!("the kernel refuses a user namespace ({source})");
            (reason, format!("Allow them: {fix}."))
        }
        NamespaceError::Tun { reason, fix } => {
            let fix = fix.as_deref().unwrap_or("see the error");
            (reason.clone(), format!("To open it, {fix}."))
        }
        other => (other.to_string(), "See the error.".to_owned()),
    };
    let what = format!(
        "`convoy exec` does not work for this user, and `convoy up --userspace` is slower: {reason}."
    );
    Finding::note(ID, what, fix)
}

#[cfg(test)]
mod tests {
    use std::io;

    use convoy_tun::OpenError;

    use super::{super::finding::Severity, *};

    #[test]
    fn a_refused_namespace_is_a_note_with_its_fix() {
        assert_eq!(judge(&Ok(())).severity, Severity::Ok);
        let refused = judge(&Err(NamespaceError::User {
            fix: "`sysctl -w a=1`".to_owned(),
            source: io::Error::from_raw_os_error(libc::EPERM),
        }));
        assert_eq!(refused.severity, Severity::Note);
        assert_eq!(refused.fix.as_deref(), Some("Allow them: `sysctl -w a=1`."));
        let closed = judge(&Err(NamespaceError::Tun {
            reason: OpenError::NodeForbidden.reason(),
            fix: OpenError::NodeForbidden.fix(),
        }));
        assert!(closed.what.ends_with("may not be opened by this user."));
        let fix = "To open it, run as root, or `chmod 0666 /dev/net/tun`.";
        assert_eq!(closed.fix.as_deref(), Some(fix));
        let ended = judge(&Err(NamespaceError::Ended));
        assert_eq!(ended.fix.as_deref(), Some("See the error."));
    }
}
