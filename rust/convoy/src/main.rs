//! The program `convoy`: its library, and the allocator that wipes.

use std::process::ExitCode;

use convoy::Wiping;

#[global_allocator]
static ALLOCATOR: Wiping = Wiping(std::alloc::System);

fn main() -> ExitCode {
    convoy::run()
}
