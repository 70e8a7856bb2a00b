//! One client: transactions of a few operations each, on one shard.

use super::tables::{ACCOUNTS, LISTS, REGISTERS, name};
use super::{Element, Key, Kind, Op, Outcome, Tenant, Transaction};
use crate::random::Random;
use crate::workload::route::{Router, Session};
use crate::{Error, Result};
use std::time::Instant;

/// An operation that a transaction is going to run.
enum Plan {
    Append(Key),
    Read(Key),
    Set(Key),
    Get(Key),
    Sum(Tenant),
    Transfer(Tenant),
}

impl Plan {
    fn tenant(&self) -> Tenant {
        match self {
            Plan::Append(key) | Plan::Read(key) | Plan::Set(key) | Plan::Get(key) => key.tenant,
            Plan::Sum(tenant) | Plan::Transfer(tenant) => *tenant,
        }
    }

    fn writes(&self) -> bool {
        matches!(self, Plan::Append(_) | Plan::Set(_) | Plan::Transfer(_))
    }
}

pub struct Client {
    pub router: Router,
    pub random: Random,
    pub tenants: usize,
    /// The last element that it wrote. No other client writes the same elements.
    pub element: Element,
}

impl Client {
    /// Runs one transaction and returns it with its outcome. Errors that may be refused temporarily are no failure.
    pub fn transaction(&mut self) -> Result<Transaction> {
        let began = Instant::now();
        let plan = self.plan();
        let mut ops = Vec::new();
        let outcome = match self.execute(&plan, &mut ops) {
            Ok(()) => self.commit(plan[0].tenant()),
            Err(error) => {
                self.refused(&plan, error)?;
                Outcome::Aborted
            }
        };
        Ok(Transaction { began, ended: Instant::now(), ops, outcome })
    }

    /// Plans a transaction on one tenant, or on two tenants that are on one shard.
    fn plan(&mut self) -> Vec<Plan> {
        let first = self.random.below(self.tenants);
        let second = if self.random.percent(40) { self.random.below(self.tenants) } else { first };
        let reads_only = self.random.percent(20);
        (0..self.random.below(4) + 1)
            .map(|n| {
                let tenant = if n % 2 == 0 { first } else { second };
                let list = Key { tenant, kind: Kind::List, id: self.random.below(LISTS as usize) as i32 };
                let register =
                    Key { tenant, kind: Kind::Register, id: self.random.below(REGISTERS as usize) as i32 };
                match self.random.below(if reads_only { 4 } else { 10 }) {
                    0 | 1 => Plan::Read(list),
                    2 => Plan::Get(register),
                    3 => Plan::Sum(tenant),
                    4..7 => Plan::Append(list),
                    7 | 8 => Plan::Set(register),
                    _ => Plan::Transfer(tenant),
                }
            })
            .collect()
    }

    fn execute(&mut self, plan: &[Plan], ops: &mut Vec<Op>) -> Result<()> {
        // A shard refuses writes that it must not take. For tenants that are only read, the route is requested anew.
        for tenant in plan.iter().map(Plan::tenant) {
            if !plan.iter().any(|one| one.tenant() == tenant && one.writes()) {
                self.router.refresh(tenant)?;
            }
        }
        let home = plan[0].tenant();
        let place = self.router.route(home)?.shard;
        let session = self.router.session(home)?;
        session.client.batch_execute("BEGIN")?;
        for one in plan {
            if self.router.route(one.tenant())?.shard == place {
                self.operate(home, one, ops)?;
            }
        }
        Ok(())
    }

    fn operate(&mut self, home: Tenant, plan: &Plan, ops: &mut Vec<Op>) -> Result<()> {
        let tenant = name(plan.tenant());
        self.element += 1;
        let element = self.element;
        let (from, to) =
            (self.random.below(ACCOUNTS as usize) as i32, self.random.below(ACCOUNTS as usize) as i32);
        let session = self.router.session(home)?;
        match plan {
            Plan::Append(key) => {
                ops.push(Op::Append(*key, element));
                let sql = "UPDATE lists SET elements = elements || $3::bigint WHERE tenant = $1 AND id = $2";
                let statement = session.prepared(sql)?;
                one_row(session.client.execute(&statement, &[&tenant, &key.id, &element])?)
            }
            Plan::Read(key) => {
                let list = value(
                    session,
                    "SELECT elements FROM lists WHERE tenant = $1 AND id = $2",
                    &tenant,
                    key.id,
                )?;
                ops.push(Op::Read(*key, list));
                Ok(())
            }
            Plan::Set(key) => {
                let sql = "UPDATE registers SET value = $3, before = value WHERE tenant = $1 AND id = $2 RETURNING before";
                let statement = session.prepared(sql)?;
                let row = session.client.query_opt(&statement, &[&tenant, &key.id, &element])?;
                ops.push(Op::Set(*key, element, row.ok_or_else(no_row)?.get(0)));
                Ok(())
            }
            Plan::Get(key) => {
                let sql = "SELECT value FROM registers WHERE tenant = $1 AND id = $2";
                ops.push(Op::Get(*key, value(session, sql, &tenant, key.id)?));
                Ok(())
            }
            Plan::Sum(number) => {
                let sql = "SELECT sum(balance)::bigint FROM accounts WHERE tenant = $1";
                let statement = session.prepared(sql)?;
                let sum: Option<i64> = session.client.query_one(&statement, &[&tenant])?.get(0);
                ops.push(Op::Sum(*number, sum.ok_or_else(no_row)?));
                Ok(())
            }
            Plan::Transfer(_) => {
                ops.push(Op::Transfer);
                for (id, amount) in [(from, -7i64), (to, 7)] {
                    let sql = "UPDATE accounts SET balance = balance + $3 WHERE tenant = $1 AND id = $2";
                    let statement = session.prepared(sql)?;
                    one_row(session.client.execute(&statement, &[&tenant, &id, &amount])?)?;
                }
                Ok(())
            }
        }
    }

    fn commit(&mut self, home: Tenant) -> Outcome {
        let Ok(session) = self.router.session(home) else { return Outcome::Unknown };
        match session.client.batch_execute("COMMIT").map_err(Error::from) {
            Ok(()) => Outcome::Committed,
            Err(error) if error.sqlstate().is_some_and(|s| !s.starts_with("57P")) => Outcome::Aborted,
            Err(_) => {
                self.router.forget_session(home);
                Outcome::Unknown
            }
        }
    }

    fn refused(&mut self, plan: &[Plan], error: Error) -> Result<()> {
        const MAY_PASS: [&str; 4] = ["SM001", "SM002", "40001", "40P01"];
        let home = plan[0].tenant();
        let state = error.sqlstate();
        let is_lost = state.is_none_or(|s| s.starts_with("57P") || s.starts_with("08"));
        let is_old = error.to_string().contains(NO_ROW);
        if !is_lost && !is_old && !state.is_some_and(|s| MAY_PASS.contains(&s)) {
            return Err(error);
        }
        let ended =
            self.router.session(home).is_ok_and(|session| session.client.batch_execute("ROLLBACK").is_ok());
        if !ended {
            self.router.forget_session(home);
        }
        // The master may be away as well.
        for tenant in plan.iter().map(Plan::tenant) {
            let _ = self.router.refresh(tenant);
        }
        Ok(())
    }
}

/// The error of a missing row, which means that the client met an old shard.
const NO_ROW: &str = "the row is not there";

fn no_row() -> Error {
    Error::from(NO_ROW)
}

fn one_row(count: u64) -> Result<()> {
    if count == 1 { Ok(()) } else { Err(no_row()) }
}

fn value<T: for<'a> postgres::types::FromSql<'a>>(
    session: &mut Session,
    sql: &'static str,
    tenant: &str,
    id: i32,
) -> Result<T> {
    let statement = session.prepared(sql)?;
    let row = session.client.query_opt(&statement, &[&tenant, &id])?;
    Ok(row.ok_or_else(no_row)?.get(0))
}
