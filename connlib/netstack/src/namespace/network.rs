//! The network inside: loopback, the TUN, its addresses and routes.

use std::{
    fs, io,
    net::IpAddr,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
};

use convoy_tun::{Device, TX_QUEUE_LEN};
use nix::{net::if_::if_nametoindex, unistd::getegid};
use rtnetlink::{
    Error, Handle, LinkUnspec, RouteMessageBuilder,
    packet_route::{
        address::AddressHeaderFlags,
        link::LinkAttribute,
        route::{RouteMessage, RouteScope},
    },
};

use super::{
    Settings,
    inlet::{self, Inlet},
    protocol::Refusal,
};

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
    let device = device.map_err(|error| Refusal::Tun(error.to_string()))?;
    let tun = device.as_fd().try_clone_to_owned();
    let tun = tun.map_err(Refusal::at("duplicate the TUN"))?;
    let inlet = settings.is_gateway.then(inlet::open).transpose()?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_io()
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
    let connected = rtnetlink::new_connection();
    let (connection, handle, _) = connected.map_err(Refusal::at("open rtnetlink"))?;
    let connection = tokio::spawn(connection);
    let name = &settings.interface;
    let [loopback, tun] = [index_of("lo")?, index_of(name)?];
    let up = LinkUnspec::new_with_index(loopback).up().build();
    let set = handle.link().set(up).execute().await;
    set.map_err(refused("set lo up"))?;
    for (address, prefix) in &settings.addresses {
        let mut add = handle.address().add(tun, *address, *prefix);
        // Nobody else is on the link.
        add.message_mut().header.flags |= AddressHeaderFlags::Nodad;
        let added = add.execute().await;
        added.map_err(refused(format!("give {name} the address {address}")))?;
    }
    // By netlink, because the ioctl wants a capability in the host's user namespace.
    let queue = LinkAttribute::TxQueueLen(TX_QUEUE_LEN);
    let up = LinkUnspec::new_with_index(tun).mtu(settings.mtu.into());
    let up = up.append_extra_attribute(queue).up().build();
    let set = handle.link().set(up).execute().await;
    set.map_err(refused(format!("set {name} up")))?;
    add_routes(&handle, settings, tun).await?;
    if settings.is_gateway {
        let interfaces = [loopback, index_of(inlet::NAME)?];
        inlet::configure(&handle, settings, interfaces).await?;
    }
    connection.abort();
    Ok(())
}

fn index_of(name: &str) -> Result<u32, Refusal> {
    let index = if_nametoindex(name);
    index.map_err(|errno| Refusal::at("find the interface")(errno.into()))
}

async fn add_routes(handle: &Handle, settings: &Settings, tun: u32) -> Result<(), Refusal> {
    let has_family = |ipv6: bool| {
        let mut addresses = settings.addresses.iter();
        addresses.any(|(address, _)| address.is_ipv6() == ipv6)
    };
    let families = [false, true].map(has_family);
    let routes = settings.routes.iter();
    for (address, prefix) in routes.filter(|(it, _)| families[usize::from(it.is_ipv6())]) {
        let added = handle.route().add(route(*address, *prefix, tun)).execute();
        match added.await {
            // The route of an address's own network.
            Err(Error::NetlinkError(error)) if error.raw_code() == -libc::EEXIST => {}
            added => added.map_err(refused(format!("add the route to {address}/{prefix}")))?,
        }
    }
    Ok(())
}

fn route(address: IpAddr, prefix: u8, tun: u32) -> RouteMessage {
    match address {
        IpAddr::V4(address) => RouteMessageBuilder::<std::net::Ipv4Addr>::new()
            .destination_prefix(address, prefix)
            .output_interface(tun)
            .scope(RouteScope::Link)
            .build(),
        IpAddr::V6(address) => RouteMessageBuilder::<std::net::Ipv6Addr>::new()
            .destination_prefix(address, prefix)
            .output_interface(tun)
            .build(),
    }
}

pub(super) fn refused(doing: impl Into<String>) -> impl FnOnce(Error) -> Refusal {
    |error| {
        let error = match error {
            Error::NetlinkError(error) => error.to_io(),
            other => io::Error::other(other),
        };
        Refusal::at(doing)(error)
    }
}
