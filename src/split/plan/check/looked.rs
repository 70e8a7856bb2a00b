//! What was seen of one side.

use super::functions::Called;
use crate::agent::shape::Observation;
use crate::remote::Connection;

/// What one side is: its tables, and how its server writes values.
pub struct Looked {
    /// With which it was looked at, and may be further.
    pub session: Connection,
    pub observation: Observation,
    pub version: i32,
    /// As sessions get it that say nothing of it.
    pub lc_monetary: String,
    /// What it calls that is not known to work.
    pub called: Vec<Called>,
    /// Whether a query over its tables runs nothing of somebody who is not trusted.
    pub is_trusted: bool,
}
