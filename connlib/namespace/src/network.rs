//! The network inside: loopback, the TUN, its addresses and routes.

use std::{
    fs, io,
    net::IpAddr,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
};

use super::{
    Settings,
    inlet::{self, Inlet},
    protocol::Refusal,
};
use convoy_netlink::{Address, LinkChange, MAIN_TABLE, Netlink, Route};
use convoy_tun::{Device, TX_QUEUE_LEN};
use convoy_types::Prefix;
use nix::{net::if_::if_nametoindex, unistd::getegid};

/// Descriptors of a network for its owner.
pub(super) struct Made {
    tun: OwnedFd,
    inlet: Option<Inlet>,
}

impl Made {
    /// The TUN, and the inlet with its listeners if there is one.
    pub(super) fn descriptors(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        let inlet = self.inlet.iter();
        let inlet = inlet.flat_map(|it| [&it.device].into_iter().chain(&it.listeners));
        [&self.tun].into_iter().chain(inlet).map(AsFd::as_fd)
    }
}

/// Sets the network up.
pub(super) fn set_up(settings: &Settings) -> Result<Made, Refusal> {
    let device = Device::open(&settings.interface, settings.offload);
    let device = device.map_err(|error| Refusal::of_tun(&error))?;
    let tun = device.as_fd().try_clone_to_owned();
    let tun = tun.map_err(Refusal::at("duplicate the TUN"))?;
    let inlet = settings.is_gateway.then(inlet::open).transpose()?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_io()
        .enable_time()
        .build()
        .map_err(Refusal::at("start a runtime"))?;
    runtime.block_on(configure(settings))?;
    let inlet = match inlet {
        Some(device) => Some(Inlet {
            device,
            listeners: inlet::finish(settings)?,
        }),
        None => None,
    };
    Ok(Made { tun, inlet })
}

/// Lets programs without privileges send echo requests (`ping`).
pub(super) fn permit_ping() -> io::Result<()> {
    let group = getegid();
    let file = "/proc/sys/net/ipv4/ping_group_range";
    fs::write(file, format!("{group} {group}"))
}

/// Lets TCP find the length that passes where routers drop longer packets without a word (RFC 4821).
pub(super) fn probe_paths() -> io::Result<()> {
    fs::write("/proc/sys/net/ipv4/tcp_mtu_probing", "1")
}

async fn configure(settings: &Settings) -> Result<(), Refusal> {
    let netlink = Netlink::open().map_err(Refusal::of_netlink("open rtnetlink"))?;
    let name = &settings.interface;
    let [loopback, tun] = [index_of("lo")?, index_of(name)?];
    let set = netlink.change_link(loopback, LinkChange::UP).await;
    set.map_err(Refusal::of_netlink("set lo up"))?;
    for (address, length) in &settings.addresses {
        let doing = || format!("give {name} the address {address}");
        let address = Address {
            // Nobody else is on the link.
            is_unchecked: true,
            ..Address::with_broadcast(prefix(*address, *length, doing)?)
        };
        let added = netlink.add_address(tun, address).await;
        added.map_err(Refusal::of_netlink(doing()))?;
    }
    // By netlink, because the ioctl wants a capability in the host's user namespace.
    let up = LinkChange {
        mtu: Some(settings.mtu.into()),
        queue: Some(TX_QUEUE_LEN),
        ..LinkChange::UP
    };
    let set = netlink.change_link(tun, up).await;
    set.map_err(Refusal::of_netlink(format!("set {name} up")))?;
    let addresses = settings.addresses.iter();
    netlink
        .await_delivery_to(addresses.map(|(it, _)| *it))
        .await;
    add_routes(&netlink, settings, tun).await?;
    if settings.is_gateway {
        let interfaces = [loopback, index_of(inlet::NAME)?];
        inlet::configure(&netlink, settings, interfaces).await?;
    }
    Ok(())
}

fn index_of(name: &str) -> Result<u32, Refusal> {
    let index = if_nametoindex(name);
    index.map_err(|errno| Refusal::at("find the interface")(errno.into()))
}

async fn add_routes(netlink: &Netlink, settings: &Settings, tun: u32) -> Result<(), Refusal> {
    let has_family = |ipv6: bool| {
        let mut addresses = settings.addresses.iter();
        addresses.any(|(address, _)| address.is_ipv6() == ipv6)
    };
    let families = [false, true].map(has_family);
    let routes = settings.routes.iter();
    for (address, length) in routes.filter(|(it, _)| families[usize::from(it.is_ipv6())]) {
        let doing = || format!("add the route to {address}/{length}");
        let to = prefix(*address, *length, doing)?;
        let route = Route::by_device(MAIN_TABLE, to, tun);
        match netlink.add_route(&route).await {
            // The route of an address's own network.
            Err(error) if error.cause.kind() == io::ErrorKind::AlreadyExists => {}
            added => added.map_err(Refusal::of_netlink(doing()))?,
        }
    }
    Ok(())
}

fn prefix(address: IpAddr, length: u8, doing: impl FnOnce() -> String) -> Result<Prefix, Refusal> {
    let prefix = Prefix::new(address, length);
    prefix.ok_or_else(|| Refusal::at(doing())(io::Error::from_raw_os_error(libc::EINVAL)))
}
