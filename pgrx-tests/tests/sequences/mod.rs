//! Numbers of sequences and identifiers are never given out twice.

mod advance;
mod exhaustion;
mod indirect;
mod key_conflicts;
mod key_values;
mod snowflake;
mod spread;
