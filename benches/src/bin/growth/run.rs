//! The rounds.

use std::path::Path;

use convoy_benches::{growth::Series, speedtest::Speedtest, turns::turned};

use crate::plan::{Call, Plan};

/// Makes every call of `plan` once a round, and collects what each point gave.
///
/// # Errors
/// When a call fails: a record with holes compares what was not measured under the same conditions.
pub(crate) fn all(convoy: &Path, plan: &Plan) -> anyhow::Result<Vec<Series>> {
    rounds(plan, |call| {
        Speedtest::run(convoy, call.arguments(plan.secs))
    })
}

fn rounds(
    plan: &Plan,
    mut run: impl FnMut(&Call) -> anyhow::Result<Speedtest>,
) -> anyhow::Result<Vec<Series>> {
    let mut found: Vec<(&Call, Vec<Speedtest>)> =
        plan.calls.iter().map(|call| (call, Vec::new())).collect();
    let numbers: Vec<_> = (0..found.len()).collect();
    for round in 0..plan.rounds {
        for &number in turned(&numbers, round) {
            let (call, runs) = &mut found[number];
            eprintln!(
                "round {} of {}: MTU {}, peers {}: {}",
                round + 1,
                plan.rounds,
                call.tunnel.mtu,
                call.tunnel.peers,
                call.tests.join(", ")
            );
            runs.push(run(call)?);
        }
    }
    let series = found.iter().flat_map(|(call, runs)| {
        let tests = call.tests.iter();
        tests.map(move |test| Series::of(call.tunnel, test, runs))
    });
    series.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What the speed test prints, where every figure is `value`.
    fn printed(call: &Call, value: u32) -> Speedtest {
        let run = |test: &String| {
            format!(r#"{{"name": "{test}", "gbps": {value}, "cpu_s_per_gb": {value}}}"#)
        };
        let runs: Vec<_> = call.tests.iter().map(run).collect();
        let json = format!(
            r#"{{"version": "0.1.0", "host": {{"kernel": "6", "cpu": null, "cpus": 2,
                "memory_mib": null, "root": true}}, "runs": [{}]}}"#,
            runs.join(",")
        );
        serde_json::from_str(&json).unwrap()
    }

    #[test]
    fn every_point_gets_a_value_of_each_round_in_turns() {
        let plan = Plan {
            rounds: 2,
            ..Plan::quick()
        };
        let mut turn = 0;
        let series = rounds(&plan, |call| {
            turn += 1;
            Ok(printed(call, turn))
        });
        let values: Vec<_> = series
            .unwrap()
            .into_iter()
            .map(|series| (series.test, series.gbps.unwrap().values))
            .collect();
        // The first of three tunnels comes first, then last.
        assert_eq!(values[0], ("tcp-1".to_owned(), vec![1.0, 6.0]));
        assert_eq!(values[2], ("udp-1200".to_owned(), vec![1.0, 6.0]));
        assert_eq!(values[3].1, [2.0, 4.0]);
        assert_eq!(values[4].1, [3.0, 5.0]);
    }

    #[test]
    fn a_call_that_fails_ends_it_all() {
        let failed = rounds(&Plan::quick(), |_| anyhow::bail!("no tunnel"));
        assert_eq!(failed.unwrap_err().to_string(), "no tunnel");
    }
}
