//! Histories: what concurrent transactions wrote and read while splits moved their rows, and whether any
//! order of them explains it at their isolation level.
//!
//! Each element of a list, and each value of a register, is written only once, so the final state shows the
//! order of the versions. The dependencies between the transactions follow from that, and the anomalies are
//! cycles of dependencies: A. Adya, "Weak consistency" (1999), and K. Kingsbury and P. Alvaro, "Elle:
//! inferring isolation anomalies from experimental observations" (2020).

mod check;
mod client;
mod graph;
mod run;
mod tables;

pub use check::anomalies;
pub use run::Clients;
pub use tables::{Last, Space};

use std::time::Instant;

/// The isolation level of all transactions of a history.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Level {
    ReadCommitted,
    RepeatableRead,
    Serializable,
}

impl Level {
    pub fn name(self) -> &'static str {
        match self {
            Level::ReadCommitted => "read committed",
            Level::RepeatableRead => "repeatable read",
            Level::Serializable => "serializable",
        }
    }
}

/// A tenant, by its number.
pub type Tenant = usize;
/// An element is written once in a history. A register begins with 0.
pub type Element = i64;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    List,
    Register,
}

/// A list or a register: one row of a tenant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key {
    pub tenant: Tenant,
    pub kind: Kind,
    pub id: i32,
}

/// An operation of a transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Op {
    /// Appends an element to a list.
    Append(Key, Element),
    /// Reads a whole list.
    Read(Key, Vec<Element>),
    /// Sets a register to a new value; the same statement returns the one before.
    Set(Key, Element, Element),
    Get(Key, Element),
    /// Reads the sum over a tenant's accounts, between which transfers take place.
    Sum(Tenant, i64),
    /// Transfers an amount from one account of a tenant to another.
    Transfer,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    Committed,
    /// The transaction has certainly changed nothing.
    Aborted,
    /// The answer to its COMMIT was lost.
    Unknown,
}

#[derive(Clone, Debug)]
pub struct Transaction {
    /// The time before it asked for a route and ran its first statement.
    pub began: Instant,
    /// The time after its end was acknowledged.
    pub ended: Instant,
    pub ops: Vec<Op>,
    pub outcome: Outcome,
}

/// The sum of each tenant's accounts at all times.
pub const SUM: i64 = 500;
