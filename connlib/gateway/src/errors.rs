//! Errors of the network outside about a flow's datagrams, and what the peer hears of them.

use std::{io, net::IpAddr};

use convoy_network::{
    counters::Refusal,
    dial::reason,
    errors::{Icmp, Report},
};
use convoy_packet::icmp::Unreachable;

/// The least MTU of a path of IPv4 and of IPv6.
const LEAST_MTU: [u32; 2] = [68, 1_280];

/// Returns the error that a router would send in place of this refusal.
pub(super) fn unreachable(refusal: Refusal) -> Option<Unreachable> {
    match refusal {
        Refusal::TargetRefused => Some(Unreachable::Port),
        Refusal::Unreachable | Refusal::TimedOut | Refusal::NoSource => Some(Unreachable::Host),
        Refusal::NoRoute => Some(Unreachable::Network),
        Refusal::Forbidden | Refusal::TargetDenied | Refusal::Prohibited => {
            Some(Unreachable::Prohibited)
        }
        _ => None,
    }
}

/// Returns the message that a router would send in place of this error, which comes without one.
pub(super) fn of_error(error: &io::Error) -> Option<Unreachable> {
    match error.raw_os_error() {
        // Without the MTU it would say nothing.
        Some(libc::EMSGSIZE) => None,
        // A full queue, which is nobody's fault.
        Some(libc::EAGAIN) => None,
        _ => unreachable(reason(error)),
    }
}

/// Returns what the peer hears of a report, and from where if not from the gateway: as an ICMP message has said it, if
/// there was one. Peers accept few other addresses than the target's: only a router that ends a packet's way must be
/// named.
pub(super) fn of_report(report: &Report, target: IpAddr) -> Option<(Unreachable, Option<IpAddr>)> {
    let is_ipv4 = target.is_ipv4();
    let expired = if is_ipv4 { 11 } else { 3 };
    let from = report.icmp.and_then(|it| {
        let is_named = it.kind == expired || it.from == Some(target);
        it.from.filter(|_| is_named)
    });
    if let Some(mtu) = report.mtu {
        let least = LEAST_MTU[usize::from(!is_ipv4)];
        return (mtu >= least).then_some((Unreachable::TooBig(mtu), from));
    }
    match report.icmp {
        Some(Icmp { kind, code, .. }) if is_error(kind, is_ipv4) => {
            Some((Unreachable::Other(kind, code), from))
        }
        Some(_) => None,
        None => Some((of_error(&report.error)?, None)),
    }
}

/// Returns whether an ICMP message says that a packet has not arrived.
fn is_error(kind: u8, is_ipv4: bool) -> bool {
    match is_ipv4 {
        true => matches!(kind, 3 | 11 | 12),
        false => matches!(kind, 1 | 3 | 4),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(code: i32, icmp: Option<(u8, u8)>, mtu: Option<u32>) -> Report {
        Report {
            icmp: icmp.map(|(kind, code)| Icmp {
                kind,
                code,
                from: Some([192, 0, 2, 1].into()),
            }),
            mtu,
            ..Report::from(io::Error::from_raw_os_error(code))
        }
    }

    #[test]
    fn an_error_keeps_its_meaning() {
        use Unreachable::{Network, Other, Port, Prohibited, TooBig};
        for (error, icmp, mtu, is_ipv4, heard) in [
            (
                libc::ECONNREFUSED,
                Some((3, 3)),
                None,
                true,
                Some(Other(3, 3)),
            ),
            (
                libc::EHOSTUNREACH,
                Some((3, 10)),
                None,
                true,
                Some(Other(3, 10)),
            ),
            (
                libc::EHOSTUNREACH,
                Some((11, 0)),
                None,
                true,
                Some(Other(11, 0)),
            ),
            (libc::EACCES, Some((1, 1)), None, false, Some(Other(1, 1))),
            (
                libc::EHOSTUNREACH,
                Some((3, 0)),
                None,
                false,
                Some(Other(3, 0)),
            ),
            // A redirect, or a message about neighbors.
            (libc::EHOSTUNREACH, Some((5, 0)), None, true, None),
            (libc::EHOSTUNREACH, Some((137, 0)), None, false, None),
            (
                libc::EMSGSIZE,
                Some((3, 4)),
                Some(1_300),
                true,
                Some(TooBig(1_300)),
            ),
            (
                libc::EMSGSIZE,
                None,
                Some(1_280),
                false,
                Some(TooBig(1_280)),
            ),
            (libc::EMSGSIZE, Some((2, 0)), Some(600), false, None),
            (libc::EMSGSIZE, None, None, true, None),
            (libc::ECONNREFUSED, None, None, true, Some(Port)),
            (libc::EACCES, None, None, false, Some(Prohibited)),
            (libc::EAGAIN, None, None, true, None),
            (libc::ENETUNREACH, None, None, true, Some(Network)),
        ] {
            let target = if is_ipv4 { "192.0.2.7" } else { "2001:db8::7" };
            let found = of_report(&report(error, icmp, mtu), target.parse().unwrap());
            assert_eq!(found.map(|(why, _)| why), heard, "{error} {icmp:?} {mtu:?}");
            let is_expired = matches!(
                (icmp, is_ipv4),
                (Some((11, _)), true) | (Some((3, _)), false)
            );
            assert_eq!(found.and_then(|(_, from)| from).is_some(), is_expired);
        }
    }
}
