//! The sessions and statements that carry out a split's steps.

pub mod holders;
pub mod locks;
pub mod scope_size;
pub mod session_pair;
pub mod sessions;
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
use crate::split::engine::sessions::EngineSessions;
use crate::split::engine::stream::Streams;
use crate::split::engine::throttle::Throttle;
use crate::split::engine::verification::Run;
use std::collections::BTreeSet;
use std::time::{Duration, Instant};

/// The structure of both sides, as steps have read it last.
pub struct SideStructures {
    pub source: SeenTables,
    pub target: SeenTables,
    /// The partitioned tables of the source.
    pub parents: Vec<String>,
    /// Foreign keys of the target that the server does not check for the mover.
    pub watched: WatchedReferences,
    /// They must be read anew, once the target has answered what it was asked.
    pub is_to_watch: bool,
}

impl SideStructures {
    /// Reads the watched foreign keys anew: one was added or dropped, or a referenced table was renamed or replaced.
    pub fn watch(&mut self, plan: &Plan, sessions: &mut EngineSessions, tables: &[SplitTable]) -> Result<()> {
        let EngineSessions { control, target, .. } = sessions;
        self.is_to_watch = false;
        self.watched = WatchedReferences::load(control, target, plan, tables)?;
        Ok(())
    }
}

/// Windows that are counted along with another query, since a snapshot that the target is likely to have. It is not
/// known yet whether these are the ones to be copied.
pub struct Counted {
    pub since: String,
    /// The source's answer in this step's S.
    pub rows: Option<Rows>,
}

/// What a worker knows of the queues of changes on the source, and of the numbers of steps that both sides store.
#[derive(Default)]
pub struct QueueState {
    /// The counters as the last step has read them.
    pub counters: Counters,
    /// The snapshot that the target is likely to have, and what windows hold since.
    pub counted: Option<Counted>,
    /// Statements by which the source still has to remove the last step from its queues.
    pub owed: Option<String>,
    /// Queues, by position, that may hold what was copied. `None` if any may.
    pub filled: Option<BTreeSet<usize>>,
    /// The step that was announced on the source before its rows were copied.
    pub announced: Option<i64>,
}

/// How fast chunks are copied.
#[derive(Default)]
pub struct CopyPace {
    /// The number of blocks of the next chunk; 0 if no step has set it yet.
    pub chunk_blocks: i64,
    /// What a copy waits for.
    pub throttle: Throttle,
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

/// A split that is installed on both sides, as its worker carries it out.
pub struct Engine {
    /// The worker's right to act on both sides, with the plan.
    pub tenure: Tenure,
    pub sessions: EngineSessions,
    pub tables: Vec<SplitTable>,
    pub seen: SideStructures,
    pub queues: QueueState,
    pub pace: CopyPace,
    pub mode: StepMode,
    /// What is compared within the next step.
    pub verification: Option<Run>,
    /// Tables, by position, that were analyzed on the target, or could not be.
    pub analyzed: BTreeSet<usize>,
}

impl Engine {
    /// Takes over both sides of an installed split.
    pub fn attach(tenure: &Tenure) -> Result<Engine> {
        let plan = &tenure.plan;
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
            tenure: tenure.clone(),
            sessions: EngineSessions {
                reader,
                control,
                target,
                streams: Streams::default(),
                hashes_slowly,
                distance,
            },
            tables,
            seen: SideStructures {
                source: SeenTables::default(),
                target: SeenTables::default(),
                parents: Vec::new(),
                watched,
                is_to_watch: false,
            },
            queues: QueueState::default(),
            pace: CopyPace::default(),
            mode: StepMode::Follow,
            verification: None,
            analyzed: BTreeSet::new(),
        })
    }

    /// Reads anew what may have changed on both sides since the last step, or since there was one.
    pub fn look_anew(&mut self) -> Result<()> {
        let Engine { tenure: Tenure { plan, .. }, sessions, tables, seen, .. } = self;
        *tables = table::load(plan, &mut sessions.reader, &mut sessions.target)?;
        self.analyzed.clear();
        (seen.source, seen.target) = (SeenTables::default(), SeenTables::default());
        self.verification = None;
        seen.watch(plan, sessions, tables)
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
        let all = std::iter::once(agent::stray(&self.tenure.plan)).chain(self.tables.iter().map(window));
        Ok(self.sessions.target.run_all(all)?)
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
