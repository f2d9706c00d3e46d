//! Requests and answers, each a line of JSON.

use std::time::Duration;

use convoy_process::{logging::LogLevel, message::Message};
use convoy_report::Status;
use serde::{Deserialize, Serialize};
use tokio::sync::{mpsc, oneshot};

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

impl Message for Request {
    /// The most bytes of a request.
    const MAX_BYTES: usize = 64 << 10;
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

impl Message for Reply {
    /// The most bytes of an answer: the status of some 100,000 peers.
    const MAX_BYTES: usize = 64 << 20;
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
