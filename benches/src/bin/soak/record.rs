//! The result file: all that was seen, and what was concluded.

use std::{collections::BTreeMap, fmt::Write as _, path::Path};

use convoy_benches::results;
use serde::{Deserialize, Serialize};

use crate::{
    events::Event, flow::Stream, handshakes::Handshake, header::Header, probe::Latency,
    verdict::Verdict,
};

/// A whole run. All times are seconds since the load began, where they do not say otherwise.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Record {
    pub(crate) header: Header,
    pub(crate) verdicts: Vec<Verdict>,
    pub(crate) events: Vec<Event>,
    pub(crate) streams: Vec<Stream>,
    pub(crate) handshakes: Vec<Handshake>,
    /// The daemon that ended before it was told to, and what it wrote last.
    pub(crate) death: Option<String>,
    /// One a second.
    pub(crate) samples: Vec<Sample>,
}

/// One second. Lists have one entry a daemon, in the order of [`Header::daemons`].
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Sample {
    pub(crate) at_s: f64,
    /// TCP payload that arrived at the hub and was as sent, since the sample before.
    pub(crate) up_mbps: f64,
    /// TCP payload that arrived at the spokes and was as sent, since the sample before.
    pub(crate) down_mbps: f64,
    /// Of the probes that were sent in this second; none in the last seconds of a run.
    pub(crate) latency: Option<Latency>,
    pub(crate) rss_kib: Vec<u64>,
    /// The most memory that it had until now.
    pub(crate) peak_kib: Vec<u64>,
    pub(crate) descriptors: Vec<u64>,
    pub(crate) threads: Vec<u64>,
    /// CPU seconds used since the daemon's start.
    pub(crate) cpu_s: Vec<f64>,
    /// CPUs that other programs used since the sample before.
    pub(crate) others_cpus: f64,
    /// Bytes of packets that the hub took in and gave out since its start.
    pub(crate) hub_bytes: [u64; 2],
    /// By daemon and reason, since the sample before; only what was dropped.
    pub(crate) drops: BTreeMap<String, BTreeMap<String, u64>>,
}

impl Record {
    /// Reads what [`Self::save`] wrote.
    pub(crate) fn load(file: &Path) -> anyhow::Result<Self> {
        Ok(results::load(file)?)
    }

    /// Writes JSON with a line for each thing in a list.
    pub(crate) fn save(&self, file: &Path) -> anyhow::Result<()> {
        Ok(results::save_text(&self.to_json()?, file)?)
    }

    fn to_json(&self) -> anyhow::Result<String> {
        let mut text = format!(
            "{{\n\"header\": {}",
            serde_json::to_string_pretty(&self.header)?
        );
        let Self {
            header: _,
            verdicts,
            events,
            streams,
            handshakes,
            death,
            samples,
        } = self;
        write!(text, ",\n\"death\": {}", serde_json::to_string(death)?)?;
        write_list(&mut text, "verdicts", verdicts)?;
        write_list(&mut text, "events", events)?;
        write_list(&mut text, "streams", streams)?;
        write_list(&mut text, "handshakes", handshakes)?;
        write_list(&mut text, "samples", samples)?;
        text.push_str("\n}\n");
        Ok(text)
    }
}

fn write_list(text: &mut String, name: &str, list: &[impl Serialize]) -> anyhow::Result<()> {
    write!(text, ",\n\"{name}\": [")?;
    for (number, entry) in list.iter().enumerate() {
        let separator = if number == 0 { "" } else { "," };
        write!(text, "{separator}\n{}", serde_json::to_string(entry)?)?;
    }
    text.push(']');
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::verdict::tests::record;

    #[test]
    fn what_is_written_can_be_read() {
        let written = record(30).to_json().unwrap();
        let read: Record = serde_json::from_str(&written).unwrap();
        assert_eq!(read.to_json().unwrap(), written);
        assert_eq!(read.samples.len(), 30);
    }
}
