//! Starts a tunnel process: hands the descriptors over, and waits until it is ready.
//!
//! The process is a child of this one, or a service manager starts it with privileges that this one lacks: then
//! the manager listens on `/run/convoy/NAME.launch`.

use std::{
    env, io,
    os::{
        fd::{AsFd, OwnedFd},
        unix::{net::UnixStream, process::CommandExt},
    },
    path::Path,
    process::Command,
    time::Duration,
};

use anyhow::{Context, bail};
use clap::ValueEnum;
use convoy_config::InterfaceName;
use convoy_daemon::{
    places::Sockets,
    supervised::{ENDS_WITH_SUPERVISOR, HAS_OUTER, INNER_MTU},
};
use convoy_metrics::DaemonArgs;
use convoy_process::{PROGRAM, background, descriptors};
use serde::{Deserialize, Serialize};
use tokio::{io::Interest, time::timeout};

use super::process::{ENDING_TIME, Process, Starting};

/// Time limit for a tunnel process to become ready.
const START_TIME: Duration = Duration::from_secs(20);

/// Longest report of an error in bytes.
const MAX_REPORT: usize = 16 << 10;

/// The environment variables that a tunnel process inherits, besides those for the descriptors.
const ENVIRONMENT: [&str; 3] = ["JOURNAL_STREAM", "LOG_LEVEL", "RUST_LOG"];

/// The hidden command, see [`crate::privileges`].
pub const STEP: &str = "tunnel-process";

/// Everything that a new tunnel process needs.
#[derive(Debug)]
pub(crate) struct Spawn {
    /// Name of the interface.
    pub(crate) name: InterfaceName,
    /// The open TUN.
    pub(crate) tun: OwnedFd,
    /// Listening socket of the UAPI.
    pub(crate) uapi: OwnedFd,
    /// Listening socket for supervisors ([`convoy_daemon::places::tunnel`]).
    pub(crate) listener: OwnedFd,
    /// Where both listen.
    pub(crate) sockets: Sockets,
    /// Whether it keeps running without a supervisor.
    pub(crate) outlives_supervisor: bool,
    /// The MTU of an interface that it cannot watch, in bytes.
    pub(crate) inner_mtu: Option<u16>,
    /// Whether it has an outer tunnel.
    pub(crate) has_outer: bool,
    /// Options of the daemon that it becomes.
    pub(crate) args: DaemonArgs,
}

/// Starts a tunnel process; returns once it is ready, and without it if a service manager has started it.
///
/// Its descriptors arrive through its standard input, a socket, so that no other program that this one starts
/// inherits them. The daemon then reports through it ([`background`]).
pub(super) async fn spawn(spawn: &Spawn) -> anyhow::Result<Option<Starting>> {
    let step = Step::of(spawn);
    let (ours, line, mut process) = match launch(spawn.sockets.launcher.as_deref())? {
        Some(launched) => (launched, step.line()?, None),
        None => {
            let (ours, process) = start(step)?;
            (ours, b"\n".to_vec(), Some(Starting::new(process)))
        }
    };
    let reported = async {
        // If it has already died, the report gives the reason.
        let _ = descriptors::send(
            &ours,
            &line,
            &[&spawn.tun, &spawn.uapi, &spawn.listener].map(AsFd::as_fd),
        );
        ours.set_nonblocking(true)?;
        report(&tokio::net::UnixStream::from_std(ours)?).await
    };
    let report = match timeout(START_TIME, reported).await {
        Ok(Ok(None)) => return Ok(process),
        Ok(Ok(Some(report))) => report,
        Ok(Err(error)) => error.to_string(),
        Err(_) => format!("not ready within {START_TIME:?}"),
    };
    let status = match &mut process {
        Some(process) => process.end_within(ENDING_TIME).await,
        None => None,
    };
    match (report.as_str(), status) {
        ("", Some(status)) => bail!("the tunnel process ended before it was ready ({status})"),
        ("", None) => bail!("the tunnel process ended before it was ready"),
        (report, _) => bail!("cannot start the tunnel: {report}"),
    }
}

/// Asks the service manager, if there is one, to start a tunnel.
fn launch(path: Option<&Path>) -> anyhow::Result<Option<UnixStream>> {
    use io::ErrorKind::{ConnectionRefused, NotFound};
    let Some(path) = path else {
        return Ok(None);
    };
    match UnixStream::connect(path) {
        Ok(stream) => Ok(Some(stream)),
        Err(error) if matches!(error.kind(), ConnectionRefused | NotFound) => Ok(None),
        Err(error) => Err(error).with_context(|| format!("cannot connect to {}", path.display())),
    }
}

/// Starts a child and returns the other end of its standard input.
fn start(step: Step) -> anyhow::Result<(UnixStream, Process)> {
    let (ours, theirs) = UnixStream::pair().context("cannot make a socket")?;
    let child = step.command(theirs.into()).spawn();
    let child = child.context("cannot start the tunnel process")?;
    let process = Process::of_child(child).context("cannot watch the tunnel process")?;
    Ok((ours, process))
}

/// Arguments of the hidden command, beside the descriptors.
#[derive(Debug, PartialEq, Eq, Deserialize, Serialize)]
pub(crate) struct Step {
    /// The daemon's.
    pub(crate) arguments: Vec<String>,
    /// The whole environment. Variables for this process alone, such as NOTIFY_SOCKET, are left out.
    pub(crate) environment: Vec<(String, String)>,
}

impl Step {
    pub(super) fn of(spawn: &Spawn) -> Self {
        let switches = arguments(&spawn.args).into_iter();
        let name = ["--".to_owned(), spawn.name.as_str().to_owned()];
        let passed = ENVIRONMENT.into_iter();
        let passed = passed.filter_map(|name| Some((name, env::var(name).ok()?)));
        let marked = passed.chain([(background::MARKER, "1".to_owned())]);
        let ends = (ENDS_WITH_SUPERVISOR, "1".to_owned());
        let marked = marked.chain((!spawn.outlives_supervisor).then_some(ends));
        let mtu = spawn.inner_mtu.map(|mtu| (INNER_MTU, mtu.to_string()));
        let marked = marked.chain(mtu);
        let outer = (HAS_OUTER, "1".to_owned());
        let marked = marked.chain(spawn.has_outer.then_some(outer));
        Self {
            arguments: switches.chain(name).collect(),
            environment: marked
                .map(|(name, value)| (name.to_owned(), value))
                .collect(),
        }
    }

    /// As one line, for a process that a service manager starts.
    fn line(&self) -> anyhow::Result<Vec<u8>> {
        let mut line = serde_json::to_vec(self)?;
        line.push(b'\n');
        Ok(line)
    }

    fn command(self, stdin: OwnedFd) -> Command {
        let mut command = Command::new(PROGRAM);
        command
            .arg0(env::args_os().next().unwrap_or_else(|| "convoy".into()))
            .arg(STEP)
            .args(self.arguments)
            .env_clear()
            .envs(self.environment)
            .stdin(stdin);
        command
    }
}

/// The switches that mean `args`.
pub fn arguments(args: &DaemonArgs) -> Vec<String> {
    let DaemonArgs {
        // It stays a child in any case.
        foreground: _,
        gso,
        tun_offload,
        udp_gro,
        aead,
        batch,
        clamp_mss,
        log_format,
        // This process serves them.
        metrics: _,
    } = args;
    let switches = [
        ("gso", gso.name().to_owned()),
        ("tun-offload", tun_offload.name().to_owned()),
        ("udp-gro", udp_gro.name().to_owned()),
        ("aead", name_of(aead)),
        ("batch", batch.to_string()),
        (
            "clamp-mss",
            if *clamp_mss { "on" } else { "off" }.to_owned(),
        ),
        ("log-format", name_of(log_format)),
    ];
    let switches = switches.into_iter();
    switches
        .map(|(name, value)| format!("--{name}={value}"))
        .collect()
}

fn name_of(value: &impl ValueEnum) -> String {
    let value = value.to_possible_value();
    value.map_or_else(String::new, |value| value.get_name().to_owned())
}

/// Reads the daemon's report: `None` if it is ready, else the error.
async fn report(from: &tokio::net::UnixStream) -> io::Result<Option<String>> {
    let mut text = Vec::new();
    loop {
        let mut chunk = [0; 1024];
        from.ready(Interest::READABLE).await?;
        match from.try_read(&mut chunk) {
            Ok(0) => break,
            Ok(_) if chunk[0] == background::READY && text.is_empty() => return Ok(None),
            Ok(length) if text.len() < MAX_REPORT => text.extend_from_slice(&chunk[..length]),
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            // It has left the descriptors unread.
            Err(error) if error.kind() == io::ErrorKind::ConnectionReset => break,
            Err(error) => return Err(error),
        }
    }
    Ok(Some(String::from_utf8_lossy(&text).into_owned()))
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use clap::Parser;

    use convoy_daemon::places;

    use super::*;
    use crate::privileges::TunnelProcessArgs;

    /// Command line of a daemon.
    #[derive(Debug, Parser)]
    struct Daemon {
        #[command(flatten)]
        daemon: DaemonArgs,
        interface: String,
    }

    /// Command line of the program, as far as it is meant here.
    #[derive(Debug, Parser)]
    enum Program {
        #[command(name = STEP)]
        TunnelProcess(TunnelProcessArgs),
    }

    #[test]
    fn the_tunnel_gets_the_supervisors_switches() {
        let given = [
            "convoy",
            "--gso=off",
            "--tun-offload=on",
            "--udp-gro=off",
            "--aead=ring",
            "--batch=7",
            "--clamp-mss=on",
            "--log-format=json",
            "wg0",
        ];
        let given = Daemon::parse_from(given).daemon;
        let any = || io::stdin().as_fd().try_clone_to_owned().unwrap();
        let step = Step::of(&Spawn {
            name: "stats".parse().unwrap(),
            tun: any(),
            uapi: any(),
            listener: any(),
            sockets: places::sockets(&"stats".parse().unwrap()),
            outlives_supervisor: true,
            inner_mtu: None,
            has_outer: false,
            args: given.clone(),
        });
        let line = ["convoy".to_owned(), STEP.to_owned()].into_iter();
        let line = line.chain(step.arguments);
        let Program::TunnelProcess(got) = Program::parse_from(line);
        assert_eq!(format!("{:?}", got.daemon), format!("{given:?}"));
        assert_eq!(got.interface.as_str(), "stats");
    }

    #[test]
    fn a_launched_tunnel_gets_arguments_and_environment_in_one_line() {
        let step = Step {
            arguments: vec!["--batch=7".to_owned(), "--".to_owned(), "wg0".to_owned()],
            environment: vec![("RUST_LOG".to_owned(), "a\nb=debug".to_owned())],
        };
        let line = step.line().unwrap();
        assert_eq!(
            line.iter().position(|byte| *byte == b'\n'),
            Some(line.len() - 1)
        );
        assert_eq!(serde_json::from_slice::<Step>(&line).unwrap(), step);
    }

    #[tokio::test]
    async fn a_report_is_readiness_or_an_error_or_nothing() {
        for (said, expected) in [
            (&b"\0"[..], None),
            (b"no /dev/net/tun", Some("no /dev/net/tun")),
            (b"", Some("")),
        ] {
            let (ours, mut theirs) = UnixStream::pair().unwrap();
            theirs.write_all(said).unwrap();
            drop(theirs);
            ours.set_nonblocking(true).unwrap();
            let ours = tokio::net::UnixStream::from_std(ours).unwrap();
            assert_eq!(report(&ours).await.unwrap().as_deref(), expected);
        }
    }
}
