//! Turns the answers of STUN servers into findings.

use std::net::{IpAddr, SocketAddr};

use convoy_portmap::{Probed, Problem};

use super::{
    ask::PATIENCE,
    facts::{Answer, Asked, Facts},
};
use crate::finding::Finding;

const ADDRESSES: &str = "nat-addresses";
const SERVER: &str = "nat-server";
const ROUTE: &str = "nat-route";
const UDP: &str = "nat-udp";
const NAT: &str = "nat";
const MAPPING: &str = "nat-mapping";
const ROUTER: &str = "nat-router";

const ADD_SERVERS: &str = "Name two servers at different addresses, by `--stun HOST[:PORT]` or by lines `#convoy: Stun \
     = HOST[:PORT]` under [Interface] of the tunnel's file.";

/// The network's treatment of the sockets of one family.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    /// No server answered.
    Blocked,
    /// Servers see the socket's own address.
    NoNat,
    /// One address of a server is not enough to tell the mapping.
    OneServer,
    /// All servers see the same address and port.
    EndpointIndependent,
    /// They see the same port at different addresses.
    Pooled,
    /// They see different ports.
    Hard,
}

/// Judges all facts.
pub(super) fn judge(facts: &Facts) -> Vec<Finding> {
    let mut findings = vec![own(facts)];
    findings.extend(facts.unresolved.iter().map(unresolved));
    findings.extend(facts.tunnels.iter().map(|name| tunnel(name)));
    findings.extend(facts.asked.iter().filter_map(|asked| answer(facts, asked)));
    if facts.asked.is_empty() && facts.unresolved.is_empty() {
        let what = "Whether there is a NAT, and how it maps addresses, cannot be judged without STUN servers.";
        findings.push(Finding::note(NAT, what, ADD_SERVERS));
    }
    for ipv6 in [false, true] {
        let of_family = |asked: &&Asked| asked.address.is_ipv6() == ipv6;
        let asked: Vec<_> = facts.asked.iter().filter(of_family).collect();
        if let Some(verdict) = verdict(&facts.own, &asked) {
            findings.extend(worded(verdict, ipv6, &asked));
        }
    }
    findings.extend(facts.router.as_ref().map(router));
    findings
}

/// Tells whether the router forwards ports, and by which protocol.
fn router(asked: &Result<Probed, Problem>) -> Finding {
    match asked {
        Ok(Probed {
            router,
            protocol: Some(protocol),
        }) => Finding::ok(
            ROUTER,
            format!("The router {router} forwards ports, by {protocol}."),
        ),
        Ok(Probed {
            router,
            protocol: None,
        }) => {
            let what = format!(
                "The router {router} forwards no ports: it answers neither PCP, NAT-PMP nor UPnP."
            );
            let fix = "If there is a NAT that peers cannot pass, switch one of these on in the router's settings, and \
                 write `#convoy: PortMap = yes` under [Interface].";
            Finding::note(ROUTER, what, fix)
        }
        Err(Problem::NoGateway) => {
            let what = "There is no default gateway of IPv4 that could forward ports.";
            Finding::ok(ROUTER, what)
        }
        Err(problem) => {
            let what = format!("Whether the router forwards ports is not known: {problem}.");
            Finding::note(
                ROUTER,
                what,
                "See that this machine is connected, and run this as root.",
            )
        }
    }
}

/// Tells this machine's own addresses.
pub(super) fn own(facts: &Facts) -> Finding {
    if facts.own.is_empty() {
        let what = "This machine has no address outside of tunnels that others can send to.";
        return Finding::warning(ADDRESSES, what, "Connect to a network.");
    }
    let own = list(facts.own.iter());
    Finding::ok(ADDRESSES, format!("This machine's own addresses: {own}."))
}

/// Tells why no server was asked: requests would have gone into this tunnel.
pub(super) fn kept_in(tunnel: &str) -> Finding {
    let what = format!("No server was asked, as only root can send outside of {tunnel}.");
    let fix = format!("Run `convoy doctor --nat {tunnel}` as root.");
    Finding::note(NAT, what, fix)
}

fn unresolved((server, reason): &(String, String)) -> Finding {
    let what = format!("{server} has no address: {reason}.");
    let fix = "Check its spelling, and the name servers of the network outside the tunnel.";
    Finding::warning(SERVER, what, fix)
}

fn tunnel(name: &str) -> Finding {
    let what = format!(
        "Requests leave by {name}, a tunnel, so that servers see the address of its other end."
    );
    let fix = format!(
        "If {name} is Convoy's, run `convoy doctor --nat {name}` as root, which looks outside of it; else take it \
         down first."
    );
    Finding::note(ROUTE, what, fix)
}

/// Tells one server's answer; `None` if its family is of no use here, or if the family's finding tells it.
fn answer(facts: &Facts, asked: &Asked) -> Option<Finding> {
    let name = name(asked);
    let mut others = facts.asked.iter().filter(|it| it.address != asked.address);
    Some(match &asked.answer {
        Answer::Seen {
            local_port,
            outside,
        } => {
            let what = format!("{name} sees the fresh UDP port {local_port} as {outside}.");
            Finding::ok(SERVER, what)
        }
        Answer::Silence => {
            let is_alike = |it: &Asked| it.address.is_ipv6() == asked.address.is_ipv6();
            let is_seen = |it: &Asked| matches!(it.answer, Answer::Seen { .. });
            if !others.any(|it| is_alike(it) && is_seen(it)) {
                return None;
            }
            let fix = "See that it runs, or name another server.";
            Finding::note(SERVER, format!("{name} does not answer."), fix)
        }
        Answer::Unsent(reason) => {
            let was_sent = |it: &Asked| !matches!(it.answer, Answer::Unsent(_));
            if others.any(|it| it.server == asked.server && was_sent(it)) {
                return None;
            }
            let fix = format!(
                "See that a route leads there (`ip route get {}`), and that no firewall or kill switch of this \
                 machine is in the way.",
                asked.address.ip()
            );
            let what = format!("Nothing can be sent to {name}: {reason}.");
            Finding::warning(SERVER, what, fix)
        }
    })
}

/// Judges one family; `None` if no request left.
fn verdict(own: &[IpAddr], asked: &[&Asked]) -> Option<Verdict> {
    let was_sent = |it: &&&Asked| !matches!(it.answer, Answer::Unsent(_));
    asked.iter().find(was_sent)?;
    let seen = seen(asked);
    if seen.is_empty() {
        return Some(Verdict::Blocked);
    }
    let is_own = |(_, port, outside): &(IpAddr, u16, SocketAddr)| {
        own.contains(&outside.ip()) && outside.port() == *port
    };
    // A server in this network sees the machine's own address, and tells nothing of the NAT.
    let beyond: Vec<_> = seen.into_iter().filter(|it| !is_own(it)).collect();
    let Some((first_server, _, first)) = beyond.first() else {
        return Some(Verdict::NoNat);
    };
    let has_one_port = beyond.iter().all(|(.., it)| it.port() == first.port());
    let has_one_address = beyond.iter().all(|(.., it)| it.ip() == first.ip());
    let has_one_server = beyond.iter().all(|(server, ..)| server == first_server);
    Some(match (has_one_port, has_one_address) {
        (false, _) => Verdict::Hard,
        (true, false) => Verdict::Pooled,
        (true, true) if has_one_server => Verdict::OneServer,
        (true, true) => Verdict::EndpointIndependent,
    })
}

/// Lists the servers that answered, with the socket's port here and its address outside.
fn seen(asked: &[&Asked]) -> Vec<(IpAddr, u16, SocketAddr)> {
    let seen = asked.iter().filter_map(|it| match it.answer {
        Answer::Seen {
            local_port,
            outside,
        } => Some((it.address.ip(), local_port, outside)),
        Answer::Silence | Answer::Unsent(_) => None,
    });
    seen.collect()
}

fn worded(verdict: Verdict, ipv6: bool, asked: &[&Asked]) -> Vec<Finding> {
    let family = ["IPv4", "IPv6"][usize::from(ipv6)];
    let mapping = match verdict {
        Verdict::Blocked => return vec![blocked(family, asked)],
        Verdict::NoNat => {
            let what =
                format!("There is no NAT for {family}: servers see this machine's own address.");
            return vec![Finding::ok(NAT, what)];
        }
        Verdict::OneServer => Finding::note(
            MAPPING,
            format!(
                "The mapping of {family} cannot be judged: that takes answers of two servers, at different addresses."
            ),
            ADD_SERVERS,
        ),
        Verdict::EndpointIndependent => Finding::ok(
            MAPPING,
            format!(
                "The mapping of {family} is endpoint-independent: all servers see the same address and port, which \
                 peers can use, too."
            ),
        ),
        Verdict::Pooled => pooled(family),
        Verdict::Hard => hard(family),
    };
    let outside: Vec<_> = seen(asked).into_iter().map(|(.., it)| it.ip()).collect();
    let what = format!(
        "There is a NAT for {family}: servers see {}.",
        list(unique(&outside).iter())
    );
    vec![Finding::ok(NAT, what), mapping]
}

fn blocked(family: &str, asked: &[&Asked]) -> Finding {
    let names: Vec<_> = asked.iter().map(|it| name(it)).collect();
    let what = format!(
        "UDP over {family} is blocked, or all servers are down: no answer within {} s from {}.",
        PATIENCE.as_secs(),
        list(names.iter())
    );
    let fix =
        "Let UDP out at the firewalls on the way, or try other servers by `--stun HOST[:PORT]`.";
    Finding::warning(UDP, what, fix)
}

fn pooled(family: &str) -> Finding {
    let what = format!(
        "The mapping of {family} is not endpoint-independent: servers see the same port at different addresses, so \
         that peers cannot know which one to use."
    );
    let fix = "If this machine has several ways out, let all servers and peers be reached by the same one; else ask \
               who runs the NAT to keep a host at one address (RFC 4787: paired pooling).";
    Finding::warning(MAPPING, what, fix)
}

fn hard(family: &str) -> Finding {
    let what = format!(
        "The mapping of {family} is not endpoint-independent, as each server sees another port: direct paths to peers \
         behind such hard NATs too will not come about."
    );
    let fix = "Use IPv6 at both ends, or have the router map endpoint-independently (often called full cone); until \
               then, the hub carries what goes to such peers.";
    Finding::warning(MAPPING, what, fix)
}

/// Names a server, with its address if it is named otherwise.
fn name(asked: &Asked) -> String {
    let address = asked.address.to_string();
    match asked.server == address {
        true => address,
        false => format!("{} ({address})", asked.server),
    }
}

fn unique(all: &[IpAddr]) -> Vec<IpAddr> {
    let mut unique: Vec<IpAddr> = Vec::new();
    for one in all {
        if !unique.contains(one) {
            unique.push(*one);
        }
    }
    unique
}

fn list(all: impl Iterator<Item = impl ToString>) -> String {
    let all: Vec<_> = all.map(|it| it.to_string()).collect();
    all.join(", ")
}

#[cfg(test)]
mod tests;
