//! How full batches are, value by value.

use std::ops::RangeInclusive;

use convoy_benches::{
    markdown::{self, number},
    speedtest::Histograms,
};

use crate::section::rows;

/// The daemon counts what is above 64 as 64.
const RANGES: [(&str, RangeInclusive<usize>); 6] = [
    ("1", 1..=1),
    ("2 to 9", 2..=9),
    ("10 to 20", 10..=20),
    ("21 to 40", 21..=40),
    ("41 to 50", 41..=50),
    ("more than 50", 51..=usize::MAX),
];

/// Shares of calls and of batches by how many packets they have moved.
pub(crate) fn table(histograms: &Histograms) -> String {
    let Histograms {
        packets_per_read,
        packets_per_batch,
        segments_per_send,
    } = histograms;
    let kinds = [packets_per_read, packets_per_batch, segments_per_send];
    let head = ["packets", "TUN reads, %", "batches, %", "UDP sends, %"];
    let percent = |share: Option<f64>| number(share.map(|share| share * 100.0), 1);
    let ranges = RANGES.map(|(name, range)| {
        let [read, batch, send] = kinds.map(|kind| percent(kind.share(&range)));
        [name.to_owned(), read, batch, send]
    });
    let [read, batch, send] = kinds.map(|kind| number(kind.median().map(|it| it as f64), 0));
    let medians = [["the median".to_owned(), read, batch, send]];
    markdown::table(&rows(head, ranges.into_iter().chain(medians)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_number_of_packets_is_in_one_range() {
        for packets in 1..=64 {
            let hits = RANGES.iter().filter(|(_, range)| range.contains(&packets));
            assert_eq!(hits.count(), 1, "{packets}");
        }
    }

    #[test]
    fn reads_batches_and_sends_are_columns_of_one_table() {
        let json = r#"{"packets_per_read": [0, 3, 1], "packets_per_batch": [0],
            "segments_per_send": [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 8]}"#;
        let table = table(&serde_json::from_str(json).unwrap());
        let cells = |row: &str| {
            let row = table.lines().find(|line| line.starts_with(row)).unwrap();
            row.split('|')
                .map(|cell| cell.trim().to_owned())
                .collect::<Vec<_>>()
        };
        assert_eq!(cells("| 1 ")[2..5], ["75.0", "–", "0.0"]);
        assert_eq!(cells("| 10 to 20 ")[2..5], ["0.0", "–", "100.0"]);
        assert_eq!(cells("| the median ")[2..5], ["1", "–", "10"]);
    }
}
