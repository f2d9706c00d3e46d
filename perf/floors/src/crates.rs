//! The workspace's crates, and the floors that they are on.

use std::path::PathBuf;

use anyhow::Result;
use cargo_metadata::{DependencyKind, MetadataCommand, TargetKind};

/// A crate of the workspace.
pub(crate) struct Member {
    pub(crate) name: String,
    /// File of its library or, if there is none, its program.
    pub(crate) root: PathBuf,
    /// Names of the crates that it depends on, also by a feature, but not for tests.
    pub(crate) dependencies: Vec<String>,
}

/// Returns the workspace's directory.
///
/// # Errors
/// If cargo fails.
pub(crate) fn workspace() -> Result<PathBuf> {
    let metadata = MetadataCommand::new().no_deps().exec()?;
    Ok(metadata.workspace_root.into())
}

/// Lists the workspace's crates by name.
///
/// # Errors
/// If cargo fails.
pub(crate) fn members() -> Result<Vec<Member>> {
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
    Ok(members)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Crates that may name a dependency; no other crate may.
    const OWNERS: [(&str, &[&str]); 22] = [
        ("quinn-udp", &["convoy-gso"]),
        ("socket2", &["convoy-gso"]),
        ("tun-rs", &["convoy-tun"]),
        ("snow", &["convoy-noise"]),
        ("boringtun", &["convoy-noise"]),
        ("ring", &["convoy-aead"]),
        ("stun-types", &["convoy-stun", "convoy-turn-server"]),
        ("turn-client-proto", &["convoy-turn"]),
        ("rustls", &["convoy-carrier", "convoy-turn-server"]),
        ("rustls-native-certs", &["convoy-carrier"]),
        ("rustls-webpki", &["convoy-config"]),
        ("smoltcp", &["convoy-smoltcp"]),
        ("fast-socks5", &["convoy-network"]),
        (
            "hickory-resolver",
            &[
                "convoy-gateway",
                "convoy-names",
                "convoy-network",
                "convoy-smoltcp",
            ],
        ),
        ("rtnetlink", &["convoy-netlink"]),
        // Look-ups of the data path neither wait nor need a runtime.
        ("netlink-packet-core", &["convoy-gso"]),
        ("netlink-packet-route", &["convoy-gso"]),
        ("netlink-sys", &["convoy-gso"]),
        ("zbus", &["convoy-host", "convoy-supervision"]),
        ("landlock", &["convoy-daemon"]),
        ("seccompiler", &["convoy-daemon", "convoy-rootless"]),
        (
            "clap",
            &[
                "convoy",
                "convoy-benches",
                "convoy-client",
                "convoy-daemon",
                "convoy-keeper",
                "convoy-metrics",
                "convoy-perf",
                "convoy-process",
                "convoy-rootless",
                "convoy-stats",
                "convoy-suite",
            ],
        ),
    ];

    /// Crates that touch neither sockets nor files nor clocks, so they cannot name what does.
    const PURE: [&str; 12] = [
        "convoy-lifecycle",
        "convoy-noise",
        "convoy-packet",
        "convoy-paths",
        "convoy-types",
        "convoy-aead",
        "convoy-proto",
        "convoy-report",
        "convoy-stun",
        "convoy-turn",
        "convoy-via",
        "convoy-stages",
    ];
    const IMPURE: [&str; 14] = [
        "tokio",
        "libc",
        "nix",
        "rustix",
        "quinn-udp",
        "socket2",
        "tun-rs",
        "rtnetlink",
        "netlink-sys",
        "convoy-tun",
        "convoy-gso",
        "convoy-netlink",
        "convoy-lab",
        "convoy-process",
    ];

    /// Crates of the workspace that one may depend on. The data path stands on nothing of the client.
    const FLOORS: &[(&str, &[&str])] = &[
        ("convoy-types", &[]),
        ("convoy-lifecycle", &[]),
        ("convoy-packet", &[]),
        ("convoy-paths", &["convoy-types"]),
        ("convoy-stun", &[]),
        ("convoy-turn", &[]),
        ("convoy-carrier", &["convoy-turn"]),
        ("convoy-tun", &["convoy-packet", "convoy-types"]),
        ("convoy-gso", &["convoy-types"]),
        ("convoy-noise", &["convoy-aead", "convoy-types"]),
        (
            "convoy-proto",
            &[
                "convoy-aead",
                "convoy-noise",
                "convoy-paths",
                "convoy-stun",
                "convoy-turn",
                "convoy-types",
            ],
        ),
        (
            "convoy-via",
            &["convoy-aead", "convoy-packet", "convoy-proto"],
        ),
        (
            "convoy-tunnel",
            &[
                "convoy-aead",
                "convoy-carrier",
                "convoy-gso",
                "convoy-proto",
                "convoy-tun",
                "convoy-types",
                "convoy-via",
            ],
        ),
        ("convoy-network", &["convoy-netlink", "convoy-types"]),
        (
            "convoy-namespace",
            &[
                "convoy-netlink",
                "convoy-network",
                "convoy-process",
                "convoy-tun",
                "convoy-types",
            ],
        ),
        (
            "convoy-smoltcp",
            &["convoy-network", "convoy-packet", "convoy-types"],
        ),
        (
            "convoy-gateway",
            &[
                "convoy-namespace",
                "convoy-network",
                "convoy-packet",
                "convoy-smoltcp",
            ],
        ),
        ("convoy-process", &[]),
        ("convoy-lab", &["convoy-process", "convoy-report"]),
        (
            "convoy-host",
            &["convoy-netlink", "convoy-process", "convoy-types"],
        ),
        ("convoy-names", &["convoy-host"]),
        ("convoy-netlink", &["convoy-types"]),
        ("convoy-portmap", &["convoy-netlink"]),
        ("convoy-report", &[]),
        (
            "convoy-doctor",
            &[
                "convoy-aead",
                "convoy-config",
                "convoy-gso",
                "convoy-host",
                "convoy-names",
                "convoy-namespace",
                "convoy-netlink",
                "convoy-portmap",
                "convoy-process",
                "convoy-proto",
                "convoy-report",
                "convoy-stun",
                "convoy-tun",
                "convoy-tunnel",
            ],
        ),
        ("convoy-config", &["convoy-types"]),
        (
            "convoy-daemon",
            &[
                "convoy-aead",
                "convoy-config",
                "convoy-gso",
                "convoy-netlink",
                "convoy-process",
                "convoy-proto",
                "convoy-report",
                "convoy-tun",
                "convoy-tunnel",
                "convoy-types",
                "convoy-uapi",
            ],
        ),
        (
            "convoy-uapi",
            &[
                "convoy-process",
                "convoy-proto",
                "convoy-report",
                "convoy-tunnel",
            ],
        ),
        (
            "convoy-stats",
            &[
                "convoy-daemon",
                "convoy-proto",
                "convoy-report",
                "convoy-uapi",
            ],
        ),
        (
            "convoy-metrics",
            &[
                "convoy-daemon",
                "convoy-process",
                "convoy-proto",
                "convoy-report",
                "convoy-stats",
                "convoy-tunnel",
                "convoy-uapi",
            ],
        ),
        (
            "convoy-endpoints",
            &[
                "convoy-carrier",
                "convoy-config",
                "convoy-names",
                "convoy-proto",
            ],
        ),
        (
            "convoy-path-mtu",
            &[
                "convoy-config",
                "convoy-daemon",
                "convoy-gso",
                "convoy-host",
                "convoy-proto",
            ],
        ),
        (
            "convoy-desired",
            &[
                "convoy-config",
                "convoy-daemon",
                "convoy-endpoints",
                "convoy-host",
                "convoy-process",
                "convoy-proto",
                "convoy-uapi",
            ],
        ),
        (
            "convoy-keeper",
            &[
                "convoy-config",
                "convoy-daemon",
                "convoy-gso",
                "convoy-lifecycle",
                "convoy-metrics",
                "convoy-process",
                "convoy-proto",
                "convoy-report",
                "convoy-tun",
                "convoy-uapi",
            ],
        ),
        (
            "convoy-status",
            &[
                "convoy-config",
                "convoy-process",
                "convoy-proto",
                "convoy-report",
                "convoy-stats",
            ],
        ),
        (
            "convoy-supervision",
            &[
                "convoy-config",
                "convoy-daemon",
                "convoy-host",
                "convoy-lifecycle",
                "convoy-portmap",
                "convoy-process",
                "convoy-proto",
                "convoy-report",
                "convoy-stats",
            ],
        ),
        (
            "convoy-rootless",
            &[
                "convoy-config",
                "convoy-daemon",
                "convoy-desired",
                "convoy-endpoints",
                "convoy-gateway",
                "convoy-keeper",
                "convoy-lifecycle",
                "convoy-metrics",
                "convoy-namespace",
                "convoy-network",
                "convoy-packet",
                "convoy-process",
                "convoy-proto",
                "convoy-report",
                "convoy-smoltcp",
                "convoy-status",
                "convoy-supervision",
                "convoy-tun",
            ],
        ),
        (
            "convoy-client",
            &[
                "convoy-config",
                "convoy-daemon",
                "convoy-desired",
                "convoy-endpoints",
                "convoy-host",
                "convoy-keeper",
                "convoy-lifecycle",
                "convoy-metrics",
                "convoy-path-mtu",
                "convoy-portmap",
                "convoy-process",
                "convoy-proto",
                "convoy-report",
                "convoy-rootless",
                "convoy-status",
                "convoy-supervision",
                "convoy-uapi",
            ],
        ),
    ];

    #[test]
    fn a_dependency_is_named_by_its_owners_alone() {
        for (dependency, owners) in OWNERS {
            let all = members().unwrap().into_iter();
            let users: Vec<_> = all
                .filter(|it| it.dependencies.iter().any(|it| it == dependency))
                .collect();
            let strangers = users.iter().filter(|it| !owners.contains(&&*it.name));
            let strangers: Vec<_> = strangers.map(|it| &it.name).collect();
            assert!(
                strangers.is_empty(),
                "{dependency} is named by {strangers:?}"
            );
            assert!(!users.is_empty(), "nobody names {dependency}");
        }
    }

    #[test]
    fn pure_crates_name_nothing_that_touches_the_world() {
        for member in members().unwrap() {
            if PURE.contains(&&*member.name) {
                let found = member
                    .dependencies
                    .iter()
                    .find(|it| IMPURE.contains(&&***it));
                assert_eq!(found, None, "{}", member.name);
            }
        }
    }

    #[test]
    fn crates_stand_on_lower_floors() {
        let members = members().unwrap();
        for (name, floors) in FLOORS {
            let member = members.iter().find(|it| it.name == *name).unwrap();
            let own = member
                .dependencies
                .iter()
                .filter(|it| it.starts_with("convoy-"));
            let above: Vec<_> = own.filter(|it| !floors.contains(&&***it)).collect();
            assert!(above.is_empty(), "{name} stands on {above:?}");
        }
    }

    #[test]
    fn the_release_profile_names_every_crate_of_the_program() {
        let members = members().unwrap();
        let manifest = std::fs::read_to_string(workspace().unwrap().join("Cargo.toml")).unwrap();
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
