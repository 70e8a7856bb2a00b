//! The end of a walk: documented calls alone bring each split to its end, and nothing is left.

use super::leftovers;
use super::model::{Phase, SplitView};
use super::stage::SHARDS;
use super::walk::Walk;
use crate::Result;
use std::cmp::Reverse;

impl Walk {
    /// Brings everything to an end by documented calls alone, and checks that nothing is left.
    pub fn end(&mut self) -> Result<()> {
        self.mend_all()?;
        self.note("the end".into());
        self.end_splits()?;
        self.check()?;
        self.compare()?;
        self.check_guards()?;
        let known: Vec<i64> = self.look()?.iter().map(|split| split.id).collect();
        for shard in 0..SHARDS {
            let mut found = leftovers::found(&self.stage, shard)?;
            let begun_since_the_dump = leftovers::of_splits(&found);
            if self.is_restored && !begun_since_the_dump.is_empty() {
                if let Some(line) = begun_since_the_dump.iter().find(|line| leftovers::is_of(line, &known)) {
                    return Err(
                        format!("left on shard {shard}, of a split that the master knows: {line}").into()
                    );
                }
                let name = self.stage.shard_name(shard).to_owned();
                self.ask_master(|master| master.execute("SELECT shard_cleanup($1)", &[&name]))?;
                found = leftovers::found(&self.stage, shard)?;
            }
            let left = leftovers::of_splits(&found);
            if !left.is_empty() {
                return Err(format!("left on shard {shard}: {left:?}").into());
            }
        }
        let redirecting: Vec<i64> = self.model.redirects().into_iter().map(|(id, _)| id).collect();
        for id in redirecting {
            self.ask_master(|master| master.execute("SELECT shard_split_redirect_drop($1)", &[&id]))?;
            self.model.guard_dropped(id);
        }
        for shard in 0..SHARDS {
            let found = leftovers::found(&self.stage, shard)?;
            if !found.is_empty() {
                return Err(format!("left on shard {shard} without a redirect: {found:?}").into());
            }
        }
        self.check()
    }

    fn check_guards(&mut self) -> Result<()> {
        let query = "SELECT DISTINCT split_id, shard_key FROM shard_guards() WHERE state <> 'ending'";
        let rows = self.ask_master(|master| master.query(query, &[]))?;
        let listed =
            rows.iter().filter_map(|row| Some((row.get(0), self.stage.shard_named(row.get(1))?))).collect();
        let expected = self.model.redirects();
        if expected == listed {
            return Ok(());
        }
        Err(format!("shard_guards() lists {listed:?}, expected {expected:?}").into())
    }

    /// Ends all splits like an operator who wants to be done: each goes forward or back. Splits
    /// that follow their source keep their workers, so all calls are made before the first wait.
    fn end_splits(&mut self) -> Result<()> {
        let mut open: Vec<SplitView> = self.look()?.into_iter().filter(|split| !split.is_over()).collect();
        // A split that is being reversed ends with its reverse split, which may be reversed as well.
        open.sort_by_key(|split| {
            let way_back = split.reverse_of.map(|_| split.id);
            (way_back.is_none(), Reverse(way_back), Reverse(split.phase))
        });
        for split in &open {
            let id = split.id;
            self.resume(split)?;
            if split.phase != Phase::Completed && (split.is_rolling_back() || self.random.percent(50)) {
                // The call is refused if the cutover has just decided. Then the split goes forward.
                self.operate_unless(&format!("SELECT shard_split_rollback({id})"), "55000")?;
            }
        }
        for SplitView { id, reverse_of, .. } in &open {
            let now = self.look()?.into_iter().find(|split| split.id == *id);
            if now.is_none_or(|split| split.is_rolling_back() || split.is_finished) {
                if reverse_of.is_some() {
                    self.wait_for_end(*id)?;
                }
                continue;
            }
            let run = format!("CALL shard_split_run({id})");
            match self.operate_unless(&run, "55P03") {
                Err(error) if error.to_string().contains("was taken back by split") => continue,
                // An aborted cutover is requested again.
                Ok(false) => self.operate(&run)?,
                done => done.map(drop)?,
            }
            self.operate(&format!("SELECT shard_split_finish({id})"))?;
        }
        for SplitView { id, .. } in &open {
            self.wait_for_end(*id)?;
        }
        self.look().map(drop)
    }

    fn wait_for_end(&mut self, id: i64) -> Result<()> {
        let now = self.look()?.into_iter().find(|split| split.id == id);
        let end = if now.is_some_and(|split| split.is_rolling_back()) { "rolled_back" } else { "finished" };
        // A split that is reversed never reaches the phase to which it was to bring its rows.
        self.operate(&format!(
            "SELECT shard_split_wait({id}, CASE WHEN EXISTS (
                        SELECT FROM shardmaster.split_plan b WHERE b.reverse_of = {id} AND b.phase <> 'rolled_back'
                           AND (b.phase, b.goal) <> ('planning', 'planning')) THEN 'reversed' ELSE '{end}' END, '100 s')"
        ))
    }
}
