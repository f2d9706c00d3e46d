//! Changes that another program has made to a running tunnel: they last until the file changes the same setting.

use std::fs;

use convoy_config::Config;
use convoy_daemon::places;
use convoy_desired::configuration_of;
use convoy_uapi::listing::RunningDevice;
use tracing::warn;

use super::{given::Given, state};

/// A snapshot of a tunnel, with the values that its file had given it.
#[derive(Debug)]
pub(crate) struct Changed {
    given: Given,
    running: RunningDevice,
}

impl Changed {
    /// Takes a snapshot of the tunnel under this supervisor.
    pub(crate) fn now(config: &Config, running: RunningDevice) -> Self {
        let given = Given::of(config);
        Self { given, running }
    }

    /// Takes a snapshot of the tunnel that an earlier supervisor left.
    pub(crate) fn under_former(config: &Config, running: RunningDevice) -> Self {
        match noted(config) {
            Some(given) => Self { given, running },
            // Written by a version that notes nothing: the file prevails, but takes no key away.
            None => {
                let mut given = Given::of(&configuration_of(config, &running));
                if config.interface.private_key.is_none() {
                    given.forget_private_key();
                }
                Self { given, running }
            }
        }
    }

    /// Returns the configuration with these changes applied.
    pub(crate) fn merged(&self, config: &Config) -> Config {
        self.given
            .merged(config, &configuration_of(config, &self.running))
    }
}

/// Returns whether the tunnel got other settings than the configuration has now, as far as anybody noted them.
pub(crate) fn was_edited(config: &Config) -> bool {
    noted(config).is_none_or(|given| given != Given::of(config))
}

fn noted(config: &Config) -> Option<Given> {
    let text = fs::read_to_string(places::given(&config.name));
    Given::parse(&text.ok()?)
}

/// Records for the next supervisor which settings came from the file.
pub(crate) fn note_given(config: &Config) {
    let text = Given::of(config).to_text();
    if let Err(error) = state::replace(&places::given(&config.name), text.as_bytes()) {
        warn!("{error:#}");
    }
}
