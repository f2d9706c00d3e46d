//! Which test gives which rows.

use convoy_benches::peers::Row;

/// What is run for one or more rows, in this order.
#[derive(Debug, Clone, Copy)]
pub(super) enum Test {
    CpuIdle,
    PingIdle,
    TcpUp,
    TcpDown,
    Tcp4,
    TcpBoth,
    TcpCut,
    Udp200k,
    Udp1200,
    Udp64,
    Memory,
}

impl Test {
    pub(super) const ALL: [Self; 11] = [
        Self::CpuIdle,
        Self::PingIdle,
        Self::TcpUp,
        Self::TcpDown,
        Self::Tcp4,
        Self::TcpBoth,
        Self::TcpCut,
        Self::Udp200k,
        Self::Udp1200,
        Self::Udp64,
        Self::Memory,
    ];

    /// Whether one of `rows` comes from it.
    pub(super) fn is_needed(self, rows: &[Row]) -> bool {
        self.rows().iter().any(|row| rows.contains(row))
    }

    fn rows(self) -> &'static [Row] {
        match self {
            Self::CpuIdle => &[Row::CpuIdle],
            Self::PingIdle => &[Row::PingIdle],
            Self::TcpUp => &[Row::TcpUp, Row::Cpu, Row::PingTcp],
            Self::TcpDown => &[Row::TcpDown],
            Self::Tcp4 => &[Row::Tcp4],
            Self::TcpBoth => &[Row::TcpBoth],
            Self::TcpCut => &[Row::TcpCut],
            Self::Udp200k => &[Row::Udp200k],
            Self::Udp1200 => &[Row::Udp1200],
            Self::Udp64 => &[Row::Udp64],
            Self::Memory => &[Row::Memory],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_comes_from_one_test() {
        let rows: Vec<_> = Test::ALL.iter().flat_map(|test| test.rows()).collect();
        assert_eq!(rows.len(), Row::ALL.len());
        for row in Row::ALL {
            assert!(rows.contains(&&row), "{row:?}");
        }
    }

    #[test]
    fn only_the_tests_that_are_needed_are_run() {
        let needed = |rows: &[Row]| {
            let tests = Test::ALL.into_iter().filter(|test| test.is_needed(rows));
            tests.map(|test| format!("{test:?}")).collect::<Vec<_>>()
        };
        assert_eq!(needed(&[Row::Cpu, Row::PingTcp]), ["TcpUp"]);
        assert_eq!(needed(&Row::ALL).len(), Test::ALL.len());
    }
}
