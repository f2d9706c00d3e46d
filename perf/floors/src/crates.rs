//! The workspace's crates, and the floors that they are on.

use std::path::PathBuf;

use anyhow::Result;
use cargo_metadata::{DependencyKind, MetadataCommand, TargetKind};

/// The workspace.
pub(crate) struct Workspace {
    pub(crate) directory: PathBuf,
    /// By name.
    pub(crate) members: Vec<Member>,
}

/// A crate of the workspace.
pub(crate) struct Member {
    pub(crate) name: String,
    /// File of its library or, if there is none, its program.
    pub(crate) root: PathBuf,
    /// Names of the crates that it depends on, also by a feature, but not for tests.
    pub(crate) dependencies: Vec<String>,
}

impl Workspace {
    /// Asks cargo.
    ///
    /// # Errors
    /// If cargo fails.
    pub(crate) fn read() -> Result<Self> {
        let metadata = MetadataCommand::new().no_deps().exec()?;
        let mut members = Vec::new();
        for package in metadata.packages {
            let of_kind = |kind| package.targets.iter().find(|it| it.kind.contains(&kind));
            let Some(target) = of_kind(TargetKind::Lib).or_else(|| of_kind(TargetKind::Bin)) else {
                continue;
            };
            let dependencies = package.dependencies.iter();
            let dependencies = dependencies.filter(|it| it.kind == DependencyKind::Normal);
            members.push(Member {
                name: package.name.to_string(),
                root: target.src_path.clone().into(),
                dependencies: dependencies.map(|it| it.name.clone()).collect(),
            });
        }
        members.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(Self {
            directory: metadata.workspace_root.into(),
            members,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // In these rules, names of crates of the workspace are without `convoy-`.

    /// A dependency, and the crates that may name it; no other crate may. Look-ups of the data path (`netlink-…`) neither
    /// wait nor need a runtime.
    const OWNERS: &str = "\
quinn-udp: gso
socket2: gso
tun-rs: tun
snow: noise
boringtun: noise
ring: aead
stun-types: stun turn-server
turn-client-proto: turn
rustls: carrier turn-server
convoy-turn-server: benches
rustls-native-certs: carrier
rustls-webpki: config
smoltcp: smoltcp
fast-socks5: forward
hickory-resolver: gateway names network smoltcp
rtnetlink: netlink
netlink-packet-core: gso
netlink-packet-route: gso
netlink-sys: gso
zbus: host supervision
landlock: daemon
seccompiler: daemon rootless
clap: convoy benches client daemon keeper metrics perf process rootless stats suite";

    /// Crates that touch neither sockets nor files nor clocks, so they cannot name what does.
    const PURE: &str = "lifecycle noise packet paths types aead proto report stun turn via stages";
    const IMPURE: &str = "tokio libc nix rustix quinn-udp socket2 tun-rs rtnetlink netlink-sys \
        convoy-tun convoy-gso convoy-netlink convoy-lab convoy-process";

    /// A crate, and those of the workspace that it may depend on. The data path stands on nothing of the client.
    const FLOORS: &str = "\
types:
lifecycle:
packet:
paths: types
stun:
turn:
carrier: turn
tun: packet types
gso: types
noise: aead types
proto: aead noise paths stun turn types
via: aead packet proto
tunnel: aead carrier gso proto tun types via
network: netlink types
forward: network types
namespace: netlink network process tun types
smoltcp: network packet types
gateway: namespace network packet smoltcp
process: types
lab: process report
host: netlink process types
names: host
netlink: types
portmap: netlink
report:
doctor: aead config gso host names namespace netlink portmap process proto report stun tun \
    tunnel
config: types
daemon: aead config gso netlink process proto report tun tunnel types uapi
uapi: process proto report tunnel
stats: daemon process proto report uapi
metrics: daemon process proto report stats tunnel uapi
endpoints: carrier config names proto
path-mtu: config daemon gso host proto
desired: config daemon endpoints host process proto uapi
keeper: config daemon gso lifecycle metrics process proto report tun uapi
status: config process proto report stats
supervision: config daemon host lifecycle portmap process proto report stats
rootless: config daemon desired endpoints forward gateway keeper lifecycle metrics namespace network \
    packet process proto report smoltcp status supervision tun
client: config daemon desired endpoints host keeper lifecycle metrics path-mtu portmap process \
    proto report rootless status supervision uapi";

    fn members() -> Vec<Member> {
        Workspace::read().unwrap().members
    }

    /// Reads a rule a line: a name, and those behind the colon.
    fn rules(text: &str) -> impl Iterator<Item = (&str, Vec<&str>)> {
        text.lines().map(|line| {
            let (name, others) = line.split_once(':').unwrap();
            (name, others.split_whitespace().collect())
        })
    }

    fn short(name: &str) -> &str {
        name.strip_prefix("convoy-").unwrap_or(name)
    }

    fn own(member: &Member) -> impl Iterator<Item = &str> {
        let all = member.dependencies.iter();
        all.filter_map(|it| it.strip_prefix("convoy-"))
    }

    #[test]
    fn a_dependency_is_named_by_its_owners_alone() {
        let members = members();
        for (dependency, owners) in rules(OWNERS) {
            let names_it = |it: &&Member| it.dependencies.iter().any(|it| it == dependency);
            let users = members.iter().filter(names_it).map(|it| short(&it.name));
            let (owners, strangers): (Vec<_>, Vec<_>) = users.partition(|it| owners.contains(it));
            assert!(strangers.is_empty(), "{strangers:?} name {dependency}");
            assert!(!owners.is_empty(), "nobody names {dependency}");
        }
    }

    #[test]
    fn pure_crates_name_nothing_that_touches_the_world() {
        let members = members().into_iter();
        let is_pure = |it: &Member| PURE.split(' ').any(|pure| pure == short(&it.name));
        for member in members.filter(is_pure) {
            let mut impure = IMPURE.split(' ');
            let found = impure.find(|it| member.dependencies.iter().any(|own| own == it));
            assert_eq!(found, None, "{}", member.name);
        }
    }

    #[test]
    fn crates_stand_on_lower_floors() {
        let members = members();
        for (name, floors) in rules(FLOORS) {
            let member = members.iter().find(|it| short(&it.name) == name).unwrap();
            let above: Vec<_> = own(member).filter(|it| !floors.contains(it)).collect();
            assert!(above.is_empty(), "{name} stands on {above:?}");
        }
    }

    #[test]
    fn each_file_with_unsafe_code_is_in_the_list_of_it() {
        let Workspace { directory, members } = Workspace::read().unwrap();
        let list = std::fs::read_to_string(directory.join("rust/UNSAFE.md")).unwrap();
        for member in members {
            for file in crate::sources::read(&member.root).unwrap().into_values() {
                let path = file.path.strip_prefix(&directory).unwrap_or(&file.path);
                let path = path.display().to_string().replace("/src/", "/");
                let is_listed = list.contains(&format!("`{path}`"));
                assert!(is_listed || !file.is_unsafe, "{path}");
            }
        }
    }

    #[test]
    fn the_release_profile_names_every_crate_of_the_program() {
        let Workspace { directory, members } = Workspace::read().unwrap();
        let manifest = std::fs::read_to_string(directory.join("Cargo.toml")).unwrap();
        let profile = manifest.split("\n[profile.release.package]\n").nth(1);
        let profile = profile.unwrap().split("\n[").next().unwrap();
        let mut crates = vec!["convoy"];
        let mut visited = 0;
        while let Some(name) = crates.get(visited) {
            let is_named = profile.contains(&format!("\n{name}.opt-level = "));
            assert!(is_named, "{name}: add it to [profile.release.package]");
            let member = members.iter().find(|it| it.name == *name).unwrap();
            for it in &member.dependencies {
                if it.starts_with("convoy-") && !crates.contains(&&**it) {
                    crates.push(it);
                }
            }
            visited += 1;
        }
    }
}
