//! The whole life of a tunnel.

use anyhow::anyhow;
use convoy_lifecycle::{Ending, Start, State};
use convoy_supervision::{Life, Outside, control::Reply, signals::Signals};

use super::{
    caller::{Caller, Wanted},
    place::Rootless,
    sockets::Sockets,
};

/// Brings a tunnel up, keeps it, and takes it down.
pub(crate) async fn run(wanted: Wanted, caller: Caller<'_>) -> anyhow::Result<()> {
    let signals = Signals::new()?;
    let (sockets, control) = Sockets::bind(&wanted.config.name).await?;
    let mut outside = Outside::new(control, signals, caller.leaves());
    let mut place = Rootless::new(wanted, sockets, caller);
    let mut life = Life::new(State::coming_up(Start::Rootless));
    let ending = life.serve(&mut place, &mut outside).await;
    let failure = match &ending {
        Ending::Failed(reason) => Some(anyhow!("{reason}")),
        ending if ending.is_of_start() => life.take_failure().or(Some(anyhow!("{ending}"))),
        _ => None,
    };
    if let Some(supervisor) = &place.supervisor {
        supervisor.announce_end(&ending, failure.as_ref());
    }
    let down = life.take_down(&mut place, &mut outside).await;
    let outcome = down.outcome();
    let reply = match &outcome {
        Ok(_) => Reply::Done {
            warnings: Vec::new(),
        },
        Err(reason) => Reply::Failed {
            reason: reason.clone(),
        },
    };
    outside.finish(&reply).await;
    // Only now may another supervisor take the name.
    drop(place);
    outcome.map_err(|reason| anyhow!(reason))?;
    failure.map_or(Ok(()), Err)
}
