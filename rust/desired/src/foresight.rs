//! Predicts what a configuration would do on this host.

use convoy_config::{Config, Routed};
use convoy_endpoints::Addresses;

use crate::{configured_mark, desired};

/// Looks at the host's routes and name servers, and tells what to warn of; needs a runtime.
pub async fn foresee(config: &Config) -> anyhow::Result<Vec<String>> {
    let mark = configured_mark(config);
    let outside = Addresses::new(config, mark).outside(config);
    let wanted = desired(config, mark, outside);
    let mut all = convoy_host::foresee(config.name.as_str(), &wanted).await?;
    all.extend(held_servers(config));
    Ok(all)
}

/// Name servers outside to which the routes into the tunnel lead, too, with the lines that do so.
pub fn held_servers(config: &Config) -> Vec<String> {
    let outside = Addresses::new(config, configured_mark(config)).outside(config);
    let routed = Routed::new(config);
    let held = outside.resolvers.iter().filter_map(|server| {
        let line = config.files.mention(routed.place_of(*server)?);
        Some(format!(
            "the tunnel's networks hold the name server {server}{line}: endpoints are looked up outside the tunnel, \
             but what programs ask it goes into the tunnel"
        ))
    });
    held.collect()
}
