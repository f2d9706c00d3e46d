//! Events that `convoy events` itself generates: a supervisor appears or disappears. Pure.

use convoy_supervision::events::What;

/// A tunnel, as its subscriber knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Tunnel {
    /// Not looked for yet.
    Unknown,
    Down,
    /// Its supervisor sends events.
    Followed,
    /// Its supervisor ended without notice.
    Orphan,
}

impl Tunnel {
    /// Call when a supervisor has accepted the subscription.
    pub(super) fn connected(&mut self) -> Option<What> {
        match std::mem::replace(self, Self::Followed) {
            Self::Unknown | Self::Followed => None,
            Self::Down => Some(What::Up),
            Self::Orphan => Some(What::SupervisorRestarted),
        }
    }

    /// Call when the supervisor has announced that the tunnel is going down.
    pub(super) fn goes_down(&mut self) {
        *self = Self::Down;
    }

    /// Call when the subscription has ended.
    pub(super) fn disconnected(&mut self) -> Option<What> {
        (*self == Self::Followed).then(|| {
            *self = Self::Orphan;
            What::SupervisorDied
        })
    }

    /// Call when there is no supervisor. `has_remains` says whether anything else of the tunnel is left.
    pub(super) fn absent(&mut self, has_remains: bool) -> Option<What> {
        match self {
            Self::Orphan if has_remains => None,
            Self::Orphan => {
                *self = Self::Down;
                let reason = "it was taken down without its supervisor".to_owned();
                Some(What::Down { reason })
            }
            _ => {
                *self = Self::Down;
                None
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tunnel_that_was_up_all_the_time_has_no_event() {
        let mut tunnel = Tunnel::Unknown;
        assert_eq!(tunnel.connected(), None);
        assert_eq!(tunnel, Tunnel::Followed);
    }

    #[test]
    fn a_tunnel_that_goes_down_comes_up_again() {
        let mut tunnel = Tunnel::Followed;
        tunnel.goes_down();
        assert_eq!(tunnel.disconnected(), None);
        assert_eq!(tunnel.absent(true), None);
        assert_eq!(tunnel.connected(), Some(What::Up));
    }

    #[test]
    fn a_supervisor_that_ends_without_a_word_has_died() {
        let mut tunnel = Tunnel::Followed;
        assert_eq!(tunnel.disconnected(), Some(What::SupervisorDied));
        assert_eq!(tunnel.absent(true), None);
        assert_eq!(tunnel.connected(), Some(What::SupervisorRestarted));
        tunnel.disconnected();
        assert!(matches!(tunnel.absent(false), Some(What::Down { .. })));
        assert_eq!(tunnel.connected(), Some(What::Up));
    }
}
