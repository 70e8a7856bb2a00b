//! One side of a split as a check has read it.

use super::reading::LockedTables;
use super::shape::Observation;
use super::table_names::TableNames;
use crate::remote::Connection;

pub struct ObservedSide {
    /// The session that has read the side; it may read more while its tables are locked.
    pub session: Connection,
    pub names: TableNames,
    pub observation: Observation,
    /// The tables that are locked.
    pub locked: LockedTables,
}
