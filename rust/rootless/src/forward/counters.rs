//! Logs a forwarder's traffic and refusals.

use convoy_forward::Forwarder;
use convoy_network::{
    counters::{Refusal, Totals},
    relay::Pressure,
};
use convoy_report::CarriedStatus;
use tracing::info;

/// Logs the counters of each rule, and of all if there are several.
pub(crate) fn log(forwarder: &Forwarder) {
    for rule in forwarder.rules() {
        line(&rule.to_string(), &rule.totals());
    }
    if forwarder.rules().len() > 1 {
        line("in all", &forwarder.totals());
    }
}

/// Logs the counters of one rule.
pub(crate) fn line(rule: &str, totals: &Totals) {
    info!(
        rule,
        opened = totals.opened,
        open = totals.opened.saturating_sub(totals.closed),
        bytes_out = totals.bytes_out,
        bytes_in = totals.bytes_in,
        datagrams_dropped = totals.dropped,
        refused = refused(totals),
        bounds_met = met(totals),
        "counters"
    );
}

/// The same for `convoy status`.
pub(crate) fn status(totals: &Totals) -> CarriedStatus {
    let refused = Refusal::ALL.iter();
    let refused = refused.map(|reason| (reason.name().to_owned(), totals.refused(*reason)));
    let met = Pressure::ALL.iter();
    let met = met.map(|bound| (bound.name().to_owned(), totals.met(*bound)));
    CarriedStatus {
        opened: totals.opened,
        open: totals.opened.saturating_sub(totals.closed),
        bytes_out: totals.bytes_out,
        bytes_in: totals.bytes_in,
        dropped_datagrams: totals.dropped,
        refused: refused.filter(|(_, count)| *count > 0).collect(),
        bounds_met: met.filter(|(_, count)| *count > 0).collect(),
    }
}

/// Formats the reasons for refusals, such as `denied 3, timed_out 1`.
fn refused(totals: &Totals) -> String {
    listed(Refusal::ALL.map(|reason| (reason.name(), totals.refused(reason))))
}

/// Formats the bounds of the relay that were reached.
fn met(totals: &Totals) -> String {
    listed(Pressure::ALL.map(|bound| (bound.name(), totals.met(bound))))
}

fn listed<const N: usize>(counts: [(&str, u64); N]) -> String {
    let counts = counts.into_iter().filter(|(_, count)| *count > 0);
    let words: Vec<_> = counts
        .map(|(name, count)| format!("{name} {count}"))
        .collect();
    match words.is_empty() {
        true => "nothing".to_owned(),
        false => words.join(", "),
    }
}
