//! An existing tunnel between two hosts.

use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, ToSocketAddrs as _};
use std::process::Command;

use anyhow::{Context as _, Result};
use convoy_lab::measure::Ends;
use convoy_lab::traffic::{Agent, serve_connections};

use super::args::SpeedtestArgs;
use super::inside::{agent, program};
use super::measure::Path;
use super::progress::Progress;
use super::report::{Results, Runs};

/// The TCP port of `--serve`; traffic uses free ports of the same host.
const PORT: u16 = 5_182;

/// Serves tests until interrupted.
pub(super) fn serve(address: IpAddr) -> Result<()> {
    let listener = listen(address);
    let listener = listener.with_context(|| format!("listen on {address}, TCP port {PORT}"))?;
    let at = listener.local_addr()?;
    eprintln!("serving speed tests on {at} (Ctrl-C ends it)");
    eprintln!("on the other host: convoy speedtest --to ADDRESS-OF-THIS-HOST-IN-THE-TUNNEL");
    Ok(serve_connections(&listener)?)
}

/// Measures the path to `server`.
pub(super) fn measure(args: &SpeedtestArgs, server: &str) -> Result<Results> {
    let to = resolve(server)?;
    let progress = Progress::new(args.steps());
    let mut path = Path {
        ends: &mut ends(to)?,
        via: to.ip(),
        tunnel: None,
        args,
        progress: &progress,
    };
    Ok(Results::Runs(Runs {
        runs: path.run_all()?,
        ..Runs::default()
    }))
}

fn listen(address: IpAddr) -> std::io::Result<TcpListener> {
    TcpListener::bind((address, PORT)).or_else(|error| {
        let everywhere = address.is_unspecified() && address.is_ipv6();
        // A host may lack IPv6.
        match everywhere && error.raw_os_error() == Some(libc::EAFNOSUPPORT) {
            true => TcpListener::bind((Ipv4Addr::UNSPECIFIED, PORT)),
            false => Err(error),
        }
    })
}

fn ends(to: SocketAddr) -> Result<Ends> {
    let far = Agent::connect(to).with_context(|| {
        format!(
            "no speed test server answers at {to} (fix: start `convoy speedtest --serve` there, and open \
             TCP port {PORT})"
        )
    })?;
    let program = program()?;
    let near = || Agent::spawn(agent(Command::new(&program)));
    Ok(Ends::new(near()?, near()?, far)?)
}

/// The address of `server`, a name or an address, with or without a port.
fn resolve(server: &str) -> Result<SocketAddr> {
    if let Ok(address) = server.trim_matches(['[', ']']).parse::<IpAddr>() {
        return Ok((address, PORT).into());
    }
    let addresses = server.to_socket_addrs();
    let addresses = addresses.or_else(|_| (server, PORT).to_socket_addrs());
    let mut addresses = addresses.with_context(|| format!("find the address of {server}"))?;
    let first = addresses.next();
    first.with_context(|| format!("{server} has no address"))
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
