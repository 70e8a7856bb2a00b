//! Calls that change shards and routes by hand, and calls that clean up.

use super::calls::{Refusal, quoted, words};
use super::keys::{KeyIndex, Space, bounds};
use super::model::Status;
use super::stage::SHARDS;
use super::walk::Walk;
use crate::Result;

impl Walk {
    pub(super) fn set_status(&mut self) -> Result<String> {
        let shard = self.random.below(SHARDS);
        let (name, status) = *self.random.one_of(&[
            ("draining", Status::Draining),
            ("active", Status::Active),
            ("active", Status::Active),
            ("active", Status::Active),
        ]);
        let query = format!("SELECT shard_set_status('{}', '{name}')", self.stage.shard_name(shard));
        let told = self.make(&query)?;
        match &told {
            Ok(()) => self.model.statuses[shard] = status,
            Err(refusal) if refusal.is_lost() => {}
            Err(refusal) => return Err(format!("{query}: {}", refusal.text).into()),
        }
        Ok(format!("{query}: {}", words(&told)))
    }

    /// Drops the last shard and adds it under another name, if nothing is on it.
    pub(super) fn rename_shard(&mut self) -> Result<String> {
        let last = SHARDS - 1;
        let is_used = |walk: &Walk| {
            let splits = walk.model.splits.iter().filter(|split| !split.seen.is_over());
            walk.model.routes.contains(&Some(last))
                || splits.into_iter().any(|split| [split.source, split.target].contains(&last))
                || walk.model.redirects().iter().any(|(_, shard)| *shard == last)
        };
        let before = (self.look()?, is_used(self)).1;
        let query = format!("SELECT shard_drop('{}')", self.stage.shard_name(last));
        let told = self.make(&query)?;
        let after = (self.look()?, is_used(self)).1;
        match &told {
            Err(refusal) if refusal.is_lost() => {
                let query = "SELECT count(*) FROM shard_topology()";
                if self.ask_master(|master| master.query_one(query, &[]))?.get::<_, i64>(0) == SHARDS as i64 {
                    return Ok(format!("{query}: {}", words(&told)));
                }
            }
            Err(refusal) if refusal.code == "55006" && (before || after) => {
                return Ok(format!("{query}: {}", words(&told)));
            }
            Err(refusal) => return Err(format!("{query}: {}", refusal.text).into()),
            Ok(()) if before && after => return Err(format!("{query}: accepted, though it is used").into()),
            Ok(()) => {}
        }
        self.names += 1;
        let name = format!("shard_d{}", self.names);
        self.stage.add_shard(&name)?;
        self.stage.cluster.shards[last].key.clone_from(&name);
        self.model.statuses[last] = Status::Active;
        Ok(format!("{query}: dropped, and added as {name}"))
    }

    /// Cleans up a shard. Whatever belongs to an open split must stay.
    pub(super) fn cleanup(&mut self) -> Result<String> {
        let shard = self.random.below(SHARDS);
        let query = format!("SELECT object, action FROM shard_cleanup('{}')", self.stage.shard_name(shard));
        let told = match self.master()?.query(&query, &[]) {
            Ok(rows) => {
                let removed: Vec<String> = rows.iter().map(|row| row.get(0)).collect();
                // A restored master does not know what the old master had just installed.
                let is_expected =
                    self.is_restored || self.model.splits.iter().any(|split| split.has_lost_target);
                if !removed.is_empty() && !is_expected {
                    return Err(format!("{query}: {removed:?}").into());
                }
                Ok(())
            }
            Err(error) => Err(Refusal::of(error)),
        };
        self.judge(&query, &told)?;
        match &told {
            Err(refusal) if !refusal.is_lost() => Err(format!("{query}: {}", refusal.text).into()),
            _ => Ok(format!("{query}: {}", words(&told))),
        }
    }

    /// Assigns a key without rows to another shard by hand, or removes it from routing.
    pub(super) fn assign(&mut self) -> Result<String> {
        let spare: Vec<KeyIndex> =
            (0..self.stage.keys.len()).filter(|key| !self.stage.keys[*key].is_written).collect();
        let key = *self.random.one_of(&spare);
        let shard = self.random.below(SHARDS);
        let force = self.random.percent(80);
        let to =
            Some(shard).filter(|_| self.stage.keys[key].space != Space::Directory || self.random.percent(75));
        let query = self.assignment(key, to, force);
        self.look()?;
        let was_held = self.model.holder(key).is_some();
        let route = self.model.routes[key];
        let told = self.make(&query)?;
        self.look()?;
        let is_held = self.model.holder(key).is_some();
        let is_elsewhere = to.is_some() && !force && self.model.routes[key].is_some_and(|at| Some(at) != to);
        match &told {
            Err(refusal) if refusal.is_lost() => self.find_lost_route(key)?,
            Ok(()) if was_held && is_held => return Err(format!("{query}: accepted in a split").into()),
            Ok(()) if is_elsewhere && route == self.model.routes[key] => {
                return Err(format!("{query}: accepted, though it is at {route:?}").into());
            }
            Ok(()) => self.assigned(key, to),
            Err(refusal) => {
                let unassigned = to.is_none() && route.is_none();
                // A range may have to be cut out of one that a split moves.
                let is_cut = self.stage.keys[key].space == Space::Range;
                let expected = (refusal.code == "55006" && (was_held || is_held || is_cut))
                    || (refusal.code == "55000" && is_elsewhere)
                    || (refusal.code == "42704" && unassigned);
                if !expected {
                    return Err(format!("{query}: {}", refusal.text).into());
                }
            }
        }
        Ok(format!("{query}: {}", words(&told)))
    }

    fn assignment(&self, key: KeyIndex, to: Option<usize>, force: bool) -> String {
        let key = &self.stage.keys[key];
        let name = &key.text;
        let Some(to) = to.map(|shard| self.stage.shard_name(shard)) else {
            return format!("SELECT shard_unassign('{name}')");
        };
        match key.space {
            Space::Directory => format!("SELECT shard_assign('{name}', '{to}', force => {force})"),
            Space::Hash => {
                let bucket = key.bucket().unwrap_or_default();
                format!("SELECT shard_assign_bucket({bucket}, '{to}', 'events', force => {force})")
            }
            // Only the range below the first bound has no rows.
            Space::Range => {
                let upper = quoted(bounds().next());
                format!("SELECT shard_assign_range(NULL, {upper}, '{to}', 'docs', force => {force})")
            }
        }
    }

    /// Records an assignment. A bucket takes all of its keys along.
    fn assigned(&mut self, key: KeyIndex, to: Option<usize>) {
        let bucket = self.stage.keys[key].bucket();
        let is_along = |other: &KeyIndex| bucket.is_some() && self.stage.keys[*other].bucket() == bucket;
        let along: Vec<KeyIndex> = (0..self.stage.keys.len()).filter(is_along).collect();
        for key in along.into_iter().chain([key]) {
            self.model.assigned(key, to);
        }
    }

    fn find_lost_route(&mut self, key: KeyIndex) -> Result<()> {
        let route = self.routed()?[key].map(|(shard, _)| shard);
        if self.model.routes[key] != route {
            self.assigned(key, route);
        }
        Ok(())
    }

    pub(super) fn join(&mut self) -> Result<String> {
        let query = "SELECT shard_join_ranges('docs')";
        let told = self.make(query)?;
        match &told {
            Err(refusal) if !refusal.is_lost() => Err(format!("{query}: {}", refusal.text).into()),
            _ => Ok(format!("{query}: {}", words(&told))),
        }
    }
}
