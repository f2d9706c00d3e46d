//! What carries a contestant's packets from the left end to the right one.

use std::net::IpAddr;

use anyhow::Context as _;
use convoy_lab::measure::{self, Bed};
use convoy_lab::{Namespace, Pid};

use super::openvpn::{Certificates, OpenVpn};
use crate::contestants::{Contestant, Protocol};

/// A way through the bed.
///
/// Beside an OpenVPN the bed's last WireGuard daemons remain; nothing goes through them.
pub(super) struct Way<'a> {
    pub(super) bed: &'a mut Bed,
    /// None is the veth without a tunnel.
    contestant: Option<&'a Contestant>,
    certificates: &'a Certificates,
    openvpn: Option<OpenVpn>,
}

impl<'a> Way<'a> {
    pub(super) fn new(
        bed: &'a mut Bed,
        contestant: Option<&'a Contestant>,
        certificates: &'a Certificates,
    ) -> Self {
        Self {
            bed,
            contestant,
            certificates,
            openvpn: None,
        }
    }

    /// Starts the daemons, new ones where they run, and waits until packets pass.
    pub(super) fn start(&mut self) -> anyhow::Result<()> {
        match self.contestant {
            None => Ok(()),
            Some(one) if one.protocol == Protocol::OpenVpn => {
                // The old ones end before the new ones begin.
                self.openvpn = None;
                let mut openvpn = OpenVpn::start(self.bed, one, self.certificates)?;
                openvpn.wait_until_up(&mut self.bed.ends)?;
                self.openvpn = Some(openvpn);
                Ok(())
            }
            Some(one) => {
                self.bed.restart(&one.implementation())?;
                Ok(self.bed.wait_until_up()?)
            }
        }
    }

    /// Fails when a daemon has ended.
    pub(super) fn check(&mut self) -> anyhow::Result<()> {
        match &mut self.openvpn {
            Some(openvpn) => openvpn.check(),
            None => Ok(measure::check(&mut self.bed.tunnel)?),
        }
    }

    pub(super) fn via(&self) -> IpAddr {
        match self.contestant {
            None => self.bed.bare(),
            Some(one) if one.protocol == Protocol::OpenVpn => OpenVpn::FAR,
            Some(_) => self.bed.tunnelled(),
        }
    }

    pub(super) fn left(&self) -> &Namespace {
        &self.bed.tunnel.left.namespace
    }

    pub(super) fn right(&self) -> &Namespace {
        &self.bed.tunnel.right.namespace
    }

    /// Who does the work; none where it is not processes that do it.
    pub(super) fn daemons(&self) -> Option<[Pid; 2]> {
        let one = self.contestant?;
        match (one.protocol, &self.openvpn) {
            (Protocol::WireGuard, _) => {
                let tunnel = &self.bed.tunnel;
                Some([tunnel.left.daemon.pid(), tunnel.right.daemon.pid()])
            }
            (Protocol::OpenVpn, Some(openvpn)) if !openvpn.is_in_kernel() => Some(openvpn.pids()),
            (Protocol::OpenVpn, _) => None,
        }
    }
}

/// What a daemon logged last, for a message.
pub(super) fn last_lines(log: &str) -> String {
    const LINES: usize = 8;
    let lines: Vec<_> = log.lines().collect();
    lines[lines.len().saturating_sub(LINES)..].join("\n    ")
}

/// Reads of a process what may fail only because it is gone.
pub(super) fn of_both<T>(
    pids: [Pid; 2],
    read: impl Fn(Pid) -> std::io::Result<T>,
) -> anyhow::Result<[T; 2]> {
    let [left, right] = pids.map(|pid| read(pid).with_context(|| format!("read process {pid}")));
    Ok([left?, right?])
}
