//! One direction between any two streams, through a buffer of this process.

use std::{
    future::poll_fn,
    io,
    pin::Pin,
    sync::atomic::{AtomicU64, Ordering},
    task::{Context, Poll, ready},
};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::{
    lender::{Lender, Memory},
    outcome::{Failure, ROUNDS},
};

/// Moves bytes until the source ends, then closes the destination's side of this direction.
pub(super) async fn direction(
    mut source: impl AsyncRead + Unpin,
    mut destination: impl AsyncWrite + Unpin,
    lender: Lender<'_>,
    moved: &AtomicU64,
) -> Result<(), Failure> {
    let mut held = Held::default();
    let (mut source, mut destination) = (Pin::new(&mut source), Pin::new(&mut destination));
    poll_fn(|context| {
        for _ in 0..ROUNDS {
            let is_end =
                ready!(held.poll_fill(context, source.as_mut(), lender)).map_err(Failure::Read)?;
            if is_end {
                return Poll::Ready(Ok(()));
            }
            ready!(held.poll_drain(context, destination.as_mut(), moved))
                .map_err(Failure::Write)?;
        }
        context.waker().wake_by_ref();
        Poll::Pending
    })
    .await?;
    poll_fn(|context| destination.as_mut().poll_shutdown(context))
        .await
        .map_err(Failure::Write)
}

/// Bytes that were read and not yet written.
#[derive(Default)]
struct Held<'a> {
    /// None while there are no bytes.
    memory: Option<Memory<'a>>,
    start: usize,
    end: usize,
}

impl<'a> Held<'a> {
    /// Reads once, unless bytes are left. Whether the source has ended.
    fn poll_fill(
        &mut self,
        context: &mut Context<'_>,
        source: Pin<&mut (impl AsyncRead + ?Sized)>,
        lender: Lender<'a>,
    ) -> Poll<io::Result<bool>> {
        if self.memory.is_some() {
            return Poll::Ready(Ok(false));
        }
        let mut memory = lender.memory();
        let mut buffer = ReadBuf::new(memory.bytes());
        let outcome = source.poll_read(context, &mut buffer);
        let read = buffer.filled().len();
        match outcome {
            Poll::Ready(Ok(())) if read > 0 => {
                self.memory = Some(memory);
                (self.start, self.end) = (0, read);
                Poll::Ready(Ok(false))
            }
            other => {
                memory.give_back();
                other.map_ok(|()| true)
            }
        }
    }

    /// Writes everything and gives the memory back.
    fn poll_drain(
        &mut self,
        context: &mut Context<'_>,
        mut destination: Pin<&mut (impl AsyncWrite + ?Sized)>,
        moved: &AtomicU64,
    ) -> Poll<io::Result<()>> {
        if let Some(memory) = &mut self.memory {
            while self.start < self.end {
                let bytes = &memory.bytes()[self.start..self.end];
                let written = ready!(destination.as_mut().poll_write(context, bytes))?;
                if written == 0 {
                    return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
                }
                self.start += written;
                moved.fetch_add(written as u64, Ordering::Relaxed);
            }
        }
        if let Some(memory) = self.memory.take() {
            memory.give_back();
        }
        destination.poll_flush(context)
    }
}
