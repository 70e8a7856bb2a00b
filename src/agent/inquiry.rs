//! Asks a shard which decided cutovers it knows, and keeps what this master does not.

use super::error::{Result, SplitError};
use super::state::master;
use super::{decisions, session};
use crate::catalog::shard::Shard;
use crate::catalog::shard_decision::{self, Decision};
use crate::catalog::split;
use crate::clean;
use crate::remote::Connection;
use crate::server::txn;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// The answer of a shard.
#[derive(Default)]
pub struct InquiryAnswer {
    /// The decisions that this master does not know.
    pub decisions: Vec<Decision>,
    /// The last version of each keyspace in which the shard took part, known here or not.
    pub last_versions: BTreeMap<String, i64>,
    /// Why this master may not move the shard's rows.
    pub refused: Option<String>,
}

/// Asks through a session of its own, within a time limit.
pub fn ask(shard: &Shard, limit: Duration) -> Result<InquiryAnswer> {
    let until = Instant::now() + limit;
    let mut connection = session::open_within(shard, "inquiry", limit)?;
    connection.set_deadline(Some(until));
    of(&mut connection, shard)
}

/// Asks through an existing session.
pub fn of(connection: &mut Connection, shard: &Shard) -> Result<InquiryAnswer> {
    let identity = txn::in_one(split::identity);
    let refused = match master::check(connection, &identity) {
        Ok(()) => None,
        Err(SplitError::Failed(failure)) => Some(clean::printable(&failure.message)),
        Err(other) => return Err(other),
    };
    let decisions = decisions::unknown(connection, shard)?;
    Ok(InquiryAnswer { decisions, last_versions: decisions::last_versions(connection, shard)?, refused })
}

/// Stores the answer, within a transaction. Returns what is wrong with it, or with the shard.
pub fn keep(shard: &Shard, outcome: Result<InquiryAnswer>) -> Option<String> {
    let problem = match outcome {
        Ok(answer) => {
            shard_decision::store(&shard.shard_key, &answer.decisions);
            answer.refused
        }
        Err(error) => Some(clean::printable(&error.into_failure().message)),
    };
    shard_decision::asked(&shard.shard_key, problem.as_deref());
    problem
}
