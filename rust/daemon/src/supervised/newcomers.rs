//! Connections that are not, or not yet, the supervisor's.
//!
//! A supervisor introduces itself. Whoever connects without doing so, such as a person who tries the socket out, gets
//! nothing, above all not the TUN, and changes nothing.

use std::{future::pending, time::Duration};

use convoy_process::message::{Connection, Lost};
use futures_util::future::select_all;
use tokio::{
    net::UnixStream,
    time::{Instant, timeout_at},
};
use tracing::debug;

use super::protocol::ToTunnel;

/// The most connections that wait; a further one replaces the oldest.
const MOST: usize = 8;

/// Time limit for a newcomer to introduce itself.
const INTRODUCTION_TIME: Duration = Duration::from_secs(5);

/// Supervisors that have connected, oldest first.
#[derive(Debug)]
pub(super) struct Newcomers {
    all: Vec<Newcomer>,
    /// As [`INTRODUCTION_TIME`].
    time: Duration,
}

#[derive(Debug)]
struct Newcomer {
    connection: Connection,
    /// Deadline for its introduction; `None` once it has introduced itself.
    deadline: Option<Instant>,
}

/// Reason why a newcomer is turned away.
#[derive(Debug, thiserror::Error)]
enum Stranger {
    #[error("no greeting in time")]
    Silent,
    #[error("an unexpected message")]
    Unasked,
    #[error(transparent)]
    Lost(#[from] Lost),
}

impl Default for Newcomers {
    fn default() -> Self {
        Self {
            all: Vec::new(),
            time: INTRODUCTION_TIME,
        }
    }
}

impl Newcomers {
    pub(super) fn add(&mut self, stream: UnixStream) {
        if self.all.len() == MOST {
            debug!("Too many have connected and wait; the oldest must go");
            self.all.remove(0);
        }
        self.all.push(Newcomer {
            connection: Connection::new(stream),
            deadline: Some(Instant::now() + self.time),
        });
    }

    /// Waits until one has introduced itself, or is turned away. Cancel-safe.
    pub(super) async fn next(&mut self) {
        if self.all.is_empty() {
            return pending().await;
        }
        let all = self.all.iter_mut().map(|it| Box::pin(it.introduction()));
        let (outcome, index, others) = select_all(all).await;
        drop(others);
        match outcome {
            Ok(()) => self.all[index].deadline = None,
            Err(reason) => {
                debug!("Somebody who has connected is not the supervisor: {reason}");
                self.all.remove(index);
            }
        }
    }

    /// The newest connection that has introduced itself: earlier ones are probably about to close.
    pub(super) fn take(&mut self) -> Option<Connection> {
        let has_introduced_itself = |it: &Newcomer| it.deadline.is_none();
        let newest = self.all.iter().rposition(has_introduced_itself)?;
        Some(self.all.remove(newest).connection)
    }
}

impl Newcomer {
    /// Returns once it has introduced itself for the first time. Cancel-safe.
    async fn introduction(&mut self) -> Result<(), Stranger> {
        let message = self.connection.next::<ToTunnel>();
        match self.deadline {
            Some(deadline) => match timeout_at(deadline, message).await {
                Ok(message) => match message? {
                    ToTunnel::Hello { .. } => Ok(()),
                    _ => Err(Stranger::Unasked),
                },
                Err(_) => Err(Stranger::Silent),
            },
            // It waits for its turn and must send nothing.
            None => {
                message.await?;
                Err(Stranger::Unasked)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{io::Write as _, os::unix::net::UnixStream as Blocking};

    use super::*;

    const HELLO: &[u8] = b"{\"type\":\"hello\",\"version\":\"0\"}\n";

    #[tokio::test]
    async fn only_who_introduces_itself_is_taken() {
        let mut newcomers = Newcomers::default();
        let _silent = connected(&mut newcomers, b"");
        let _supervisor = connected(&mut newcomers, HELLO);
        for said in [
            &b"GET / HTTP/1.0\r\n\r\n"[..],
            b"\n",
            b"{\"type\":\"stop\"}\n",
            b"{\"type\":\"follow\",\"peers\":[]}\n",
        ] {
            let stranger = connected(&mut newcomers, said);
            assert!(newcomers.take().is_none());
            drop(stranger);
        }
        while newcomers.all.len() > 2 || newcomers.all[1].deadline.is_some() {
            newcomers.next().await;
        }
        assert!(newcomers.take().is_some());
        assert!(newcomers.take().is_none());
        assert_eq!(newcomers.all.len(), 1, "the silent one");
    }

    #[tokio::test]
    async fn who_waits_for_its_turn_leaves_or_speaks_and_is_forgotten() {
        let mut newcomers = Newcomers::default();
        for more in [None, Some(&b"{\"type\":\"stop\"}\n"[..]), Some(HELLO)] {
            let mut newcomer = connected(&mut newcomers, HELLO);
            newcomers.next().await;
            match more {
                Some(more) => newcomer.write_all(more).unwrap(),
                None => drop(newcomer.shutdown(std::net::Shutdown::Both)),
            }
            newcomers.next().await;
            assert!(newcomers.take().is_none() && newcomers.all.is_empty());
        }
    }

    #[tokio::test]
    async fn the_newest_is_taken() {
        let mut newcomers = Newcomers::default();
        let ends = [(); 3].map(|()| connected(&mut newcomers, HELLO));
        while newcomers.all.iter().any(|it| it.deadline.is_some()) {
            newcomers.next().await;
        }
        for mut end in ends.into_iter().rev() {
            let mut taken = newcomers.take().unwrap();
            end.write_all(b"{\"type\":\"stop\"}\n").unwrap();
            assert_eq!(taken.next::<ToTunnel>().await.unwrap(), ToTunnel::Stop);
        }
    }

    #[tokio::test]
    async fn who_says_nothing_is_turned_away_in_time() {
        let mut newcomers = Newcomers {
            time: Duration::from_millis(1),
            ..Newcomers::default()
        };
        let _silent = connected(&mut newcomers, b"{\"type\":");
        newcomers.next().await;
        assert!(newcomers.all.is_empty());
    }

    #[tokio::test]
    async fn of_too_many_the_oldest_goes() {
        let mut newcomers = Newcomers::default();
        let mut ends: Vec<_> = (0..=MOST).map(|_| connected(&mut newcomers, b"")).collect();
        assert_eq!(newcomers.all.len(), MOST);
        ends[0].write_all(HELLO).unwrap_err();
        ends[1].write_all(HELLO).unwrap();
        newcomers.next().await;
        assert!(newcomers.take().is_some());
    }

    /// Connects a client that sends this.
    fn connected(newcomers: &mut Newcomers, said: &[u8]) -> Blocking {
        let (ours, mut theirs) = Blocking::pair().unwrap();
        theirs.write_all(said).unwrap();
        ours.set_nonblocking(true).unwrap();
        newcomers.add(UnixStream::from_std(ours).unwrap());
        theirs
    }
}
