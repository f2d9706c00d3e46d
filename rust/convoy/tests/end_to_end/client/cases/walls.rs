//! The walls around a tunnel and around `convoy exec`, attacked from inside.
