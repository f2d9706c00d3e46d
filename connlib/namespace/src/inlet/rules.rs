//! The rules by which the kernel tells what begins a flow, by nft(8).

use std::{
    fmt::Write as _,
    io::{self, Write as _},
    net::IpAddr,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use super::listening::Listening;
use crate::protocol::Refusal;

/// The interface's name.
pub(crate) const NAME: &str = "convoy-inlet";
/// Marks of packets that begin a flow, and of SYNs that the owner admits.
pub(super) const FIRST: u32 = 1;
pub(super) const ADMITTED: u32 = 2;

/// Matches fragments of either family.
const IS_FRAGMENT: [&str; 2] = ["ip frag-off & 0x3fff != 0", "exthdr frag exists"];

const PROGRAM: &str = "nft";
/// Where it may lie: the holder has no `PATH`.
const DIRECTORIES: [&str; 5] = [
    "/usr/sbin",
    "/sbin",
    "/usr/local/sbin",
    "/usr/bin",
    "/run/current-system/sw/bin",
];

/// Rates of fragments up to which the kernel reassembles. What it may then hold for a minute stays below 4 MiB, beyond
/// which it would drop the fragments of all peers.
const FEW_FRAGMENTS: [&str; 2] = [
    "16/second burst 512 packets",
    "16 kbytes/second burst 1024 kbytes",
];
/// Time below these rates until the kernel reassembles again.
const CALM: &str = "10s";
/// A priority before that of the kernel's reassembly, -400.
const BEFORE_REASSEMBLY: i32 = -450;

/// A port on which nobody listens: with it, `tproxy` finds connected sockets only.
const NOBODY: u16 = 1;

/// Sorts what comes from peers out of `tun`, as long as it is not for an address of the namespace itself.
pub(super) fn apply(
    tun: &str,
    own: &[(IpAddr, u8)],
    listeners: &[Listening],
) -> Result<(), Refusal> {
    let ports = |is_ipv6| {
        let mut listeners = listeners.iter();
        let listener = listeners.find(|it| it.is_ipv6 == is_ipv6);
        listener.map(|it| it.port)
    };
    let program = program().ok_or_else(|| Refusal::Gateway {
        reason: format!("{PROGRAM} is not installed"),
        fix: "install nftables".to_owned(),
    })?;
    let rules = rules(tun, own, [ports(false), ports(true)]);
    // Some kernels lack `limit` or `notrack`, without which they reassemble all fragments.
    let both = format!("{rules}{}", sorting_of_fragments(tun));
    let applied = run(&program, &both).or_else(|_| run(&program, &rules));
    applied.map_err(|reason| Refusal::Gateway {
        reason: format!("{PROGRAM} says: {reason}"),
        fix: "a kernel with nft_tproxy, and `sudo modprobe nft_tproxy` if that is a module"
            .to_owned(),
    })
}

fn program() -> Option<PathBuf> {
    let mut places = DIRECTORIES.iter().map(|it| Path::new(it).join(PROGRAM));
    places.find(|path| path.is_file())
}

/// Runs nft with these rules; fails with the first line of its complaint.
fn run(program: &Path, rules: &str) -> Result<(), String> {
    let outcome = || -> io::Result<_> {
        let mut child = Command::new(program)
            .args(["-f", "-"])
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()?;
        if let Some(mut stdin) = child.stdin.take() {
            // A program that does not read its input reports the reason itself.
            let _ = stdin.write_all(rules.as_bytes());
        }
        child.wait_with_output()
    };
    let output = outcome().map_err(|error| error.to_string())?;
    if output.status.success() {
        return Ok(());
    }
    let complaint = String::from_utf8_lossy(&output.stderr);
    Err(complaint.lines().next().unwrap_or("it failed").to_owned())
}

/// The rules, given the ports of the listeners for IPv4 and IPv6.
fn rules(tun: &str, own: &[(IpAddr, u8)], ports: [Option<u16>; 2]) -> String {
    const SYN: &str = "tcp flags & (fin|syn|rst|ack)";
    let mut rules = String::new();
    let mut rule = |line: String| {
        // Writing to a string does not fail.
        let _ = writeln!(rules, "{line}");
    };
    let families = [("ipv4", "ip"), ("ipv6", "ip6")];
    rule("table inet convoy {\nchain peers {\ntype filter hook prerouting priority mangle;".into());
    for ((family, ip), port) in families.iter().zip(ports) {
        match port {
            Some(port) => rule(format!(
                "iifname \"{NAME}\" meta nfproto {family} {SYN} == syn meta mark set {ADMITTED} \
                 tproxy {ip} to :{port} accept"
            )),
            None => rule(format!("iifname \"{tun}\" meta nfproto {family} drop")),
        }
    }
    for (family, ip) in families {
        // Segments that the owner has reassembled.
        rule(format!(
            "iifname \"{NAME}\" meta nfproto {family} meta l4proto tcp tproxy {ip} to :{NOBODY} \
             meta mark set {ADMITTED} accept"
        ));
    }
    rule(format!("iifname != \"{tun}\" accept"));
    for (address, _) in own {
        let ip = families[usize::from(address.is_ipv6())].1;
        rule(format!("{ip} daddr {address} accept"));
    }
    // Fragments that the kernel has not reassembled.
    for is_fragment in IS_FRAGMENT {
        rule(format!("{is_fragment} meta mark set {FIRST} accept"));
    }
    rule(format!("{SYN} != syn accept"));
    for (family, ip) in families {
        rule(format!(
            "meta nfproto {family} meta l4proto udp tproxy {ip} to :{NOBODY} accept"
        ));
    }
    // About flows that exist.
    rule("icmp type { destination-unreachable, time-exceeded, parameter-problem } accept".into());
    rule(
        "icmpv6 type { destination-unreachable, packet-too-big, time-exceeded, parameter-problem } accept"
            .into(),
    );
    rule(format!("meta mark set {FIRST}\n}}\n}}"));
    rules
}

/// The rules that lead fragments past the kernel's reassembly to the owner, which is fair to peers, while they are not
/// few. The kernel's keeps a flow's datagrams in order.
fn sorting_of_fragments(tun: &str) -> String {
    let [packets, bytes] = FEW_FRAGMENTS;
    let [ipv4, ipv6] = IS_FRAGMENT;
    format!(
        "table inet convoy {{
         set crowded {{ type nf_proto; size 2; flags dynamic,timeout; timeout {CALM}; }}
         chain fragments {{
         limit rate over {packets} update @crowded {{ meta nfproto }}
         limit rate over {bytes} update @crowded {{ meta nfproto }}
         meta nfproto @crowded notrack
         }}
         chain sorting {{
         type filter hook prerouting priority {BEFORE_REASSEMBLY};
         iifname != \"{tun}\" accept
         {ipv4} jump fragments
         {ipv6} jump fragments
         }}
         }}\n"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_is_told_of_each_family_and_each_own_address() {
        let own = ["10.8.0.1", "fd08::1"].map(|it| (it.parse().unwrap(), 24));
        let both = rules("wg0", &own, [Some(4000), Some(6000)]);
        for line in [
            "tproxy ip to :4000 accept",
            "tproxy ip6 to :6000 accept",
            "ip daddr 10.8.0.1 accept",
            "ip6 daddr fd08::1 accept",
            "iifname != \"wg0\" accept",
            "tcp tproxy ip to :1 meta mark set 2 accept",
            "exthdr frag exists meta mark set 1 accept",
        ] {
            assert!(both.contains(line), "{line}: {both}");
        }
        assert!(!both.contains("drop"), "{both}");
        let one = rules("wg0", &own[..1], [Some(4000), None]);
        assert!(one.contains("meta nfproto ipv6 drop"), "{one}");
    }

    #[test]
    fn what_nft_says_is_the_reason() {
        let echo = |script: &str| run(Path::new("/bin/sh"), script);
        // Of `sh -f -`, which reads its input, too.
        assert_eq!(echo("echo no >&2; exit 1"), Err("no".to_owned()));
        assert_eq!(echo("true"), Ok(()));
        assert!(run(Path::new("/nonexistent"), "").is_err());
    }
}
