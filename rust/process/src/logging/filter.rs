//! A filter for the events that are logged.

use std::env;

use anyhow::Context;
use tracing::level_filters::LevelFilter;
use tracing_subscriber::EnvFilter;

use super::spans;

/// fast-socks5 logs the passwords of its clients, and turn-client-proto prints its own within its state.
const NO_PASSWORDS: [&str; 4] = [
    "fast_socks5=off",
    "turn_client_proto=off",
    "stun_proto=off",
    "stun_types=off",
];

/// Wish of the user: what the process is to log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Wanted {
    /// A filter of tracing-subscriber.
    Filter(String),
    Level(LevelFilter),
}

impl Wanted {
    /// By `RUST_LOG`, or otherwise `LOG_LEVEL`.
    pub(super) fn by_environment() -> Self {
        match env::var("RUST_LOG") {
            Ok(directives) if !directives.is_empty() => Self::Filter(directives),
            _ => Self::Level(level_of_environment()),
        }
    }

    pub(super) fn filter(&self) -> anyhow::Result<EnvFilter> {
        let builder = EnvFilter::builder();
        let filter = match self {
            Self::Filter(directives) => builder
                .parse(directives)
                .context("RUST_LOG is not a valid filter")?,
            Self::Level(level) => builder.parse(directives(*level))?,
        };
        let names_interface = format!("{}=error", spans::TARGET);
        let mut filter = filter.add_directive(names_interface.parse()?);
        for directive in NO_PASSWORDS {
            filter = filter.add_directive(directive.parse()?);
        }
        Ok(filter)
    }
}

pub(super) fn level_of_environment() -> LevelFilter {
    level(env::var("LOG_LEVEL").ok())
}

/// Our own crates log up to `level`, others only what is wrong: they log each datagram, of which anybody can send any
/// number. The one among them that the data path's thread calls logs nothing.
fn directives(level: LevelFilter) -> String {
    match level {
        LevelFilter::OFF | LevelFilter::ERROR => format!("{level},boringtun=off"),
        level => format!("warn,convoy={level},boringtun=off,hickory_net=error"),
    }
}

/// The levels of wireguard-go plus `info`, which is also the default.
fn level(log_level: Option<String>) -> LevelFilter {
    match log_level.as_deref() {
        Some("verbose" | "debug") => LevelFilter::DEBUG,
        Some("error") => LevelFilter::ERROR,
        Some("silent") => LevelFilter::OFF,
        _ => LevelFilter::INFO,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use tracing::{Metadata, Subscriber, debug, debug_span, error, warn};
    use tracing_subscriber::{
        Layer,
        layer::{Context, SubscriberExt},
    };

    use super::*;

    #[test]
    fn the_levels_are_those_of_the_reference() {
        let level = |name: &str| level(Some(name.to_owned()));
        assert_eq!(level("verbose"), LevelFilter::DEBUG);
        assert_eq!(level("debug"), LevelFilter::DEBUG);
        assert_eq!(level("info"), LevelFilter::INFO);
        assert_eq!(level("error"), LevelFilter::ERROR);
        assert_eq!(level("silent"), LevelFilter::OFF);
        assert_eq!(level("loud"), LevelFilter::INFO);
    }

    #[test]
    fn other_libraries_log_only_what_is_wrong_and_on_the_data_thread_nothing() {
        let events = || {
            debug!(target: "convoy_proto::handshake", "ours");
            debug!(target: "zbus", "zbus");
            warn!(target: "zbus", "zbus warns");
            error!(target: "boringtun::noise", "boringtun");
            warn!(target: "hickory_net::udp", "hickory");
            error!(target: "fast_socks5::server", "what clients can cause");
        };
        let logged = |level| logged(&Wanted::Level(level), events);
        assert_eq!(
            logged(LevelFilter::DEBUG),
            ["convoy_proto::handshake", "zbus"]
        );
        assert_eq!(logged(LevelFilter::INFO), ["zbus"]);
        assert!(logged(LevelFilter::ERROR).is_empty());
        assert!(logged(LevelFilter::OFF).is_empty());
    }

    #[test]
    fn a_filter_that_is_asked_for_is_taken_as_it_is() {
        let wanted = Wanted::Filter("boringtun=debug".to_owned());
        let events = || debug!(target: "boringtun::noise", "asked for");
        assert_eq!(logged(&wanted, events), ["boringtun::noise"]);
        let error = Wanted::Filter("convoy=loud".to_owned())
            .filter()
            .unwrap_err();
        assert!(error.to_string().contains("RUST_LOG"), "{error}");
    }

    #[test]
    fn the_interface_is_named_at_every_level_and_a_peer_only_where_it_is_logged() {
        let is_peer_named = |level| {
            let mut is_named = false;
            logged(&Wanted::Level(level), || {
                assert!(!spans::of_interface("wg0").is_disabled());
                is_named = !debug_span!(target: "convoy_proto", "peer").is_disabled();
            });
            is_named
        };
        let levels = [LevelFilter::OFF, LevelFilter::INFO, LevelFilter::DEBUG];
        assert_eq!(levels.map(is_peer_named), [false, false, true]);
    }

    #[test]
    fn no_filter_shows_what_clients_of_a_proxy_send() {
        for filter in ["debug", "fast_socks5=debug"] {
            let wanted = Wanted::Filter(filter.to_owned());
            let events = || debug!(target: "fast_socks5::server", "a password");
            assert!(logged(&wanted, events).is_empty(), "{filter}");
        }
    }

    /// The targets of the events that pass the filter.
    fn logged(wanted: &Wanted, events: impl FnOnce()) -> Vec<&'static str> {
        let targets = Targets::default();
        let subscriber = tracing_subscriber::registry();
        let subscriber = subscriber
            .with(wanted.filter().unwrap())
            .with(targets.clone());
        tracing::subscriber::with_default(subscriber, events);
        let targets = targets.0.lock().unwrap();
        targets.clone()
    }

    #[derive(Clone, Default)]
    struct Targets(Arc<Mutex<Vec<&'static str>>>);

    impl<S: Subscriber> Layer<S> for Targets {
        fn on_event(&self, event: &tracing::Event<'_>, _: Context<'_, S>) {
            let metadata: &'static Metadata<'static> = event.metadata();
            self.0.lock().unwrap().push(metadata.target());
        }
    }
}
