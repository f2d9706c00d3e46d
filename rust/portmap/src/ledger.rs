//! The state of a mapping, and a note of what the router may forward.

use tokio::sync::watch;

use crate::{mapping::Mapping, problem::Problem};

/// The state of a mapping.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum State {
    /// The router is being asked for the first time.
    Asking,
    /// The router forwards the port.
    Mapped(Mapping),
    /// No port is mapped; the router is asked again later.
    Failed(Problem),
}

/// Records what a router was asked for and what it has answered. Clones share it.
#[derive(Clone, Debug)]
pub(crate) struct Ledger(watch::Sender<Entry>);

/// The state of a mapping, and the one to withdraw at its end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) state: State,
    /// The mapping that the router may have: it has granted it, or may have granted it for good without an answer.
    pub(crate) noted: Option<Mapping>,
}

impl Ledger {
    /// Begins with a mapping that may still be there.
    pub(crate) fn new(former: Option<Mapping>) -> (Self, watch::Receiver<Entry>) {
        let state = State::Asking;
        let noted = former;
        let (sender, receiver) = watch::channel(Entry { state, noted });
        (Self(sender), receiver)
    }

    /// Records a grant; returns another mapping for good that it replaces in the note.
    pub(crate) fn mapped(&self, mapping: &Mapping) -> Option<Mapping> {
        let mut replaced = None;
        self.change(|entry| {
            entry.state = State::Mapped(mapping.clone());
            replaced = entry.noted.replace(mapping.clone());
        });
        let place = |it: &Mapping| (it.router, it.external.port());
        replaced.filter(|it| may_last(it) && place(it) != place(mapping))
    }

    /// Records that no port is mapped, as far as is known. A mapping for good stays noted, as it may still be there.
    pub(crate) fn failed(&self, problem: Problem) {
        self.change(|entry| {
            entry.state = State::Failed(problem);
            entry.noted = entry.noted.take().filter(may_last);
        });
    }

    /// Records a request for a mapping for good; returns the former note.
    pub(crate) fn asked(&self, mapping: &Mapping) -> Option<Mapping> {
        let mut former = None;
        self.change(|entry| former = entry.noted.replace(mapping.clone()));
        former
    }

    /// Records that the router has refused such a request.
    pub(crate) fn refused(&self, former: Option<Mapping>) {
        self.change(|entry| entry.noted = former);
    }

    /// Records that the router no longer has a mapping.
    pub(crate) fn deleted(&self, mapping: &Mapping) {
        self.change(|entry| {
            let is_mapped = matches!(entry.state, State::Mapped(_));
            entry.noted = entry.noted.take().filter(|it| is_mapped || it != mapping);
        });
    }

    fn change(&self, change: impl FnOnce(&mut Entry)) {
        self.0.send_if_modified(|entry| {
            let former = entry.clone();
            change(entry);
            *entry != former
        });
    }
}

/// Returns whether a mapping may outlive its lifetime: only routers with UPnP forward for good.
fn may_last(mapping: &Mapping) -> bool {
    mapping.control.is_some()
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, SocketAddrV4};

    use super::*;
    use crate::{
        igd::{Place, Service},
        mapping::{Control, Protocol},
    };

    const ROUTER: Ipv4Addr = Ipv4Addr::new(192, 168, 0, 1);

    #[test]
    fn a_request_for_good_is_noted_until_it_is_known_not_to_be_there() {
        let (ledger, seen) = Ledger::new(None);
        let noted = || seen.borrow().noted.clone();
        let asked = mapping(51820);
        // The router refuses one port.
        let former = ledger.asked(&asked);
        assert_eq!(noted(), Some(asked.clone()));
        ledger.refused(former);
        assert_eq!(noted(), None);
        // It does not answer.
        ledger.asked(&asked);
        ledger.failed(Problem::Silent(ROUTER));
        assert_eq!(noted(), Some(asked.clone()));
        ledger.deleted(&mapping(4000));
        assert_eq!(noted(), Some(asked.clone()));
        ledger.deleted(&asked);
        assert_eq!(noted(), None);
    }

    #[test]
    fn a_mapping_that_is_not_renewed_stays_noted_only_if_it_may_be_for_good() {
        for (control, stays) in [(mapping(1).control, true), (None, false)] {
            let granted = Mapping {
                control,
                ..mapping(51820)
            };
            let (ledger, seen) = Ledger::new(None);
            assert_eq!(ledger.mapped(&granted), None);
            ledger.failed(Problem::NoGateway);
            assert_eq!(seen.borrow().noted, Some(granted).filter(|_| stays));
        }
    }

    #[test]
    fn a_mapping_for_good_is_returned_once_another_takes_its_place() {
        let (ledger, seen) = Ledger::new(Some(mapping(51820)));
        assert_eq!(ledger.mapped(&mapping(51820)), None);
        assert_eq!(ledger.mapped(&mapping(51821)), Some(mapping(51820)));
        // It was deleted before.
        ledger.deleted(&mapping(51821));
        assert_eq!(seen.borrow().noted, Some(mapping(51821)));
        let by_pcp = Mapping {
            control: None,
            ..mapping(51821)
        };
        let moved = Mapping {
            router: [192, 168, 1, 1].into(),
            ..by_pcp.clone()
        };
        assert_eq!(ledger.mapped(&by_pcp), None);
        assert_eq!(ledger.mapped(&moved), None);
    }

    /// A mapping by UPnP with this port outside.
    fn mapping(port: u16) -> Mapping {
        let place = Place::of("http://192.168.0.1:5000/ctl", ROUTER).unwrap();
        Mapping {
            protocol: Protocol::Upnp,
            router: ROUTER,
            interface: "eth0".to_owned(),
            mark: None,
            port: 51820,
            external: SocketAddrV4::new([198, 51, 100, 7].into(), port),
            nonce: [7; 12],
            control: Some(Control {
                service: Service::Ip1,
                place,
                client: None,
            }),
        }
    }
}
