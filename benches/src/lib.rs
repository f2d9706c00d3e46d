//! What the programs share that measure: where results come from, their files, and what shows them.

pub mod markdown;
pub mod origin;
pub mod plot;
pub mod results;
