//! One run, from the first namespace to the last byte.

use std::{path::PathBuf, thread};

use crate::{
    bed::{Bed, SPOKES},
    clock::Clock,
    events,
    flow::{Connection, Load, Transfer},
    header::Header,
    probe::Probes,
    record::Record,
    sampler::Sampler,
};

/// What is to be run.
pub(crate) struct Plan {
    pub(crate) program: PathBuf,
    pub(crate) secs: u64,
    /// Mbit/s of each stream; 0: as fast as TCP goes.
    pub(crate) rate_mbps: f64,
}

/// Runs it; the verdicts are still to be found.
pub(crate) fn run(plan: &Plan) -> anyhow::Result<Record> {
    let bed = Bed::new(&plan.program)?;
    let daemons = bed
        .ends()
        .map(|end| end.namespace.label().to_owned())
        .collect();
    let header = Header::new(&plan.program, plan.secs, plan.rate_mbps, daemons)?;
    let open = |(number, spoke)| Connection::open(&bed, number, spoke);
    let connections: Vec<_> = SPOKES
        .into_iter()
        .enumerate()
        .map(open)
        .collect::<Result<_, _>>()?;

    let load = Load::new(Clock::start(), plan.rate_mbps);
    let probes = Probes::default();
    let schedule = events::schedule(plan.secs);
    thread::scope(|scope| {
        // Ends the threads also when this one fails.
        let end = EndOnDrop(&load);
        let start = |connection| load.start(scope, connection);
        let transfers: Vec<_> = connections.iter().flat_map(start).collect();
        for (number, spoke) in SPOKES.into_iter().enumerate() {
            probes.start(scope, &load, &bed, number, spoke)?;
        }
        let events = scope.spawn(|| events::carry_out(&bed, &load, &schedule));
        let seen = Sampler::new(&bed, &load, &probes)?.run(plan.secs);
        drop(end);

        let streams = transfers.into_iter().map(Transfer::finish);
        Ok(Record {
            header,
            verdicts: Vec::new(),
            streams: streams.collect::<Result<_, _>>()?,
            events: events
                .join()
                .map_err(|_| anyhow::anyhow!("the events' thread panicked"))?,
            handshakes: seen.handshakes,
            death: seen.death,
            samples: seen.samples,
        })
    })
}

struct EndOnDrop<'a>(&'a Load);

impl Drop for EndOnDrop<'_> {
    fn drop(&mut self) {
        self.0.end();
    }
}
