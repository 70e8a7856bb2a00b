//! The sessions and statements that carry out a split's steps.

pub mod holders;
pub mod locks;
pub mod scope_size;
pub mod session_pair;
pub mod stream;
pub mod stream_sessions;
pub mod throttle;
pub mod verification;
use super::references::WatchedReferences;
use super::table::{self, SplitTable};
use crate::agent::error::Result;
use crate::agent::seen::SeenTables;
use crate::agent::session::{self, Side};
use crate::agent::state::consumed::Counters;
use crate::agent::state::epoch::{self, Tenure};
use crate::agent::state::{decision, queue};
use crate::agent::{self, session_hash};
use crate::catalog::split::Plan;
use crate::remote::Connection;
use crate::remote::quote::ident;
use crate::remote::result::Rows;
use crate::split::engine::stream::Streams;
use crate::split::engine::throttle::Throttle;
use crate::split::engine::verification::Run;
use std::collections::BTreeSet;
use std::time::{Duration, Instant};

/// The structure of each side's tables when a step read them last.
#[derive(Default)]
pub struct BothSeen {
    pub source: SeenTables,
    pub target: SeenTables,
}

/// Windows that are counted along with another query, since a snapshot that the target is likely to have. It is not
/// known yet whether these are the ones to be copied.
pub struct Counted {
    pub since: String,
    /// The source's answer in this step's S.
    pub rows: Option<Rows>,
}

/// What a step is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum StepMode {
    /// It applies what has changed, and copies chunks while there are any.
    Follow,
    /// It is the last one of a cutover: writers wait, and the rows of a window have at most this many bytes.
    Last { most_bytes: u64 },
}

impl StepMode {
    /// Whether writers wait for the step.
    pub fn is_last(self) -> bool {
        matches!(self, StepMode::Last { .. })
    }

    /// Returns the greatest number of bytes of a window's rows, or None if it is unlimited.
    pub fn most_bytes(self) -> Option<u64> {
        match self {
            StepMode::Follow => None,
            StepMode::Last { most_bytes } => Some(most_bytes),
        }
    }
}

/// Sessions and tables of an installed split.
pub struct Engine {
    pub plan: Plan,
    pub generation: i64,
    /// The identity of the master.
    pub identity: String,
    /// Reads the source, one snapshot a step.
    pub reader: Connection,
    /// Writes the agent's tables on the source.
    pub control: Connection,
    /// Writes the target.
    pub target: Connection,
    pub tables: Vec<SplitTable>,
    /// Foreign keys of the target that the server does not check for the mover.
    pub watched: WatchedReferences,
    /// They must be read anew, once the target has answered what it was asked.
    pub is_to_watch: bool,
    /// The structure of both sides.
    pub seen: BothSeen,
    /// The partitioned tables of the source, as they were last observed.
    pub parents: Vec<String>,
    /// The counters as the last step has read them.
    pub counters: Counters,
    /// The snapshot that the target is likely to have, and what windows hold since.
    pub counted: Option<Counted>,
    /// Statements by which the source still has to remove the last step from its queues.
    pub owed: Option<String>,
    /// Queues, by position, that may hold what was copied. `None` if any may.
    pub filled: Option<BTreeSet<usize>>,
    /// The scope is of buckets, and the reader hashes by the agent's functions.
    pub hashes_slowly: bool,
    /// The number of blocks of the next chunk; 0 if no step has set it yet.
    pub chunk_blocks: i64,
    /// The step that was announced on the source before its rows were copied.
    pub announced: Option<i64>,
    pub mode: StepMode,
    /// Sessions of chunks that are copied at the same time.
    pub streams: Streams,
    /// What a copy waits for.
    pub throttle: Throttle,
    /// What is compared within the next step.
    pub verification: Option<Run>,
    /// Tables, by position, that were analyzed on the target, or could not be.
    pub analyzed: BTreeSet<usize>,
    /// The round-trip time to the shard that is further away.
    pub distance: Duration,
}

impl Engine {
    /// Reads the watched foreign keys anew: one was added or dropped, or a referenced table was renamed or replaced.
    pub fn watch(&mut self) -> Result<()> {
        self.is_to_watch = false;
        self.watched =
            WatchedReferences::load(&mut self.control, &mut self.target, &self.plan, &self.tables)?;
        Ok(())
    }

    /// Takes over both sides of an installed split.
    pub fn attach(tenure: &Tenure) -> Result<Engine> {
        let Tenure { plan, generation, identity } = tenure;
        let mut target = tenure.open(Side::Target, "writer")?;
        let mut control = tenure.open(Side::Source, "control")?;
        tenure.take_over(&mut target, Side::Target)?;
        tenure.take_over(&mut control, Side::Source)?;
        decision::ensure(&mut target)?;
        decision::ensure(&mut control)?;
        let mut reader = session::open_mover(plan, Side::Source, "reader")?;
        session::require_one_server(&reader, &control)?;
        epoch::register(&mut reader, plan, Side::Source)?;
        let tables = table::load(plan, &mut reader, &mut target)?;
        let watched = WatchedReferences::load(&mut control, &mut target, plan, &tables)?;
        let hashes_slowly =
            plan.scope.strategy().buckets().is_some() && session_hash::is_agents(&mut reader)?;
        let distance = distance(&mut reader)?.max(distance(&mut target)?);
        Ok(Engine {
            plan: plan.clone(),
            generation: *generation,
            identity: identity.clone(),
            reader,
            control,
            target,
            tables,
            watched,
            is_to_watch: false,
            seen: BothSeen::default(),
            parents: Vec::new(),
            counters: Counters::default(),
            counted: None,
            owed: None,
            filled: None,
            hashes_slowly,
            chunk_blocks: 0,
            announced: None,
            mode: StepMode::Follow,
            streams: Streams::default(),
            throttle: Throttle::default(),
            verification: None,
            analyzed: BTreeSet::new(),
            distance,
        })
    }

    /// Reads anew what may have changed on both sides since the last step, or since there was one.
    pub fn look_anew(&mut self) -> Result<()> {
        self.tables = table::load(&self.plan, &mut self.reader, &mut self.target)?;
        self.analyzed.clear();
        self.seen = BothSeen::default();
        self.verification = None;
        self.watch()
    }

    /// Returns the tenure of its worker.
    pub fn tenure(&self) -> Tenure {
        Tenure { plan: self.plan.clone(), generation: self.generation, identity: self.identity.clone() }
    }

    /// Creates what the target's session needs for copied rows; once the cutover has decided none are copied.
    pub fn create_window_tables(&mut self) -> Result<()> {
        let window = |table: &SplitTable| {
            let keys: Vec<String> = table
                .target
                .key()
                .iter()
                .zip(queue::keys(&table.source))
                .map(|(column, key)| format!("{} AS {key}", ident(column)))
                .collect();
            format!(
                "CREATE TEMPORARY TABLE window_{} ON COMMIT DELETE ROWS AS SELECT {} FROM {} WITH NO DATA",
                table.policy.ordinal,
                keys.join(", "),
                table.target.name
            )
        };
        let all = std::iter::once(agent::stray(&self.plan)).chain(self.tables.iter().map(window));
        Ok(self.target.run_all(all)?)
    }

    /// Sets the deadline past which no answer is waited for.
    pub fn set_deadline(&mut self, deadline: Option<Instant>) {
        for session in [&mut self.reader, &mut self.control, &mut self.target] {
            session.set_deadline(deadline);
        }
    }

    /// Returns the bytes of the queues on the source.
    pub fn queue_bytes(&mut self) -> Result<i64> {
        let sizes: Vec<String> = self.tables.iter().map(|t| queue::size(&t.queue)).collect();
        Ok(self.control.count("the size of a queue", &format!("SELECT {}", sizes.join(" + ")))?)
    }

    /// Runs statements on the source's control session in one transaction that the generation permits.
    pub fn control_transaction(&mut self, statements: &str) -> Result<()> {
        self.send_control_transaction(statements)?;
        self.take_control_transaction()
    }

    /// Sends such a transaction; its answer is received separately, so that other sessions are asked meanwhile.
    pub fn send_control_transaction(&mut self, statements: &str) -> Result<()> {
        let begin = epoch::begin_statements(self.plan.id, Side::Source, self.generation);
        Ok(self.control.send(&format!("{begin}; {statements}; COMMIT"))?)
    }

    pub fn take_control_transaction(&mut self) -> Result<()> {
        let outcome = self.control.finish();
        epoch::begun(&mut self.control, outcome).map(drop)
    }
}

/// Returns the fastest of three round trips: a busy server is not a distant one.
fn distance(connection: &mut Connection) -> Result<Duration> {
    let mut fastest = Duration::MAX;
    for _ in 0..3 {
        let began = Instant::now();
        connection.run("SELECT 1")?;
        fastest = fastest.min(began.elapsed());
    }
    Ok(fastest)
}
