//! Figures for people: sizes, grouped digits, percentiles.

/// The smallest value that at least `percent` of the samples do not exceed.
pub fn percentile(counts: &[u64], samples: u64, percent: u64) -> usize {
    let rank = (samples * percent).div_ceil(100);
    let mut seen = 0;
    let reached = counts.iter().position(|count| {
        seen += count;
        seen >= rank
    });
    reached.unwrap_or(0)
}

/// `1234567` as `1,234,567`.
pub fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut grouped = String::with_capacity(digits.len() * 4 / 3);
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    grouped
}

/// Formats bytes in the binary unit that leaves at most four digits before the point.
pub fn binary(bytes: u64) -> String {
    const UNITS: [&str; 6] = ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    if bytes < 1024 {
        return format!("{bytes} B");
    }
    let unit = (bytes.ilog2() / 10) as usize;
    let value = bytes as f64 / 1024f64.powi(unit as i32);
    format!("{value:.2} {}", UNITS[unit - 1])
}
