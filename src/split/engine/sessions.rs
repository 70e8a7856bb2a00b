//! The sessions of a worker's steps on both sides.

use crate::agent::error::Result;
use crate::agent::session::Side;
use crate::agent::state::epoch::{self, Tenure};
use crate::agent::state::queue;
use crate::remote::Connection;
use crate::split::engine::session_pair::SessionPair;
use crate::split::engine::stream::Streams;
use crate::split::table::SplitTable;
use std::time::{Duration, Instant};

/// The sessions of an installed split, and what is known of their servers.
pub struct EngineSessions {
    /// Reads the source, one snapshot a step.
    pub reader: Connection,
    /// Writes the agent's tables on the source.
    pub control: Connection,
    /// Writes the target.
    pub target: Connection,
    /// Sessions of chunks that are copied at the same time.
    pub streams: Streams,
    /// The scope is of buckets, and the reader hashes by the agent's functions.
    pub hashes_slowly: bool,
    /// The round-trip time to the shard that is further away.
    pub distance: Duration,
}

impl EngineSessions {
    /// Sets the deadline past which no answer is waited for.
    pub fn set_deadline(&mut self, deadline: Option<Instant>) {
        for session in [&mut self.reader, &mut self.control, &mut self.target] {
            session.set_deadline(deadline);
        }
    }

    /// Returns the step's own pair of sessions, and then those of its streams.
    pub fn pairs(&mut self) -> impl Iterator<Item = SessionPair<'_>> {
        let own = SessionPair { source: &mut self.reader, target: &mut self.target };
        SessionPair::all(own, &mut self.streams.open)
    }

    /// Returns the bytes of the queues on the source.
    pub fn queue_bytes(&mut self, tables: &[SplitTable]) -> Result<i64> {
        let sizes: Vec<String> = tables.iter().map(|t| queue::size(&t.queue)).collect();
        Ok(self.control.count("the size of a queue", &format!("SELECT {}", sizes.join(" + ")))?)
    }

    /// Runs statements on the source's control session in one transaction that the generation permits.
    pub fn control_transaction(&mut self, tenure: &Tenure, statements: &str) -> Result<()> {
        self.send_control_transaction(tenure, statements)?;
        self.take_control_transaction()
    }

    /// Sends such a transaction; its answer is received separately, so that other sessions are asked meanwhile.
    pub fn send_control_transaction(&mut self, tenure: &Tenure, statements: &str) -> Result<()> {
        let begin = epoch::begin_statements(tenure.plan.id, Side::Source, tenure.generation);
        Ok(self.control.send(&format!("{begin}; {statements}; COMMIT"))?)
    }

    /// Receives the answer of such a transaction.
    pub fn take_control_transaction(&mut self) -> Result<()> {
        let outcome = self.control.finish();
        epoch::begun(&mut self.control, outcome).map(drop)
    }
}
