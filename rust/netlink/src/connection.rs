//! The connection that all requests take.

use std::io;

use futures_util::StreamExt as _;
use rtnetlink::{
    Handle,
    packet_core::{
        NLM_F_ACK, NLM_F_CREATE, NLM_F_DUMP, NLM_F_EXCL, NLM_F_REQUEST, NetlinkMessage,
        NetlinkPayload,
    },
    packet_route::{AddressFamily, RouteNetlinkMessage},
};
use tokio::task::JoinHandle;

use crate::error::NetlinkError;

/// A connection to rtnetlink in the network namespace of the thread that opened it.
///
/// Each request fails if the kernel refuses it; to look for an object that does not exist is no failure.
#[derive(Debug)]
pub struct Netlink {
    handle: Handle,
    connection: JoinHandle<()>,
}

impl Netlink {
    /// Opens a connection, which a task of the caller's runtime serves until this is dropped.
    pub fn open() -> Result<Self, NetlinkError> {
        // Strict checks (Linux 4.20) make the kernel filter dumps by table and device.
        let opened = rtnetlink::new_connection_with_strict_check();
        let opened = opened.or_else(|_| rtnetlink::new_connection());
        let (connection, handle, _) = opened.map_err(NetlinkError::on("open", "rtnetlink"))?;
        Ok(Self {
            handle,
            connection: tokio::spawn(connection),
        })
    }

    pub(crate) async fn add(&self, message: RouteNetlinkMessage) -> io::Result<()> {
        let flags = NLM_F_ACK | NLM_F_CREATE | NLM_F_EXCL;
        self.ask(message, flags).await.map(drop)
    }

    pub(crate) async fn change(&self, message: RouteNetlinkMessage) -> io::Result<()> {
        self.ask(message, NLM_F_ACK).await.map(drop)
    }

    /// All objects that the request selects; none if the table or family does not exist.
    pub(crate) async fn dump(
        &self,
        message: RouteNetlinkMessage,
    ) -> io::Result<Vec<RouteNetlinkMessage>> {
        const ABSENT: [i32; 3] = [libc::ENOENT, libc::EOPNOTSUPP, libc::EAFNOSUPPORT];
        match self.ask(message, NLM_F_DUMP).await {
            Err(error) if error.raw_os_error().is_some_and(|it| ABSENT.contains(&it)) => {
                Ok(Vec::new())
            }
            outcome => outcome,
        }
    }

    pub(crate) async fn ask(
        &self,
        message: RouteNetlinkMessage,
        flags: u16,
    ) -> io::Result<Vec<RouteNetlinkMessage>> {
        let mut request = NetlinkMessage::from(message);
        request.header.flags = NLM_F_REQUEST | flags;
        let mut handle = self.handle.clone();
        let answers = handle.request(request);
        let mut answers = Box::pin(answers.map_err(io::Error::other)?);
        let mut found = Vec::new();
        while let Some(answer) = answers.next().await {
            match answer.payload {
                NetlinkPayload::InnerMessage(message) => found.push(message),
                NetlinkPayload::Error(error) if error.code.is_some() => return Err(error.to_io()),
                _ => {}
            }
        }
        Ok(found)
    }
}

impl Drop for Netlink {
    fn drop(&mut self) {
        self.connection.abort();
    }
}

pub(crate) fn family(ipv6: bool) -> AddressFamily {
    if ipv6 {
        AddressFamily::Inet6
    } else {
        AddressFamily::Inet
    }
}
