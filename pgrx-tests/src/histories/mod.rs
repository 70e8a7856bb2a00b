//! Histories: what transactions beside each other wrote and saw while splits moved their rows, and
//! whether any order of them explains it at their isolation level.
//!
//! Each element of a list, and each value of a register, is written once, so that what is there
//! in the end tells the order of the versions. What depends on what follows from that; the
//! anomalies are cycles of it: A. Adya, "Weak consistency" (1999), and K. Kingsbury and
//! P. Alvaro, "Elle: inferring isolation anomalies from experimental observations" (2020).

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

/// By its number.
pub type Tenant = usize;
/// Written once in a history; 0 is what a register begins with.
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

/// What a transaction did, in its order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Op {
    /// To the end of a list.
    Append(Key, Element),
    /// All of a list, from its beginning.
    Read(Key, Vec<Element>),
    /// A register's new value, and the one before, as the same statement found it.
    Set(Key, Element, Element),
    Get(Key, Element),
    /// The sum over a tenant's accounts, between which transfers take place.
    Sum(Tenant, i64),
    /// Of an amount from one account of a tenant to another one.
    Transfer,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    Committed,
    /// It certainly changed nothing.
    Aborted,
    /// The answer to its COMMIT was lost.
    Unknown,
}

#[derive(Clone, Debug)]
pub struct Transaction {
    /// Before it asked for a route, and before its first statement.
    pub began: Instant,
    /// After its end was acknowledged.
    pub ended: Instant,
    pub ops: Vec<Op>,
    pub outcome: Outcome,
}

/// What each tenant's accounts hold together at all times.
pub const SUM: i64 = 500;
