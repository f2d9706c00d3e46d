//! A program without root in the place of the near end's daemon.
//!
//! ```text
//!    left                                             right
//!    agents ── loopback ── contender ═══ tunnel ═══ wg0 Convoy, agent
//!    agents, inside ────── `convoy exec` ═ tunnel ═══ wg0 Convoy, agent
//! ```

use std::fs;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::os::unix::fs::MetadataExt as _;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result};
use convoy_lab::measure::{Bed, Between, Ends};
use convoy_lab::traffic::{Agent, Exchange};
use convoy_lab::{Namespace, Pid, eventually};

use super::contender::{Contender, Kind};
use super::processes::Processes;
use crate::agent::{agent, agent_words};
use crate::programs::{self, Started};

/// The file that all contenders understand.
const FILE: &str = "\
[Interface]
PrivateKey = {private-key}
Address = 10.8.0.1/24
MTU = 1420
ListenPort = 51820

[Peer]
PublicKey = {public-key}
Endpoint = 10.9.0.2:51820
AllowedIPs = 10.8.0.2/32
";
/// Further sections for wireproxy, the first one for each port.
const WIREPROXY: [&str; 2] = [
    "
[TCPClientTunnel]
BindAddress = 127.0.0.1:{port}
Target = 10.8.0.2:{port}

[UDPProxyTunnel]
BindAddress = 127.0.0.1:{port}
Target = 10.8.0.2:{port}
",
    "
[Socks5]
BindAddress = 127.0.0.1:1080
",
];
/// Arguments that forward a port of the loopback, for Convoy and for onetun.
const FORWARD: &str =
    " -L 127.0.0.1:{port}:10.8.0.2:{port} -L 127.0.0.1:{port}:10.8.0.2:{port}/udp";
const ONETUN_FORWARD: &str = " 127.0.0.1:{port}:10.8.0.2:{port}:TCP,UDP";

/// The stem of the file, and so the name of the tunnel.
const NAME: &str = "bench";
/// The far end's ports, which are the same on the near end's loopback: for a load, probes and requests.
const PORTS: [u16; 3] = [5301, 5302, 5303];
const LOOPBACK: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
const PROXY_PORT: u16 = 1080;
/// As the lab assigns it.
const FAR: Ipv4Addr = Ipv4Addr::new(10, 8, 0, 2);
/// Keeps the tunnel of `convoy exec`, and tells when it is there.
const INSIDE: &str = "echo begun; exec sleep infinity";
const BEGUN: &str = "begun";
/// Time limit for the first packet: a handshake is tried again after five seconds, then by a relay.
const PATIENCE: Duration = Duration::from_secs(30);
const PROBE: Duration = Duration::from_millis(1);
/// Time of connecting in which the sockets that a program had made ahead are used up.
const TURNOVER: Duration = Duration::from_millis(200);

/// Why `contender` cannot take part; `None` if it can.
pub(crate) fn absence(contender: &Contender) -> Option<String> {
    if !contender.program.is_file() {
        let name = contender.program.file_name().unwrap_or_default();
        let name = name.to_string_lossy();
        return Some(format!("{name} is not in target/peers/bin or PATH"));
    }
    let mut words = contender.arguments.split(' ');
    words.find(|word| *word == "--engine")?;
    let engine = words.next()?;
    let help = programs::output(Command::new(&contender.program).args(["up", "--help"]));
    let has_it = help.is_ok_and(|help| help.contains("--engine") && help.contains(engine));
    (!has_it).then(|| format!("this convoy has no `up --userspace --engine {engine}`"))
}

/// A running contender; all of its processes are killed when dropped.
pub(super) struct Rootless {
    pub(super) ends: Ends,
    pub(super) processes: Processes,
}

impl Rootless {
    /// Kills the near end's daemon, starts `contender` in its place, with agents in these two namespaces, and waits until
    /// a connection passes to the far end's address `via`.
    pub(super) fn start(
        bed: &mut Bed,
        contender: &Contender,
        [near, far]: &[Namespace; 2],
        via: IpAddr,
    ) -> Result<Self> {
        bed.tunnel.left.kill_daemon()?;
        let mut text = FILE.to_owned();
        if contender.program.ends_with("wireproxy") {
            let [forward, proxy] = WIREPROXY;
            text += &(for_each_port(forward) + proxy);
        }
        let mut processes = Processes::new(&contender.program, NAME, &filled(&text, bed))?;
        let started = start(&mut processes, bed, contender, [near, far], via);
        let ends = started.with_context(|| processes.log())?;
        Ok(Self { ends, processes })
    }

    /// The address at which the near end's agents reach the far end's ports.
    pub(super) fn via(kind: Kind) -> IpAddr {
        match kind {
            Kind::Ports => LOOPBACK,
            _ => FAR.into(),
        }
    }
}

/// Waits until connections pass to the far end's address `via`; fails if `check` does.
pub(super) fn wait_until_up(
    ends: &mut Ends,
    via: IpAddr,
    mut check: impl FnMut() -> Result<()>,
) -> Result<()> {
    let mut last = None;
    let passed = eventually(PATIENCE, || {
        match ends.round_trips(via, Exchange::TcpConnect { at_once: 1 }, PROBE) {
            Ok(report) if report.answered > 0 => return Some(Ok(())),
            asked => last = Some(asked),
        }
        check().err().map(Err)
    });
    passed.with_context(|| format!("no connection passed within {PATIENCE:?}: {last:?}"))?
}

/// Starts the program, and agents at both ends of the traffic, and waits until a connection passes.
fn start(
    processes: &mut Processes,
    bed: &Bed,
    contender: &Contender,
    [near, far]: [&Namespace; 2],
    via: IpAddr,
) -> Result<Ends> {
    let arguments = contender.arguments.replace("{file}", &processes.file);
    let mut command = processes.command(&bed.tunnel.left.namespace);
    command.args(filled(&arguments, bed).split_whitespace());
    if contender.kind == Kind::Exec {
        command.args(["sh", "-c", INSIDE]);
    }
    let child = processes.start(&mut command)?;
    let inside = child.pid();
    if contender.kind == Kind::Exec {
        let has_begun = |it: &Started| it.log().lines().any(|line| line == BEGUN);
        child.wait_until(PATIENCE, has_begun)?;
    }
    let mut between = Between::default();
    match contender.kind {
        Kind::Socks => between.proxy = Some(SocketAddr::new(LOOPBACK, PROXY_PORT)),
        Kind::Ports => between.ports = PORTS,
        _ => {}
    }
    let words = agent_words()?;
    let start = || {
        let mut inner = agent(near);
        if contender.kind == Kind::Exec {
            // An agent that the program executes itself could not take precedence, as all others do.
            inner = Command::new("nsenter");
            inner.args(["--net", "--target", &inside.to_string()]);
            inner.args(&words);
        }
        Agent::spawn(inner)
    };
    let mut ends = Ends::with(start()?, start()?, Agent::spawn(agent(far))?, between)?;
    wait_until_up(&mut ends, via, || processes.check())?;
    prefer_cubic(processes, &bed.tunnel.left.namespace)?;
    // Sockets made before have the host's congestion control.
    ends.round_trips(via, Exchange::TcpConnect { at_once: 1 }, TURNOVER)?;
    Ok(ends)
}

/// Prefers cubic in networks that the program makes: each inherits the host's congestion control, not that of the lab.
fn prefer_cubic(processes: &Processes, near: &Namespace) -> Result<()> {
    let network = |pid: Pid| fs::metadata(format!("/proc/{pid}/ns/net")).map(|it| it.ino());
    let own = network(near.pid())?;
    for pid in processes.pids()? {
        if network(pid)? != own {
            let mut enter = Command::new("nsenter");
            enter.args(["--net", "--target", &pid.to_string(), "sh", "-c"]);
            enter.arg("echo cubic > /proc/sys/net/ipv4/tcp_congestion_control");
            // A host that denies cubic to namespaces denies it to those of the lab, too.
            let _ = programs::output(&mut enter);
        }
    }
    Ok(())
}

/// Fills the places in arguments or in a file.
fn filled(text: &str, bed: &Bed) -> String {
    let (left, right) = (&bed.tunnel.left.keys, &bed.tunnel.right.keys);
    let socks = format!("--socks5 {LOOPBACK}:{PROXY_PORT}");
    text.replace("{private-key}", &left.private_base64())
        .replace("{public-key}", &right.public_base64())
        .replace("{forwards}", &(socks + &for_each_port(FORWARD)))
        .replace("{onetun-forwards}", &for_each_port(ONETUN_FORWARD))
}

/// Repeats a text with each of the far end's ports.
fn for_each_port(text: &str) -> String {
    let texts = PORTS.map(|port| text.replace("{port}", &port.to_string()));
    texts.concat()
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::tunnel::Set;

    #[test]
    fn a_program_that_is_not_installed_and_an_engine_that_convoy_lacks_are_absent() {
        let missing = Contender::wireguard("wireproxy", Path::new("nowhere/wireproxy"));
        let why = absence(&missing).unwrap();
        assert!(why.contains("target/peers/bin or PATH"), "{why}");
        // It prints its arguments: no engine among them.
        let all = Set::Rootless.contenders(Path::new("/bin/echo"), Path::new(""));
        let one = all.iter().find(|one| one.name == "ports-smoltcp").unwrap();
        let why = absence(one).unwrap();
        assert!(why.contains("--engine smoltcp"), "{why}");
    }
}
