//! The operations of a writer. Each says beforehand which rows it changes.

use super::model::{Change, Number, Row, Table, Tenant};
use super::route::Session;
use postgres::types::ToSql;

/// A row with its number.
#[derive(Clone, Debug)]
pub struct Numbered {
    pub number: Number,
    pub row: Row,
}

impl Numbered {
    fn changed(&self, table: Table, after: Option<Row>) -> Change {
        Change { table, number: self.number, after }
    }
}

#[derive(Clone, Debug)]
pub enum Op {
    Insert(Numbered),
    Update(Table, Numbered),
    Delete(Numbered),
    /// INSERT .. ON CONFLICT DO UPDATE of a new order.
    UpsertNew(Numbered),
    /// INSERT .. ON CONFLICT DO UPDATE of an existing order.
    UpsertOld(Numbered),
    /// One transaction over both tables inserts an account and its orders.
    FamilyInsert(Numbered, Vec<Numbered>),
    /// One transaction updates an account and its orders.
    FamilyUpdate(Numbered, Vec<Numbered>),
    /// One transaction deletes an account and its orders.
    FamilyDelete(Numbered, Vec<Numbered>),
    /// An update of the primary key.
    Rekey(Numbered),
    /// The row's shard key changes: into the scope of a split, out of it, or within it.
    Retenant(Numbered, Tenant),
    /// Two rows exchange a unique value.
    Exchange(Numbered, Numbered),
    /// The first row's change is committed, the second's rolled back to a savepoint.
    Savepoint(Numbered, Numbered),
}

/// The reason why an operation did not happen.
#[derive(Debug)]
pub enum Failure {
    Database(postgres::Error),
    /// A statement touched no row where there must be one.
    Missed,
}

impl From<postgres::Error> for Failure {
    fn from(error: postgres::Error) -> Failure {
        Failure::Database(error)
    }
}

type Outcome<T = ()> = Result<T, Failure>;

impl Op {
    /// Returns the tenant by which the operation is routed.
    pub fn tenant(&self) -> Tenant {
        match self {
            Op::Insert(order) | Op::Delete(order) | Op::UpsertNew(order) | Op::UpsertOld(order) => {
                order.row.tenant
            }
            Op::Rekey(order) | Op::Retenant(order, _) => order.row.tenant,
            Op::Update(_, row) => row.row.tenant,
            Op::FamilyInsert(account, _) | Op::FamilyUpdate(account, _) | Op::FamilyDelete(account, _) => {
                account.row.tenant
            }
            Op::Exchange(one, _) | Op::Savepoint(one, _) => one.row.tenant,
        }
    }

    /// Returns the changes of a successful operation, without the identities that it will generate.
    pub fn changes(&self) -> Vec<Change> {
        let order = |order: &Numbered, after| order.changed(Table::Orders, after);
        match self {
            Op::Insert(new) | Op::UpsertNew(new) => vec![order(new, Some(new.row.clone()))],
            Op::Update(table, old) => vec![old.changed(*table, Some(old.row.revised()))],
            Op::UpsertOld(old) => vec![order(old, Some(old.row.revised()))],
            Op::Delete(old) => vec![order(old, None)],
            Op::FamilyInsert(account, orders) => family(account, orders, |row| Some(row.clone())),
            Op::FamilyUpdate(account, orders) => family(account, orders, |row| Some(row.revised())),
            Op::FamilyDelete(account, orders) => family(account, orders, |_| None),
            Op::Rekey(old) => vec![order(old, Some(rekeyed(old)))],
            Op::Retenant(old, to) => vec![order(old, Some(retenanted(old, *to)))],
            Op::Exchange(one, two) => {
                let with_code = |row: &Row, code| Row { code, ..row.revised() };
                vec![
                    order(one, Some(with_code(&one.row, two.row.code))),
                    order(two, Some(with_code(&two.row, one.row.code))),
                ]
            }
            Op::Savepoint(kept, _) => vec![order(kept, Some(kept.row.revised()))],
        }
    }

    /// Runs the operation. Returns the changes with the generated identities.
    pub fn run(&self, session: &mut Session, tenants: &[String]) -> Outcome<Vec<Change>> {
        let mut writer = Statements { session, tenants };
        let mut changes = self.changes();
        match self {
            Op::Insert(new) => set_id(&mut changes[0], writer.insert_order(new)?),
            Op::UpsertNew(new) => set_id(&mut changes[0], writer.upsert(&new.row, new.number)?),
            Op::UpsertOld(old) => {
                // The record keeps the id. If the row had been lost, this would insert another one, and the
                // comparison must see that.
                writer.upsert(&old.row.revised(), old.number)?;
            }
            Op::Update(table, old) => writer.update(*table, old)?,
            Op::Delete(old) => writer.delete(Table::Orders, old)?,
            Op::FamilyInsert(account, orders) => {
                writer.transaction(|writer| writer.insert_family(account, orders, &mut changes))?;
            }
            Op::FamilyUpdate(account, orders) => writer.transaction(|writer| {
                writer.update(Table::Accounts, account)?;
                orders.iter().try_for_each(|order| writer.update(Table::Orders, order))
            })?,
            Op::FamilyDelete(account, orders) => writer.transaction(|writer| {
                orders.iter().try_for_each(|order| writer.delete(Table::Orders, order))?;
                writer.delete(Table::Accounts, account)
            })?,
            Op::Rekey(old) => writer.rekey(old)?,
            Op::Retenant(old, to) => writer.retenant(old, *to)?,
            Op::Exchange(one, two) => writer.transaction(|writer| writer.exchange(one, two))?,
            Op::Savepoint(kept, undone) => writer.transaction(|writer| writer.savepoint(kept, undone))?,
        }
        Ok(changes)
    }
}

fn family(account: &Numbered, orders: &[Numbered], after: impl Fn(&Row) -> Option<Row>) -> Vec<Change> {
    let first = account.changed(Table::Accounts, after(&account.row));
    let others = orders.iter().map(|order| order.changed(Table::Orders, after(&order.row)));
    std::iter::once(first).chain(others).collect()
}

/// Returns the row with a new id. It is negative, so that it never equals an identity, and is never used twice.
fn rekeyed(old: &Numbered) -> Row {
    let row = old.row.revised();
    Row { id: Some(-(old.number * 1_000 + i64::from(row.revision))), ..row }
}

/// Returns the row with another tenant. It leaves its account, and gets an id that no order of the other tenant has.
fn retenanted(old: &Numbered, to: Tenant) -> Row {
    Row { tenant: to, account: None, ..rekeyed(old) }
}

fn set_id(change: &mut Change, id: i64) {
    if let Some(row) = &mut change.after {
        row.id = Some(id);
    }
}

/// Returns the UPDATE and DELETE of a table, by tenant, number and the revision that must be there. So they
/// do not silently overwrite a row that went back to an older revision.
fn update_sql(table: Table) -> &'static str {
    match table {
        Table::Accounts => {
            "UPDATE accounts SET revision = $4, amount = $5::text::numeric, details = $6::text::jsonb, changed_at = now()
              WHERE tenant_id = $1 AND ref = $2 AND revision = $3"
        }
        Table::Orders => {
            "UPDATE orders SET revision = $4, amount = $5::text::numeric, details = $6::text::jsonb, changed_at = now()
              WHERE tenant_id = $1 AND ref = $2 AND revision = $3"
        }
    }
}

fn delete_sql(table: Table) -> &'static str {
    match table {
        Table::Accounts => "DELETE FROM accounts WHERE tenant_id = $1 AND ref = $2 AND revision = $3",
        Table::Orders => "DELETE FROM orders WHERE tenant_id = $1 AND ref = $2 AND revision = $3",
    }
}

const INSERT_ACCOUNT: &str = "INSERT INTO accounts (tenant_id, ref, revision, code, amount, details)
     VALUES ($1, $2, $3, $4, $5::text::numeric, $6::text::jsonb) RETURNING id";
const INSERT_ORDER: &str = "INSERT INTO orders (tenant_id, ref, revision, code, amount, details, account_id)
     VALUES ($1, $2, $3, $4, $5::text::numeric, $6::text::jsonb, $7) RETURNING id";
const UPSERT_ORDER: &str = "INSERT INTO orders (tenant_id, ref, revision, code, amount, details, account_id)
     VALUES ($1, $2, $3, $4, $5::text::numeric, $6::text::jsonb, $7)
     ON CONFLICT (tenant_id, ref) DO UPDATE SET revision = excluded.revision, amount = excluded.amount,
         details = excluded.details, changed_at = now()
     WHERE orders.revision = excluded.revision - 1 RETURNING id";
const REKEY: &str =
    "UPDATE orders SET id = $4, revision = $5, amount = $6::text::numeric, details = $7::text::jsonb
     WHERE tenant_id = $1 AND ref = $2 AND revision = $3";
const RETENANT: &str = "UPDATE orders SET id = $4, revision = $5, amount = $6::text::numeric,
         details = $7::text::jsonb, tenant_id = $8, account_id = NULL
     WHERE tenant_id = $1 AND ref = $2 AND revision = $3";
const SET_CODE: &str = "UPDATE orders SET code = $3 WHERE tenant_id = $1 AND ref = $2";

/// The statements of an operation, in one session.
struct Statements<'a> {
    session: &'a mut Session,
    tenants: &'a [String],
}

impl Statements<'_> {
    /// Runs a statement that must affect exactly one row.
    fn touch(&mut self, sql: &'static str, values: &[&(dyn ToSql + Sync)]) -> Outcome {
        let statement = self.session.prepared(sql)?;
        match self.session.client.execute(&statement, values)? {
            0 => Err(Failure::Missed),
            _ => Ok(()),
        }
    }

    fn returning(&mut self, sql: &'static str, values: &[&(dyn ToSql + Sync)]) -> Outcome<i64> {
        let statement = self.session.prepared(sql)?;
        let row = self.session.client.query_opt(&statement, values)?;
        row.map(|row| row.get(0)).ok_or(Failure::Missed)
    }

    fn transaction(&mut self, body: impl FnOnce(&mut Self) -> Outcome) -> Outcome {
        self.session.client.batch_execute("BEGIN")?;
        match body(self) {
            Ok(()) => Ok(self.session.client.batch_execute("COMMIT")?),
            Err(failure) => {
                // This fails as well on a broken connection. The first error is returned.
                let _ = self.session.client.batch_execute("ROLLBACK");
                Err(failure)
            }
        }
    }

    fn insert_order(&mut self, new: &Numbered) -> Outcome<i64> {
        self.insert_like(INSERT_ORDER, &new.row, new.number)
    }

    fn upsert(&mut self, row: &Row, number: Number) -> Outcome<i64> {
        self.insert_like(UPSERT_ORDER, row, number)
    }

    fn insert_like(&mut self, sql: &'static str, row: &Row, number: Number) -> Outcome<i64> {
        let (code, amount, details) = (row.code_text(), row.amount(number), row.details(number));
        let tenant = &self.tenants[row.tenant];
        self.returning(sql, &[tenant, &number, &row.revision, &code, &amount, &details, &row.account])
    }

    fn insert_family(&mut self, account: &Numbered, orders: &[Numbered], changes: &mut [Change]) -> Outcome {
        let Numbered { row, number } = account;
        let (code, amount, details) = (row.code_text(), row.amount(*number), row.details(*number));
        let tenant = &self.tenants[row.tenant];
        let id =
            self.returning(INSERT_ACCOUNT, &[tenant, number, &row.revision, &code, &amount, &details])?;
        set_id(&mut changes[0], id);
        for (order, change) in orders.iter().zip(&mut changes[1..]) {
            let mut order = order.clone();
            order.row.account = Some(id);
            change.after = Some(order.row.clone());
            set_id(change, self.insert_order(&order)?);
        }
        Ok(())
    }

    fn update(&mut self, table: Table, old: &Numbered) -> Outcome {
        let new = old.row.revised();
        let (amount, details) = (new.amount(old.number), new.details(old.number));
        let tenant = &self.tenants[old.row.tenant];
        let values: [&(dyn ToSql + Sync); 6] =
            [tenant, &old.number, &old.row.revision, &new.revision, &amount, &details];
        self.touch(update_sql(table), &values)
    }

    fn delete(&mut self, table: Table, old: &Numbered) -> Outcome {
        let tenant = &self.tenants[old.row.tenant];
        self.touch(delete_sql(table), &[tenant, &old.number, &old.row.revision])
    }

    fn rekey(&mut self, old: &Numbered) -> Outcome {
        let new = rekeyed(old);
        let (amount, details) = (new.amount(old.number), new.details(old.number));
        let tenant = &self.tenants[old.row.tenant];
        let values: [&(dyn ToSql + Sync); 7] =
            [tenant, &old.number, &old.row.revision, &new.id, &new.revision, &amount, &details];
        self.touch(REKEY, &values)
    }

    fn retenant(&mut self, old: &Numbered, to: Tenant) -> Outcome {
        let new = retenanted(old, to);
        let (amount, details) = (new.amount(old.number), new.details(old.number));
        let tenant = &self.tenants[old.row.tenant];
        let values: [&(dyn ToSql + Sync); 8] = [
            tenant,
            &old.number,
            &old.row.revision,
            &new.id,
            &new.revision,
            &amount,
            &details,
            &self.tenants[to],
        ];
        self.touch(RETENANT, &values)
    }

    /// Exchanges two values by way of a third one, because the unique index holds after every statement.
    fn exchange(&mut self, one: &Numbered, two: &Numbered) -> Outcome {
        let tenant = &self.tenants[one.row.tenant];
        let between = format!("{} in exchange", one.row.code_text());
        self.touch(SET_CODE, &[tenant, &one.number, &between])?;
        self.touch(SET_CODE, &[tenant, &two.number, &one.row.code_text()])?;
        self.touch(SET_CODE, &[tenant, &one.number, &two.row.code_text()])?;
        self.update(Table::Orders, one)?;
        self.update(Table::Orders, two)
    }

    fn savepoint(&mut self, kept: &Numbered, undone: &Numbered) -> Outcome {
        self.update(Table::Orders, kept)?;
        self.session.client.batch_execute("SAVEPOINT s")?;
        self.delete(Table::Orders, undone)?;
        Ok(self.session.client.batch_execute("ROLLBACK TO SAVEPOINT s")?)
    }
}
