//! One client: a closed loop of operations on its own rows.

use super::model::{Change, Ledger, Number, Row, Table, Tenant, mix};
use super::op::{Failure, Numbered, Op};
use super::route::Router;
use super::{Mix, Shared};
use crate::Error;
use crate::random::Random;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// An operation is given up after this time, because something hangs.
const PATIENCE: Duration = Duration::from_secs(60);

/// One acknowledged operation.
#[derive(Clone, Copy, Debug)]
pub struct Ack {
    /// The time since the start of the workload.
    pub at: Duration,
    /// The time from the first attempt on.
    pub took: Duration,
    pub moving: bool,
}

/// The record of a writer.
#[derive(Default)]
pub struct Record {
    pub ledger: Ledger,
    pub acks: Vec<Ack>,
    /// Errors by SQLSTATE, or "connection" if the connection was lost.
    pub errors: BTreeMap<String, u64>,
    /// Errors that no client should see, and rows that a statement did not find.
    pub unexpected: Vec<String>,
}

/// An account with its orders, which are inserted and deleted together.
#[derive(Clone)]
struct Family {
    account: Number,
    orders: Vec<Number>,
}

pub struct Writer {
    shared: Arc<Shared>,
    router: Router,
    mix: Mix,
    record: Record,
    random: Random,
    next: Number,
    stride: Number,
    orders: Vec<Number>,
    accounts: Vec<Number>,
    families: Vec<Family>,
    parents: Arc<HashMap<Tenant, Vec<i64>>>,
}

/// What to do after a failed attempt.
enum Next {
    Retry,
    Drop,
}

impl Writer {
    /// `number` is one of `Shared::writers`, and `ledger` has the rows that it owns.
    pub fn new(number: usize, next: Number, router: Router, ledger: Ledger, shared: Arc<Shared>) -> Writer {
        let owned = |table| {
            let mut all: Vec<Number> =
                ledger.iter().filter(|(of, ..)| *of == table).map(|(_, n, _)| n).collect();
            all.sort_unstable();
            all
        };
        let (orders, accounts) = (owned(Table::Orders), owned(Table::Accounts));
        Writer {
            router,
            mix: shared.mix,
            random: Random::new(mix(number as i64, 7) ^ shared.seed),
            next: next + number as Number,
            stride: shared.writers as Number,
            orders,
            accounts,
            families: Vec::new(),
            parents: shared.parents.clone(),
            record: Record { ledger, ..Record::default() },
            shared,
        }
    }

    /// Works until the workload is stopped.
    pub fn run(mut self) -> Record {
        while !self.shared.stop.load(Ordering::Relaxed) {
            if let Some(op) = self.choose() {
                self.perform(op);
            }
            if !self.shared.pause.is_zero() {
                std::thread::sleep(self.shared.pause);
            }
        }
        self.record
    }

    fn roll(&mut self, below: usize) -> usize {
        self.random.below(below)
    }

    fn new_row(&mut self, tenant: Tenant) -> Numbered {
        let number = self.next;
        self.next += self.stride;
        let accounts = self.parents.get(&tenant).map_or(&[][..], Vec::as_slice);
        let account = accounts.get(mix(number, 5) as usize % accounts.len().max(1)).copied();
        Numbered { number, row: Row::new(tenant, number, account) }
    }

    /// Chooses a known row of a list. Returns `None` if the list is empty.
    fn pick(&mut self, table: Table, from: fn(&Writer) -> &Vec<Number>) -> Option<Numbered> {
        let length = from(self).len();
        let index = self.roll(length);
        let number = *from(self).get(index)?;
        let row = self.record.ledger.row(table, number)?.clone();
        Some(Numbered { number, row })
    }

    fn pick_order(&mut self) -> Option<Numbered> {
        self.pick(Table::Orders, |w| &w.orders)
    }

    /// Chooses another order of the same tenant, if a few draws find one.
    fn pick_beside(&mut self, one: &Numbered) -> Option<Numbered> {
        (0..200).find_map(|_| {
            self.pick_order().filter(|two| two.number != one.number && two.row.tenant == one.row.tenant)
        })
    }

    fn pick_family(&mut self) -> Option<(Numbered, Vec<Numbered>)> {
        let index = self.roll(self.families.len());
        let family = self.families.get(index)?.clone();
        let numbered = |table, number| {
            let row = self.record.ledger.row(table, number)?.clone();
            Some(Numbered { number, row })
        };
        let orders: Option<Vec<_>> = family.orders.iter().map(|n| numbered(Table::Orders, *n)).collect();
        Some((numbered(Table::Accounts, family.account)?, orders?))
    }

    fn any_tenant(&mut self) -> Tenant {
        let tenants = self.shared.tenants.len();
        self.roll(tenants)
    }

    fn choose(&mut self) -> Option<Op> {
        if self.mix.special > 0 && self.roll(100) < self.mix.special {
            return self.choose_special();
        }
        match self.roll(100) {
            0..22 => {
                let tenant = self.any_tenant();
                Some(Op::Insert(self.new_row(tenant)))
            }
            22..50 => self.pick_order().map(|row| Op::Update(Table::Orders, row)),
            50..55 => self.pick(Table::Accounts, |w| &w.accounts).map(|row| Op::Update(Table::Accounts, row)),
            55..65 => self.pick_order().map(Op::Delete),
            65..72 => {
                let tenant = self.any_tenant();
                Some(Op::UpsertNew(self.new_row(tenant)))
            }
            72..80 => self.pick_order().map(Op::UpsertOld),
            80..88 => {
                let tenant = self.any_tenant();
                let mut account = self.new_row(tenant);
                account.row.account = None;
                let orders = (0..2).map(|_| self.new_row(tenant)).collect();
                Some(Op::FamilyInsert(account, orders))
            }
            88..94 => self.pick_family().map(|(account, orders)| Op::FamilyUpdate(account, orders)),
            _ => self.pick_family().map(|(account, orders)| Op::FamilyDelete(account, orders)),
        }
    }

    /// Chooses one of the operations that are hard to move, if the workload asks for them.
    fn choose_special(&mut self) -> Option<Op> {
        let order = self.pick_order()?;
        match self.roll(4) {
            0 => Some(Op::Rekey(order)),
            1 if self.mix.retenant => {
                let to = self.any_tenant();
                self.same_place(order.row.tenant, to).then_some(Op::Retenant(order, to))
            }
            2 => self.pick_beside(&order).map(|other| Op::Exchange(order, other)),
            _ => self.pick_beside(&order).map(|other| Op::Savepoint(order, other)),
        }
    }

    /// Whether both tenants are routed to the same shard, which a statement needs.
    fn same_place(&mut self, from: Tenant, to: Tenant) -> bool {
        // Cached routes may be old. Asking again makes a wrong guess rare, and a shard that no longer has one
        // of the tenants refuses.
        let shards = (self.router.refresh(from), self.router.refresh(to));
        if shards.0.is_err() || shards.1.is_err() {
            return false;
        }
        match (self.router.route(from), self.router.route(to)) {
            (Ok(one), Ok(two)) => from != to && one.shard == two.shard,
            _ => false,
        }
    }

    /// Repeats an operation until it is acknowledged, in doubt or hopeless.
    fn perform(&mut self, op: Op) {
        let started = Instant::now();
        let tenant = op.tenant();
        let mut pause = Duration::from_millis(1);
        loop {
            let outcome = match self.router.session(tenant) {
                Ok(session) => op.run(session, &self.shared.tenants),
                Err(error) => {
                    self.count(error.sqlstate());
                    self.router.forget_session(tenant);
                    if self.gave_up(started, &op, &error) {
                        return;
                    }
                    std::thread::sleep(pause);
                    pause = (pause * 2).min(Duration::from_millis(100));
                    continue;
                }
            };
            match outcome {
                Ok(changes) => return self.acknowledge(&op, changes, started),
                Err(failure) => match self.after(failure, &op, started) {
                    Next::Drop => return,
                    Next::Retry => {
                        std::thread::sleep(pause);
                        pause = (pause * 2).min(Duration::from_millis(20));
                    }
                },
            }
        }
    }

    fn acknowledge(&mut self, op: &Op, changes: Vec<Change>, started: Instant) {
        self.enlist(op, &changes);
        for change in changes {
            self.record.ledger.acknowledged(change);
        }
        let moving = self.shared.moving.contains(&op.tenant());
        let ack = Ack { at: self.shared.started.elapsed(), took: started.elapsed(), moving };
        self.record.acks.push(ack);
        self.shared.acknowledged.fetch_add(1, Ordering::Relaxed);
    }

    /// Updates the lists of rows to choose from.
    fn enlist(&mut self, op: &Op, changes: &[Change]) {
        match op {
            Op::Insert(new) | Op::UpsertNew(new) => self.orders.push(new.number),
            Op::FamilyInsert(account, orders) => {
                let orders = orders.iter().map(|order| order.number).collect();
                self.families.push(Family { account: account.number, orders });
            }
            Op::Delete(_) | Op::FamilyDelete(..) => self.delist(changes),
            Op::Update(..) | Op::UpsertOld(_) | Op::FamilyUpdate(..) => {}
            Op::Rekey(_) | Op::Retenant(..) | Op::Exchange(..) | Op::Savepoint(..) => {}
        }
    }

    fn delist(&mut self, changes: &[Change]) {
        for Change { table, number, .. } in changes {
            let list = match table {
                Table::Orders => &mut self.orders,
                Table::Accounts => &mut self.accounts,
            };
            if let Some(index) = list.iter().position(|n| n == number) {
                list.swap_remove(index);
            }
            if let Some(index) =
                self.families.iter().position(|f| f.account == *number || f.orders.contains(number))
            {
                self.families.swap_remove(index);
            }
        }
    }

    fn after(&mut self, failure: Failure, op: &Op, started: Instant) -> Next {
        let error = match failure {
            Failure::Missed => return self.after_missed(op),
            Failure::Database(error) => Error::from(error),
        };
        self.count(error.sqlstate());
        match error.sqlstate() {
            // The other tenant may be the one that moved. Then the operation is not possible.
            Some("SM001" | "SM002") if matches!(op, Op::Retenant(..)) => return Next::Drop,
            Some("SM001" | "SM002") => {
                // The route comes from the master. Its own errors are worth a retry.
                if let Err(error) = self.router.refresh(op.tenant()) {
                    self.count(error.sqlstate());
                }
            }
            Some("40001" | "40P01" | "55P03") => {}
            Some(code) if !code.starts_with("57P") && !code.starts_with("08") => {
                self.unexpected(format!("{error} in {}", summary(op)));
                self.delist(&op.changes());
                return Next::Drop;
            }
            _ => {
                self.router.forget_session(op.tenant());
                self.doubt(op);
                return Next::Drop;
            }
        }
        if self.gave_up(started, op, &error) { Next::Drop } else { Next::Retry }
    }

    /// A row was missing. Either the tenant has moved and its rows on the old shard are gone, which no
    /// trigger can tell, or the row is lost.
    fn after_missed(&mut self, op: &Op) -> Next {
        match self.router.refresh(op.tenant()) {
            Ok(true) => Next::Retry,
            Ok(false) => {
                self.unexpected(format!("no row for {}", summary(op)));
                self.delist(&op.changes());
                Next::Drop
            }
            Err(error) => {
                self.count(error.sqlstate());
                Next::Retry
            }
        }
    }

    /// The answer was lost with the connection.
    fn doubt(&mut self, op: &Op) {
        let changes = op.changes();
        self.delist(&changes);
        for change in changes {
            self.record.ledger.in_doubt(change);
        }
    }

    fn gave_up(&mut self, started: Instant, op: &Op, error: &Error) -> bool {
        let hopeless = started.elapsed() > PATIENCE;
        if hopeless {
            self.unexpected(format!("gave up after {PATIENCE:?}: {error} in {}", summary(op)));
        }
        hopeless || (self.shared.stop.load(Ordering::Relaxed) && self.shared.abandon.load(Ordering::Relaxed))
    }

    fn count(&mut self, sqlstate: Option<&str>) {
        *self.record.errors.entry(sqlstate.unwrap_or("connection").to_owned()).or_default() += 1;
    }

    fn unexpected(&mut self, what: String) {
        self.shared.unexpected.fetch_add(1, Ordering::Relaxed);
        self.record.unexpected.push(what);
    }
}

/// Describes an operation in a few words.
fn summary(op: &Op) -> String {
    let text = format!("{op:?}");
    text.chars().take(160).collect()
}
