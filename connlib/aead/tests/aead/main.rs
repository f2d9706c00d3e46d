//! The kernel, on plain arrays and on AVX-512, against published vectors, ring and RustCrypto; the API.
//!
//! On a CPU without AVX-512 IFMA, only the kernel of plain arrays is tested; then the tests print a note.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod api;
mod fuzz;
mod lengths;
mod oracles;
mod poly1305;
mod reduction;
mod rfc8439;
mod tags;
mod wycheproof;

use std::{
    io::{self, Write},
    sync::Once,
};

use convoy_aead::seam::Kernel;

/// All kernels that this CPU can run.
fn kernels() -> Vec<Kernel> {
    static NOTE: Once = Once::new();
    let kernels = Kernel::all();
    if kernels.len() == 1 && !cfg!(miri) {
        // Written directly, as the output of passing tests is captured. Ignore a closed standard error.
        NOTE.call_once(|| {
            let _ = writeln!(
                io::stderr(),
                "NOT TESTED: the AVX-512 kernel of convoy-aead, as this CPU has no AVX-512 IFMA"
            );
        });
    }
    kernels
}
