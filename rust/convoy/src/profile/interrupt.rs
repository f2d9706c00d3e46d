//! SIGINT, SIGTERM and SIGHUP while a profile is made.

use std::{
    io, process,
    sync::{Mutex, PoisonError},
    task::Poll,
    thread,
};

use anyhow::Context as _;
use convoy_perf::Unfinished;
use tokio::signal::unix::{Signal, SignalKind, signal};

/// What a shell shows for a program that was interrupted.
const STATUS: i32 = 130;

/// Every profile of this process; one that is whole by now is left alone.
static PROFILES: Mutex<Vec<Unfinished>> = Mutex::new(Vec::new());

/// From now on an interrupt removes what is unfinished, says so, and ends the program; the tools and
/// namespaces die with it.
pub(super) fn discard(unfinished: Unfinished) -> anyhow::Result<()> {
    let mut profiles = PROFILES.lock().unwrap_or_else(PoisonError::into_inner);
    profiles.push(unfinished);
    if profiles.len() > 1 {
        return Ok(());
    }
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_io()
        .build()
        .context("cannot listen to signals")?;
    let signals = {
        let _inside = runtime.enter();
        let kinds = [
            SignalKind::interrupt(),
            SignalKind::terminate(),
            SignalKind::hangup(),
        ];
        let signals = kinds
            .map(signal)
            .into_iter()
            .collect::<io::Result<Vec<_>>>();
        signals.context("cannot listen to signals")?
    };
    let wait = move || {
        runtime.block_on(any(signals));
        let profiles = PROFILES.lock().unwrap_or_else(PoisonError::into_inner);
        profiles.iter().for_each(Unfinished::discard);
        eprintln!("convoy: interrupted; the unfinished profile was removed");
        process::exit(STATUS);
    };
    let started: io::Result<_> = thread::Builder::new()
        .name("signals".to_owned())
        .spawn(wait);
    started.map(drop).context("cannot listen to signals")
}

async fn any(mut signals: Vec<Signal>) {
    std::future::poll_fn(|context| {
        let mut polled = signals.iter_mut().map(|signal| signal.poll_recv(context));
        match polled.any(|poll| poll.is_ready()) {
            true => Poll::Ready(()),
            false => Poll::Pending,
        }
    })
    .await;
}
