//! The mapping of the tunnel's UDP port that the router is asked for, if the configuration says so.

use std::{future::pending, net::SocketAddr};

use convoy_portmap::{Mapping, PortMapping, State, Target, withdraw};
use convoy_report::PortMappingStatus;
use tracing::{info, warn};

/// The port, and its mapping if one is wanted.
#[derive(Debug, Default)]
pub(crate) struct PortMap {
    /// The tunnel's port; `None` until it has been read.
    port: Option<u16>,
    kept: Option<PortMapping>,
    /// The state last written to the log.
    logged: Option<State>,
}

impl PortMap {
    /// Forgets the tunnel's port, which may have changed.
    pub(crate) fn forget_port(&mut self) {
        self.port = None;
    }

    /// Returns whether the tunnel's port is unknown.
    pub(crate) fn lacks_port(&self) -> bool {
        self.port.is_none()
    }

    /// Records the tunnel's port; 0 if it has none yet.
    pub(crate) fn note_port(&mut self, port: u16) {
        self.port = Some(port).filter(|port| *port != 0);
    }

    /// Asks for a mapping of the port, by requests with this mark; `former` is a mapping that may still be there.
    pub(crate) fn keep(&mut self, mark: Option<u32>, former: Option<&Mapping>) {
        let Some(port) = self.port else { return };
        let target = Target { port, mark };
        match &self.kept {
            Some(kept) if kept.target() == target => {}
            Some(kept) if kept.target().port == port => kept.ask_again(target),
            _ => {
                self.end(None);
                let (former, other) = match former {
                    Some(mapping) if mapping.port == port => (former, None),
                    other => (None, other.cloned()),
                };
                if let Some(other) = other {
                    tokio::spawn(async move { withdraw(&other).await });
                }
                self.kept = Some(PortMapping::begin(target, former));
            }
        }
    }

    /// Withdraws the mapping or, before the router has answered, the one that is `noted`, without waiting.
    pub(crate) fn end(&mut self, noted: Option<&Mapping>) {
        let mapping = self.to_note(noted);
        (self.kept, self.logged) = (None, None);
        if let Some(mapping) = mapping {
            tokio::spawn(async move { withdraw(&mapping).await });
        }
    }

    /// Withdraws as [`Self::end`] does, and waits until that is done.
    pub(crate) async fn finish(&mut self, noted: Option<&Mapping>) {
        let mapping = self.to_note(noted);
        (self.kept, self.logged) = (None, None);
        if let Some(mapping) = mapping {
            withdraw(&mapping).await;
        }
    }

    /// Asks again, since the network may have changed.
    pub(crate) fn network_changed(&self) {
        if let Some(kept) = &self.kept {
            kept.ask_again(kept.target());
        }
    }

    /// Waits until the mapping has changed. May be cancelled.
    pub(crate) async fn changed(&mut self) {
        match &mut self.kept {
            Some(kept) => kept.changed().await,
            None => pending().await,
        }
    }

    /// Writes the mapping to the log.
    pub(crate) fn log(&mut self) {
        let state = self.state();
        if state == self.logged {
            return;
        }
        self.logged = state;
        match &self.logged {
            Some(State::Mapped(it)) => {
                let (external, protocol) = (it.external, it.protocol);
                info!("The router forwards {external} to this machine, by {protocol}");
            }
            Some(State::Failed(problem)) => warn!("No port is mapped: {problem}"),
            Some(State::Asking) | None => {}
        }
    }

    /// Returns the mapping, if there is one.
    pub(crate) fn mapping(&self) -> Option<Mapping> {
        match self.state()? {
            State::Mapped(mapping) => Some(mapping),
            State::Asking | State::Failed(_) => None,
        }
    }

    /// Returns the address that the router forwards.
    pub(crate) fn external(&self) -> Option<SocketAddr> {
        self.mapping().map(|it| it.external.into())
    }

    /// Returns the mapping to record for another process in place of `noted`.
    pub(crate) fn to_note(&self, noted: Option<&Mapping>) -> Option<Mapping> {
        match &self.kept {
            Some(kept) => kept.noted(),
            // The one before may still be there while the tunnel's port is not known.
            None => noted.cloned(),
        }
    }

    /// Describes the mapping; `None` if none is wanted.
    pub(crate) fn status(&self) -> Option<PortMappingStatus> {
        let mut status = PortMappingStatus::default();
        match self.state()? {
            State::Asking => {}
            State::Failed(problem) => status.problem = Some(problem.to_string()),
            State::Mapped(mapping) => {
                status.external = Some(mapping.external.to_string());
                status.protocol = Some(mapping.protocol.to_string());
            }
        }
        Some(status)
    }

    fn state(&self) -> Option<State> {
        self.kept.as_ref().map(PortMapping::state)
    }
}

#[cfg(test)]
mod tests {
    use std::{net::Ipv4Addr, time::Duration};

    use tokio::{net::UdpSocket, time::timeout};

    use super::*;

    /// A router of this test alone.
    const ROUTER: Ipv4Addr = Ipv4Addr::new(127, 53, 57, 1);

    #[tokio::test]
    async fn a_noted_mapping_stays_noted_until_its_router_is_asked_and_is_withdrawn_if_never() {
        let noted = format!(
            r#"{{"protocol":"PCP","router":"{ROUTER}","interface":"","mark":null,"port":51820,"external":"198.51.100.7:51820","nonce":[7,7,7,7,7,7,7,7,7,7,7,7]}}"#
        );
        let noted: Mapping = serde_json::from_str(&noted).unwrap();
        let router = UdpSocket::bind((ROUTER, 5351)).await.unwrap();
        let mut port_map = PortMap::default();
        // The tunnel's port is not known yet.
        port_map.keep(None, Some(&noted));
        assert_eq!(port_map.to_note(Some(&noted)), Some(noted.clone()));
        port_map.end(Some(&noted));
        let mut request = [0; 100];
        let received = timeout(Duration::from_secs(30), router.recv(&mut request));
        assert_eq!(received.await.unwrap().unwrap(), 60);
        assert_eq!(request[4..8], [0; 4], "no deletion");
        assert_eq!(request[24..36], noted.nonce);
    }
}
