//! A tunnel between two hosts that is already up.

use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, ToSocketAddrs as _};
use std::process::Command;
use std::time::Duration;

use anyhow::Context as _;
use convoy_lab::measure::Ends;
use convoy_lab::traffic::{Agent, serve_connections};

use crate::cli::LogFormat;
use crate::logging;

use super::args::SpeedtestArgs;
use super::measure::{IDLE_PLANNED, Path, planned};
use super::progress::Progress;
use super::report::{Ceiling, Report};
use super::{inside, table};

/// The TCP port of `--serve`; the traffic takes free ports of the same host.
const PORT: u16 = 5_182;

/// Serves tests until interrupted.
pub(super) fn serve(address: IpAddr) -> anyhow::Result<()> {
    logging::init(LogFormat::Text)?;
    let listener = listen(address)?;
    eprintln!(
        "serving speed tests on {} (Ctrl-C ends it)",
        listener.local_addr()?
    );
    eprintln!("on the other host: convoy speedtest --to ADDRESS-OF-THIS-HOST-IN-THE-TUNNEL");
    Ok(serve_connections(&listener)?)
}

/// Measures the way to `server` and prints.
pub(super) fn measure(args: &SpeedtestArgs, server: &str) -> anyhow::Result<()> {
    let to = resolve(server)?;
    let tests = args.tests();
    let planned_tests = tests.iter().map(|&test| planned(test, args.window()));
    let progress = Progress::new(planned_tests.sum::<Duration>() + IDLE_PLANNED);

    let mut ends = ends(to)?;
    let mut path = Path {
        ends: &mut ends,
        via: to.ip(),
        tunnel: None,
        window: args.window(),
        progress: &progress,
    };
    let runs = path.run_all(&tests)?;
    drop(progress);

    let report = Report::new(args.settings(), Ceiling::default(), runs);
    table::print(&report, args.json)
}

fn listen(address: IpAddr) -> anyhow::Result<TcpListener> {
    let listener = TcpListener::bind((address, PORT)).or_else(|error| {
        let everywhere = address.is_unspecified() && address.is_ipv6();
        // A host may have no IPv6 at all.
        if everywhere && error.raw_os_error() == Some(libc::EAFNOSUPPORT) {
            TcpListener::bind((Ipv4Addr::UNSPECIFIED, PORT))
        } else {
            Err(error)
        }
    });
    listener.with_context(|| format!("listen on {address}, TCP port {PORT}"))
}

fn ends(to: SocketAddr) -> anyhow::Result<Ends> {
    let far = Agent::connect(to).with_context(|| {
        format!(
            "no speed test server answers at {to} (fix: start `convoy speedtest --serve` there, \
             and open TCP port {PORT})"
        )
    })?;
    Ok(Ends::new(local_agent()?, local_agent()?, far)?)
}

fn local_agent() -> anyhow::Result<Agent> {
    let command = inside::traffic(Command::new(inside::program()?));
    Ok(Agent::spawn(command)?)
}

/// The address of `server`, a name or an address, with or without a port.
fn resolve(server: &str) -> anyhow::Result<SocketAddr> {
    if let Ok(address) = server.trim_matches(['[', ']']).parse::<IpAddr>() {
        return Ok((address, PORT).into());
    }
    let mut addresses = match server.rsplit_once(':') {
        Some((_, port)) if port.parse::<u16>().is_ok() => server.to_socket_addrs(),
        _ => (server, PORT).to_socket_addrs(),
    }
    .with_context(|| format!("find the address of {server}"))?;
    addresses
        .next()
        .with_context(|| format!("{server} has no address"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_is_named_with_or_without_a_port() {
        let resolved = |server| resolve(server).unwrap().to_string();
        assert_eq!(resolved("198.18.0.2"), "198.18.0.2:5182");
        assert_eq!(resolved("198.18.0.2:99"), "198.18.0.2:99");
        assert_eq!(resolved("fd00::2"), "[fd00::2]:5182");
        assert_eq!(resolved("[fd00::2]"), "[fd00::2]:5182");
        assert_eq!(resolved("[fd00::2]:99"), "[fd00::2]:99");
    }
}
