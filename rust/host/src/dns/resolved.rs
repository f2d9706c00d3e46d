//! systemd-resolved by D-Bus (org.freedesktop.resolve1(5)).

use std::{fs, net::IpAddr, time::Duration};

use futures_util::{Stream, StreamExt as _, stream::BoxStream};
use serde::Serialize;
use zbus::{Connection, connection::Builder, fdo::DBusProxy, zvariant::DynamicType};

use crate::{desired::routes_domains_alone, error::HostError};

const NAME: &str = "org.freedesktop.resolve1";
const PATH: &str = "/org/freedesktop/resolve1";
const MANAGER: &str = "org.freedesktop.resolve1.Manager";

/// Time limit for a call.
const PATIENCE: Duration = Duration::from_secs(5);

/// Yields whenever systemd-resolved has started again.
pub(crate) type Owners = BoxStream<'static, ()>;

/// The system bus, opened when needed.
#[derive(Debug)]
pub(crate) struct Bus {
    address: Option<String>,
    connection: Option<Connection>,
}

impl Bus {
    /// `address` replaces the system bus's.
    pub(crate) fn new(address: Option<String>) -> Self {
        Self {
            address,
            connection: None,
        }
    }

    pub(super) async fn has_resolved(&mut self) -> bool {
        let asked = async {
            let proxy = DBusProxy::new(self.connection().await?).await?;
            Ok::<_, zbus::Error>(proxy.name_has_owner(NAME.try_into()?).await?)
        };
        asked.await.unwrap_or(false)
    }

    /// Returns whether systemd-resolved is running in our network namespace.
    pub(super) async fn has_resolved_here(&mut self) -> bool {
        let asked = async {
            let proxy = DBusProxy::new(self.connection().await?).await?;
            Ok::<_, zbus::Error>(
                proxy
                    .get_connection_unix_process_id(NAME.try_into()?)
                    .await?,
            )
        };
        match asked.await {
            Ok(pid) => pid == std::process::id() || !is_elsewhere(pid),
            // The bus may not know.
            Err(_) => self.has_resolved().await,
        }
    }

    /// Gives the link its servers: for all names, or for those in domains with a tilde.
    pub(super) async fn set(
        &mut self,
        index: u32,
        servers: &[IpAddr],
        search: &[String],
    ) -> Result<(), HostError> {
        let index = index as i32;
        let servers: Vec<(i32, Vec<u8>)> = servers.iter().map(address).collect();
        let is_split = routes_domains_alone(search);
        // `~.` sends look-ups of all names to this link.
        let all = (!is_split).then_some((".", true));
        let domains = search.iter().map(|domain| match domain.strip_prefix('~') {
            Some(domain) => (domain, true),
            None => (domain.as_str(), false),
        });
        let domains = domains.filter(|domain| *domain != (".", true));
        let domains: Vec<(&str, bool)> = domains.chain(all).collect();
        // The tunnel encrypts, and its servers rarely do. Versions before 239 have no such setting.
        match self.call("SetLinkDNSOverTLS", &(index, "no")).await {
            Err(HostError::Dns { reason, .. }) if reason.contains("UnknownMethod") => {}
            outcome => outcome?,
        }
        self.call("SetLinkDNS", &(index, servers)).await?;
        self.call("SetLinkDomains", &(index, domains)).await?;
        self.call("SetLinkDefaultRoute", &(index, !is_split)).await
    }

    /// Removes the link's servers; succeeds if the link or systemd-resolved is gone.
    pub(super) async fn revert(&mut self, index: u32) -> Result<(), HostError> {
        if !self.has_resolved().await {
            return Ok(());
        }
        match self.call("RevertLink", &(index as i32)).await {
            Err(HostError::Dns { reason, .. }) if reason.contains("NoSuchLink") => Ok(()),
            outcome => outcome,
        }
    }

    /// `None` without a bus.
    pub(crate) async fn owners(&mut self) -> Option<Owners> {
        let proxy = DBusProxy::new(self.connection().await.ok()?).await.ok()?;
        let changes = proxy.receive_name_owner_changed_with_args(&[(0, NAME)]);
        let changes = changes.await.ok()?;
        Some(starts(changes).boxed())
    }

    async fn call<B>(&mut self, method: &str, body: &B) -> Result<(), HostError>
    where
        B: Serialize + DynamicType,
    {
        let called = async {
            let connection = self.connection().await?;
            connection
                .call_method(Some(NAME), PATH, Some(MANAGER), method, body)
                .await
        };
        called.await.map(drop).map_err(|error| HostError::Dns {
            backend: "systemd-resolved",
            reason: format!("{method}: {error}"),
        })
    }

    async fn connection(&mut self) -> zbus::Result<&Connection> {
        if self
            .connection
            .as_ref()
            .is_some_and(|connection| connection.is_closed())
        {
            self.connection = None;
        }
        if self.connection.is_none() {
            let builder = match &self.address {
                Some(address) => Builder::address(address.as_str()),
                None => Builder::system(),
            };
            let connected = builder.method_timeout(PATIENCE).build().await?;
            self.connection = Some(connected);
        }
        self.connection
            .as_ref()
            .ok_or_else(|| zbus::Error::Failure("no connection".to_owned()))
    }
}

/// Returns whether a process is in another network namespace. A process that cannot be seen from here counts as being
/// in ours.
fn is_elsewhere(process: u32) -> bool {
    let namespace = |process: &str| fs::read_link(format!("/proc/{process}/ns/net"));
    match (namespace(&process.to_string()), namespace("thread-self")) {
        (Ok(theirs), Ok(ours)) => theirs != ours,
        _ => false,
    }
}

fn starts(
    changes: impl Stream<Item = zbus::fdo::NameOwnerChanged> + Send + 'static,
) -> impl Stream<Item = ()> + Send + 'static {
    changes.filter_map(async |change| {
        let has_owner = change.args().is_ok_and(|args| args.new_owner().is_some());
        has_owner.then_some(())
    })
}

fn address(address: &IpAddr) -> (i32, Vec<u8>) {
    match address {
        IpAddr::V4(v4) => (libc::AF_INET, v4.octets().to_vec()),
        IpAddr::V6(v6) => (libc::AF_INET6, v6.octets().to_vec()),
    }
}
