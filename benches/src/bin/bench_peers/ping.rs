//! Round-trip times by ping(8): the far end's kernel answers.

use std::net::IpAddr;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context as _, ensure};
use convoy_lab::Namespace;
use convoy_lab::measure::Sample;

/// Between two probes.
const INTERVAL: Duration = Duration::from_millis(10);

/// A ping that runs; killed when dropped.
pub(crate) struct Ping(Option<Child>);

/// Starts to probe `to` for `duration`.
pub(crate) fn start(from: &Namespace, to: IpAddr, duration: Duration) -> anyhow::Result<Ping> {
    let count = (duration.as_secs_f64() / INTERVAL.as_secs_f64()) as u64;
    let child = command(from, to, count)
        .spawn()
        .context("start ping (fix: apt-get install iputils-ping)")?;
    Ok(Ping(Some(child)))
}

fn command(from: &Namespace, to: IpAddr, count: u64) -> Command {
    let mut command = from.command("ping");
    command
        .args(["-n", "-W", "1", "-i", &INTERVAL.as_secs_f64().to_string()])
        .args(["-c", &count.to_string(), &to.to_string()])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null());
    command
}

impl Ping {
    /// Waits for the last answer; the median round trip in milliseconds.
    pub(crate) fn median_ms(mut self) -> anyhow::Result<f64> {
        let child = self.0.take().context("ping has been waited for")?;
        let output = child.wait_with_output().context("wait for ping")?;
        median_ms(&String::from_utf8_lossy(&output.stdout))
    }
}

impl Drop for Ping {
    fn drop(&mut self) {
        if let Some(child) = &mut self.0 {
            // Both fail only where it has ended.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

fn median_ms(output: &str) -> anyhow::Result<f64> {
    let times = output.lines().filter_map(|line| {
        let (_, time) = line.rsplit_once(" time=")?;
        time.strip_suffix(" ms")?.parse().ok()
    });
    let sample = Sample::of(times.collect());
    ensure!(sample.is_some(), "no answer to ping");
    Ok(sample.map_or(f64::NAN, |sample| sample.median))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_that_of_the_answers() {
        let output = "PING 10.8.0.2 (10.8.0.2) 56(84) bytes of data.\n\
            64 bytes from 10.8.0.2: icmp_seq=1 ttl=64 time=9.31 ms\n\
            64 bytes from 10.8.0.2: icmp_seq=2 ttl=64 time=0.310 ms\n\
            64 bytes from 10.8.0.2: icmp_seq=3 ttl=64 time=0.290 ms\n\n\
            3 packets transmitted, 3 received, 0% packet loss, time 20ms\n";
        assert_eq!(median_ms(output).unwrap(), 0.310);
        assert!(median_ms("3 packets transmitted, 0 received").is_err());
    }
}
