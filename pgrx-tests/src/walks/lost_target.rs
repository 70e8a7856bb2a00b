//! A target that its operator gives up as lost: the split is rolled back without it. When the target is back
//! after all, the operator cleans it up.

use super::keys::KeyIndex;
use super::model::{Phase, SplitView};
use super::outages::Place;
use super::walk::Walk;
use crate::Result;
use std::time::Duration;

impl Walk {
    pub(super) fn lose_target(&mut self) -> Result<String> {
        let moving = |split: &SplitView| {
            // The source of a reverse split is the target of its split, so it is left out.
            split.reverse_of.is_none()
                && split.phase > Phase::Planning
                && split.phase < Phase::Completed
                && !split.is_rolling_back()
        };
        let seen = self.look()?;
        // Both may be on one server. Then the source would be gone as well.
        let has_source = |id: i64| {
            let split = self.model.split(id);
            split
                .is_some_and(|split| self.stage.server_of(split.source) != self.stage.server_of(split.target))
        };
        let open: Vec<i64> =
            seen.iter().filter(|split| moving(split) && has_source(split.id)).map(|split| split.id).collect();
        if open.is_empty() {
            return Ok("no target to lose".into());
        }
        let id = *self.random.one_of(&open);
        let Some(target) = self.model.split(id).map(|split| split.target) else {
            return Err("the model does not know the split".into());
        };
        let server = self.stage.server_of(target);
        // The source must be there, because without both nobody can say what is true.
        self.mend_all()?;
        self.outages.begins(Place::Link(server));
        self.stage.relays[server].silence();
        std::thread::sleep(Duration::from_millis(self.random.below(500) as u64));
        let rollback = format!("SELECT shard_split_rollback({id}, target_lost => true)");
        let went_back = self.operate_unless(&rollback, "55000")?;
        if went_back {
            self.model.set_target_lost(id, true);
            self.operate(&format!("SELECT shard_split_resume({id})"))?;
            self.operate(&format!("SELECT shard_split_wait({id}, 'rolled_back', '40 s')"))?;
            self.check()?;
        }
        self.stage.relays[server].mend();
        self.outages.ends(Place::Link(server));
        if went_back {
            self.clean_target(id, target)?;
        }
        Ok(format!("split {id} goes back without its target: {went_back}"))
    }

    /// The split's objects are removed by a call. The copied rows are left to the operator.
    fn clean_target(&mut self, id: i64, target: usize) -> Result<()> {
        let keys: Vec<KeyIndex> =
            self.model.split(id).map(|split| split.keys.iter().copied().collect()).unwrap_or_default();
        let query = format!("SELECT object, action FROM shard_cleanup('{}')", self.stage.shard_name(target));
        let rows = self.ask_master(|master| master.query(&query, &[]))?;
        let removed: Vec<(String, String)> = rows.iter().map(|row| (row.get(0), row.get(1))).collect();
        // The target also has what it captured for the reverse split.
        let backs =
            "SELECT format('source side of split %s', id) FROM shardmaster.split_plan WHERE reverse_of = $1";
        let rows = self.ask_master(|master| master.query(backs, &[&id]))?;
        let mut expected: Vec<String> = rows.iter().map(|row| row.get(0)).collect();
        expected.push(format!("target side of split {id}"));
        let is_other =
            |(object, action): &(String, String)| !expected.contains(object) || action != "removed";
        if !self.is_restored && removed.iter().any(is_other) {
            return Err(format!("{query}: {removed:?}").into());
        }
        // A redirect would also keep the operator from the rows.
        self.drop_guards_of(target, &keys)?;
        let mut owner = self.stage.cluster.owner_of(&self.stage.cluster.shards[target])?;
        for key in &keys {
            let key = &self.stage.keys[*key];
            let (table, column) = (key.space.tables()[0], key.space.column());
            owner.batch_execute(&format!("DELETE FROM {table} WHERE {column} = '{}'", key.text))?;
            let child = key.space.tables()[1];
            owner.batch_execute(&format!("DELETE FROM {child} WHERE {column} = '{}'", key.text))?;
        }
        self.model.set_target_lost(id, false);
        Ok(())
    }

    fn drop_guards_of(&mut self, shard: usize, keys: &[KeyIndex]) -> Result<()> {
        for id in self.model.redirects_of(shard, keys) {
            self.refresh_routes();
            self.operate(&format!("SELECT shard_split_redirect_drop({id})"))?;
            self.model.guard_dropped(id);
        }
        Ok(())
    }
}
