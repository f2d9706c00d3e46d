//! What the kernel says of the interface (rtnetlink): its MTU and what its queue has dropped.

use anyhow::Context;
use futures_util::{Stream, StreamExt, TryStreamExt};
use rtnetlink::{
    Handle, MulticastGroup,
    packet_core::{NetlinkMessage, NetlinkPayload},
    packet_route::{
        RouteNetlinkMessage,
        link::{LinkAttribute, LinkMessage},
    },
    sys::SocketAddr,
};
use tracing::warn;

/// Calls `on_mtu` with the MTU in bytes of the interface `index` now, and after every change.
///
/// Returns when there is no way to hear more, which is said in the log: the MTU only bounds padding.
pub(crate) async fn watch_mtu(index: u32, on_mtu: impl FnMut(u16)) {
    if let Err(error) = watch(index, on_mtu).await {
        warn!("changes of the interface's MTU go unnoticed: {error:#}");
    }
}

/// Packets that the kernel dropped because the interface's transmit queue was full, since it was
/// made. `None` if the interface is not in this network namespace (any more). Blocks.
pub(crate) fn queue_drops(index: u32) -> Option<u64> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_io()
        .build()
        .ok()?;
    runtime.block_on(async {
        let (connection, handle, _) = rtnetlink::new_connection().ok()?;
        let connection = tokio::spawn(connection);
        let mut links = handle.link().get().match_index(index).execute();
        let link = links.try_next().await.ok()??;
        connection.abort();
        link.attributes
            .iter()
            .find_map(|attribute| match attribute {
                LinkAttribute::Stats64(statistics) => Some(statistics.tx_dropped),
                _ => None,
            })
    })
}

async fn watch(index: u32, mut on_mtu: impl FnMut(u16)) -> anyhow::Result<()> {
    let (connection, handle, mut messages) =
        rtnetlink::new_multicast_connection(&[MulticastGroup::Link])
            .context("cannot listen to rtnetlink")?;
    let connection = tokio::spawn(connection);
    let mut known = None;
    let mut mtu = current_mtu(&handle, index).await?;
    loop {
        if mtu.is_some() && mtu != known {
            known = mtu;
            mtu.into_iter().for_each(&mut on_mtu);
        }
        mtu = match next_event(&mut messages, index).await {
            Event::Mtu(mtu) => Some(mtu),
            Event::Lost => current_mtu(&handle, index).await?,
            Event::Ended => break,
        };
    }
    connection.abort();
    anyhow::bail!("the rtnetlink socket has ended");
}

/// What the kernel says.
enum Event {
    /// The interface's MTU, changed or not.
    Mtu(u16),
    /// More was said than the socket could hold.
    Lost,
    /// The socket has failed.
    Ended,
}

async fn next_event(
    mut messages: impl Stream<Item = (NetlinkMessage<RouteNetlinkMessage>, SocketAddr)> + Unpin,
    index: u32,
) -> Event {
    while let Some((message, _)) = messages.next().await {
        match message.payload {
            NetlinkPayload::Overrun(_) => return Event::Lost,
            NetlinkPayload::InnerMessage(RouteNetlinkMessage::NewLink(link)) => {
                if let Some(mtu) = mtu_of(&link, index) {
                    return Event::Mtu(mtu);
                }
            }
            _ => {}
        }
    }
    Event::Ended
}

async fn current_mtu(handle: &Handle, index: u32) -> anyhow::Result<Option<u16>> {
    let mut links = handle.link().get().match_index(index).execute();
    let link = links.try_next().await.context("cannot read the MTU")?;
    Ok(link.and_then(|link| mtu_of(&link, index)))
}

fn mtu_of(link: &LinkMessage, index: u32) -> Option<u16> {
    if link.header.index != index {
        return None;
    }
    link.attributes
        .iter()
        .find_map(|attribute| match attribute {
            LinkAttribute::Mtu(mtu) => Some(u16::try_from(*mtu).unwrap_or(u16::MAX)),
            _ => None,
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_mtu_is_told_at_once() {
        let index = nix::net::if_::if_nametoindex("lo").unwrap();
        let (sender, mut heard) = tokio::sync::mpsc::unbounded_channel();
        let watching = watch_mtu(index, move |mtu| sender.send(mtu).unwrap());
        tokio::select! {
            () = watching => panic!("the monitor has ended"),
            mtu = heard.recv() => assert!(mtu.unwrap() > 0),
        }
    }

    #[test]
    fn only_the_mtu_of_the_own_interface_counts() {
        let mut link = LinkMessage::default();
        link.header.index = 7;
        assert_eq!(mtu_of(&link, 7), None);
        link.attributes.push(LinkAttribute::Mtu(1420));
        assert_eq!(mtu_of(&link, 7), Some(1420));
        assert_eq!(mtu_of(&link, 8), None);
    }

    #[test]
    fn an_mtu_beyond_what_ip_knows_is_as_large_as_ip_knows() {
        let mut link = LinkMessage::default();
        link.attributes.push(LinkAttribute::Mtu(70_000));
        assert_eq!(mtu_of(&link, 0), Some(u16::MAX));
    }
}
