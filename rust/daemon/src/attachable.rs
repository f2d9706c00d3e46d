//! Lets debuggers and profilers of this process's user attach for a while after SIGUSR1, which `convoy profile` sends.

use std::{convert::Infallible, future::pending, time::Duration};

use nix::sys::prctl;
use tokio::{
    signal::unix::{SignalKind, signal},
    time::{Instant, sleep_until},
};
use tracing::{info, warn};

/// Time for which they may attach. Those that have attached stay attached.
const TIME: Duration = Duration::from_secs(60);

/// Waits for requests.
pub(super) async fn on_request() -> Infallible {
    let mut requests = match signal(SignalKind::user_defined1()) {
        Ok(requests) => requests,
        Err(error) => {
            warn!("cannot listen for requests of `convoy profile`: {error}");
            return pending().await;
        }
    };
    loop {
        // It lasts as long as the process.
        requests.recv().await;
        info!("profilers may attach for {} s", TIME.as_secs());
        set(true);
        let mut end = Instant::now() + TIME;
        loop {
            tokio::select! {
                _ = requests.recv() => end = Instant::now() + TIME,
                () = sleep_until(end) => break,
            }
        }
        set(false);
    }
}

fn set(is_attachable: bool) {
    if let Err(error) = prctl::set_dumpable(is_attachable) {
        warn!("cannot change who may attach to this process: {error}");
    }
}
