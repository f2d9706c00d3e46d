//! Throughput, latency and cost of a tunnel: the rows in which contenders are compared.
//!
//! ```text
//!    left                                          right
//!    daemon wg0 ═══════════ tunnel ═══════════ wg0 daemon
//!         veth0 ──────────── veth ──────────── veth0
//!    iperf3, probe, paced UDP                  iperf3, echo, UDP receiver
//! ```
//!
//! Both ends run the same program, if it needs root.
//!
//! 1. [`rows`]: the table of all rows; [`contender`]: the programs that take part.
//! 2. [`Stand`]: a contender between two namespaces; it runs the tests of the rows.
//! 3. [`iperf`], [`udp`]: the generators; [`openvpn`]: VPNs of another protocol; [`rootless`]: programs at the left end
//!    that need no root; [`gateway`]: gateways there.
//! 4. [`Outcome`]: the figures of one contender in one round.

pub(crate) mod contender;
mod gateway;
pub(crate) mod iperf;
mod openvpn;
mod rootless;
pub(crate) mod rows;
mod stand;
pub(crate) mod udp;

use std::collections::BTreeMap;

use anyhow::Context as _;
use serde::{Deserialize, Serialize};
use serde_json::Value;

pub(crate) use contender::{Contender, Kind};
pub(crate) use iperf::Way;
pub(crate) use rows::{Row, Test};
pub(crate) use stand::{Found, Stand};

/// The figures of one contender in one round.
#[derive(Debug, Default, Clone, Serialize, Deserialize)]
pub(crate) struct Outcome {
    /// By row; absent if a test failed.
    pub(crate) figures: BTreeMap<String, f64>,
    /// Rows in which the generator, not the tunnel, set the limit.
    pub(crate) generator_limited: Vec<String>,
    /// Why figures are absent.
    pub(crate) failures: Vec<String>,
    /// The raw measurements, by the first row of each test.
    pub(crate) raw: BTreeMap<String, Value>,
}

impl Outcome {
    /// Runs `test` on `stand` for those of `rows` that it fills. If a test fails, its rows stay empty and the
    /// next test starts with new daemons.
    ///
    /// # Errors
    /// If the daemons do not start again.
    pub(crate) fn measure(
        &mut self,
        stand: &mut Stand,
        test: Test,
        rows: &[&Row],
    ) -> anyhow::Result<()> {
        let own = rows.iter().filter(|row| row.test == test);
        let own: Vec<&Row> = own
            .filter(|row| row.is_for(stand.contender()))
            .copied()
            .collect();
        let Some(first) = own.first() else {
            return Ok(());
        };
        let figures: Vec<_> = own.iter().map(|row| row.figure).collect();
        let found = stand
            .perform(test, &figures)
            .and_then(|found| stand.check().map(|()| found));
        match found.with_context(|| first.name) {
            Ok(found) => self.take(found, &own),
            Err(error) => {
                self.failures.push(format!("{error:#}"));
                stand.restart()?;
            }
        }
        Ok(())
    }

    fn take(&mut self, found: Found, rows: &[&Row]) {
        for row in rows {
            if let Some(&(_, value)) = found
                .figures
                .iter()
                .find(|(figure, _)| *figure == row.figure)
            {
                self.figures.insert(row.name.to_owned(), value);
                if found.generator_limited {
                    self.generator_limited.push(row.name.to_owned());
                }
            }
        }
        self.failures.extend(found.failures);
        if !found.raw.is_null() {
            self.raw.insert(rows[0].name.to_owned(), found.raw);
        }
    }

    /// One line of progress.
    pub(crate) fn summary(&self, rows: &[&Row]) -> String {
        let figures = rows.iter().filter_map(|row| {
            let value = self.figures.get(row.name)?;
            let is_limited = self.generator_limited.iter().any(|name| name == row.name);
            let mark = if is_limited { "*" } else { "" };
            Some(format!("{} {value:.*}{mark}", row.name, row.decimals))
        });
        let failures = self
            .failures
            .iter()
            .filter_map(|failure| failure.lines().next());
        let failures = failures.map(|failure| format!("FAILED {failure}"));
        figures.chain(failures).collect::<Vec<_>>().join("; ")
    }
}
