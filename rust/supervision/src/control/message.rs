//! Requests and answers, each a line of JSON.

use std::{io, time::Duration};

use convoy_process::logging::LogLevel;
use convoy_report::Status;
use serde::{Deserialize, Serialize};
use tokio::{
    io::AsyncWriteExt as _,
    net::UnixStream,
    sync::{mpsc, oneshot},
    time::timeout,
};

use crate::events::Event;

/// Time limit for a client to ask, and to read.
pub(super) const PATIENCE: Duration = Duration::from_secs(10);

/// A request to a supervisor.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Request {
    /// Take the tunnel down.
    Down,
    /// Read the configuration again.
    Reload,
    /// Report the status.
    Status,
    /// Let packets leave outside of the tunnel.
    Pause {
        /// Length of the pause.
        seconds: u64,
    },
    /// End the pause.
    Resume,
    /// Log up to a level for a time.
    Log {
        /// The least important messages that are logged.
        level: LogLevel,
        /// Length of the time.
        seconds: u64,
    },
    /// Answered with [`Reply::Done`], which the events follow.
    Subscribe,
}

/// A supervisor's answer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reply {
    /// The request was carried out, with these warnings.
    Done {
        /// In words.
        warnings: Vec<String>,
    },
    /// The request failed.
    Failed {
        /// In words.
        reason: String,
    },
    /// Answer to [`Request::Status`].
    Status(Box<Status>),
}

/// A request and its client. Dropping it unanswered answers that the tunnel is going down.
#[derive(Debug)]
pub struct Asked {
    /// The request.
    pub request: Request,
    /// Channel for the answer.
    pub reply: oneshot::Sender<Reply>,
    /// Channel for events, if the client subscribes.
    pub subscriber: Option<mpsc::Sender<Event>>,
}

pub(super) async fn answer(
    request: Request,
    subscriber: Option<mpsc::Sender<Event>>,
    requests: &mpsc::Sender<Asked>,
) -> Reply {
    let (reply, answered) = oneshot::channel();
    let asked = Asked {
        request,
        reply,
        subscriber,
    };
    // If the request is dropped, the answer says so.
    let _ = requests.send(asked).await;
    answered.await.unwrap_or_else(|_| Reply::Failed {
        reason: "the tunnel is going down".to_owned(),
    })
}

pub(super) async fn write<T: Serialize>(stream: &mut UnixStream, message: &T) -> io::Result<()> {
    stream.write_all(&line_of(message)?).await
}

pub(super) async fn in_time(written: impl Future<Output = io::Result<()>>) -> io::Result<()> {
    let written = timeout(PATIENCE, written).await;
    written.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
}

pub(super) fn line_of<T: Serialize>(message: &T) -> serde_json::Result<Vec<u8>> {
    let mut line = serde_json::to_vec(message)?;
    line.push(b'\n');
    Ok(line)
}
