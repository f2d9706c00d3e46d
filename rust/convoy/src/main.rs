//! The `convoy` program: runs the library under an allocator that wipes freed memory.

use std::process::ExitCode;

use convoy::Wiping;

#[global_allocator]
static ALLOCATOR: Wiping = Wiping(std::alloc::System);

fn main() -> ExitCode {
    convoy::run()
}
