use super::*;
use crate::lanes::{Array, Computation, REGISTER};

#[test]
fn it_passes_with_both_kinds_of_lanes() {
    assert!(passes(Array));
    #[cfg(target_arch = "x86_64")]
    assert!(crate::lanes::Avx512::detect().is_none_or(passes));
}

#[test]
fn it_notices_a_fault_in_any_operation() {
    assert!(passes(Faulty(None)));
    for operation in OPERATIONS {
        assert!(!passes(Faulty(Some(*operation))), "{operation:?}");
    }
}

macro_rules! operations {
    ($($operation:ident)*) => {
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        enum Operation {
            $($operation,)*
        }

        const OPERATIONS: &[Operation] = &[$($operation,)*];
    };
}

operations! {
    Load LoadFirst Store StoreFirst KeepFirst Splat32 Splat64 Xor And Or Add32 Rotate32 Add64 ShiftLeft64
    ShiftRight64 MultiplyAddLow MultiplyAddHigh Select64 Transpose32 Transpose64
}

use Operation::*;

type Register = <Array as Lanes>::Register;

/// Lanes with one faulty operation, whose result is wrong by one bit in each byte.
#[derive(Clone, Copy, Debug)]
struct Faulty(Option<Operation>);

impl Lanes for Faulty {
    type Register = Register;

    fn run<C: Computation>(self, computation: C) -> C::Output {
        computation.run(self)
    }

    fn load(self, bytes: &[u8; REGISTER]) -> Register {
        self.spoil(Load, Array.load(bytes))
    }

    fn load_first(self, bytes: &[u8]) -> Register {
        self.spoil(LoadFirst, Array.load_first(bytes))
    }

    fn store(self, register: Register, bytes: &mut [u8; REGISTER]) {
        Array.store(self.spoil(Store, register), bytes);
    }

    fn store_first(self, register: Register, bytes: &mut [u8]) {
        Array.store_first(self.spoil(StoreFirst, register), bytes);
    }

    fn keep_first(self, register: Register, len: usize) -> Register {
        self.spoil(KeepFirst, Array.keep_first(register, len))
    }

    fn splat32(self, value: u32) -> Register {
        self.spoil(Splat32, Array.splat32(value))
    }

    fn splat64(self, value: u64) -> Register {
        self.spoil(Splat64, Array.splat64(value))
    }

    fn xor(self, a: Register, b: Register) -> Register {
        self.spoil(Xor, Array.xor(a, b))
    }

    fn and(self, a: Register, b: Register) -> Register {
        self.spoil(And, Array.and(a, b))
    }

    fn or(self, a: Register, b: Register) -> Register {
        self.spoil(Or, Array.or(a, b))
    }

    fn add32(self, a: Register, b: Register) -> Register {
        self.spoil(Add32, Array.add32(a, b))
    }

    fn add64(self, a: Register, b: Register) -> Register {
        self.spoil(Add64, Array.add64(a, b))
    }

    fn rotate32<const BITS: i32>(self, a: Register) -> Register {
        self.spoil(Rotate32, Array.rotate32::<BITS>(a))
    }

    fn shift_left64<const BITS: u32>(self, a: Register) -> Register {
        self.spoil(ShiftLeft64, Array.shift_left64::<BITS>(a))
    }

    fn shift_right64<const BITS: u32>(self, a: Register) -> Register {
        self.spoil(ShiftRight64, Array.shift_right64::<BITS>(a))
    }

    fn multiply_add_low(self, sum: Register, a: Register, b: Register) -> Register {
        self.spoil(MultiplyAddLow, Array.multiply_add_low(sum, a, b))
    }

    fn multiply_add_high(self, sum: Register, a: Register, b: Register) -> Register {
        self.spoil(MultiplyAddHigh, Array.multiply_add_high(sum, a, b))
    }

    fn select64(self, mask: u8, then: Register, otherwise: Register) -> Register {
        self.spoil(Select64, Array.select64(mask, then, otherwise))
    }

    fn transpose32(self, rows: [Register; 16]) -> [Register; 16] {
        let mut rows = Array.transpose32(rows);
        rows[15] = self.spoil(Transpose32, rows[15]);
        rows
    }

    fn transpose64(self, rows: [Register; 8]) -> [Register; 8] {
        let mut rows = Array.transpose64(rows);
        rows[7] = self.spoil(Transpose64, rows[7]);
        rows
    }
}

impl Faulty {
    fn spoil(self, operation: Operation, register: Register) -> Register {
        if self.0 != Some(operation) {
            return register;
        }
        let mut bytes = [0; REGISTER];
        Array.store(register, &mut bytes);
        for byte in bytes.iter_mut() {
            *byte ^= 0x01;
        }
        Array.load(&bytes)
    }
}
