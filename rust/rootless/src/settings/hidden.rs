//! Sockets of outside programs that are hidden from programs inside: resolvers, launchers, and programs that fetch or
//! send on request.

use std::{
    env,
    ffi::OsString,
    fs,
    os::unix::{
        ffi::{OsStrExt as _, OsStringExt as _},
        fs::MetadataExt as _,
    },
    path::{Path, PathBuf},
};

use nix::unistd::{Uid, geteuid};

/// Services of the host, below `/run`.
const SERVICES: [&str; 22] = [
    "avahi-daemon",
    "buildkit",
    "containerd",
    "convoy",
    "crio",
    "dbus",
    "docker",
    "docker.sock",
    "incus",
    "libvirt",
    "lxd",
    "nscd",
    "podman",
    "snapd-snap.socket",
    "snapd.socket",
    "systemd/io.systemd.Manager",
    "systemd/private",
    "systemd/resolve",
    "tailscale",
    "tor",
    "wireguard",
    "wpa_supplicant",
];

/// Services of the user, below its runtime directory.
const OWN_SERVICES: [&str; 13] = [
    "at-spi",
    "buildkit",
    "bus",
    "containerd",
    "containerd-rootless",
    "convoy",
    "dbus-1",
    "docker",
    "docker.sock",
    "gnupg",
    "gvfs",
    "podman",
    "systemd",
];

/// Sockets of the user, below its home directory.
const AT_HOME: [&str; 3] = [
    ".docker/desktop",
    ".docker/run",
    ".local/share/containers/podman/machine",
];

/// Prefixes, followed by the user's number, of directories in `/tmp` for users without a runtime directory.
const IN_TMP: [&str; 3] = ["convoy-", "podman-run-", "storage-run-"];

/// Variables that name a socket.
const NAMING: [&str; 4] = [
    "CONTAINER_HOST",
    "DBUS_SESSION_BUS_ADDRESS",
    "DBUS_SYSTEM_BUS_ADDRESS",
    "DOCKER_HOST",
];

/// Lists the hidden paths; `sockets` is the directory of the tunnel's own sockets.
pub(super) fn paths(sockets: &Path) -> Vec<PathBuf> {
    let mut paths = paths_of(&of_process, geteuid());
    paths.push(sockets.to_owned());
    let homes = [
        of_process("GNUPGHOME"),
        home(&of_process).map(|it| it.join(".gnupg").into()),
    ];
    paths.extend(
        homes
            .into_iter()
            .flatten()
            .flat_map(|home| gnupg(Path::new(&home))),
    );
    paths
}

/// Returns the user's runtime directory if it is used for nothing else: its services may start again later.
pub(super) fn directories() -> Vec<PathBuf> {
    let is_apart = |path: &PathBuf| {
        let others = [
            home(&of_process),
            env::current_dir().ok(),
            Some(env::temp_dir()),
        ];
        let is_above = |other: PathBuf| other.starts_with(path);
        !others.into_iter().flatten().any(is_above)
    };
    let is_own = |path: &PathBuf| {
        let metadata = fs::metadata(path);
        metadata.is_ok_and(|it| it.uid() == geteuid().as_raw() && it.mode() & 0o077 == 0)
    };
    let runtime = runtime(&of_process).into_iter();
    runtime.filter(|it| is_apart(it) && is_own(it)).collect()
}

/// Lists the variables that name a socket outside: the socket of a command that joins existing namespaces is not
/// hidden there.
pub(crate) fn variables() -> Vec<&'static str> {
    variables_of(&of_process)
}

type Environment<'a> = dyn Fn(&str) -> Option<OsString> + 'a;

fn of_process(name: &str) -> Option<OsString> {
    env::var_os(name)
}

fn paths_of(environment: &Environment<'_>, user: Uid) -> Vec<PathBuf> {
    let services = SERVICES.map(|name| Path::new("/run").join(name));
    // Also without the variable, as with su or cron.
    let usual = PathBuf::from(format!("/run/user/{user}"));
    let runtimes = runtime(environment).into_iter().chain([usual]);
    let own = runtimes.flat_map(|runtime| OWN_SERVICES.map(|name| runtime.join(name)));
    let home = home(environment).into_iter();
    let at_home = home.flat_map(|home| AT_HOME.map(|name| home.join(name)));
    let in_tmp = IN_TMP.map(|name| PathBuf::from(format!("/tmp/{name}{user}")));
    let named = NAMING.iter().filter_map(|name| environment(name));
    let named = named.flat_map(|address| named_by(&address));
    let all = services.into_iter().chain(own).chain(at_home);
    all.chain(in_tmp).chain(named).collect()
}

fn variables_of(environment: &Environment<'_>) -> Vec<&'static str> {
    let names_any = |name: &&str| environment(name).is_some_and(|it| !named_by(&it).is_empty());
    NAMING.into_iter().filter(names_any).collect()
}

fn runtime(environment: &Environment<'_>) -> Option<PathBuf> {
    let path = environment("XDG_RUNTIME_DIR").map(PathBuf::from);
    path.filter(|path| path.is_absolute())
}

fn home(environment: &Environment<'_>) -> Option<PathBuf> {
    let path = environment("HOME").map(PathBuf::from);
    path.filter(|path| path.is_absolute() && path.parent().is_some())
}

/// Extracts the sockets from addresses of D-Bus (`unix:path=…,guid=…;…`) or of containers (`unix://…`).
fn named_by(addresses: &OsString) -> Vec<PathBuf> {
    let addresses = addresses.as_bytes().split(|byte| *byte == b';');
    let path = |address: &[u8]| {
        let rest = address.strip_prefix(b"unix:")?;
        let mut parts = rest.split(|byte| *byte == b',');
        let path = match rest.strip_prefix(b"//") {
            Some(path) => path,
            None => &unescaped(parts.find_map(|part| part.strip_prefix(b"path="))?),
        };
        Some(PathBuf::from(OsString::from_vec(path.to_owned())))
    };
    let paths = addresses.filter_map(path);
    // No path has a zero byte, which an escape may stand for.
    let is_path = |path: &PathBuf| path.is_absolute() && !path.as_os_str().as_bytes().contains(&0);
    paths.filter(is_path).collect()
}

/// Resolves the escapes of a value in an address of D-Bus (D-Bus Specification, "Server Addresses").
fn unescaped(value: &[u8]) -> Vec<u8> {
    let mut plain = Vec::with_capacity(value.len());
    let mut rest = value;
    while let Some((&byte, after)) = rest.split_first() {
        let escape = after.first_chunk().filter(|_| byte == b'%');
        let (meant, behind) = match escape.copied().and_then(escaped) {
            Some(meant) => (meant, &after[2..]),
            None => (byte, after),
        };
        plain.push(meant);
        rest = behind;
    }
    plain
}

/// Reads two hexadecimal digits.
fn escaped(digits: [u8; 2]) -> Option<u8> {
    let [high, low] = digits.map(|digit| char::from(digit).to_digit(16));
    u8::try_from(16 * high? + low?).ok()
}

/// Lists the sockets of GnuPG's services, one of which fetches keys.
fn gnupg(home: &Path) -> Vec<PathBuf> {
    let files = fs::read_dir(home).into_iter().flatten().flatten();
    let sockets = files.filter(|file| file.file_name().as_bytes().starts_with(b"S."));
    sockets.map(|file| file.path()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_services_of_host_and_user_are_hidden_wherever_they_are() {
        let hidden = |variables: &[(&str, &str)]| {
            let variables = variables.to_owned();
            let environment = move |name: &str| {
                let found = variables.iter().find(|(known, _)| *known == name);
                found.map(|(_, value)| OsString::from(value))
            };
            paths_of(&environment, Uid::from_raw(7))
        };
        let always = [
            "/run/systemd/resolve",
            "/run/tailscale",
            "/run/tor",
            "/run/dbus",
            "/run/docker.sock",
            "/run/user/7/bus",
            "/run/user/7/gnupg",
            "/tmp/convoy-7",
        ];
        let variables = [
            ("XDG_RUNTIME_DIR", "/mnt/wslg/runtime-dir"),
            ("HOME", "/home/ann"),
            (
                "DBUS_SESSION_BUS_ADDRESS",
                "tcp:host=h;unix:guid=1,path=/tmp/dbus-x,a=b",
            ),
            ("DOCKER_HOST", "unix:///srv/docker.sock"),
        ];
        let more = [
            "/mnt/wslg/runtime-dir/bus",
            "/mnt/wslg/runtime-dir/podman",
            "/home/ann/.docker/run",
            "/tmp/dbus-x",
            "/srv/docker.sock",
        ];
        for path in always {
            assert!(hidden(&[]).contains(&PathBuf::from(path)), "{path}");
        }
        for path in always.iter().chain(&more) {
            assert!(hidden(&variables).contains(&PathBuf::from(path)), "{path}");
        }
        let odd = hidden(&[("XDG_RUNTIME_DIR", "run"), ("DOCKER_HOST", "ssh://host")]);
        assert!(odd.iter().all(|path| path.is_absolute()));
    }

    #[test]
    fn an_escaped_address_of_d_bus_hides_the_socket_that_it_means() {
        for (address, path) in [
            ("unix:path=/srv/a%2cb%3Bc%20d", "/srv/a,b;c d"),
            ("unix:path=%2Fsrv%2fbus", "/srv/bus"),
            ("unix:path=/srv/%e2%82%ac,guid=1", "/srv/\u{20ac}"),
            // No bus has such an address.
            ("unix:path=/srv/100%", "/srv/100%"),
            ("unix:path=/srv/%g0%1", "/srv/%g0%1"),
            // Docker takes the path as it is.
            ("unix:///srv/a%20b", "/srv/a%20b"),
        ] {
            assert_eq!(
                named_by(&address.into()),
                [PathBuf::from(path)],
                "{address}"
            );
        }
        assert!(named_by(&"unix:path=/srv/%00".into()).is_empty());
    }

    #[test]
    fn a_command_is_told_of_no_socket_outside_but_of_servers_that_are_elsewhere() {
        for (docker, is_outside) in [
            ("unix:///srv/docker.sock", true),
            ("tcp://10.9.0.1:2375", false),
        ] {
            let environment = |name: &str| match name {
                "DOCKER_HOST" => Some(OsString::from(docker)),
                "CONTAINER_HOST" => Some(OsString::from("unix:///srv/podman.sock")),
                _ => None,
            };
            let removed = variables_of(&environment);
            assert!(removed.contains(&"CONTAINER_HOST"));
            assert_eq!(removed.contains(&"DOCKER_HOST"), is_outside, "{docker}");
        }
    }
}
