//! What the programs share that measure: where results come from, their files, and what shows them.

pub mod growth;
pub mod markdown;
pub mod origin;
pub mod peers;
pub mod plot;
pub mod results;
pub mod speedtest;
pub mod turns;
