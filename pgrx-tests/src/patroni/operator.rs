//! Drives splits there and back, whatever happens to the servers. Each call is repeated until the master has
//! accepted it, and an aborted cutover is requested once more.

use super::heartbeat::Span;
use crate::cluster::Cluster;
use crate::random::Random;
use crate::{Error, Result};
use postgres::{Client, NoTls};
use std::time::{Duration, Instant};

const PACE: Duration = Duration::from_millis(100);
/// A split that makes no progress for so long, while its operator wants it to, hangs.
const HANGS: Duration = Duration::from_secs(150);
/// Splits that stop more often than this do not only wait for a server.
const MOST_FAILURES: usize = 10;
/// A session that does not answer for so long is given up.
const ANSWERED: &str = "SET statement_timeout = '5s'";

const STATE: &str = "
    SELECT phase, goal, activity, coalesce(error_message, ''), finished_at IS NOT NULL,
           format('%s %s %s %s %s %s', phase, cutover_step, finished_at, purged_at,
                  (SELECT (g.total_rows_copied, g.backfill_status, g.tail_status, g.last_event_id)::text
                     FROM shardmaster.split_progress g WHERE g.split_id = p.id),
                  (SELECT sum(t.changes_applied + t.chunks_ok) FROM shardmaster.split_table_progress t
                    WHERE t.split_id = p.id)),
           cutover_step, coalesce(shardmaster.split_waits_for(id), '')
      FROM shardmaster.split_plan p WHERE id = $1";

#[derive(Debug)]
struct State {
    phase: String,
    goal: String,
    activity: String,
    error: String,
    is_finished: bool,
    /// It changes whenever the split makes progress.
    mark: String,
    step: String,
    waits_for: String,
}

/// What the operator has done, and what it has waited for.
#[derive(Default, Debug)]
pub struct OperatorReport {
    pub forward: usize,
    pub reversed: usize,
    pub rolled_back: usize,
    /// Cutovers that were aborted and requested again.
    pub given_up: usize,
    /// Errors of splits that stopped and were resumed.
    pub failed: Vec<String>,
    /// The error that ended the run.
    pub stuck: Option<String>,
    /// Calls that the master itself refused.
    pub refused: Vec<String>,
    /// Times in which a split made no progress.
    pub stalls: Vec<(Span, String)>,
}

pub struct Operator<'a> {
    cluster: &'a Cluster,
    tenants: Vec<&'a str>,
    random: Random,
    master: Option<Client>,
    done: OperatorReport,
}

impl<'a> Operator<'a> {
    pub fn new(cluster: &'a Cluster, tenants: Vec<&'a str>, seed: u64) -> Operator<'a> {
        Operator {
            cluster,
            tenants,
            random: Random::new(seed ^ 0x5eed),
            master: None,
            done: OperatorReport::default(),
        }
    }

    /// Runs splits until the time is over, and the last one to its end.
    pub fn run(mut self, goes_on: impl Fn() -> bool) -> OperatorReport {
        while goes_on() {
            if let Err(error) = self.one_split() {
                self.done.stuck = Some(error.to_string());
                break;
            }
        }
        self.done
    }

    fn one_split(&mut self) -> Result<()> {
        let id = self.plan()?;
        // Each run has at least one rollback.
        let is_due = self.done.forward > 0 && self.done.rolled_back == 0;
        if self.random.percent(20) || is_due {
            return self.undo(id);
        }
        self.cut_over(id)?;
        self.done.forward += 1;
        let mut there = id;
        // Now and then the split is reversed, and then reversed once more.
        for percent in [55, 30] {
            if !self.random.percent(percent) {
                break;
            }
            there = self.take_back(there)?;
            self.done.reversed += 1;
        }
        self.finish(there)
    }

    /// Plans a split of all tenants from the shard where they are.
    fn plan(&mut self) -> Result<i64> {
        let open = "SELECT max(id) FROM shardmaster.split_plan
                     WHERE reverse_of IS NULL AND finished_at IS NULL AND phase <> 'rolled_back'";
        let plan = "SELECT shard_split_plan(e.write_shard, CASE e.write_shard WHEN 'shard_a' THEN 'shard_b' ELSE 'shard_a' END, $1)
                      FROM shard_entries() e WHERE e.key = ($1)[1]";
        let tenants: Vec<String> = self.tenants.iter().map(|name| (*name).to_owned()).collect();
        let began = Instant::now();
        loop {
            // The plan may exist, and only its answer was lost.
            let made = self.ask(|master| {
                let open: Option<i64> = master.query_one(open, &[])?.get(0);
                match open {
                    Some(id) => Ok(id),
                    None => Ok(master.query_one(plan, &[&tenants])?.get(0)),
                }
            });
            match made {
                Ok(id) => return Ok(id),
                Err(error) if began.elapsed() > HANGS => return Err(error.context("no plan is made")),
                Err(error) => self.note("shard_split_plan", &error),
            }
            std::thread::sleep(PACE);
        }
    }

    fn cut_over(&mut self, id: i64) -> Result<()> {
        self.drive(id, |state| match (state.phase.as_str(), state.goal.as_str()) {
            ("completed", _) if state.step == "moved" => Next::Reached,
            ("planning" | "rolled_back", "planning" | "rolled_back") => Next::Call("start_dual_write"),
            (_, "dual_write") => Next::Call("run_backfill"),
            ("cutover_pending", "backfill") => Next::Cutover,
            _ => Next::Wait,
        })
    }

    /// Rolls a split back while it copies.
    fn undo(&mut self, id: i64) -> Result<()> {
        let patience = Duration::from_millis(self.random.below(3_000) as u64);
        let began = Instant::now();
        self.drive(id, |state| match (state.phase.as_str(), state.goal.as_str()) {
            (_, "dual_write") => Next::Call("run_backfill"),
            (_, "backfill") if began.elapsed() > patience => Next::Reached,
            ("planning" | "rolled_back", "planning" | "rolled_back") => Next::Call("start_dual_write"),
            _ => Next::Wait,
        })?;
        self.drive(id, |state| match (state.phase.as_str(), state.goal.as_str()) {
            ("rolled_back", _) => Next::Reached,
            (_, "rolled_back") => Next::Wait,
            _ => Next::Call("rollback"),
        })?;
        self.done.rolled_back += 1;
        Ok(())
    }

    /// Reverses a split, and returns the reverse split.
    fn take_back(&mut self, id: i64) -> Result<i64> {
        let way_back = "SELECT max(id) FROM shardmaster.split_plan WHERE reverse_of = $1";
        let began = Instant::now();
        let back = loop {
            match self.ask(|master| Ok(master.query_one(way_back, &[&id])?.get::<_, Option<i64>>(0))) {
                Ok(Some(back)) => break back,
                Ok(None) => return Err(format!("split {id} has no reverse split").into()),
                Err(error) if began.elapsed() > HANGS => return Err(error),
                Err(error) => self.note("its reverse split", &error),
            }
            std::thread::sleep(PACE);
        };
        self.drive(back, |state| match (state.phase.as_str(), state.goal.as_str()) {
            ("completed", _) if state.step == "moved" => Next::Reached,
            ("planning", "planning") => Next::Reverse(id),
            ("cutover_pending", "backfill") => Next::Reverse(id),
            _ => Next::Wait,
        })?;
        self.drive(id, |state| if state.is_finished { Next::Reached } else { Next::Wait })?;
        Ok(back)
    }

    fn finish(&mut self, id: i64) -> Result<()> {
        self.drive(id, |state| match state.goal.as_str() {
            _ if state.is_finished => Next::Reached,
            "finished" => Next::Wait,
            _ => Next::Call("finish"),
        })
    }

    /// Looks and makes calls until the split has reached its goal. Records the times without progress.
    fn drive(&mut self, id: i64, next: impl Fn(&State) -> Next) -> Result<()> {
        let (mut mark, mut since, mut last) = (String::new(), Instant::now(), String::new());
        let (mut was_asked, mut waits) = (false, Vec::<String>::new());
        loop {
            if let Ok(state) = self.look(id) {
                if state.mark != mark {
                    self.note_stall(id, since, &format!("{last}, before {}", waits.join(" / ")));
                    (mark, since) = (state.mark.clone(), Instant::now());
                    waits.clear();
                }
                last = format!(
                    "{} {} {}, waiting for {}, {}",
                    state.phase, state.step, state.activity, state.waits_for, state.error
                );
                if waits.last() != Some(&state.waits_for) {
                    waits.push(state.waits_for.clone());
                }
                if state.activity == "failed" {
                    self.done.failed.push(format!("split {id}: {}", state.error));
                    if self.done.failed.len() > MOST_FAILURES {
                        return Err(format!("split {id} stops again and again: {}", state.error).into());
                    }
                    self.call(id, "resume");
                }
                match next(&state) {
                    Next::Reached => return Ok(()),
                    Next::Wait => {}
                    Next::Call(name) => self.call(id, name),
                    Next::Cutover => {
                        self.done.given_up += usize::from(was_asked && !state.error.is_empty());
                        was_asked = true;
                        self.call(id, "cutover");
                    }
                    Next::Reverse(there) => {
                        self.done.given_up += usize::from(was_asked && !state.error.is_empty());
                        was_asked = true;
                        // After a failover in the middle, the reverse split may have to copy again.
                        self.call(there, "reverse");
                    }
                }
            }
            if since.elapsed() > HANGS {
                return Err(format!("split {id} does not get on: {last}").into());
            }
            std::thread::sleep(PACE);
        }
    }

    fn note_stall(&mut self, id: i64, from: Instant, state: &str) {
        let span = Span { from, to: Instant::now() };
        if span.length() > super::heartbeat::NOTABLE {
            self.done.stalls.push((span, format!("split {id}: {state}")));
        }
    }

    fn look(&mut self, id: i64) -> Result<State> {
        self.ask(|master| {
            let row = master.query_one(STATE, &[&id])?;
            Ok(State {
                phase: row.get(0),
                goal: row.get(1),
                activity: row.get(2),
                error: row.get(3),
                is_finished: row.get(4),
                mark: row.get(5),
                step: row.get(6),
                waits_for: row.get(7),
            })
        })
    }

    fn call(&mut self, id: i64, name: &str) {
        let more = if name == "reverse" { ", copy_again => true" } else { "" };
        let query = format!("SELECT shard_split_{name}($1{more})");
        if let Err(error) = self.ask(|master| Ok(master.execute(&query, &[&id])?)) {
            self.note(&query, &error);
        }
    }

    /// Records errors of the master itself.
    fn note(&mut self, what: &str, error: &Error) {
        let is_refused =
            error.sqlstate().is_some_and(|s| !s.starts_with("57") && !s.starts_with("08") && s != "25006");
        if is_refused {
            self.done.refused.push(format!("{what}: {error}"));
        }
    }

    /// Asks in a session that is kept while it answers.
    fn ask<T>(&mut self, question: impl Fn(&mut Client) -> Result<T>) -> Result<T> {
        let mut client = match self.master.take() {
            Some(client) => client,
            None => {
                let config = self.cluster.master.config(crate::cluster::DATABASE, "postgres");
                let mut client = config.connect(NoTls)?;
                client.batch_execute(ANSWERED)?;
                client
            }
        };
        let answer = question(&mut client);
        let is_well =
            answer.as_ref().err().is_none_or(|e| e.sqlstate().is_some_and(|s| !s.starts_with("57")));
        self.master = (is_well && !client.is_closed()).then_some(client);
        answer
    }
}

/// What the operator does at the split's current phase.
enum Next {
    Reached,
    Wait,
    Call(&'static str),
    Cutover,
    /// Calls for the split that is to be reversed.
    Reverse(i64),
}
