//! The work of Redis for the nodes.

use crate::measure::{Metric, Sample};
use crate::process::cpu_of;
use anyhow::{Context as _, Result};
use rethread_testkit::redis_server::RedisServer;
use std::time::Duration;

/// The work of Redis since its start.
pub(crate) struct RedisUse {
    cpu: Duration,
    /// Calls of scripts. Every step of the store is one, and a round trip of a node.
    scripts: u64,
}

impl RedisUse {
    pub(crate) fn of(redis: &RedisServer) -> Result<RedisUse> {
        let stats = redis.command(&["INFO", "commandstats"]);
        Ok(RedisUse {
            cpu: cpu_of(redis.pid().context("Redis does not run")?)?,
            scripts: script_calls(&stats)?,
        })
    }

    /// The sample with the work since `before`, per operation.
    pub(crate) fn add_to(&self, sample: Sample, before: &RedisUse, operations: u64) -> Sample {
        let each = |value: f64| value / operations as f64;
        let cpu = self.cpu.saturating_sub(before.cpu).as_secs_f64();
        sample
            .with(Metric::RedisCpu, each(cpu * 1e6))
            .with(Metric::RedisScripts, each((self.scripts - before.scripts) as f64))
    }
}

/// The number of `EVALSHA` in the reply to `INFO commandstats`. A node loads its scripts before it calls one.
fn script_calls(stats: &str) -> Result<u64> {
    let calls = stats
        .lines()
        .find_map(|line| line.strip_prefix("cmdstat_evalsha:calls="));
    let calls = calls.and_then(|rest| rest.split(',').next()?.parse().ok());
    calls.context("no calls of scripts in the statistics of Redis")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_of_scripts_are_found() {
        let stats = "$200\r\n# Commandstats\r\ncmdstat_xread:calls=7,usec=3\r\ncmdstat_evalsha:calls=42,usec=100,usec_per_call=2.38\r\n";
        assert_eq!(script_calls(stats).unwrap(), 42);
        assert!(script_calls("").is_err());
    }
}
