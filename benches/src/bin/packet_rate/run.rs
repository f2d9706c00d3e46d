//! Measuring the points, round by round.

use std::{
    sync::{
        Barrier,
        atomic::{AtomicBool, Ordering},
    },
    thread,
};

use anyhow::Context as _;

use crate::{
    place::Places,
    plan::Plan,
    point::{Point, SinkKind},
    record::{Rate, Series},
    sender::{self, Sent},
    sink,
};

/// Measures every point once a round: what drifts with time is in all of them.
pub(crate) fn all(plan: &Plan, points: &[Point], places: &Places) -> Vec<Series> {
    let mut series: Vec<Series> = points.iter().copied().map(Series::of).collect();
    for round in 1..=plan.rounds {
        for series in &mut series {
            match one(plan, &series.point, places) {
                Ok(rate) => series.rates.push(rate),
                Err(error) => series.failures.push(format!("{error:#}")),
            }
        }
        eprintln!("round {round} of {}", plan.rounds);
    }
    series
}

fn one(plan: &Plan, point: &Point, places: &Places) -> anyhow::Result<Rate> {
    let senders: Vec<_> = (0..point.threads)
        .map(|_| places.sender(point.path, point.ports))
        .collect::<Result<_, _>>()?;
    let sink = match point.sink {
        SinkKind::Counting => Some(places.sink(point.path)?),
        SinkKind::Closed => None,
    };
    sink.as_ref().map_or(Ok(()), sink::prepare)?;
    let target = Places::target(point.path);
    let (stop_senders, stop_sink) = (AtomicBool::new(false), AtomicBool::new(false));
    let together = Barrier::new(point.threads + 1);

    thread::scope(|scope| {
        let counting = sink
            .as_ref()
            .map(|sink| scope.spawn(|| sink::count(sink, &stop_sink)));
        let sending: Vec<_> = senders
            .iter()
            .map(|socket| {
                scope.spawn(|| {
                    together.wait();
                    sender::send(socket, target, point, &stop_senders)
                })
            })
            .collect();
        together.wait();
        thread::sleep(plan.window);
        stop_senders.store(true, Ordering::Relaxed);
        let sent: Result<Vec<Sent>, _> = sending.into_iter().map(joined).collect();
        stop_sink.store(true, Ordering::Relaxed);
        let received = counting.map(joined).transpose().context("receive")?;
        Ok(Rate::of(&sent.context("send")?, received))
    })
}

fn joined<T>(thread: thread::ScopedJoinHandle<'_, T>) -> T {
    thread
        .join()
        .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}
