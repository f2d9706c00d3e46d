//! The kill switch opens only when its user asks.
