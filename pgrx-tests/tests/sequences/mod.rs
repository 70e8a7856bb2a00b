//! Numbers of sequences and identifiers: none is given out twice.

mod advance;
mod exhaustion;
mod indirect;
mod key_conflicts;
mod key_values;
mod snowflake;
mod spread;
