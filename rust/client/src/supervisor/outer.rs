//! The outer tunnel: both share a process, and no other tunnel may use it meanwhile.

use anyhow::{anyhow, bail, ensure};
use convoy_config::{Config, encode_key};
use convoy_host::{HostError, Lock, owner};
use convoy_keeper::KeptTunnel;
use tracing::warn;

use super::Supervisor;
use crate::{lock::reserve, state::State};

impl Supervisor {
    /// Sends the tunnel's process its outer tunnel, if it lacks it. Until then, the process sends nothing.
    pub(super) async fn tell_outer(&mut self) -> anyhow::Result<()> {
        let addresses = &self.addresses;
        let news = self.outer.news(&self.config, |peer| addresses.of(peer));
        let Some(process) = self.tunnel.as_mut().and_then(KeptTunnel::process) else {
            return Ok(());
        };
        if let Some(news) = news {
            process.tell_outer(&news).await?;
            self.outer.note_told(news);
        }
        Ok(())
    }

    /// Sends the tunnel changes that nobody asked for.
    pub(super) async fn follow_outer(&mut self) {
        if let Err(error) = self.tell_outer().await {
            // A tunnel that has died gets the message when it starts again.
            warn!("cannot tell the tunnel of the one through which it goes: {error:#}");
        }
    }

    /// Refuses a configuration with a different outer tunnel, which the running process cannot switch to.
    pub(super) fn ensure_same_outer(&self, new: &Config) -> anyhow::Result<()> {
        let name = |config: &Config| config.via.as_ref().map(|via| via.config.name.clone());
        let own = &self.config.name;
        ensure!(
            name(&self.config) == name(new),
            "`Via` cannot change while {own} is up (fix: `convoy down {own}`, then `convoy up {own}`)"
        );
        Ok(())
    }

    /// Refuses an outer tunnel with a peer that was added to this one over the UAPI.
    pub(super) fn ensure_no_peer_of_both(&self, new: &Config) -> anyhow::Result<()> {
        let running = self.changed.as_ref().map(|changed| changed.merged(new));
        let running = running.iter().flat_map(|config| &config.peers);
        let is_of_outer = |key| {
            new.outer_peers()
                .iter()
                .any(|it| it.public_key.value == key)
        };
        let of_both = running
            .map(|it| it.public_key.value)
            .find(|key| is_of_outer(*key));
        if let (Some(key), Some(via)) = (of_both, &new.via) {
            let (own, outer, key) = (&self.config.name, &via.config.name, encode_key(&key.0));
            let key = key.as_str();
            bail!(
                "{outer} has the peer {key}, which was added to {own} meanwhile (fix: `wg set {own} peer {key} remove`)"
            );
        }
        Ok(())
    }
}

impl Supervisor {
    /// Warns of endpoints whose names resolved to addresses that the outer tunnel does not reach.
    pub(super) fn unreached(&self) -> Vec<String> {
        let Some(via) = &self.config.via else {
            return Vec::new();
        };
        let allowed = via.config.peers.iter().flat_map(|it| &it.allowed_ips);
        let allowed: Vec<_> = allowed.collect();
        let addresses = self.config.peers.iter();
        let addresses = addresses.filter_map(|peer| self.addresses.of(peer));
        let unreached = addresses.filter(|it| !allowed.iter().any(|net| net.holds(it.ip())));
        let name = &via.config.name;
        unreached
            .map(|endpoint| {
                format!(
                    "the endpoint {endpoint} is not within `AllowedIPs` of {name}, so nothing reaches it (fix: add it \
                     there, then `convoy reload {}`)",
                    self.config.name
                )
            })
            .collect()
    }
}

/// Leaves out added peers that the outer tunnel's file now has as well: the tunnel accepts no peer of both.
pub(super) fn without_outer_peers(mut config: Config) -> Config {
    let outer = config.via.clone();
    let outer = outer.iter().flat_map(|via| &via.config.peers);
    for peer in outer {
        config
            .peers
            .retain(|it| it.public_key.value != peer.public_key.value);
    }
    config
}

/// Locks the tunnel through which another goes, so that nobody brings it up meanwhile.
///
/// # Errors
/// If it is up, or another goes through it.
pub(super) async fn lock_outer(config: &Config) -> anyhow::Result<Option<Lock>> {
    let Some(via) = &config.via else {
        return Ok(None);
    };
    let (own, other) = (&config.name, &via.config.name);
    if let Some(inner) = State::going_through(other).filter(|inner| inner != own) {
        bail!(
            "{own} cannot go through {other}, as {inner} does (fix: `convoy down {inner}`, or another file with keys of \
             its own)"
        );
    }
    let is_up = || {
        anyhow!(
            "the tunnel {other}, through which {own} goes, is up itself (fix: `convoy down {other}`; it comes up \
             together with {own})"
        )
    };
    let lock = match reserve(other).await {
        Err(HostError::Busy { .. }) => return Err(is_up()),
        lock => lock?,
    };
    if owner::exists(other) {
        lock.release()?;
        return Err(is_up());
    }
    ensure!(
        !lock.has_changes(),
        "the tunnel {other}, through which {own} goes, has left changes on this host (fix: `convoy down {other}`)"
    );
    Ok(Some(lock))
}

/// The outer tunnel's name, for the state.
pub(super) fn name_of(config: &Config) -> Option<String> {
    let via = config.via.as_ref()?;
    Some(via.config.name.as_str().to_owned())
}
