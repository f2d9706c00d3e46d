//! The log on stdout, as text or JSON.

mod json;
mod stdout;

use std::{env, io::IsTerminal};

use anyhow::Context;
use tracing::level_filters::LevelFilter;
use tracing_subscriber::{EnvFilter, fmt, layer::SubscriberExt, util::SubscriberInitExt};

use crate::cli::LogFormat;
use stdout::NeverBlocking;

/// Sets up logging according to `RUST_LOG`, or otherwise `LOG_LEVEL`.
pub(crate) fn init(format: LogFormat) -> anyhow::Result<()> {
    let filter = match env::var("RUST_LOG") {
        Ok(directives) if !directives.is_empty() => EnvFilter::builder()
            .parse(directives)
            .context("RUST_LOG is not a valid filter")?,
        _ => {
            let level = level(env::var("LOG_LEVEL").ok());
            let filter = EnvFilter::default().add_directive(level.into());
            match level {
                // It warns of each datagram that is no answer, of which anybody can send any number.
                LevelFilter::INFO => filter.add_directive("hickory_net=error".parse()?),
                _ => filter,
            }
        }
    };
    let registry = tracing_subscriber::registry().with(filter);
    match format {
        LogFormat::Json => registry
            .with(
                fmt::layer()
                    .event_format(json::Json)
                    .with_writer(|| NeverBlocking),
            )
            .try_init(),
        LogFormat::Text => {
            let is_terminal = std::io::stdout().is_terminal();
            let text = fmt::layer().with_target(false).with_ansi(is_terminal);
            registry.with(text.with_writer(|| NeverBlocking)).try_init()
        }
    }
    .context("cannot set up logging")
}

/// Whether the caller requested logs. Only then does a daemon in the background keep its output.
pub(crate) fn is_requested() -> bool {
    let is_set = |name| env::var(name).is_ok_and(|value| !value.is_empty());
    match is_set("RUST_LOG") {
        true => true,
        false => is_set("LOG_LEVEL") && level(env::var("LOG_LEVEL").ok()) != LevelFilter::OFF,
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
}
