//! Figures: one sample per server and round, the median over rounds, and ratios between servers of the same round.

use crate::process::Server;
use anyhow::Result;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// What is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Metric {
    /// Operations per second.
    Rate,
    /// Microseconds of the server's CPU per operation.
    Cpu,
    /// How much of its core the server used.
    Busy,
    /// Bytes on the wire towards the client, per operation.
    Bytes,
    /// Milliseconds until half of the receivers had it.
    Median,
    /// Milliseconds until 99 of 100 receivers had it.
    P99,
    /// Bytes of memory for each session, stream or client.
    Resident,
    /// Processes for each client.
    Processes,
    /// The share of both cores' time that the host gave to others meanwhile.
    Taken,
}

impl Metric {
    pub(crate) fn title(self) -> &'static str {
        match self {
            Metric::Rate => "per second",
            Metric::Cpu => "CPU µs each",
            Metric::Busy => "core used",
            Metric::Bytes => "bytes each",
            Metric::Median => "p50 ms",
            Metric::P99 => "p99 ms",
            Metric::Resident => "memory each",
            Metric::Processes => "processes each",
            Metric::Taken => "taken away",
        }
    }

    /// Whether a large figure is a good one.
    pub(crate) fn more_is_better(self) -> bool {
        self == Metric::Rate
    }

    pub(crate) fn show(self, value: f64) -> String {
        match self {
            Metric::Rate | Metric::Bytes => grouped(value),
            Metric::Busy => format!("{:.0} %", value * 100.0),
            Metric::Taken => format!("{:.1} %", value * 100.0),
            Metric::Resident => format!("{:.1} kB", value / 1000.0),
            Metric::Processes => format!("{value:.2}"),
            Metric::Cpu | Metric::Median | Metric::P99 => format!("{value:.2}"),
        }
    }
}

fn grouped(value: f64) -> String {
    let digits = format!("{value:.0}");
    let mut out = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// One measurement.
#[derive(Clone, Debug, Default)]
pub(crate) struct Sample(pub(crate) BTreeMap<Metric, f64>);

impl Sample {
    pub(crate) fn with(mut self, metric: Metric, value: f64) -> Self {
        self.0.insert(metric, value);
        self
    }
}

/// A server's clocks, read at the start of what is measured.
pub(crate) struct Stopwatch<'a> {
    server: &'a Server,
    cpu: Duration,
    begun: Instant,
}

impl<'a> Stopwatch<'a> {
    pub(crate) fn start(server: &'a Server) -> Result<Self> {
        Ok(Stopwatch {
            server,
            cpu: server.cpu()?,
            begun: Instant::now(),
        })
    }

    /// What `operations` took.
    pub(crate) fn stop(self, operations: u64) -> Result<Sample> {
        let wall = self.begun.elapsed().as_secs_f64();
        let cpu = self.server.cpu()?.saturating_sub(self.cpu).as_secs_f64();
        anyhow::ensure!(operations > 0, "nothing was done in {wall:.1} s");
        Ok(Sample::default()
            .with(Metric::Rate, operations as f64 / wall)
            .with(Metric::Cpu, cpu * 1e6 / operations as f64)
            .with(Metric::Busy, cpu / wall))
    }
}

/// The rounds of one server in one case.
#[derive(Clone, Debug, Default)]
pub(crate) struct Series(pub(crate) Vec<Sample>);

impl Series {
    pub(crate) fn median(&self, metric: Metric) -> Option<f64> {
        median(
            self.0
                .iter()
                .filter_map(|sample| sample.0.get(&metric).copied())
                .collect(),
        )
    }

    /// Lowest and highest.
    pub(crate) fn range(&self, metric: Metric) -> Option<(f64, f64)> {
        let values = || self.0.iter().filter_map(|sample| sample.0.get(&metric).copied());
        Some((values().reduce(f64::min)?, values().reduce(f64::max)?))
    }

    /// How this series compares with `limit`, round by round, in one metric: 1 is as good, less is worse.
    pub(crate) fn ratio(&self, limit: &Series, metric: Metric) -> Option<f64> {
        let pairs = self.0.iter().zip(&limit.0);
        let ratios = pairs.filter_map(|(own, limit)| {
            let (own, limit) = (*own.0.get(&metric)?, *limit.0.get(&metric)?);
            Some(if metric.more_is_better() {
                own / limit
            } else {
                limit / own
            })
        });
        median(ratios.collect())
    }
}

pub(crate) fn median(mut values: Vec<f64>) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    match values.len() {
        0 => None,
        odd if odd % 2 == 1 => Some(values[middle]),
        _ => Some(f64::midpoint(values[middle - 1], values[middle])),
    }
}

/// The value that `share` of all lie at or below.
pub(crate) fn percentile(sorted: &[f64], share: f64) -> f64 {
    let at = (sorted.len() as f64 * share).ceil() as usize;
    sorted.get(at.saturating_sub(1)).copied().unwrap_or(f64::NAN)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians_and_percentiles() {
        assert_eq!(median(vec![3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median(vec![4.0, 1.0, 2.0, 3.0]), Some(2.5));
        assert_eq!(median(vec![]), None);
        let hundred: Vec<f64> = (1..=100).map(f64::from).collect();
        assert_eq!((percentile(&hundred, 0.99), percentile(&hundred, 0.5)), (99.0, 50.0));
        assert_eq!(percentile(&[7.0], 0.99), 7.0);
    }

    #[test]
    fn a_ratio_is_taken_round_by_round() {
        let series = |values: &[f64]| Series(values.iter().map(|&v| Sample::default().with(Metric::Cpu, v)).collect());
        let ratio = series(&[20.0, 10.0, 40.0]).ratio(&series(&[10.0, 5.0, 20.0]), Metric::Cpu);
        assert_eq!(ratio, Some(0.5));
    }

    #[test]
    fn figures_for_people() {
        assert_eq!(Metric::Rate.show(1_234_567.4), "1,234,567");
        assert_eq!(Metric::Rate.show(999.0), "999");
        assert_eq!(Metric::Resident.show(15_000.0), "15.0 kB");
    }
}
