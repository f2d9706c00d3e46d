//! A capture as pcapng (draft-ietf-opsawg-pcapng).

use std::{
    borrow::Cow,
    io::{self, BufWriter, Write},
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use pcap_file::{
    DataLink, Endianness, PcapError,
    pcapng::{
        PcapNgBlock, PcapNgWriter,
        blocks::{
            enhanced_packet::{EnhancedPacketBlock, EnhancedPacketOption},
            interface_description::{InterfaceDescriptionBlock, InterfaceDescriptionOption},
            interface_statistics::{InterfaceStatisticsBlock, InterfaceStatisticsOption},
            section_header::{SectionHeaderBlock, SectionHeaderOption},
        },
    },
};

use super::socket::{Captured, Direction, LONGEST_PACKET};

/// `if_tsresol`: times are in nanoseconds.
const NANOSECONDS: u8 = 9;

/// A file that packets are written to.
pub(super) struct Capture {
    writer: PcapNgWriter<BufWriter<Box<dyn Write>>>,
    packets: u64,
}

impl Capture {
    /// Writes the blocks that precede the packets.
    pub(super) fn begin(output: Box<dyn Write>, interface: &str) -> io::Result<Self> {
        let program = concat!("convoy ", env!("CARGO_PKG_VERSION"));
        let section = SectionHeaderBlock {
            endianness: Endianness::native(),
            options: vec![SectionHeaderOption::UserApplication(Cow::Borrowed(program))],
            ..SectionHeaderBlock::default()
        };
        let output = BufWriter::new(output);
        let writer = PcapNgWriter::with_section_header(output, section).map_err(io_error)?;
        let mut capture = Self { writer, packets: 0 };
        capture.block(InterfaceDescriptionBlock {
            linktype: DataLink::RAW,
            snaplen: LONGEST_PACKET as u32,
            options: vec![
                InterfaceDescriptionOption::IfName(Cow::Owned(interface.to_owned())),
                InterfaceDescriptionOption::IfTsResol(NANOSECONDS),
            ],
        })?;
        capture.flush()?;
        Ok(capture)
    }

    pub(super) fn write(&mut self, captured: &Captured<'_>) -> io::Result<()> {
        // `epb_flags`
        let direction = match captured.direction {
            Direction::Inbound => 1,
            Direction::Outbound => 2,
        };
        self.block(EnhancedPacketBlock {
            interface_id: 0,
            timestamp: captured.time,
            original_len: u32::try_from(captured.length).unwrap_or(u32::MAX),
            data: Cow::Borrowed(captured.packet),
            options: vec![EnhancedPacketOption::Flags(direction)],
        })?;
        self.packets += 1;
        Ok(())
    }

    /// Flushes everything written so far.
    pub(super) fn flush(&mut self) -> io::Result<()> {
        self.writer.get_mut().flush()
    }

    /// Returns the number of packets written.
    pub(super) fn packets(&self) -> u64 {
        self.packets
    }

    /// Writes the block that follows the packets: the numbers of packets written and lost.
    pub(super) fn end(&mut self, dropped: u64) -> io::Result<()> {
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        self.block(InterfaceStatisticsBlock {
            interface_id: 0,
            timestamp: halves(now.unwrap_or_default()),
            options: vec![
                InterfaceStatisticsOption::IsbIfRecv(self.packets + dropped),
                InterfaceStatisticsOption::IsbOsDrop(dropped),
            ],
        })?;
        self.flush()
    }

    fn block<'a>(&mut self, block: impl PcapNgBlock<'a>) -> io::Result<()> {
        let written = self.writer.write_block(&block.into_block());
        written.map(drop).map_err(io_error)
    }
}

/// The format has the upper half of a time first, but this library writes the halves of these as one integer.
fn halves(time: Duration) -> u64 {
    let nanoseconds = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
    match cfg!(target_endian = "little") {
        true => nanoseconds.rotate_left(32),
        false => nanoseconds,
    }
}

fn io_error(error: PcapError) -> io::Error {
    match error {
        PcapError::IoError(error) => error,
        other => io::Error::other(other),
    }
}
