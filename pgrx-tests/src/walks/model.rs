//! A model of routes, splits and shards. It follows from the calls that were accepted and the phases that
//! splits have reached, and not from the routing tables.

use super::keys::{KeyIndex, Space};
use std::collections::BTreeSet;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Phase {
    Planning,
    DualWrite,
    Backfill,
    Tailing,
    CutoverPending,
    Completed,
    RolledBack,
}

impl Phase {
    pub const ALL: [(&'static str, Phase); 7] = [
        ("planning", Phase::Planning),
        ("dual_write", Phase::DualWrite),
        ("backfill", Phase::Backfill),
        ("tailing", Phase::Tailing),
        ("cutover_pending", Phase::CutoverPending),
        ("completed", Phase::Completed),
        ("rolled_back", Phase::RolledBack),
    ];

    pub fn named(name: &str) -> Option<Phase> {
        Phase::ALL.iter().find(|(known, _)| *known == name).map(|(_, phase)| *phase)
    }
}

/// A split as the master shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SplitView {
    pub id: i64,
    pub phase: Phase,
    /// The goal that was requested, by the name of the phase, or `finished`.
    pub goal: String,
    pub is_moved: bool,
    pub is_failed: bool,
    pub is_finished: bool,
    pub error: Option<(String, String)>,
    /// The split that it reverses.
    pub reverse_of: Option<i64>,
    /// Whether its reverse split is requested, and neither decided nor aborted.
    pub is_taken_back: bool,
}

impl SplitView {
    pub fn is_rolling_back(&self) -> bool {
        self.goal == "rolled_back"
    }

    /// Whether nothing of it is left anywhere, except perhaps a redirect.
    pub fn is_over(&self) -> bool {
        self.is_finished || (self.phase == Phase::RolledBack && self.is_rolling_back())
    }
}

#[derive(Clone, Debug)]
pub struct Split {
    pub seen: SplitView,
    pub space: Space,
    pub source: usize,
    pub target: usize,
    pub keys: BTreeSet<KeyIndex>,
    /// The keys that its source refuses since its cutover.
    redirect: BTreeSet<KeyIndex>,
    /// Whether it was rolled back without its target, which may still have anything of it.
    pub has_lost_target: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    Active,
    Draining,
    Disabled,
}

/// How a shard must answer a write of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expect {
    /// The key is routed there.
    Served,
    Refused,
    /// No split has anything there that could refuse it.
    Free,
    /// Something is just being installed or removed.
    Either,
}

#[derive(Clone, Debug)]
pub struct Model {
    pub splits: Vec<Split>,
    /// The shard to which each key is routed.
    pub routes: Vec<Option<usize>>,
    pub statuses: Vec<Status>,
}

impl Model {
    pub fn new(routes: Vec<Option<usize>>, shards: usize) -> Model {
        Model { splits: Vec::new(), routes, statuses: vec![Status::Active; shards] }
    }

    pub fn planned(
        &mut self,
        seen: SplitView,
        space: Space,
        (source, target): (usize, usize),
        keys: BTreeSet<KeyIndex>,
    ) {
        let redirect = BTreeSet::new();
        self.splits.push(Split { seen, space, source, target, keys, redirect, has_lost_target: false });
    }

    pub fn split(&self, id: i64) -> Option<&Split> {
        self.splits.iter().find(|split| split.seen.id == id)
    }

    /// Updates the model from the master's view of the splits. A cutover that has decided since then moves routes.
    pub fn observe(&mut self, all: &[SplitView]) {
        for seen in all {
            self.find_way_back(seen);
            let Some(at) = self.splits.iter().position(|split| split.seen.id == seen.id) else { continue };
            let before = std::mem::replace(&mut self.splits[at].seen, seen.clone());
            if seen.phase == Phase::Completed && before.phase != Phase::Completed {
                self.decided(at);
            }
        }
    }

    /// Adds a reverse split that was requested: its split with the shards exchanged.
    fn find_way_back(&mut self, seen: &SplitView) {
        if self.split(seen.id).is_some() {
            return;
        }
        let Some(there) = seen.reverse_of.and_then(|id| self.split(id)).cloned() else { return };
        let fresh = SplitView { phase: Phase::Planning, ..seen.clone() };
        self.planned(fresh, there.space, (there.target, there.source), there.keys);
    }

    /// Whether it was reversed, or a reverse split was tried.
    pub fn has_gone_back(&self, id: i64) -> bool {
        self.splits.iter().any(|split| split.seen.reverse_of == Some(id))
    }

    fn decided(&mut self, at: usize) {
        let (keys, target) = (self.splits[at].keys.clone(), self.splits[at].target);
        self.splits[at].redirect.clone_from(&keys);
        for key in &keys {
            self.routes[*key] = Some(target);
        }
        self.come_to(target, &keys);
    }

    /// Keys have moved to the shard, so its redirects no longer refuse them.
    fn come_to(&mut self, shard: usize, keys: &BTreeSet<KeyIndex>) {
        for split in self.splits.iter_mut().filter(|split| split.source == shard) {
            split.redirect.retain(|key| !keys.contains(key));
        }
    }

    /// Records that a key was assigned by hand, or to no shard any more.
    pub fn assigned(&mut self, key: KeyIndex, shard: Option<usize>) {
        self.routes[key] = shard;
        if let Some(shard) = shard {
            self.come_to(shard, &BTreeSet::from([key]));
        }
    }

    pub fn guard_dropped(&mut self, id: i64) {
        for split in self.splits.iter_mut().filter(|split| split.seen.id == id) {
            split.redirect.clear();
        }
    }

    pub fn set_target_lost(&mut self, id: i64, is_lost: bool) {
        for split in self.splits.iter_mut().filter(|split| split.seen.id == id) {
            split.has_lost_target = is_lost;
        }
    }

    /// Returns the finished splits by which a shard redirects one of the keys.
    pub fn redirects_of(&self, shard: usize, keys: &[KeyIndex]) -> Vec<i64> {
        let redirecting = self.splits.iter().filter(|split| {
            split.source == shard
                && split.seen.is_finished
                && keys.iter().any(|key| split.redirect.contains(key))
        });
        redirecting.map(|split| split.seen.id).collect()
    }

    /// Returns the splits that redirect something, each with the shard that does.
    pub fn redirects(&self) -> BTreeSet<(i64, usize)> {
        let redirecting = self.splits.iter().filter(|s| s.seen.is_finished && !s.redirect.is_empty());
        redirecting.map(|split| (split.seen.id, split.source)).collect()
    }

    pub fn expect(&self, shard: usize, key: KeyIndex) -> Expect {
        match self.routes[key] {
            Some(route) if route == shard => return Expect::Served,
            Some(_) => {}
            None => return Expect::Either,
        }
        let of_key = self.splits.iter().filter(|split| split.keys.contains(&key));
        let said: Vec<Expect> = of_key.map(|split| split.expect(shard, key)).collect();
        for strongest in [Expect::Refused, Expect::Either] {
            if said.contains(&strongest) {
                return strongest;
            }
        }
        Expect::Free
    }

    /// Returns the SQLSTATEs of all reasons for which a plan must be refused.
    pub fn plan_refusals(
        &self,
        (source, target): (usize, usize),
        keys: &BTreeSet<KeyIndex>,
    ) -> Vec<&'static str> {
        let mut codes = Vec::new();
        if source == target {
            codes.push("22023");
        }
        if self.statuses[source] == Status::Disabled || self.statuses[target] != Status::Active {
            codes.push("55000");
        }
        if keys.iter().any(|key| self.holder(*key).is_some()) {
            codes.push("55006");
        }
        if keys.is_empty() || keys.iter().any(|key| self.routes[*key] != Some(source)) {
            // For a range, the reason is an entry that is routed elsewhere.
            codes.extend(["22023", "55000"]);
        }
        codes
    }

    /// Returns the unfinished split that moves a key.
    pub fn holder(&self, key: KeyIndex) -> Option<&Split> {
        self.splits.iter().find(|split| !split.seen.is_over() && split.keys.contains(&key))
    }
}

impl Split {
    fn expect(&self, shard: usize, key: KeyIndex) -> Expect {
        let seen = &self.seen;
        if shard == self.source {
            let has_left = match (seen.phase == Phase::Completed, seen.is_finished) {
                (true, false) => true,
                (_, finished) => finished && self.redirect.contains(&key),
            };
            return if has_left { Expect::Refused } else { Expect::Free };
        }
        if shard != self.target {
            return Expect::Free;
        }
        match seen.phase {
            _ if self.has_lost_target => Expect::Either,
            Phase::DualWrite | Phase::Backfill | Phase::Tailing | Phase::CutoverPending
                if !seen.is_rolling_back() =>
            {
                Expect::Refused
            }
            Phase::Planning if seen.goal == "planning" => Expect::Free,
            _ if seen.is_over() => Expect::Free,
            _ => Expect::Either,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(id: i64, phase: Phase, goal: &str) -> SplitView {
        let (is_moved, is_failed, is_finished) = (false, false, goal == "finished");
        let (error, reverse_of, is_taken_back) = (None, None, false);
        SplitView {
            id,
            phase,
            goal: goal.into(),
            is_moved,
            is_failed,
            is_finished,
            error,
            reverse_of,
            is_taken_back,
        }
    }

    /// Makes a model of one key, which a split moves from the first shard to the second.
    fn model() -> Model {
        let mut model = Model::new(vec![Some(0)], 3);
        model.planned(seen(1, Phase::Planning, "planning"), Space::Directory, (0, 1), BTreeSet::from([0]));
        model
    }

    fn expected(model: &Model) -> Vec<Expect> {
        (0..3).map(|shard| model.expect(shard, 0)).collect()
    }

    #[test]
    fn a_key_is_served_on_one_side_and_refused_on_the_other() {
        use Expect::{Free, Refused, Served};
        let mut model = model();
        assert_eq!(expected(&model), [Served, Free, Free]);
        model.observe(&[seen(1, Phase::Tailing, "backfill")]);
        assert_eq!(expected(&model), [Served, Refused, Free]);
        model.observe(&[seen(1, Phase::Completed, "completed")]);
        assert_eq!(expected(&model), [Refused, Served, Free]);
        model.observe(&[seen(1, Phase::Completed, "finished")]);
        assert_eq!(expected(&model), [Refused, Served, Free]);
        model.guard_dropped(1);
        assert_eq!(expected(&model), [Free, Served, Free]);
    }

    #[test]
    fn a_rollback_leaves_nothing() {
        let mut model = model();
        model.observe(&[seen(1, Phase::Tailing, "rolled_back")]);
        assert_eq!(model.expect(1, 0), Expect::Either);
        model.observe(&[seen(1, Phase::RolledBack, "rolled_back")]);
        assert_eq!(model.expect(1, 0), Expect::Free);
        assert!(model.holder(0).is_none());
    }

    #[test]
    fn a_key_that_comes_back_is_let_in() {
        let mut model = model();
        model.observe(&[seen(1, Phase::Completed, "finished")]);
        model.planned(seen(2, Phase::Planning, "planning"), Space::Directory, (1, 0), BTreeSet::from([0]));
        model.observe(&[seen(2, Phase::Backfill, "backfill")]);
        assert_eq!(expected(&model), [Expect::Refused, Expect::Served, Expect::Free]);
        model.observe(&[seen(2, Phase::Completed, "finished")]);
        assert_eq!(expected(&model), [Expect::Served, Expect::Refused, Expect::Free]);
        assert_eq!(model.redirects(), BTreeSet::from([(2, 1)]));
    }

    #[test]
    fn a_split_that_is_taken_back_brings_its_keys_home() {
        use Expect::{Free, Refused, Served};
        let mut model = model();
        model.observe(&[seen(1, Phase::Completed, "completed")]);
        let back = |phase, goal| SplitView { reverse_of: Some(1), ..seen(2, phase, goal) };
        model.observe(&[back(Phase::Tailing, "completed")]);
        assert_eq!(expected(&model), [Refused, Served, Free]);
        model.observe(&[seen(1, Phase::Completed, "finished"), back(Phase::Completed, "completed")]);
        assert_eq!(expected(&model), [Served, Refused, Free]);
        assert_eq!(model.redirects(), BTreeSet::new());
        model.observe(&[back(Phase::Completed, "finished")]);
        assert_eq!(model.redirects(), BTreeSet::from([(2, 1)]));
    }
}
