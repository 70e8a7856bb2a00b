//! A client that writes to one tenant without pause, whatever happens to the servers. It keeps a log of what
//! was acknowledged and of what was never answered.
//!
//! It works on the tables of the fault matrix. Each of its transactions leaves the number of rows unchanged,
//! so a copy must count exactly that many rows, whichever snapshot it uses.

use crate::cluster::Cluster;
use crate::workload::route::Router;
use crate::{Error, Result, wait};
use postgres::Client;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

/// The client uses ids from this one on. Lower ids belong to others.
pub const FIRST_ID: i32 = 100_000;
/// Rows of each table.
pub const ROWS: i32 = 40;
/// The pause between two writes, so that one client does not starve the servers that it watches.
const PACE: Duration = Duration::from_millis(5);
/// A write that has succeeded nowhere for so long has lost its row.
const STUCK: Duration = Duration::from_secs(60);

/// One row of `items` and the row of `notes` that refers to it.
#[derive(Clone, Debug, PartialEq, Eq)]
struct ItemAndNote {
    item: i32,
    note: i32,
    val: String,
}

/// The state of a pair, and the change of it that has no answer, if there is one.
#[derive(Clone, Debug)]
struct Entry {
    is: ItemAndNote,
    perhaps: Option<ItemAndNote>,
}

/// Rows of a table as id and value.
pub type Rows = BTreeMap<i32, String>;

pub struct AckLog {
    stop: Arc<AtomicBool>,
    acknowledged: Arc<AtomicU64>,
    writer: Option<JoinHandle<Result<Vec<Entry>>>>,
}

impl AckLog {
    /// Writes the first rows and starts the client.
    pub fn open(cluster: &Cluster, tenant: &str, keyspace: &'static str) -> Result<AckLog> {
        let config = cluster.client_config();
        let router = Router::new(config, keyspace, Arc::new(vec![tenant.to_owned()]), Vec::new());
        let (stop, acknowledged) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let mut writer = Writer {
            router,
            tenant: tenant.to_owned(),
            entries: Vec::new(),
            next: FIRST_ID,
            stop: stop.clone(),
            acknowledged: acknowledged.clone(),
        };
        writer.first_rows()?;
        let thread = std::thread::spawn(move || writer.run());
        Ok(AckLog { stop, acknowledged, writer: Some(thread) })
    }

    /// Waits until `more` further writes have been acknowledged.
    pub fn wait_for(&self, more: u64, limit: Duration) -> Result<()> {
        let goal = self.acknowledged.load(Ordering::Relaxed) + more;
        wait::until(&format!("{more} more writes of the client"), limit, || {
            let ended = self.writer.as_ref().is_none_or(JoinHandle::is_finished);
            let done = self.acknowledged.load(Ordering::Relaxed) >= goal;
            Ok((done || ended).then_some(()))
        })
    }

    /// Ends the client and closes the log.
    pub fn close(mut self) -> Result<Closed> {
        self.stop.store(true, Ordering::Relaxed);
        let thread = self.writer.take().ok_or("the ack_log is closed already")?;
        let entries = thread.join().map_err(|_| Error::from("the client panicked"))??;
        Ok(Closed { entries })
    }
}

impl Drop for AckLog {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.writer.take() {
            let _ = thread.join();
        }
    }
}

/// What the client has written.
pub struct Closed {
    entries: Vec<Entry>,
}

impl Closed {
    /// Returns how the rows on the shard differ from the log. A write without an answer counts either as a
    /// whole or not at all.
    pub fn differences(&self, items: &Rows, notes: &Rows) -> Vec<String> {
        let mut found = Vec::new();
        let is_there = |pair: &ItemAndNote| {
            items.get(&pair.item) == Some(&pair.val) && notes.get(&pair.note) == Some(&pair.val)
        };
        for entry in &self.entries {
            let places = [Some(&entry.is), entry.perhaps.as_ref()];
            if !places.into_iter().flatten().any(is_there) {
                let item = items.get(&entry.is.item);
                let note = notes.get(&entry.is.note);
                found.push(format!("{entry:?} is item {item:?}, note {note:?}"));
            }
        }
        for (name, rows) in [("items", items), ("notes", notes)] {
            let count = rows.range(FIRST_ID..).count();
            if count != self.entries.len() {
                found.push(format!("{count} {name} of the client instead of {}", self.entries.len()));
            }
        }
        found
    }
}

struct Writer {
    router: Router,
    tenant: String,
    entries: Vec<Entry>,
    next: i32,
    stop: Arc<AtomicBool>,
    acknowledged: Arc<AtomicU64>,
}

/// How a transaction ended.
enum Outcome {
    Committed,
    /// The transaction has certainly changed nothing. Another attempt may succeed.
    Refused(Error),
    /// The answer to its COMMIT was lost.
    Unknown,
}

impl Writer {
    fn id(&mut self) -> i32 {
        self.next += 1;
        self.next
    }

    fn first_rows(&mut self) -> Result<()> {
        for _ in 0..ROWS {
            let pair = ItemAndNote { item: self.id(), note: self.id(), val: "first".into() };
            self.entries.push(Entry { is: pair, perhaps: None });
        }
        let mut statements = Vec::new();
        for Entry { is, .. } in &self.entries {
            statements.extend(insert(&self.tenant, is).into_iter().map(|(sql, _)| sql));
        }
        let session = self.router.session(0)?;
        Ok(session.client.batch_execute(&statements.join("; "))?)
    }

    fn run(mut self) -> Result<Vec<Entry>> {
        let mut turn = 0;
        while !self.stop.load(Ordering::Relaxed) {
            let index = turn % self.entries.len();
            turn += 1;
            if self.entries[index].perhaps.is_some() {
                continue; // the pair's state is unknown, so it is left alone
            }
            self.change(index, turn)?;
            std::thread::sleep(PACE);
        }
        Ok(self.entries)
    }

    /// Changes one pair, and repeats the attempt until a server accepts it.
    fn change(&mut self, index: usize, turn: usize) -> Result<()> {
        let before = self.entries[index].is.clone();
        let (after, statements) = self.plan(&before, turn);
        let deadline = std::time::Instant::now() + STUCK;
        loop {
            match self.attempt(&statements) {
                Outcome::Committed => {
                    self.entries[index].is = after;
                    self.acknowledged.fetch_add(1, Ordering::Relaxed);
                    return Ok(());
                }
                Outcome::Unknown => {
                    self.entries[index].perhaps = Some(after);
                    self.router.forget_session(0);
                    return Ok(());
                }
                Outcome::Refused(error) => {
                    if !may_pass(&error) || std::time::Instant::now() > deadline {
                        return Err(error.context(&format!("the client's change of {before:?}")));
                    }
                    if error.sqlstate().is_none_or(|s| s.starts_with("57P") || s.starts_with("08")) {
                        self.router.forget_session(0);
                    }
                    // The master may be away as well. Then the old route is tried again.
                    let _ = self.router.refresh(0);
                    if self.stop.load(Ordering::Relaxed) {
                        return Ok(());
                    }
                    std::thread::sleep(PACE);
                }
            }
        }
    }

    /// Returns the pair after the change, and the statements with the number of rows that each must change.
    fn plan(&mut self, before: &ItemAndNote, turn: usize) -> (ItemAndNote, Vec<(String, u64)>) {
        let t = self.tenant.clone();
        let val = format!("turn {turn}");
        let ItemAndNote { item, note, .. } = before.clone();
        let same = ItemAndNote { item, note, val: val.clone() };
        let set_item = (format!("UPDATE items SET val = '{val}' WHERE tenant = '{t}' AND id = {item}"), 1);
        let set_note = (format!("UPDATE notes SET val = '{val}' WHERE tenant = '{t}' AND id = {note}"), 1);
        match turn % 4 {
            0 => (same, vec![set_item, set_note]),
            1 => {
                let moved = self.id();
                let key = format!(
                    "UPDATE notes SET id = {moved}, val = '{val}' WHERE tenant = '{t}' AND id = {note}"
                );
                (ItemAndNote { note: moved, ..same }, vec![(key, 1), set_item])
            }
            2 => {
                let pair = ItemAndNote { item: self.id(), note: self.id(), val };
                let delete = format!("DELETE FROM items WHERE tenant = '{t}' AND id = {item}");
                let mut statements = vec![(delete, 1)];
                statements.extend(insert(&t, &pair));
                (pair, statements)
            }
            _ => {
                let upsert = format!(
                    "INSERT INTO items VALUES ('{t}', {item}, '{val}') ON CONFLICT (tenant, id) DO UPDATE SET val = EXCLUDED.val"
                );
                let undone = format!("UPDATE items SET val = 'undone' WHERE tenant = '{t}' AND id = {item}");
                let savepoint = |sql: &str| (sql.to_owned(), 0);
                let statements = vec![
                    set_note,
                    savepoint("SAVEPOINT s"),
                    (undone, 1),
                    savepoint("ROLLBACK TO s"),
                    (upsert, 1),
                ];
                (same, statements)
            }
        }
    }

    fn attempt(&mut self, statements: &[(String, u64)]) -> Outcome {
        let session = match self.router.session(0) {
            Ok(session) => session,
            Err(error) => return Outcome::Refused(error),
        };
        let client = &mut session.client;
        if let Err(error) = execute(client, statements) {
            let _ = client.batch_execute("ROLLBACK");
            return Outcome::Refused(error);
        }
        match client.batch_execute("COMMIT").map_err(Error::from) {
            Ok(()) => Outcome::Committed,
            Err(error) if error.sqlstate().is_some_and(|s| !s.starts_with("57P")) => Outcome::Refused(error),
            Err(_) => Outcome::Unknown,
        }
    }
}

/// Runs the transaction up to its COMMIT. A statement that finds no row has met an old shard.
fn execute(client: &mut Client, statements: &[(String, u64)]) -> Result<()> {
    client.batch_execute("BEGIN")?;
    for (statement, expected) in statements {
        let changed = client.execute(statement.as_str(), &[])?;
        if changed != *expected {
            return Err(format!("{statement}: {changed} rows").into());
        }
    }
    Ok(())
}

fn insert(tenant: &str, pair: &ItemAndNote) -> Vec<(String, u64)> {
    let ItemAndNote { item, note, val } = pair;
    vec![
        (format!("INSERT INTO items VALUES ('{tenant}', {item}, '{val}')"), 1),
        (format!("INSERT INTO notes VALUES ('{tenant}', {note}, {item}, '{val}')"), 1),
    ]
}

/// Whether the error is a broken connection, or one that a split asks its clients to retry. The client itself
/// causes no deadlock and violates no key.
fn may_pass(error: &Error) -> bool {
    error.sqlstate().is_none_or(|s| {
        s.starts_with("57P") || s.starts_with("08") || ["SM001", "SM002", "40001"].contains(&s)
    })
}
