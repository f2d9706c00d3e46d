//! Machines, files and attacks that have once gone wrong: each test is one of them, by its kind.
//!
//! `make test-cases` runs them; the files that some of them need are in `inputs`.

mod files;
mod relay;
mod routes;
mod switch;
mod walls;
