//! The sessions and statements with which a split's steps are carried out.

pub mod counted;
pub mod held;
pub mod holders;
pub mod locks;
pub mod scope_size;
pub mod stream;
pub mod throttle;
pub mod verification;
use super::references::WatchedReferences;
use super::table::{self, SplitTable};
use crate::agent;
use crate::agent::error::Result;
use crate::agent::seen::SeenTables;
use crate::agent::session::{self, Side};
use crate::agent::session_hash;
use crate::agent::state::consumed::Counters;
use crate::agent::state::tenure::{self, Tenure};
use crate::agent::state::{decision, queue};
use crate::catalog::split::Plan;
use crate::remote::Connection;
use crate::remote::quote::ident;
use crate::split::engine::counted::Counted;
use crate::split::engine::stream::Streams;
use crate::split::engine::throttle::Throttle;
use crate::split::engine::verification::Run;
use std::collections::BTreeSet;
use std::time::{Duration, Instant};

/// What each side's tables looked like when a step saw them last.
#[derive(Default)]
pub struct BothSeen {
    pub source: SeenTables,
    pub target: SeenTables,
}

/// Sessions and tables of an installed split.
pub struct Engine {
    pub plan: Plan,
    pub generation: i64,
    /// Of the master.
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
    /// They are to be found anew, once the target has answered what it was asked.
    pub is_to_watch: bool,
    /// What both sides looked like.
    pub seen: BothSeen,
    /// The partitioned tables of the source, as it was observed last.
    pub parents: Vec<String>,
    /// As the last step has read them.
    pub counters: Counters,
    /// Where the target is likely to stand, and what windows hold since.
    pub counted: Option<Counted>,
    /// What the source is still to do for the last step to leave its queues.
    pub owed: Option<String>,
    /// Queues, by position, that may hold what has come over; None: any may.
    pub filled: Option<BTreeSet<usize>>,
    /// The scope is of buckets, and the reader hashes by the agent's functions.
    pub hashes_slowly: bool,
    /// Blocks of the next chunk; 0: no step has said it yet.
    pub chunk_blocks: i64,
    /// The next step is a cutover's last, and this run of the master may decide.
    pub deciding: Option<String>,
    /// The step that was announced on the source before its rows have come over.
    pub announced: Option<i64>,
    /// Bytes of a window's rows; None: as many as there are.
    pub window_limit: Option<u64>,
    /// Sessions of chunks that are copied at the same time.
    pub streams: Streams,
    /// Whom a copy waits for.
    pub throttle: Throttle,
    /// What is compared within the next step.
    pub verification: Option<Run>,
    /// Tables, by position, that were analyzed on the target, or could not be.
    pub analyzed: BTreeSet<usize>,
    /// Time that a message and its answer take, to the shard that is further away.
    pub distance: Duration,
}

impl Engine {
    /// What is to be looked at is found anew: a foreign key has come or gone, a table that is
    /// referenced has another name, or its name another table.
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
        tenure::register(&mut reader, plan, Side::Source)?;
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
            deciding: None,
            announced: None,
            window_limit: None,
            streams: Streams::default(),
            throttle: Throttle::default(),
            verification: None,
            analyzed: BTreeSet::new(),
            distance,
        })
    }

    /// What both sides are like may be another since the last step, or since there was one.
    pub fn look_anew(&mut self) -> Result<()> {
        self.tables = table::load(&self.plan, &mut self.reader, &mut self.target)?;
        self.analyzed.clear();
        self.seen = BothSeen::default();
        self.verification = None;
        self.watch()
    }

    /// Of the worker that it is of.
    pub fn tenure(&self) -> Tenure {
        Tenure { plan: self.plan.clone(), generation: self.generation, identity: self.identity.clone() }
    }

    /// What the target's session needs for rows that come over: once the cutover has decided none do.
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

    /// No answer is waited for past the deadline.
    pub fn set_deadline(&mut self, deadline: Option<Instant>) {
        for session in [&mut self.reader, &mut self.control, &mut self.target] {
            session.set_deadline(deadline);
        }
    }

    /// Bytes of the queues on the source.
    pub fn queue_bytes(&mut self) -> Result<i64> {
        let sizes: Vec<String> = self.tables.iter().map(|t| queue::size(&t.queue)).collect();
        Ok(self.control.count("the size of a queue", &format!("SELECT {}", sizes.join(" + ")))?)
    }

    /// Runs statements on the source's control session in one transaction that the
    /// generation allows.
    pub fn control_transaction(&mut self, statements: &str) -> Result<()> {
        self.send_control_transaction(statements)?;
        self.take_control_transaction()
    }

    /// In two parts, so that others are asked meanwhile.
    pub fn send_control_transaction(&mut self, statements: &str) -> Result<()> {
        let begin = tenure::begin_statements(self.plan.id, Side::Source, self.generation);
        Ok(self.control.send(&format!("{begin}; {statements}; COMMIT"))?)
    }

    pub fn take_control_transaction(&mut self) -> Result<()> {
        let outcome = self.control.finish();
        tenure::begun(&mut self.control, outcome).map(drop)
    }
}

/// Of three, the fastest: a server that is busy is not far away.
fn distance(connection: &mut Connection) -> Result<Duration> {
    let mut fastest = Duration::MAX;
    for _ in 0..3 {
        let began = Instant::now();
        connection.run("SELECT 1")?;
        fastest = fastest.min(began.elapsed());
    }
    Ok(fastest)
}
