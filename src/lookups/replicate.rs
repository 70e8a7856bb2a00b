//! One lookup index on one shard: its capture, its fill, and the entries of its queue. Invariant: what is taken out of
//! the queue the master has committed, and whatever else may have been missed raises the epoch before the shard
//! forgets it.

use crate::agent::error::{Result, SplitError};
use crate::agent::lookup::{self as agent, Capture, LookupShape, LookupTold, SeenLookup, WatchedColumn};
use crate::catalog::lookup::{self, Lookup, LookupProgress, LookupSource, LookupState};
use crate::catalog::lookup_entry::LookupPair;
use crate::catalog::shard::Shard;
use crate::lookups::fill::{EarlierTransactions, FillStream};
use crate::lookups::session::LookupSessions;
use crate::lookups::settle::{self, BATCH, LONGEST};
use crate::lookups::{columns, points};
use crate::remote::quote::{array_literal, literal};
use crate::server::injection::reach;
use crate::server::txn::transaction;
use std::collections::{BTreeMap, BTreeSet};

/// The number of entries after which the queue is vacuumed, since autovacuum may be too late.
const VACUUM: u64 = 50_000;

enum FillPhase {
    Waiting(EarlierTransactions),
    Streaming(Box<FillStream>),
}

/// What a turn needs.
pub struct PostWork<'a> {
    pub sessions: &'a mut LookupSessions,
    pub identity: &'a str,
    pub lookup: &'a Lookup,
    pub source: &'a LookupSource,
    pub shard: &'a Shard,
    pub progress: LookupProgress,
}

impl PostWork<'_> {
    fn watched(&self) -> WatchedColumn {
        self.source.on(self.shard)
    }

    fn store(&self) -> Result<()> {
        if settle::commit(self.lookup, || lookup::store(self.lookup, &self.progress))? {
            Ok(())
        } else {
            Err(SplitError::Retry("the lookup index".into()))
        }
    }

    /// Records that all its rows were read.
    fn filled(&mut self, seen: &SeenLookup, shape: &LookupShape) -> Result<()> {
        let filled = LookupProgress {
            state: LookupState::Filled,
            place: Some(seen.place.clone()),
            shape: Some(shape.facts.clone()),
            ..self.progress.clone()
        };
        let before = std::mem::replace(&mut self.progress, filled);
        self.store().inspect_err(|_| self.progress = before)
    }
}

fn told<'a>(
    identity: &'a str,
    lookup: &'a Lookup,
    source: &'a LookupSource,
    shard: &'a Shard,
) -> LookupTold<'a> {
    LookupTold {
        identity,
        token: &source.token,
        namespace: &shard.namespace,
        name: &lookup.name,
        of: &lookup.of,
    }
}

/// The result of a turn.
pub struct Turn {
    /// There is more to do at once.
    pub is_busy: bool,
    pub waiting: i64,
    pub lag_seconds: f64,
    /// What the lookup index waits for.
    pub waits_for: Option<String>,
}

#[derive(Default)]
pub struct Post {
    capture: Option<Capture>,
    fill: Option<FillPhase>,
    /// The number of entries at the queue's beginning whose owners' shards cannot be asked.
    stuck: usize,
    taken: u64,
}

impl Post {
    /// Handles an error: its sessions are gone, so everything is read anew.
    pub fn failed(&mut self) {
        *self = Post::default();
    }

    pub fn serve(&mut self, work: &mut PostWork<'_>) -> Result<Turn> {
        let watched = work.watched();
        let capture = match self.capture {
            Some(capture) if work.progress.state != LookupState::New => capture,
            _ => match self.attach(work, &watched)? {
                Some(capture) => capture,
                None => {
                    away(work)?;
                    return Ok(idle("there is no such table"));
                }
            },
        };
        let connection = work.sessions.of(work.shard)?;
        let (Some(shape), Some(seen)) =
            (agent::shape(connection, &watched, capture)?, agent::seen(connection, capture, work.identity)?)
        else {
            self.failed();
            return Err(SplitError::Retry(format!(
                "table {} of shard \"{}\"",
                watched.qualified(),
                work.shard.shard_key
            )));
        };
        columns::require(work.lookup, &shape, &watched, work.shard)?;
        if !shape.is_captured {
            self.failed();
            return Ok(Turn { is_busy: true, ..idle("its triggers") });
        }
        if !self.is_whole(work, &shape, &seen)? {
            self.miss(work, capture, &seen)?;
        }
        let mut turn = Turn {
            is_busy: false,
            waiting: seen.waiting,
            lag_seconds: seen.oldest.parse().unwrap_or(0.0),
            waits_for: None,
        };
        if work.progress.state == LookupState::Filling {
            self.go_on_filling(work, &watched, capture, &seen, &mut turn)?;
        }
        let waits_for = match self.take(work, capture) {
            Ok((is_busy, waits_for)) => {
                turn.is_busy |= is_busy;
                waits_for
            }
            Err(SplitError::Retry(why)) => Some(why),
            Err(error) => return Err(error),
        };
        turn.waits_for = turn.waits_for.or(waits_for);
        Ok(turn)
    }

    /// Captures changes before any shard's rows are read: what another one's fill has found by then is not read twice.
    pub fn prepare(&mut self, work: &mut PostWork<'_>) -> Result<()> {
        if self.capture.is_none() || work.progress.state == LookupState::New {
            let watched = work.watched();
            self.attach(work, &watched)?;
        }
        Ok(())
    }

    /// Captures changes from now on. Returns None if there is no such table.
    fn attach(&mut self, work: &mut PostWork<'_>, watched: &WatchedColumn) -> Result<Option<Capture>> {
        self.fill = None;
        // Creating triggers on a table plans no query over it.
        let connection = work.sessions.of(work.shard)?;
        if connection.query("SELECT to_regclass($1)", &[Some(&watched.qualified())])?.scalar().is_none() {
            return Ok(None);
        }
        let told = told(work.identity, work.lookup, work.source, work.shard);
        let (capture, is_fresh) = agent::enter(connection, &told)?;
        match agent::shape(connection, watched, capture)? {
            Some(shape) => columns::require(work.lookup, &shape, watched, work.shard)?,
            None => return Ok(None),
        }
        let Some(shape) = agent::install(connection, &told, watched, capture)? else { return Ok(None) };
        reach(points::INSTALLED)?;
        self.capture = Some(capture);
        if work.progress.state != LookupState::New {
            return Ok(Some(capture));
        }
        let Some(seen) = agent::seen(connection, capture, work.identity)? else {
            return Err(SplitError::Retry(format!("the agent of shard \"{}\"", work.shard.shard_key)));
        };
        let was_routed = transaction(|| lookup::ever_routed(&work.lookup.of, &work.shard.shard_key));
        if is_fresh && !was_routed {
            // No client was routed here before changes were captured.
            work.progress.state = LookupState::Filled;
            (work.progress.place, work.progress.shape) = (Some(seen.place), Some(shape.facts));
            work.store()?;
        } else {
            self.miss(work, capture, &seen)?;
        }
        Ok(Some(capture))
    }

    /// Whether nothing was missed since the last time.
    fn is_whole(&mut self, work: &mut PostWork<'_>, shape: &LookupShape, seen: &SeenLookup) -> Result<bool> {
        let known = work.progress.steps;
        let goes_on = seen.consumed == known && (seen.announced == known || seen.announced == known + 1);
        // The master has committed what the shard was not told to forget.
        let was_interrupted = seen.consumed == known - 1 && seen.announced == known;
        if seen.is_full || !goes_on && !was_interrupted {
            return Ok(false);
        }
        let same = |stored: &Option<String>, now: &str| stored.as_deref() == Some(now);
        let is_same = match (work.progress.state, &self.fill) {
            (LookupState::Filled, _) => {
                same(&work.progress.place, &seen.place) && same(&work.progress.shape, &shape.facts)
            }
            (_, Some(FillPhase::Streaming(stream))) => {
                same(&work.progress.place, &seen.place) && stream.shape.facts == shape.facts
            }
            _ => same(&work.progress.place, &seen.place),
        };
        if is_same && was_interrupted {
            let capture = self.capture.map_or(0, |capture| capture.0);
            let connection = work.sessions.of(work.shard)?;
            connection.run(&format!(
                "UPDATE shardmaster_agent.lookup SET consumed = {known} WHERE id = {capture} AND consumed = {known} - 1 AND {}",
                is_ours(work.identity)
            ))?;
        }
        Ok(is_same)
    }

    /// Fills again: first the master records that it must, then the shard counts on from there.
    fn miss(&mut self, work: &mut PostWork<'_>, capture: Capture, seen: &SeenLookup) -> Result<()> {
        self.fill = None;
        self.stuck = 0;
        let steps = work.progress.steps.max(seen.announced).max(seen.consumed) + 1;
        work.progress.state = LookupState::Filling;
        work.progress.steps = steps;
        (work.progress.place, work.progress.shape) = (Some(seen.place.clone()), None);
        settle::commit(work.lookup, || {
            lookup::next_epoch_if_any(work.lookup);
            lookup::store(work.lookup, &work.progress)
        })?;
        reach(points::MISSED)?;
        let connection = work.sessions.of(work.shard)?;
        if seen.is_full {
            // Transactions with entries in it are waited for, and those whose changes were not queued are found by the
            // fill.
            let queue = capture.queue();
            connection.run(&format!(
                "BEGIN; SET LOCAL lock_timeout = '500ms'; TRUNCATE shardmaster_agent.{queue}; COMMIT;
                 SELECT setval('shardmaster_agent.{queue}_seq', 1)"
            ))?;
        }
        connection.run(&format!(
            "UPDATE shardmaster_agent.lookup SET announced = {steps}, consumed = {steps} WHERE id = {} AND {}",
            capture.0,
            is_ours(work.identity)
        ))?;
        Ok(())
    }

    fn go_on_filling(
        &mut self,
        work: &mut PostWork<'_>,
        watched: &WatchedColumn,
        capture: Capture,
        seen: &SeenLookup,
        turn: &mut Turn,
    ) -> Result<()> {
        let fill = match self.fill.take() {
            None => FillPhase::Waiting(EarlierTransactions::now(work.sessions.of(work.shard)?)?),
            Some(fill) => fill,
        };
        match fill {
            FillPhase::Waiting(earlier) => {
                let left = earlier.left(work.sessions.of(work.shard)?, watched)?;
                if left.is_some() {
                    turn.waits_for = left;
                    self.fill = Some(FillPhase::Waiting(earlier));
                    return Ok(());
                }
                // What they have changed may have been settled before they ended.
                self.fill = Some(FillPhase::Waiting(earlier));
                settle::commit(work.lookup, || lookup::next_epoch_if_any(work.lookup))?;
                self.fill = None;
                let stream = FillStream::open(work.sessions, work.shard, watched, capture, None)?;
                self.fill = stream.map(|stream| FillPhase::Streaming(Box::new(stream)));
                turn.is_busy = true;
            }
            FillPhase::Streaming(mut stream) => {
                let outcome = match stream.step(work.sessions, work.lookup) {
                    Ok(false) => work.filled(seen, &stream.shape).map(|()| false),
                    outcome => outcome,
                };
                match outcome {
                    Ok(true) => turn.is_busy = true,
                    Ok(false) => {
                        turn.is_busy = true;
                        return Ok(());
                    }
                    // It continues where it is, or is begun again.
                    Err(SplitError::Retry(why)) => {
                        turn.waits_for = Some(why);
                        if stream.is_in_the_way() {
                            return Ok(());
                        }
                    }
                    Err(error) => return Err(error),
                }
                self.fill = Some(FillPhase::Streaming(stream));
            }
        }
        Ok(())
    }

    /// Takes what has come. Returns whether there may be more, and what some of it waits for.
    fn take(&mut self, work: &mut PostWork<'_>, capture: Capture) -> Result<(bool, Option<String>)> {
        let connection = work.sessions.of(work.shard)?;
        let queue = format!("shardmaster_agent.{}", capture.queue());
        let short = |column: &str| {
            format!("CASE WHEN octet_length({column}::text) <= {LONGEST} THEN {column}::text END")
        };
        let rows = connection
            .run(&format!(
                "SELECT ctid, xid, {}, {}, pg_relation_filenode('{queue}') FROM {queue} LIMIT {BATCH} OFFSET {}",
                short("key"),
                short("owner"),
                self.stuck
            ))?
            .rows;
        if rows.is_empty() {
            self.stuck = 0;
            return Ok((false, None));
        }
        // These are the queue's entries by pair. What cannot be in a lookup index is removed silently.
        let mut at_file = None;
        let mut entries: BTreeMap<Option<LookupPair>, Vec<(String, String)>> = BTreeMap::new();
        for row in &rows {
            let [Some(at), Some(xid), key, owner, file] = row.as_slice() else { continue };
            let pair = settle::canonical(work.lookup, key.as_deref(), owner.as_deref());
            entries.entry(pair).or_default().push((at.clone(), xid.clone()));
            at_file.clone_from(file);
        }
        let pairs: BTreeSet<LookupPair> = entries.keys().flatten().cloned().collect();
        let looked = settle::look(work.sessions, work.lookup, &pairs, Some(&work.shard.shard_key))?;
        let step = work.progress.steps + 1;
        let connection = work.sessions.of(work.shard)?;
        // What was seen here survives a crash with this commit.
        connection.run(&format!(
            "UPDATE shardmaster_agent.lookup SET announced = greatest(announced, {step}) WHERE id = {} AND {}",
            capture.0,
            is_ours(work.identity)
        ))?;
        reach(points::ANNOUNCED)?;
        let progress = LookupProgress { steps: step, ..work.progress.clone() };
        let written = settle::write(work.lookup, &looked, || {
            lookup::store(work.lookup, &progress);
        })?;
        work.progress = progress;
        reach(points::COMMITTED)?;
        let is_done =
            |pair: &Option<LookupPair>| pair.as_ref().is_none_or(|pair| written.done.contains(pair));
        let (gone, kept): (Vec<_>, Vec<_>) = entries.into_iter().partition(|(pair, _)| is_done(pair));
        let gone: Vec<(String, String)> = gone.into_iter().flat_map(|(_, entries)| entries).collect();
        self.stuck += kept.iter().map(|(_, entries)| entries.len()).sum::<usize>();
        consume(work, capture, step, &gone, &at_file.unwrap_or_default())?;
        reach(points::CONSUMED)?;
        self.vacuum(work, capture, gone.len())?;
        let was_full = rows.len() == BATCH;
        if !was_full {
            self.stuck = 0;
        }
        let why =
            looked.errors.into_iter().next().map(|(shard, failure)| format!("shard \"{shard}\": {failure}"));
        Ok((was_full, why.or(written.is_locked.then(|| settle::LOCKED.to_owned()))))
    }

    fn vacuum(&mut self, work: &mut PostWork<'_>, capture: Capture, taken: usize) -> Result<()> {
        self.taken += taken as u64;
        if self.taken >= VACUUM {
            self.taken = 0;
            let connection = work.sessions.of(work.shard)?;
            connection.run(&format!("VACUUM shardmaster_agent.{}", capture.queue()))?;
        }
        Ok(())
    }
}

/// Records that the table is missing: it may return with other rows, which are unknown until then.
fn away(work: &PostWork<'_>) -> Result<()> {
    if work.progress.state == LookupState::New {
        return Ok(());
    }
    settle::commit(work.lookup, || {
        lookup::next_epoch_if_any(work.lookup);
        lookup::look_anew(work.lookup, &BTreeSet::from([work.shard.shard_key.clone()]));
    })
}

fn idle(waits_for: &str) -> Turn {
    Turn { is_busy: false, waiting: 0, lag_seconds: 0.0, waits_for: Some(waits_for.to_owned()) }
}

/// Returns a condition: a master that was replaced meanwhile removes nothing of the other one.
fn is_ours(identity: &str) -> String {
    format!("EXISTS (SELECT FROM shardmaster_agent.master m WHERE m.identity = {})", literal(identity))
}

/// Removes entries. A position in the table may have been given to a new entry meanwhile, of a transaction that was
/// running when these were seen: it is none of those that have written them. If the queue was rewritten meanwhile
/// (VACUUM FULL) all entries stay, and come again.
fn consume(
    work: &mut PostWork<'_>,
    capture: Capture,
    step: i64,
    entries: &[(String, String)],
    file: &str,
) -> Result<()> {
    let (places, xids): (Vec<String>, BTreeSet<String>) = entries.iter().cloned().unzip();
    let xids: Vec<String> = xids.into_iter().collect();
    let connection = work.sessions.of(work.shard)?;
    connection.run(&format!(
        "BEGIN;
         DELETE FROM shardmaster_agent.{queue} WHERE ctid = ANY ({}::tid[]) AND xid::text = ANY ({}::text[])
            AND pg_relation_filenode('shardmaster_agent.{queue}')::text = {} AND {is_ours};
         UPDATE shardmaster_agent.lookup SET consumed = {step} WHERE id = {id} AND consumed = {step} - 1 AND {is_ours};
         COMMIT",
        array_literal(&places),
        array_literal(&xids),
        literal(file),
        queue = capture.queue(),
        id = capture.0,
        is_ours = is_ours(work.identity),
    ))?;
    Ok(())
}
