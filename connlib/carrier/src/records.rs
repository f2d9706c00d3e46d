//! Counts TLS records as their bytes pass.

/// Length of a record's header in bytes (RFC 8446 §5.1); its last two are the length of what follows.
const HEADER: usize = 5;

/// The place in a stream of records.
#[derive(Debug, Default)]
pub(crate) struct Records {
    /// Bytes of the present header that have passed.
    header: usize,
    /// The length that it gives, as far as that has passed.
    length: usize,
    /// Bytes of the present record that follow.
    left: usize,
}

impl Records {
    /// Takes the next bytes of the stream; returns the number of records that begin there, counted by the ends of their
    /// headers.
    pub(crate) fn pass(&mut self, bytes: &[u8]) -> usize {
        let mut rest = bytes;
        let mut count = 0;
        loop {
            let skipped = self.left.min(rest.len());
            self.left -= skipped;
            let Some((byte, after)) = rest[skipped..].split_first() else {
                return count;
            };
            rest = after;
            self.header += 1;
            if self.header > HEADER - 2 {
                self.length = self.length << 8 | usize::from(*byte);
            }
            if self.header == HEADER {
                (self.left, self.length, self.header) = (self.length, 0, 0);
                count += 1;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_are_counted_wherever_the_stream_is_cut() {
        let records = [0, 1, 300, 0x4000].map(|len: usize| {
            let [high, low] = (len as u16).to_be_bytes();
            [vec![23, 3, 3, high, low], vec![0xFF; len]].concat()
        });
        let stream = records.concat();
        for cut in [1, 2, 3, 5, 7, 300, 4_096, stream.len()] {
            let mut passed = Records::default();
            let counts = stream.chunks(cut).map(|part| passed.pass(part));
            assert_eq!(counts.sum::<usize>(), 4, "{cut}");
            assert_eq!((passed.left, passed.header), (0, 0), "{cut}");
        }
    }
}
