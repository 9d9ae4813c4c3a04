//! Measurements: one sample per server and round, their median and quartiles, and ratios between servers.

use crate::process::Server;
use anyhow::Result;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Metric {
    /// Operations per second.
    Rate,
    /// Microseconds of the server's CPU per operation.
    Cpu,
    /// Share of its core that the server used.
    CoreUse,
    /// Bytes on the wire towards the client, per operation.
    WireBytes,
    /// Milliseconds until half of the receivers had the message.
    P50,
    /// Milliseconds until 99 % of the receivers had the message.
    P99,
    /// Bytes of memory per session, stream or client.
    Memory,
    /// Processes per client.
    Processes,
    /// Microseconds of the CPU of Redis per operation.
    RedisCpu,
    /// Scripts that Redis ran per operation. Each is a round trip of a node.
    RedisScripts,
    /// Share of both cores' time that the host of a virtual machine gave to others.
    Steal,
}

impl Metric {
    pub(crate) const ALL: [Metric; 11] = [
        Metric::Rate,
        Metric::Cpu,
        Metric::CoreUse,
        Metric::WireBytes,
        Metric::P50,
        Metric::P99,
        Metric::Memory,
        Metric::Processes,
        Metric::RedisCpu,
        Metric::RedisScripts,
        Metric::Steal,
    ];

    pub(crate) fn title(self) -> &'static str {
        match self {
            Metric::Rate => "operations/s",
            Metric::Cpu => "CPU µs/op",
            Metric::CoreUse => "core use",
            Metric::WireBytes => "bytes/op",
            Metric::P50 => "p50 ms",
            Metric::P99 => "p99 ms",
            Metric::Memory => "memory each",
            Metric::Processes => "processes each",
            Metric::RedisCpu => "Redis CPU µs/op",
            Metric::RedisScripts => "Redis scripts/op",
            Metric::Steal => "steal",
        }
    }

    pub(crate) fn higher_is_better(self) -> bool {
        self == Metric::Rate
    }

    pub(crate) fn show(self, value: f64) -> String {
        match self {
            Metric::Rate | Metric::WireBytes => grouped(value),
            Metric::CoreUse => format!("{:.0} %", value * 100.0),
            Metric::Steal => format!("{:.1} %", value * 100.0),
            Metric::Memory if value >= 1e6 => format!("{:.1} MB", value / 1e6),
            Metric::Memory => format!("{:.1} kB", value / 1e3),
            Metric::Processes => format!("{value:.1}"),
            Metric::Cpu | Metric::RedisCpu | Metric::P50 | Metric::P99 if value >= 100.0 => grouped(value),
            Metric::Cpu | Metric::RedisCpu | Metric::RedisScripts | Metric::P50 | Metric::P99 => format!("{value:.2}"),
        }
    }
}

/// An integer with separators: 1,234,567.
pub(crate) fn grouped(value: f64) -> String {
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

/// Measures the CPU time and the wall time of the processes of a server.
pub(crate) struct Stopwatch<'a> {
    processes: Vec<&'a Server>,
    cpu: Duration,
    started: Instant,
}

impl<'a> Stopwatch<'a> {
    pub(crate) fn start(processes: impl IntoIterator<Item = &'a Server>) -> Result<Self> {
        let processes: Vec<_> = processes.into_iter().collect();
        Ok(Stopwatch {
            cpu: cpu(&processes)?,
            processes,
            started: Instant::now(),
        })
    }

    /// The sample of `operations` since the start.
    pub(crate) fn stop(self, operations: u64) -> Result<Sample> {
        let wall = self.started.elapsed().as_secs_f64();
        let cpu = cpu(&self.processes)?.saturating_sub(self.cpu).as_secs_f64();
        anyhow::ensure!(operations > 0, "no operation in {wall:.1} s");
        Ok(Sample::default()
            .with(Metric::Rate, operations as f64 / wall)
            .with(Metric::Cpu, cpu * 1e6 / operations as f64)
            .with(Metric::CoreUse, cpu / wall))
    }
}

fn cpu(processes: &[&Server]) -> Result<Duration> {
    processes.iter().map(|process| process.cpu()).sum()
}

/// Median and quartiles over rounds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Spread {
    pub(crate) median: f64,
    pub(crate) q1: f64,
    pub(crate) q3: f64,
}

impl Spread {
    pub(crate) fn of(mut values: Vec<f64>) -> Option<Spread> {
        values.sort_by(f64::total_cmp);
        Some(Spread {
            median: quantile(&values, 0.5)?,
            q1: quantile(&values, 0.25)?,
            q3: quantile(&values, 0.75)?,
        })
    }

    /// The spread in another unit. `convert` must be increasing.
    pub(crate) fn map(self, convert: impl Fn(f64) -> f64) -> Spread {
        Spread {
            median: convert(self.median),
            q1: convert(self.q1),
            q3: convert(self.q3),
        }
    }
}

/// The samples of one server in one case, by round.
#[derive(Clone, Debug, Default)]
pub(crate) struct Series(pub(crate) Vec<Sample>);

impl Series {
    pub(crate) fn spread(&self, metric: Metric) -> Option<Spread> {
        Spread::of(
            self.0
                .iter()
                .filter_map(|sample| sample.0.get(&metric).copied())
                .collect(),
        )
    }

    pub(crate) fn median(&self, metric: Metric) -> Option<f64> {
        self.spread(metric).map(|spread| spread.median)
    }

    /// This series divided by `other`, round by round.
    pub(crate) fn relative_to(&self, other: &Series, metric: Metric) -> Option<Spread> {
        let pairs = self.0.iter().zip(&other.0);
        let ratios = pairs.filter_map(|(own, other)| Some(own.0.get(&metric)? / other.0.get(&metric)?));
        Spread::of(ratios.collect())
    }

    /// The performance relative to `other`, round by round: above 1 is better, for every metric.
    pub(crate) fn performance_relative_to(&self, other: &Series, metric: Metric) -> Option<Spread> {
        if metric.higher_is_better() {
            self.relative_to(other, metric)
        } else {
            other.relative_to(self, metric)
        }
    }
}

pub(crate) fn median(mut values: Vec<f64>) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    quantile(&values, 0.5)
}

/// The quantile of sorted values, interpolated between neighbours.
fn quantile(sorted: &[f64], share: f64) -> Option<f64> {
    let at = sorted.len().checked_sub(1)? as f64 * share;
    let (low, high) = (sorted[at.floor() as usize], sorted[at.ceil() as usize]);
    Some(low + (high - low) * at.fract())
}

/// The smallest value that is not below `share` of all values.
pub(crate) fn percentile(sorted: &[f64], share: f64) -> f64 {
    let at = (sorted.len() as f64 * share).ceil() as usize;
    sorted.get(at.saturating_sub(1)).copied().unwrap_or(f64::NAN)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn series(metric: Metric, values: &[f64]) -> Series {
        Series(values.iter().map(|&v| Sample::default().with(metric, v)).collect())
    }

    #[test]
    fn median_and_percentile() {
        assert_eq!(median(vec![3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median(vec![4.0, 1.0, 2.0, 3.0]), Some(2.5));
        assert_eq!(median(vec![]), None);
        let hundred: Vec<f64> = (1..=100).map(f64::from).collect();
        assert_eq!((percentile(&hundred, 0.99), percentile(&hundred, 0.5)), (99.0, 50.0));
        assert_eq!(percentile(&[7.0], 0.99), 7.0);
    }

    #[test]
    fn quartiles_are_interpolated() {
        let spread = Spread::of(vec![5.0, 1.0, 3.0, 2.0, 4.0]).unwrap();
        assert_eq!((spread.q1, spread.median, spread.q3), (2.0, 3.0, 4.0));
        let spread = Spread::of(vec![1.0, 2.0]).unwrap();
        assert_eq!((spread.q1, spread.median, spread.q3), (1.25, 1.5, 1.75));
        assert_eq!(Spread::of(vec![]), None);
    }

    #[test]
    fn ratio_is_computed_round_by_round() {
        let (own, other) = (
            series(Metric::Cpu, &[20.0, 10.0, 40.0]),
            series(Metric::Cpu, &[10.0, 5.0, 20.0]),
        );
        assert_eq!(own.relative_to(&other, Metric::Cpu).unwrap().median, 2.0);
        assert_eq!(own.performance_relative_to(&other, Metric::Cpu).unwrap().median, 0.5);
        let (own, other) = (series(Metric::Rate, &[20.0]), series(Metric::Rate, &[10.0]));
        assert_eq!(own.performance_relative_to(&other, Metric::Rate).unwrap().median, 2.0);
    }

    #[test]
    fn values_are_readable() {
        assert_eq!(Metric::Rate.show(1_234_567.4), "1,234,567");
        assert_eq!(Metric::Rate.show(999.0), "999");
        assert_eq!(Metric::Memory.show(15_000.0), "15.0 kB");
        assert_eq!(Metric::Memory.show(10_715_136.0), "10.7 MB");
        assert_eq!(
            (Metric::Cpu.show(9.876), Metric::Cpu.show(1672.3)),
            ("9.88".into(), "1,672".into())
        );
    }

    #[test]
    fn every_metric_is_listed_once() {
        let titles: std::collections::BTreeSet<_> = Metric::ALL.iter().map(|metric| metric.title()).collect();
        assert_eq!(titles.len(), Metric::ALL.len());
    }
}
