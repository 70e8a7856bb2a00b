//! A model of placement that fits on a page. It predicts what one session sees.

use std::collections::{BTreeMap, BTreeSet};

/// The number of overdue leases that a reservation expires as well.
const ON_THE_WAY: usize = 4;

#[derive(Clone, Debug)]
pub struct Shard {
    pub key: String,
    pub capacity: Option<i64>,
    pub is_active: bool,
    next_slot: i64,
    returned: BTreeSet<i64>,
    held: i64,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Status {
    Pending,
    /// The lease has run out, with its position among those that have.
    Overdue(u64),
    Confirmed(String),
}

#[derive(Clone, Debug)]
pub struct Live {
    pub id: i64,
    pub tenant: String,
    pub shard: usize,
    pub slot: i64,
    pub status: Status,
}

/// The result of a call: a value, or an SQLSTATE.
pub type Outcome<T> = Result<T, &'static str>;

#[derive(Default)]
pub struct Model {
    pub shards: Vec<Shard>,
    pub live: BTreeMap<String, Live>,
    pub quotas: BTreeMap<String, i64>,
}

impl Model {
    pub fn add(&mut self, key: &str, capacity: Option<i64>) {
        self.shards.push(Shard {
            key: key.into(),
            capacity,
            is_active: true,
            next_slot: 0,
            returned: BTreeSet::new(),
            held: 0,
        });
    }

    fn room(shard: &Shard) -> i64 {
        shard.capacity.unwrap_or(1 << 62) - shard.held
    }

    fn release(&mut self, key: &str) {
        if let Some(live) = self.live.remove(key) {
            let shard = &mut self.shards[live.shard];
            shard.held -= 1;
            shard.returned.insert(live.slot);
        }
    }

    /// Expires the leases that ran out first, of one tenant or of all.
    fn expire_overdue(&mut self, limit: usize, tenant: Option<&str>) -> usize {
        let mut overdue: Vec<(u64, String)> = self
            .live
            .iter()
            .filter(|(_, live)| tenant.is_none_or(|tenant| tenant == live.tenant))
            .filter_map(|(key, live)| match live.status {
                Status::Overdue(place) => Some((place, key.clone())),
                Status::Pending | Status::Confirmed(_) => None,
            })
            .collect();
        overdue.sort();
        overdue.truncate(limit);
        overdue.iter().for_each(|(_, key)| self.release(key));
        overdue.len()
    }

    /// Reserves a slot. Returns the slot, and whether it is a new one. The model does not predict which shard
    /// `consistent` takes, so it is given.
    pub fn reserve(
        &mut self,
        key: &str,
        tenant: &str,
        strategy: &str,
        told: Option<&str>,
    ) -> Outcome<(usize, i64, bool)> {
        if let Some(live) = self.live.get(key)
            && !matches!(live.status, Status::Overdue(_))
        {
            return if live.tenant == tenant { Ok((live.shard, live.slot, false)) } else { Err("SM005") };
        }
        // A call that fails leaves everything unchanged, including overdue leases.
        let before = (self.shards.clone(), self.live.clone());
        self.release(key);
        self.expire_overdue(ON_THE_WAY, None);
        let placed = self.place(tenant, strategy, told);
        if placed.is_err() {
            (self.shards, self.live) = before;
        }
        placed.map(|(shard, slot)| (shard, slot, true))
    }

    fn place(&mut self, tenant: &str, strategy: &str, told: Option<&str>) -> Outcome<(usize, i64)> {
        let is_used_up = |model: &Model| {
            let held = model.live.values().filter(|live| live.tenant == tenant).count() as i64;
            model.quotas.get(tenant).is_some_and(|quota| held >= *quota)
        };
        if is_used_up(self) {
            self.expire_overdue(usize::MAX, Some(tenant));
            if is_used_up(self) {
                return Err("SM004");
            }
        }
        match self.choose(strategy, told) {
            Err(_) if self.expire_overdue(usize::MAX, None) > 0 => self.choose(strategy, told),
            chosen => chosen,
        }
    }

    fn choose(&mut self, strategy: &str, told: Option<&str>) -> Outcome<(usize, i64)> {
        let open =
            || self.shards.iter().enumerate().filter(|(_, shard)| shard.is_active && Model::room(shard) > 0);
        let chosen = match strategy {
            "fill_first" => open().min_by_key(|(_, shard)| (Model::room(shard), shard.key.clone())),
            "spread" => open().min_by_key(|(_, shard)| (-Model::room(shard), shard.key.clone())),
            _ => open().find(|(_, shard)| told.is_none_or(|key| key == shard.key)),
        };
        let Some((index, _)) = chosen else { return Err("SM003") };
        let shard = &mut self.shards[index];
        let slot = shard.returned.pop_first().unwrap_or_else(|| {
            shard.next_slot += 1;
            shard.next_slot - 1
        });
        shard.held += 1;
        Ok((index, slot))
    }

    pub fn keep(&mut self, key: &str, id: i64, tenant: &str, shard: usize, slot: i64) {
        let live = Live { id, tenant: tenant.into(), shard, slot, status: Status::Pending };
        self.live.insert(key.into(), live);
    }

    pub fn confirm(&mut self, key: &str, resource: &str) -> Outcome<()> {
        let Some(live) = self.live.get_mut(key) else { return Err("SM005") };
        match &live.status {
            Status::Pending => live.status = Status::Confirmed(resource.into()),
            Status::Confirmed(same) if same == resource => {}
            Status::Overdue(_) | Status::Confirmed(_) => return Err("SM005"),
        }
        Ok(())
    }

    pub fn cancel(&mut self, key: &str) -> Outcome<()> {
        if matches!(self.live.get(key), Some(Live { status: Status::Confirmed(_), .. })) {
            return Err("55000");
        }
        self.release(key);
        Ok(())
    }

    pub fn renew(&self, key: &str) -> Outcome<()> {
        match self.live.get(key) {
            Some(Live { status: Status::Pending, .. }) => Ok(()),
            _ => Err("SM005"),
        }
    }

    pub fn free(&mut self, key: &str) -> bool {
        let confirmed = matches!(self.live.get(key), Some(Live { status: Status::Confirmed(_), .. }));
        if confirmed {
            self.release(key);
        }
        confirmed
    }

    pub fn expire(&mut self) -> i64 {
        self.expire_overdue(usize::MAX, None) as i64
    }

    /// Returns shard_key, held and room of each shard.
    pub fn capacity(&self) -> Vec<(String, i64, Option<i64>)> {
        let mut rows: Vec<_> = self
            .shards
            .iter()
            .map(|shard| (shard.key.clone(), shard.held, shard.capacity.map(|c| c - shard.held)))
            .collect();
        rows.sort();
        rows
    }
}
