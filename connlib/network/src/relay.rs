//! Moves bytes between two connections until both directions have ended.
//!
//! 1. A direction waits until its source has bytes. It holds no memory meanwhile.
//! 2. It takes a buffer, or a pipe between kernel sockets, from a bounded pool, moves bytes until the source has no
//!    more, and gives it back; a short message between kernel sockets needs neither. If the pool is empty, or half of it
//!    is lent to the same rule or peer, a buffer serves in place of a pipe, and a small buffer of its own in place of a
//!    buffer. A pipe that its destination does not empty within 100 ms goes back, too: the rest waits in memory.
//! 3. The end of a direction is passed on as such (FIN), and the other direction goes on.
//! 4. If one end fails, what it had sent is delivered first; then the other end is reset (RST). This holds also where
//!    its direction has ended or waits for the other end, which must take the rest within ten seconds then.
//!
//! Urgent data is delivered in its place among the other bytes.

mod budget;
mod copy;
mod finish;
mod half;
mod lender;
mod moderation;
mod moved;
mod outcome;
mod pool;
mod pools;
mod pressure;
mod resets;
mod socket;
mod splice;

use std::{
    future::{Future, poll_fn},
    io,
    pin::{Pin, pin},
    task::{Context, Poll},
    time::Duration,
};

use nix::sys::socket::{setsockopt, sockopt::OobInline};
use tokio::{
    io::copy_bidirectional,
    net::TcpStream,
    time::{Sleep, sleep},
};

use crate::network::Stream;
use half::{Half, Whole};
use lender::Lender;
use outcome::{Failure, Outcome, is_source_gone};
use pools::Pools;
use socket::Socket;

pub use budget::Tenant;
pub use moderation::moderate_wakeups;
pub use moved::Moved;
pub use outcome::{Ended, MIN_BUFFER};
pub use pressure::Pressure;

/// The largest buffer.
pub const MAX_BUFFER: usize = 256 << 10;
/// The buffer that is used if none is asked for.
pub const DEFAULT_BUFFER: usize = 64 << 10;

/// Size of a pipe in buffers. It holds references to the kernel's pages, and larger ones save system calls.
const PIPE: usize = 4;
/// How long the end that lives may take to receive what a failed one had sent.
const LIMIT: Duration = Duration::from_secs(10);
/// The way in which bytes move between kernel sockets; between other streams they are copied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Method {
    /// Within the kernel, by splice(2).
    Splice,
    /// Through a buffer of this process.
    Copy,
    /// By tokio's `copy_bidirectional` and its buffers of 8 KiB, to compare with.
    Tokio,
}

/// Relays connections, which share its pools.
#[derive(Debug)]
pub struct Relay {
    method: Method,
    pools: Pools,
    /// How long the end that lives may take to receive what a failed one had sent.
    pub(crate) limit: Duration,
}

impl Relay {
    /// A relay with buffers of this size, and pipes of four times this size, limited to [`MIN_BUFFER`] and
    /// [`MAX_BUFFER`].
    #[must_use]
    pub fn new(buffer: usize, method: Method) -> Self {
        let buffer = buffer.clamp(MIN_BUFFER, MAX_BUFFER);
        Self {
            method,
            pools: Pools::new(buffer, (buffer * PIPE).min(MAX_BUFFER)),
            limit: LIMIT,
        }
    }

    /// Most descriptors that its pipes take, two each.
    #[must_use]
    pub fn most_descriptors(&self) -> usize {
        2 * self.pools.pipes.most()
    }

    #[cfg(test)]
    fn with_empty_pools(method: Method) -> Self {
        Self {
            pools: Pools::empty(),
            ..Self::new(DEFAULT_BUFFER, method)
        }
    }

    /// Moves bytes between two connections of a tenant until both directions have ended, and closes them.
    pub async fn run(
        &self,
        first: Stream,
        second: Stream,
        tenant: &Tenant,
        moved: &Moved,
    ) -> Ended {
        for stream in [&first, &second] {
            if let Stream::Kernel(socket) = stream {
                // Fails on no TCP socket. Else an urgent byte would be left out.
                let _ = setsockopt(socket, OobInline, &true);
            }
        }
        let lender = Lender {
            pools: &self.pools,
            tenant,
            moved,
        };
        // Boxed, because every task is as large as its largest branch.
        match (first, second, self.method) {
            (Stream::Kernel(first), Stream::Kernel(second), Method::Splice) => {
                Box::pin(self.sockets(first, second, lender)).await
            }
            (Stream::Kernel(mut first), Stream::Kernel(mut second), Method::Tokio) => {
                Box::pin(async {
                    let outcome = by_tokio(&mut first, &mut second, moved).await;
                    finish::sockets(first, second, outcome, self.limit).await
                })
                .await
            }
            (mut first, mut second, _) => {
                Box::pin(async {
                    let outcome = self.streams(&mut first, &mut second, lender).await;
                    finish::streams(first, second, outcome, self.limit).await
                })
                .await
            }
        }
    }

    async fn sockets(&self, first: TcpStream, second: TcpStream, lender: Lender<'_>) -> Ended {
        let (first, second) = (Socket::new(first), Socket::new(second));
        let moved = lender.moved;
        let outbound = splice::direction(&first, &second, lender, &moved.outbound);
        let inbound = splice::direction(&second, &first, lender, &moved.inbound);
        let failed = [&first, &second].map(Socket::failed);
        let outcome = both(outbound, inbound, failed, self.limit).await;
        finish::sockets(first, second, outcome, self.limit).await
    }

    async fn streams(
        &self,
        first: &mut Stream,
        second: &mut Stream,
        lender: Lender<'_>,
    ) -> Outcome {
        let (first, second) = (Whole::new(first), Whole::new(second));
        let (first, second) = (first.half(), second.half());
        let moved = lender.moved;
        let outbound = copy::direction(first, second, lender, &moved.outbound);
        let inbound = copy::direction(second, first, lender, &moved.inbound);
        let failed = [first, second].map(Half::failed);
        both(outbound, inbound, failed, self.limit).await
    }
}

async fn by_tokio(first: &mut TcpStream, second: &mut TcpStream, moved: &Moved) -> Outcome {
    let result = copy_bidirectional(first, second).await.map(|(out, back)| {
        moved.count_outbound(out as usize);
        moved.count_inbound(back as usize);
    });
    Outcome {
        outbound: Some(result.map_err(Failure::Read)),
        inbound: None,
    }
}

/// Runs both directions to their ends, or until one end is gone.
///
/// A direction that has ended, or waits for its destination, does not see that its source fails: that is watched, too.
async fn both(
    outbound: impl Future<Output = Result<(), Failure>>,
    inbound: impl Future<Output = Result<(), Failure>>,
    [first_failed, second_failed]: [impl Future<Output = ()>; 2],
    limit: Duration,
) -> Outcome {
    let (mut outbound, mut inbound) = (pin!(outbound), pin!(inbound));
    let (mut first_failed, mut second_failed) = (pin!(first_failed), pin!(second_failed));
    let mut outcome = Outcome {
        outbound: None,
        inbound: None,
    };
    let (mut first, mut second) = (Source::new(limit), Source::new(limit));
    poll_fn(|context| {
        let Outcome {
            outbound: out,
            inbound: back,
        } = &mut outcome;
        if out.is_none()
            && let Poll::Ready(result) = outbound.as_mut().poll(context)
        {
            *out = Some(result);
        }
        let is_over = is_source_gone(out);
        if !is_over
            && back.is_none()
            && let Poll::Ready(result) = inbound.as_mut().poll(context)
        {
            *back = Some(result);
        }
        let is_over = is_over || is_source_gone(back) || (out.is_some() && back.is_some());
        if is_over {
            return Poll::Ready(());
        }
        first.watch(context, first_failed.as_mut(), out);
        second.watch(context, second_failed.as_mut(), back);
        match is_source_gone(out) || is_source_gone(back) {
            true => Poll::Ready(()),
            false => Poll::Pending,
        }
    })
    .await;
    outcome
}

/// Whether the source of a direction has failed unseen, and how long the direction may go on then.
struct Source {
    has_failed: bool,
    limit: Duration,
    end: Option<Pin<Box<Sleep>>>,
}

impl Source {
    fn new(limit: Duration) -> Self {
        Self {
            has_failed: false,
            limit,
            end: None,
        }
    }

    fn watch(
        &mut self,
        context: &mut Context<'_>,
        failed: Pin<&mut impl Future<Output = ()>>,
        direction: &mut Option<Result<(), Failure>>,
    ) {
        self.has_failed = self.has_failed || failed.poll(context).is_ready();
        if !self.has_failed {
            return;
        }
        let error = || io::Error::from(io::ErrorKind::ConnectionReset);
        match direction {
            Some(Ok(())) => *direction = Some(Err(Failure::Read(error()))),
            Some(Err(_)) => {}
            None => {
                let limit = self.limit;
                let end = self.end.get_or_insert_with(|| Box::pin(sleep(limit)));
                if end.as_mut().poll(context).is_ready() {
                    *direction = Some(Err(Failure::Stuck(error())));
                }
            }
        }
    }
}

#[cfg(test)]
mod tests;
