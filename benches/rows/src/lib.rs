//! Results of measurements: rows of one form, kept as JSON Lines, and what shows them.
//! `convoy-bench` measures, makes a [`Run`](row::Run) of [`Row`](row::Row)s, and hands it to a [`Section`](section::Section).
//! This crate measures nothing and starts no program but git.
//!
//! 1. [`row`]: the one form of all results; [`origin`]: the machine, commit and command that they came from.
//! 2. [`section`]: prints and keeps a result, and shows it on the page, by [`table`]s, [`plot`]s and its targets.
//! 3. [`ratio`]: figures side by side with their confidence.

mod claim;
pub mod origin;
pub mod plot;
pub mod ratio;
pub mod row;
pub mod section;
pub mod table;
