//! The connection that all requests take.

use std::io;

use futures_util::{Stream, StreamExt as _};
use rtnetlink::{
    packet_core::{
        NLM_F_ACK, NLM_F_CREATE, NLM_F_DUMP, NLM_F_DUMP_INTR, NLM_F_EXCL, NLM_F_REQUEST,
        NetlinkHeader, NetlinkMessage, NetlinkPayload,
    },
    packet_route::{AddressFamily, RouteNetlinkMessage},
    proto::{ConnectionHandle, new_connection},
    sys::{AsyncSocket as _, SocketAddr, protocols::NETLINK_ROUTE},
};
use tokio::task::JoinHandle;
use tracing::debug;

use crate::{error::NetlinkError, message::Message};

/// Attempts to list objects that do not change meanwhile.
const ATTEMPTS: usize = 8;

/// A connection to rtnetlink in the network namespace of the thread that opened it.
///
/// Each request fails if the kernel refuses it; to look for an object that does not exist is no failure.
#[derive(Debug)]
pub struct Netlink {
    handle: ConnectionHandle<Message>,
    connection: JoinHandle<()>,
}

impl Netlink {
    /// Opens a connection, which a task of the caller's runtime serves until this is dropped.
    pub fn open() -> Result<Self, NetlinkError> {
        let opened = new_connection(NETLINK_ROUTE);
        let (mut connection, handle, _) = opened.map_err(NetlinkError::on("open", "rtnetlink"))?;
        // Strict checks (Linux 4.20) make the kernel filter dumps by table and device.
        let socket = connection.socket_mut().socket_mut();
        let _ = socket.set_netlink_get_strict_chk(true);
        // Without these, the end of the connection would look like that of an answer.
        connection.set_forward_ack(true);
        connection.set_forward_done(true);
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
        let attempt = || self.ask(message.clone(), NLM_F_DUMP);
        match undisturbed(attempt).await {
            Err(error) if error.raw_os_error().is_some_and(|it| ABSENT.contains(&it)) => {
                Ok(Vec::new())
            }
            outcome => outcome,
        }
    }

    /// Looks up the object that the request names.
    ///
    /// # Errors
    /// If the kernel refuses, or its answer cannot be parsed: then only the acknowledgement remains.
    pub(crate) async fn look_up(
        &self,
        message: RouteNetlinkMessage,
    ) -> io::Result<Vec<RouteNetlinkMessage>> {
        let found = self.ask(message, NLM_F_ACK).await?.objects;
        match found.is_empty() {
            true => Err(io::Error::other("the kernel's answer cannot be parsed")),
            false => Ok(found),
        }
    }

    async fn ask(&self, message: RouteNetlinkMessage, flags: u16) -> io::Result<Found> {
        let mut header = NetlinkHeader::default();
        header.flags = NLM_F_REQUEST | flags;
        let message = NetlinkPayload::InnerMessage(Message(Some(message)));
        let request = NetlinkMessage::new(header, message);
        let answers = self.handle.request(request, SocketAddr::new(0, 0));
        collect(answers.map_err(io::Error::other)?).await
    }
}

/// Answer to a request.
#[derive(Debug, Default)]
struct Found {
    objects: Vec<RouteNetlinkMessage>,
    /// Whether something changed during a dump, so that objects may be missing.
    is_interrupted: bool,
}

/// Collects the answers to a request.
async fn collect(answers: impl Stream<Item = NetlinkMessage<Message>>) -> io::Result<Found> {
    let mut answers = Box::pin(answers);
    let mut found = Found::default();
    while let Some(answer) = answers.next().await {
        found.is_interrupted |= answer.header.flags & NLM_F_DUMP_INTR != 0;
        match answer.payload {
            NetlinkPayload::InnerMessage(Message(answer)) => found.objects.extend(answer),
            NetlinkPayload::Error(error) if error.code.is_some() => return Err(error.to_io()),
            NetlinkPayload::Done(end) if end.code < 0 => {
                return Err(io::Error::from_raw_os_error(end.code.saturating_neg()));
            }
            NetlinkPayload::Error(_) | NetlinkPayload::Done(_) => return Ok(found),
            _ => {}
        }
    }
    Err(io::Error::other("the connection has ended"))
}

/// Repeats an interrupted dump.
async fn undisturbed<F: Future<Output = io::Result<Found>>>(
    mut attempt: impl FnMut() -> F,
) -> io::Result<Vec<RouteNetlinkMessage>> {
    let mut attempts = 1..ATTEMPTS;
    loop {
        let found = attempt().await?;
        if found.is_interrupted && attempts.next().is_some() {
            continue;
        }
        if found.is_interrupted {
            // Nearly everything is in it; an error would keep tunnels down while containers come and go.
            debug!("the kernel's tables kept changing while they were listed");
        }
        return Ok(found.objects);
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

#[cfg(test)]
mod tests {
    use std::{thread, time::Duration};

    use futures_util::{FutureExt as _, stream};
    use nix::sched::{CloneFlags, unshare};
    use rtnetlink::{
        packet_core::{DefaultNla, DoneMessage},
        packet_route::link::{LinkAttribute, LinkMessage},
    };
    use tokio::{runtime::Builder, time::timeout};

    use super::*;

    const PATIENCE: Duration = Duration::from_secs(20);

    #[tokio::test]
    async fn a_connection_that_ends_before_it_has_answered_is_no_answer() {
        let netlink = Netlink::open().unwrap();
        let request = || RouteNetlinkMessage::GetLink(LinkMessage::default());
        for flags in [NLM_F_ACK, NLM_F_DUMP] {
            let netlink = Netlink::open().unwrap();
            let mut asked = Box::pin(netlink.ask(request(), flags));
            assert!((&mut asked).now_or_never().is_none());
            netlink.connection.abort();
            asked.await.unwrap_err();
        }
        assert!(!netlink.dump(request()).await.unwrap().is_empty());
    }

    #[tokio::test]
    async fn a_dump_that_a_change_interrupts_is_repeated_but_not_for_ever() {
        let link = |flags| {
            let link = RouteNetlinkMessage::NewLink(LinkMessage::default());
            answer(flags, NetlinkPayload::InnerMessage(Message(Some(link))))
        };
        let done = |flags| answer(flags, NetlinkPayload::Done(DoneMessage::default()));
        let cases = [
            (vec![link(0), done(0)], 1),
            (vec![link(NLM_F_DUMP_INTR), done(0)], 2),
            (vec![link(0), done(NLM_F_DUMP_INTR)], 2),
        ];
        for (first, expected) in cases {
            let mut attempts = 0;
            let listed = undisturbed(|| {
                attempts += 1;
                let whole = vec![link(0), link(0), done(0)];
                let is_first = attempts == 1;
                collect(stream::iter(if is_first { first.clone() } else { whole }))
            });
            assert_eq!(listed.await.unwrap().len(), expected);
            assert_eq!(attempts, expected);
        }
        let mut attempts = 0;
        let listed = undisturbed(|| {
            attempts += 1;
            collect(stream::iter([link(NLM_F_DUMP_INTR), done(0)]))
        });
        assert_eq!(listed.await.unwrap().len(), 1, "the last");
        assert_eq!(attempts, ATTEMPTS);
    }

    fn answer(flags: u16, payload: NetlinkPayload<Message>) -> NetlinkMessage<Message> {
        let mut header = NetlinkHeader::default();
        header.flags = flags;
        NetlinkMessage::new(header, payload)
    }

    #[test]
    fn a_link_with_an_alias_in_any_encoding_is_found() {
        in_own_namespace(
            "a_link_with_an_alias_in_any_encoding_is_found",
            async |netlink| {
                set(&netlink, libc::IFLA_IFALIAS, b"B\xfcro").await;
                let found = timeout(PATIENCE, netlink.link_by_index(1)).await;
                let found = found.expect("it does not wait for ever").unwrap();
                assert_eq!(found.unwrap().name, "lo");
                assert_eq!(netlink.links().await.unwrap().len(), 1);
            },
        );
    }

    #[test]
    fn an_answer_that_cannot_be_parsed_is_an_error() {
        in_own_namespace(
            "an_answer_that_cannot_be_parsed_is_an_error",
            async |netlink| {
                set(&netlink, libc::IFLA_IFNAME, b"\xfc\0").await;
                let found = timeout(PATIENCE, netlink.link_by_index(1)).await;
                let error = found.expect("it does not wait for ever").unwrap_err();
                assert!(error.to_string().contains("cannot be parsed"), "{error}");
            },
        );
    }

    /// Gives the loopback interface a text, of which the kernel takes any bytes.
    async fn set(netlink: &Netlink, attribute: u16, text: &[u8]) {
        let mut message = LinkMessage::default();
        message.header.index = 1;
        let text = DefaultNla::new(attribute, text.to_vec());
        message.attributes = vec![LinkAttribute::Other(text)];
        let set = netlink.change(RouteNetlinkMessage::SetLink(message));
        set.await.unwrap();
    }

    fn in_own_namespace(test: &'static str, run: impl AsyncFnOnce(Netlink) + Send + 'static) {
        let inside = thread::spawn(move || {
            if let Err(errno) = unshare(CloneFlags::CLONE_NEWNET) {
                eprintln!("SKIPPED {test}: {errno}");
                return;
            }
            let runtime = Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async { run(Netlink::open().unwrap()).await });
        });
        inside.join().unwrap();
    }
}
