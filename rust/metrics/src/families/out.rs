//! Writes families of series in OpenMetrics.

use std::{fmt, time::Duration};

use prometheus_client::{
    encoding::{DescriptorEncoder, EncodeMetric, MetricEncoder, NoLabelSet},
    metrics::{MetricType, counter::ConstCounter, gauge::ConstGauge},
    registry::Unit,
};

use crate::histogram::Histogram;

/// Labels of one series.
pub(super) type Labels<'a, const N: usize> = [(&'static str, &'a str); N];

/// Writes families of series.
pub(super) struct Out<'a>(pub(super) DescriptorEncoder<'a>);

impl Out<'_> {
    pub(super) fn gauge(&mut self, name: &str, help: &str, value: u64) -> fmt::Result {
        self.gauges(name, help, None, [([], value)].into_iter())
    }

    pub(super) fn gauges<'l, const N: usize>(
        &mut self,
        name: &str,
        help: &str,
        unit: Option<&Unit>,
        mut series: impl Iterator<Item = (Labels<'l, N>, u64)>,
    ) -> fmt::Result {
        let mut family = self.describe(name, help, unit, MetricType::Gauge)?;
        // Counts and sizes stay far below 2^63.
        series.try_for_each(|(labels, value)| {
            ConstGauge::new(value.cast_signed()).encode(family.encode_family(&labels)?)
        })
    }

    /// Writes gauges in seconds.
    pub(super) fn times<'l, const N: usize>(
        &mut self,
        name: &str,
        help: &str,
        mut series: impl Iterator<Item = (Labels<'l, N>, Duration)>,
    ) -> fmt::Result {
        let mut family = self.describe(name, help, Some(&Unit::Seconds), MetricType::Gauge)?;
        series.try_for_each(|(labels, value)| {
            ConstGauge::new(value.as_secs_f64()).encode(family.encode_family(&labels)?)
        })
    }

    pub(super) fn counters<'l, const N: usize>(
        &mut self,
        name: &str,
        help: &str,
        unit: Option<&Unit>,
        mut series: impl Iterator<Item = (Labels<'l, N>, u64)>,
    ) -> fmt::Result {
        let mut family = self.describe(name, help, unit, MetricType::Counter)?;
        series.try_for_each(|(labels, value)| {
            ConstCounter::new(value).encode(family.encode_family(&labels)?)
        })
    }

    pub(super) fn histogram(
        &mut self,
        name: &str,
        help: &str,
        unit: Option<&Unit>,
        histogram: &Histogram,
    ) -> fmt::Result {
        let Histogram {
            sum,
            count,
            buckets,
        } = histogram;
        self.describe(name, help, unit, MetricType::Histogram)?
            .encode_histogram::<NoLabelSet>(*sum, *count, buckets, None)
    }

    pub(super) fn describe<'s>(
        &'s mut self,
        name: &'s str,
        help: &str,
        unit: Option<&'s Unit>,
        kind: MetricType,
    ) -> Result<MetricEncoder<'s>, fmt::Error> {
        self.0.encode_descriptor(name, help, unit, kind)
    }
}
