//! One bench a stage; run them by `make bench`.
