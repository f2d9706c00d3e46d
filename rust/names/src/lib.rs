//! Looks up endpoints' names outside of the tunnel, whatever state it is in.
//!
//! The system's resolver may lead into the tunnel, which is perhaps dead because its endpoint has moved. Therefore
//! the queries go to the name servers of the network below, over sockets with the tunnel's firewall mark, which
//! keeps them out of it and lets them pass the kill switch.
//!
//! 1. `/etc/hosts` comes first (`hosts`).
//! 2. `servers::choose` picks the servers from files that are read again for each look-up.
//! 3. They are asked in turn, for both address families at once (`query`).
//! 4. Addresses at which no server can be are left out (`usable`).
//! 5. Addresses to which no route leads go last (`order`).
//!
//! The supervisor and the doctor call it. It changes nothing on the host, and remembers no answer.

mod hosts;
mod order;
mod query;
mod servers;
mod sockets;
mod sources;
mod usable;

use std::{net::IpAddr, time::Duration};

use futures_util::stream::{FuturesUnordered, StreamExt as _};

use query::{Failure, Question, SERVER_TIME};
use servers::choose;
use sources::Sources;
use usable::{Flaw, usable};

const DNS_PORT: u16 = 53;
/// Time for a name server's answer before the next one is asked as well.
const HEAD_START: Duration = Duration::from_secs(1);

/// Looks up names.
#[derive(Debug)]
pub struct Names {
    mark: Option<u32>,
    /// The tunnel's own name servers.
    without: Vec<IpAddr>,
    /// The tunnel's own addresses.
    own: Vec<IpAddr>,
    sources: Sources,
}

impl Names {
    /// `mark`: the firewall mark of the tunnel's datagrams. `without`: the name servers within the tunnel. `own`:
    /// its addresses.
    pub fn new(mark: Option<u32>, without: Vec<IpAddr>, own: Vec<IpAddr>) -> Self {
        Self {
            mark: mark.filter(|mark| *mark != 0),
            without,
            own,
            sources: Sources::default(),
        }
    }

    /// The name servers of other hosts that would be asked now.
    pub fn servers(&self) -> Vec<IpAddr> {
        let chosen = choose(&self.sources.texts(), &self.without, true);
        let servers = chosen.servers.iter().map(|server| server.address);
        servers.filter(|address| !address.is_loopback()).collect()
    }

    /// The addresses of a name in order of preference, or the reason why there are none.
    ///
    /// Takes 5 s at most for each name server, and asks the next one after a second.
    pub async fn look_up(&self, name: &str) -> Result<Vec<IpAddr>, String> {
        let listed = hosts::addresses_of(name, &self.sources.hosts());
        let addresses = match usable(listed, Flaw::of) {
            (listed, None) if listed.is_empty() => {
                let found = self.ask_servers(name).await;
                found.map_err(|failure| failure.to_string())?
            }
            (listed, Some(useless)) if listed.is_empty() => {
                return Err(format!("/etc/hosts says {useless}"));
            }
            (listed, _) => listed,
        };
        let has_route = |address| sockets::has_route(address, self.mark);
        Ok(order::in_order(addresses, has_route))
    }

    async fn ask_servers(&self, name: &str) -> Result<Vec<IpAddr>, Failure> {
        let texts = self.sources.texts();
        let chosen = choose(&texts, &self.without, self.mark.is_some());
        if chosen.servers.is_empty() {
            return Err(Failure::NoServer);
        }
        tracing::debug!(name, servers = ?chosen.servers, "Looking up a name");
        let questions = chosen.servers.iter().map(|server| {
            let question = Question {
                name,
                search: &chosen.search,
                server,
                port: DNS_PORT,
                mark: self.mark,
                own: &self.own,
                time: SERVER_TIME,
            };
            question.ask()
        });
        first_success(questions, HEAD_START).await
    }
}

/// Starts one attempt after another, the next when one fails or `head_start` has passed; returns the first
/// success, or the failure that says most.
async fn first_success<T>(
    mut attempts: impl Iterator<Item = impl Future<Output = Result<T, Failure>>>,
    head_start: Duration,
) -> Result<T, Failure> {
    let mut running: FuturesUnordered<_> = attempts.next().into_iter().collect();
    let mut failure = Failure::Silence;
    let mut has_more = true;
    loop {
        tokio::select! {
            biased;
            outcome = running.next() => match outcome {
                Some(Ok(success)) => return Ok(success),
                Some(Err(other)) => failure = failure.max(other),
                None if has_more => {}
                None => return Err(failure),
            },
            () = tokio::time::sleep(head_start), if has_more => {}
        }
        let next = attempts.next();
        has_more = next.is_some();
        running.extend(next);
    }
}

#[cfg(test)]
mod tests {
    use std::future::{Ready, pending, ready};

    use futures_util::future::Either;

    use super::*;

    type Attempt = Either<Ready<Result<u8, Failure>>, std::future::Pending<Result<u8, Failure>>>;

    const LONG: Duration = Duration::from_secs(3600);

    #[test]
    fn the_next_server_is_asked_when_one_fails_or_is_silent() {
        let refused = || Either::Left(ready(Err(Failure::Refused("SERVFAIL".to_owned()))));
        let missing = || Either::Left(ready(Err(Failure::NotFound)));
        let found = |n| Either::Left(ready(Ok(n)));
        let silent = || Either::Right(pending());
        assert_eq!(outcome(vec![found(1), found(2)], LONG), Ok(1));
        assert_eq!(outcome(vec![refused(), found(2)], LONG), Ok(2));
        assert_eq!(outcome(vec![missing(), missing(), found(3)], LONG), Ok(3));
        assert_eq!(outcome(vec![silent(), found(2)], Duration::ZERO), Ok(2));
        assert_eq!(
            outcome(vec![silent(), refused(), found(3)], Duration::ZERO),
            Ok(3)
        );
        let all_failed = outcome(vec![refused(), missing(), refused()], LONG);
        assert_eq!(all_failed, Err(Failure::NotFound));
        assert_eq!(outcome(Vec::new(), LONG), Err(Failure::Silence));
    }

    #[test]
    fn without_a_server_outside_of_the_tunnel_the_reason_says_so() {
        let outcome = look_up("vpn.example.org", None);
        assert_eq!(
            outcome,
            Err("no name server outside of the tunnel".to_owned())
        );
    }

    #[test]
    fn a_hosts_file_may_name_this_host_but_nobody() {
        let directory = tempfile::tempdir().unwrap();
        let hosts = directory.path().join("hosts");
        let listed = "127.0.0.1 here\n0.0.0.0 here blocked\n10.8.0.2 own\n";
        std::fs::write(&hosts, listed).unwrap();
        for (name, expected) in [("here", "127.0.0.1"), ("own", OWN)] {
            let expected = vec![expected.parse().unwrap()];
            assert_eq!(look_up(name, Some(&hosts)), Ok(expected), "{name}");
        }
        let reason = "/etc/hosts says 0.0.0.0, no host's address";
        assert_eq!(look_up("blocked", Some(&hosts)), Err(reason.to_owned()));
    }

    const OWN: &str = "10.8.0.2";

    fn look_up(name: &str, hosts: Option<&std::path::Path>) -> Result<Vec<IpAddr>, String> {
        let names = Names {
            sources: Sources::nowhere_but(hosts),
            ..Names::new(None, Vec::new(), vec![OWN.parse().unwrap()])
        };
        on_runtime(names.look_up(name))
    }

    fn outcome(attempts: Vec<Attempt>, head_start: Duration) -> Result<u8, Failure> {
        on_runtime(first_success(attempts.into_iter(), head_start))
    }

    fn on_runtime<T>(future: impl Future<Output = T>) -> T {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .build();
        runtime.unwrap().block_on(future)
    }
}
