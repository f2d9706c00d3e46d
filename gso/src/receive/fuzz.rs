//! Fuzzes received buffers of any length and stride.

use convoy_fuzz::{Result, Unstructured};

use super::*;

thread_local! {
    static BUFFERS: std::cell::RefCell<ReceiveBuffers> = Default::default();
}

#[test]
fn fuzz_trains() {
    convoy_fuzz::run("trains", 2000, 200, |input| {
        BUFFERS.with_borrow_mut(|buffers| trains(buffers, input))
    });
}

/// Checks that the datagrams of a buffer add up to the buffer, that none is longer than the stride,
/// and that only the last is shorter.
fn trains(buffers: &mut ReceiveBuffers, input: &mut Unstructured<'_>) -> Result<()> {
    let mut received = Vec::new();
    for _ in 0..input.int_in_range(0..=RECEIVE_BUFFERS)? {
        let longest = if input.ratio(1, 16)? {
            RECEIVE_BUFFER_BYTES
        } else {
            300
        };
        let len = input.int_in_range(0..=longest)?;
        let stride = match input.arbitrary::<u8>()? {
            0 => usize::MAX,
            1 => input.arbitrary()?,
            // The buffer holds one datagram.
            2..64 => 0,
            _ => input.int_in_range(1..=len + 1)?,
        };
        let first: u8 = input.arbitrary()?;
        let bytes: Vec<u8> = (0..len).map(|at| first.wrapping_add(at as u8)).collect();
        received.push((bytes, stride));
    }
    let filled = buffers.fill(|slices, meta| {
        for (nth, (bytes, stride)) in received.iter().enumerate() {
            slices[nth][..bytes.len()].copy_from_slice(bytes);
            (meta[nth].len, meta[nth].stride) = (bytes.len(), *stride);
            meta[nth].addr.set_port(nth as u16);
        }
        Ok::<_, ()>(received.len())
    });
    assert_eq!(filled, Ok(received.len()));
    let counted: Vec<usize> = buffers.segments_per_buffer().collect();
    for (nth, (bytes, stride)) in received.iter().enumerate() {
        let (mut joined, mut count) = (Vec::new(), 0);
        while let Some(datagram) = buffers
            .datagram()
            .filter(|d| usize::from(d.from.port()) == nth)
        {
            let is_last = joined.len() + datagram.bytes.len() == bytes.len();
            let is_full = datagram.bytes.len() == *stride;
            assert!(*stride == 0 || datagram.bytes.len() <= *stride);
            assert!(is_last || is_full, "{} of {stride}", datagram.bytes.len());
            joined.extend_from_slice(datagram.bytes);
            count += 1;
            buffers.advance();
        }
        assert_eq!((&joined, count), (bytes, counted[nth]), "stride {stride}");
    }
    assert!(buffers.is_finished() && buffers.datagram().is_none());
    Ok(())
}
