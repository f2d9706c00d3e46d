//! A kill switch without a tunnel.

use convoy_netlink::Netlink;

use crate::{
    desired::{KillSwitch, check_name},
    error::HostError,
    firewall::{self, Nft},
    link::links_out,
};

/// Number of looks for links that have come or got another name meanwhile.
const LOOKS: usize = 3;

/// A kill switch that drops what leaves by another tunnel.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{what} (fix: {fix})")]
pub struct Clash {
    /// Names of both tunnels.
    pub what: String,
    /// Lines that let both be up.
    pub fix: String,
}

impl Clash {
    /// Words the clash of a tunnel whose kill switch is closed with another.
    #[must_use]
    pub fn of(closed: &str, dropped: &str) -> Self {
        Self {
            what: format!("The kill switch of {closed} drops what leaves by {dropped}"),
            fix: format!(
                "`#convoy: ExcludedIPs` with the networks of {dropped}, in the file of {closed}, opens it for them alone."
            ),
        }
    }
}

/// Loads a kill switch without an interface, as at boot. It lets out datagrams with `mark`, if any, and packets by
/// `interface` once that exists. Links that appear later let out what packet sockets send, until
/// [`Host::apply`](crate::Host::apply).
pub async fn close_kill_switch(
    interface: &str,
    switch: KillSwitch,
    mark: Option<u32>,
) -> Result<(), HostError> {
    check_name(interface)?;
    let netlink = Netlink::open().map_err(HostError::kernel("open", "rtnetlink"))?;
    let mut nft = Nft::default();
    let mut guarded = None;
    for _ in 0..LOOKS {
        let devices = links_out(&netlink, interface)
            .await
            .unwrap_or_else(|error| {
                let error = std::io::Error::from(error);
                tracing::warn!(%error, "Cannot list links: packet sockets bypass the kill switch");
                Vec::new()
            });
        if guarded.as_ref() == Some(&devices) {
            break;
        }
        let ruleset = firewall::kill_switch(interface, switch, mark, &devices);
        if let Err(error) = nft.load(&ruleset).await {
            return match nft.is_closed(interface).await {
                // The tunnel is up, and the tables are its supervisor's.
                true => Ok(()),
                false => Err(error),
            };
        }
        guarded = Some(devices);
    }
    Ok(())
}

/// Returns whether the kernel has a kill switch of `interface` that drops what leaves; in a pause it does not.
pub async fn is_kill_switch_closed(interface: &str) -> bool {
    check_name(interface).is_ok() && Nft::default().is_closed(interface).await
}

/// Ends the pause of the kill switch of `interface`, if there is one.
pub async fn end_pause(interface: &str) -> Result<(), HostError> {
    check_name(interface)?;
    let table = firewall::table(interface);
    Nft::default().end_pause(&table).await
}

/// Removes the kill switch of `interface`, if there is one.
pub async fn open_kill_switch(interface: &str) -> Result<(), HostError> {
    check_name(interface)?;
    Nft::default().remove(&firewall::table(interface)).await
}
