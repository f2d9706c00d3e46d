//! Debian's files, installed once.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

/// Packages that the tests use there. Raise [`EDITION`] with every change.
const PACKAGES: &str = "dbus,dbus-session-bus-common,firewalld,iproute2,iputils-ping,libpam-systemd,netbase,\
     network-manager,nftables,python3-dbusmock,systemd,systemd-resolved";
const EDITION: u32 = 2;
/// Units that Debian enables, but only some tests want.
const OPTIONAL: [&str; 3] = ["NetworkManager", "NetworkManager-wait-online", "firewalld"];

/// On a host that is not Debian.
const RELEASE: &str = "trixie";

/// The directory with Debian's files, of the host's release, so that the program finds its C library. The first
/// call takes minutes and needs a mirror.
///
/// # Errors
/// The end of what debootstrap(8) said.
pub(super) fn debian() -> Result<PathBuf, String> {
    let release = release();
    let place = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let root = place.join(format!("debian-{release}-{EDITION}"));
    if root.exists() {
        return Ok(root);
    }
    // What an interrupted run left.
    let new = root.with_extension("new");
    let _ = fs::remove_dir_all(&new);
    fs::create_dir_all(place).unwrap();
    let output = Command::new("debootstrap")
        .args(["--variant=minbase", "--include", PACKAGES, &release])
        .arg(&new)
        .output()
        .unwrap();
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stdout);
        let last = said.lines().rev().take(5).collect::<Vec<_>>();
        return Err(format!("debootstrap failed, last line first: {last:?}"));
    }
    let disabled = Command::new("systemctl")
        .args(["--quiet", "disable", "--root"])
        .arg(&new)
        .args(OPTIONAL)
        .status();
    assert!(disabled.unwrap().success());
    // Downloaded, installed and of no more use.
    let _ = fs::remove_dir_all(new.join("var/cache/apt"));
    fs::rename(&new, &root).unwrap();
    Ok(root)
}

fn release() -> String {
    let text = fs::read_to_string("/etc/os-release").unwrap_or_default();
    let value = |key: &str| text.lines().find_map(|line| line.strip_prefix(key));
    match (value("ID="), value("VERSION_CODENAME=")) {
        (Some("debian"), Some(release)) => release.to_owned(),
        _ => RELEASE.to_owned(),
    }
}
