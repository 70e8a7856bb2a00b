//! An operator's calls: they are chosen at random, made, and their answers compared with the model.

use super::expected_answers::{Answer, Call, answers};
use super::keys::{BUCKETS, KeyIndex, Space, bounds};
use super::model::{Phase, SplitView};
use super::stage::SHARDS;
use super::walk::{Walk, seen};
use crate::{Error, Result};
use std::collections::BTreeSet;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// The number of splits that are unfinished at the same time.
const OPEN: usize = 4;

/// The answer to a call.
pub(super) type CallResult = std::result::Result<(), Refusal>;

#[derive(Clone, Debug)]
pub struct Refusal {
    pub(super) code: String,
    pub(super) text: String,
    has_hint: bool,
}

impl Refusal {
    pub(super) fn of(error: postgres::Error) -> Refusal {
        let has_hint = error.as_db_error().is_some_and(|db| db.hint().is_some());
        let error = Error::from(error);
        let code = error.sqlstate().unwrap_or("connection").to_owned();
        Refusal { code, text: error.to_string(), has_hint }
    }

    /// Whether the master, or the link to a shard, was away.
    pub(super) fn is_lost(&self) -> bool {
        self.code == "connection" || self.code.starts_with("57P") || self.code.starts_with("08")
    }
}

impl Walk {
    /// Makes one call, and returns what it was, for the trail.
    pub fn call(&mut self) -> Result<String> {
        let open = self.model.splits.iter().filter(|split| !split.seen.is_over()).count();
        match self.random.below(100) {
            0..25 if open < OPEN => self.plan(),
            0..49 => self.drive(),
            49..58 => self.go_back(),
            58..76 => self.run(),
            76..81 => self.wait_for_phase(),
            81..84 => self.strain(),
            84..86 => self.set_status(),
            86..89 => self.cleanup(),
            89..93 => self.assign(),
            93..95 => self.act(),
            95..97 => self.strain(),
            97 => self.rename_shard(),
            98 => self.lose_target(),
            _ => self.join(),
        }
    }

    pub(super) fn make(&mut self, query: &str) -> Result<CallResult> {
        let told = self.master()?.batch_execute(query).map_err(Refusal::of);
        self.judge(query, &told)?;
        Ok(told)
    }

    /// A refusal must have an SQLSTATE of its own and a hint.
    pub(super) fn judge(&self, query: &str, told: &CallResult) -> Result<()> {
        match told {
            Err(refusal) if refusal.is_lost() => Ok(()),
            Err(refusal) if refusal.code == "XX000" || !refusal.has_hint => {
                Err(format!("{query}: {}", refusal.text).into())
            }
            _ => Ok(()),
        }
    }

    fn two_shards(&mut self) -> (usize, usize) {
        let source = self.random.below(SHARDS);
        let target = if self.random.percent(4) {
            source
        } else {
            (source + 1 + self.random.below(SHARDS - 1)) % SHARDS
        };
        (source, target)
    }

    fn plan(&mut self) -> Result<String> {
        let space = *self.random.one_of(&Space::ALL);
        let (source, target) = self.two_shards();
        let (from, to) = (self.stage.shard_name(source).to_owned(), self.stage.shard_name(target).to_owned());
        let here: Vec<KeyIndex> =
            self.stage.keys_of(space).filter(|key| self.model.routes[*key] == Some(source)).collect();
        if self.random.percent(8) {
            let query =
                format!("SELECT shard_split_plan_all('{from}', '{to}', keyspace => '{}')", space.name());
            return self.planned(&query, space, (source, target), here.into_iter().collect());
        }
        let (query, keys) = match space {
            Space::Directory => {
                let keys = self.some_keys(space, &here);
                let names: Vec<&str> = keys.iter().map(|key| self.stage.keys[*key].text.as_str()).collect();
                (format!("SELECT shard_split_plan('{from}', '{to}', '{{{}}}')", names.join(",")), keys)
            }
            Space::Hash => {
                let chosen = self.some_keys(space, &here);
                let buckets: BTreeSet<u32> =
                    chosen.iter().filter_map(|key| self.stage.keys[*key].bucket()).collect();
                let in_buckets =
                    |key: &KeyIndex| self.stage.keys[*key].bucket().is_some_and(|b| buckets.contains(&b));
                let keys = self.stage.keys_of(space).filter(in_buckets).collect();
                let names: Vec<String> = buckets.iter().map(|b| (b % BUCKETS.get()).to_string()).collect();
                let names = names.join(",");
                (
                    format!("SELECT shard_split_plan('{from}', '{to}', '{{{names}}}', keyspace => 'events')"),
                    keys,
                )
            }
            Space::Range => {
                let (lower, upper, keys) = self.some_range(&here);
                let (lower, upper) = (quoted(lower), quoted(upper));
                (
                    format!(
                        "SELECT shard_split_plan_range('{from}', '{to}', {lower}, {upper}, keyspace => 'docs')"
                    ),
                    keys,
                )
            }
        };
        self.planned(&query, space, (source, target), keys)
    }

    /// Chooses mostly keys of the shard, and sometimes any.
    fn some_keys(&mut self, space: Space, here: &[KeyIndex]) -> BTreeSet<KeyIndex> {
        let all: Vec<KeyIndex> = self.stage.keys_of(space).collect();
        let from = if here.is_empty() || self.random.percent(8) { all } else { here.to_vec() };
        (0..=self.random.below(4)).map(|_| *self.random.one_of(&from)).collect()
    }

    /// Chooses a range of one or a few pieces around a key of the shard.
    #[allow(clippy::type_complexity)]
    fn some_range(
        &mut self,
        here: &[KeyIndex],
    ) -> (Option<&'static str>, Option<&'static str>, BTreeSet<KeyIndex>) {
        let bounds: Vec<Option<&'static str>> =
            std::iter::once(None).chain(bounds().map(Some)).chain([None]).collect();
        let all: Vec<KeyIndex> = self.stage.keys_of(Space::Range).collect();
        let first = if here.is_empty() { all[0] } else { *self.random.one_of(here) };
        let piece = all.iter().position(|key| *key == first).unwrap_or(0);
        let last = (piece + self.random.below(3)).min(all.len() - 1);
        (bounds[piece], bounds[last + 1], all[piece..=last].iter().copied().collect())
    }

    fn planned(
        &mut self,
        query: &str,
        space: Space,
        sides: (usize, usize),
        keys: BTreeSet<KeyIndex>,
    ) -> Result<String> {
        self.look()?;
        let before = self.model.plan_refusals(sides, &keys);
        let outcome = self.master()?.query_one(query, &[]);
        let told: CallResult = match outcome {
            Ok(row) => {
                let id: i64 = row.get(0);
                let seen = self.ask_master(seen)?.into_iter().find(|split| split.id == id);
                let Some(seen) = seen else {
                    return Err(format!("{query}: split {id} is not listed").into());
                };
                self.model.planned(seen, space, sides, keys.clone());
                Ok(())
            }
            Err(error) => Err(Refusal::of(error)),
        };
        self.judge(query, &told)?;
        if let Err(refusal) = &told
            && refusal.is_lost()
        {
            return self.find_lost_plan(query, space, sides, &keys);
        }
        // A split may have ended meanwhile, or may have moved the keys.
        let mut all = before.clone();
        if told.is_err() {
            self.look()?;
            all.extend(self.model.plan_refusals(sides, &keys));
        }
        match &told {
            Ok(()) if before.is_empty() || before == self.reasons_that_pass(&before) => {}
            Ok(()) => return Err(format!("{query}: accepted, though {before:?}").into()),
            Err(refusal) if all.contains(&refusal.code.as_str()) => {}
            Err(refusal) => return Err(format!("{query}: {}, expected one of {all:?}", refusal.text).into()),
        }
        Ok(format!("{query}: {}", words(&told)))
    }

    /// Returns the reasons that may have disappeared between the look and the call, because a split was about to end.
    fn reasons_that_pass(&self, before: &[&'static str]) -> Vec<&'static str> {
        let ending = self.model.splits.iter().any(|split| {
            let goal = split.seen.goal.as_str();
            !split.seen.is_over() && (goal == "finished" || goal == "rolled_back" || goal == "completed")
        });
        if ending { before.iter().copied().filter(|code| *code != "42704").collect() } else { Vec::new() }
    }

    /// The answer to a plan was lost, so it is looked up whether the plan exists.
    fn find_lost_plan(
        &mut self,
        query: &str,
        space: Space,
        sides: (usize, usize),
        keys: &BTreeSet<KeyIndex>,
    ) -> Result<String> {
        for seen in self.ask_master(seen)? {
            if self.model.split(seen.id).is_none() {
                self.model.planned(seen, space, sides, keys.clone());
            }
        }
        Ok(format!("{query}: the answer was lost"))
    }

    /// Makes a call for one of the splits, mostly one that makes it progress.
    pub(super) fn drive(&mut self) -> Result<String> {
        let all = self.look()?;
        let open: Vec<SplitView> = all.iter().filter(|split| !split.is_over()).cloned().collect();
        let Some(before) = self.choose(&all, &open) else { return self.plan() };
        let call = self.choose_call(&before);
        let query = format!("SELECT {}({})", call.function(), before.id);
        if call == Call::GuardDrop {
            // The split's clients have to stand still, and some of them wait for the rows that are held.
            if self.holds_rows {
                return self.plan();
            }
            self.refresh_routes();
        }
        let told = self.make(&query)?;
        let after = self.look()?.into_iter().find(|split| split.id == before.id);
        let Some(after) = after else { return Err(format!("{query}: the split is gone").into()) };
        self.compare_answer(call, &query, (&before, &after), &told)?;
        if call == Call::GuardDrop && told.is_ok() {
            self.model.guard_dropped(before.id);
        }
        Ok(format!("{query} in {:?}, goal {}: {}", before.phase, before.goal, words(&told)))
    }

    /// Calls the procedure that makes all calls up to a phase, with a short timeout.
    fn run(&mut self) -> Result<String> {
        self.run_to(&["cutover_pending", "completed", "completed", "finished"])
    }

    pub(super) fn run_to(&mut self, phases: &[&str]) -> Result<String> {
        let open: Vec<SplitView> = self.look()?.into_iter().filter(|split| !split.is_over()).collect();
        if open.is_empty() {
            return self.plan();
        }
        let id = self.random.one_of(&open).id;
        let phase = *self.random.one_of(phases);
        let query = format!("CALL shard_split_run({id}, '{phase}')");
        self.master()?.batch_execute("SET statement_timeout = '4s'").map_err(Error::from)?;
        let told = self.master()?.batch_execute(&query).map_err(Refusal::of);
        let _ = self.master()?.batch_execute("SET statement_timeout = '180s'");
        match &told {
            // The server cancelled the statement after its timeout.
            Err(refusal) if refusal.code == "57014" => {}
            told => self.judge(&query, told)?,
        }
        match &told {
            Err(refusal)
                if !refusal.is_lost()
                    && !["57014", "55P03", "55000"].contains(&refusal.code.as_str())
                    && !self.is_excused(&refusal.code) =>
            {
                Err(format!("{query}: {}", refusal.text).into())
            }
            _ => Ok(format!("{query}: {}", words(&told))),
        }
    }

    fn choose(&mut self, all: &[SplitView], open: &[SplitView]) -> Option<SplitView> {
        let from = if open.is_empty() || self.random.percent(12) { all } else { open };
        (!from.is_empty()).then(|| self.random.one_of(from).clone())
    }

    fn choose_call(&mut self, split: &SplitView) -> Call {
        if self.random.percent(20) {
            return *self.random.one_of(&Call::ALL);
        }
        match split.phase {
            Phase::Planning if split.goal == "planning" => Call::StartDualWrite,
            Phase::Planning | Phase::DualWrite | Phase::Backfill => {
                *self.random.one_of(&[Call::RunBackfill, Call::RunBackfill, Call::Pause, Call::Resume])
            }
            Phase::Tailing | Phase::CutoverPending => *self.random.one_of(&[
                Call::Cutover,
                Call::Cutover,
                Call::Cutover,
                Call::Resume,
                Call::Rollback,
            ]),
            Phase::Completed if split.is_finished => Call::GuardDrop,
            Phase::Completed => Call::Finish,
            Phase::RolledBack => Call::StartDualWrite,
        }
    }

    /// Makes all clients ask for their routes again, since none may have a route from before a redirect that ends.
    pub(super) fn refresh_routes(&mut self) {
        let shared = self.writers.shared.clone();
        let _quiet = shared.quiet();
        shared.epoch.fetch_add(1, Ordering::Relaxed);
    }

    fn compare_answer(
        &mut self,
        call: Call,
        query: &str,
        (before, after): (&SplitView, &SplitView),
        told: &CallResult,
    ) -> Result<()> {
        let possible = answers(call, before, after);
        let as_plan = possible.contains(&Answer::AsPlan);
        match told {
            Err(refusal) if refusal.is_lost() => Ok(()),
            Ok(()) if as_plan || possible.contains(&Answer::Accepted) => Ok(()),
            Err(refusal) if refusal.code == "55000" && possible.contains(&Answer::Refused) => Ok(()),
            Err(refusal) if as_plan && ["55000", "55006", "22023"].contains(&refusal.code.as_str()) => Ok(()),
            Ok(()) => {
                Err(format!("{query}: accepted, expected {possible:?} of {before:?}, {after:?}").into())
            }
            Err(refusal) => {
                Err(format!("{query}: {}, expected {possible:?} of {before:?}, {after:?}", refusal.text)
                    .into())
            }
        }
    }

    fn wait_for_phase(&mut self) -> Result<String> {
        let open: Vec<i64> = self
            .model
            .splits
            .iter()
            .filter(|split| !split.seen.is_over())
            .map(|split| split.seen.id)
            .collect();
        if open.is_empty() {
            std::thread::sleep(Duration::from_millis(50)); // between two calls of an operator
            return Ok("nothing to wait for".into());
        }
        let id = *self.random.one_of(&open);
        let phase = *self.random.one_of(&[
            "cutover_pending",
            "cutover_pending",
            "completed",
            "finished",
            "rolled_back",
        ]);
        let query = format!("SELECT shard_split_wait({id}, '{phase}', '1500 ms')");
        let told = self.master()?.batch_execute(&query).map_err(Refusal::of);
        self.judge(&query, &told)?;
        match &told {
            Err(refusal)
                if !refusal.is_lost()
                    && !IMPOSSIBLE.iter().any(|text| refusal.text.contains(text))
                    && !["57014", "55P03"].contains(&refusal.code.as_str())
                    && !self.is_excused(&refusal.code) =>
            {
                Err(format!("{query}: {}", refusal.text).into())
            }
            _ => Ok(format!("{query}: {}", words(&told))),
        }
    }
}

/// The check's finding for a partition that was made on the source alone.
pub(super) const LACKS_PARTITION: &str = "the target lacks partition";

/// An install's error for rows that the old master has copied since the dump. A rollback removes them.
pub(super) const COPIED_BEFORE: &str = "written while the split was installed";

/// The errors of a wait for something that can no longer happen, perhaps because of another call.
const IMPOSSIBLE: [&str; 6] = [
    LACKS_PARTITION,
    COPIED_BEFORE,
    "was taken back by split",
    "is being taken back by split",
    "was rolled back",
    "is not rolled back: its cutover has decided",
];

pub(super) fn quoted(bound: Option<&str>) -> String {
    bound.map_or("NULL".into(), |bound| format!("'{bound}'"))
}

pub(super) fn words(told: &CallResult) -> String {
    match told {
        Ok(()) => "done".into(),
        Err(refusal) => refusal.text.clone(),
    }
}
